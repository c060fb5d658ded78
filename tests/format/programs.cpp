// kaiju-make, kaiju-inspect and kaiju-bench as a person or a script meets them: exit status, one line on stderr, output
// that parses.
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tuple>
#include <vector>

#include "catch.hpp"
#include "kaiju/run/executors.hpp"
#include "tests/capi/tiny_model.hpp"
#include "tests/text/tiny_tokenizer.hpp"
#include "tiny.hpp"

namespace {

struct Run {
  int status;
  std::string out, err;
};

Run run(const tiny::Folder& folder, const std::string& program, const std::string& arguments) {
  const std::string path = std::string(KAIJU_PROGRAM_DIR) + "/" + program;
  INFO("build " << program << " first");
  REQUIRE(std::filesystem::exists(path));
  const std::string command =
      "'" + path + "' " + arguments + " >'" + (folder / "out") + "' 2>'" + (folder / "err") + "'";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, tiny::read_file(folder / "out"),
          tiny::read_file(folder / "err")};
}

void fails(const Run& run, const std::string& part) {
  INFO(run.err);
  CHECK(run.status > 0);
  CHECK(run.status < 128);
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  CHECK(tiny::contains(run.err, part));
  CHECK(run.out.empty());
}

}  // namespace

TEST_CASE("kaiju-inspect verifies and shows a checkpoint that kaiju-make wrote") {
  const tiny::Folder folder;
  const std::string path = folder / "nano";
  const Run made = run(folder, "kaiju-make", "--preset nano --layers 4 --seed 3 --out '" + path + "'");
  INFO(made.err);
  REQUIRE(made.status == 0);
  CHECK(made.err.empty());

  const Run text = run(folder, "kaiju-inspect", "'" + path + "'");
  CHECK(text.status == 0);
  for (const char* part : {"kaiju-nano", "version 1", "3 sliding, 1 global", "KV per token, global  128 B",
                           "layers.3.ffn.down.weight", "512 x 1536"}) {
    INFO(part << "\n" << text.out);
    CHECK(tiny::contains(text.out, part));
  }

  const size_t after_tensors = text.out.find("\n\n") + 2;
  const Run summary = run(folder, "kaiju-inspect", "'" + path + "' --summary");
  CHECK(summary.status == 0);
  CHECK(tiny::contains(text.out.substr(0, after_tensors), "layers.3.ffn.down.weight"));
  CHECK(summary.out == text.out.substr(after_tensors));  // the end of what a terminal shows
  CHECK(summary.out.starts_with("kaiju-nano\n"));
  fails(run(folder, "kaiju-inspect", "'" + path + "' --summary --json"), "--json");

  const Run json = run(folder, "kaiju-inspect", "'" + path + "' --json");
  REQUIRE(json.status == 0);
  const auto parsed = nlohmann::json::parse(json.out);
  const auto opened = kaiju::Checkpoint::open(path);
  REQUIRE(opened.ok());
  CHECK(parsed["digest"] == opened.value()->digest());
  CHECK(parsed["verified"] == true);
  CHECK(parsed["config"]["layers"].size() == 4);
  CHECK(parsed["kv_bytes_per_token"] == 128);
  CHECK(parsed["kv_bytes_per_window"] == 128 * 1024);
  CHECK(parsed["tensors"].size() == opened.value()->tensors().size());
}

TEST_CASE("kaiju-make that is interrupted half-way leaves no file") {
  const tiny::Folder folder;
  const std::string making =
      std::string("'") + KAIJU_PROGRAM_DIR + "/kaiju-make' --preset small --layers 2 --out x 2>err";
  const std::string begun = "while kill -0 $! && ! ls -A | grep -q tmp; do sleep 0.01; done";
  const int status = std::system(
      ("cd '" + (folder / "") + "' && { " + making + " & " + begun + "; kill -TERM $!; wait $!; }").c_str());
  CHECK(WEXITSTATUS(status) == 1);
  CHECK(tiny::contains(tiny::read_file(folder / "err"), "no part of the file is left"));
  CHECK(folder.file_count() == 1);
}

TEST_CASE("kaiju-bench measures into JSON, on the CPU and, if there is one, on a GPU") {
  const tiny::Folder folder;
  const std::string model = "'" + std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors'";
  std::vector<std::string> backends{"portable"};
  if (kaiju::backend_names().front() == "cuda") backends.push_back("cuda");
  for (const std::string& backend : backends) {
    const auto measured = [&](const std::string& arguments) {
      const Run bench = run(folder, "kaiju-bench", arguments + " --threads 1 --backend " + backend + " --json");
      INFO(bench.err);
      REQUIRE(bench.status == 0);
      return nlohmann::json::parse(bench.out);
    };
    for (const auto& found :
         {measured("ops --only norm --rows 1,2 --seconds 0.001 --buffer-mib 64"),
          measured("step " + model + " --prompts 16 --streams 1,2 --context 32 --seconds 0.001 --buffer-mib 64")}) {
      CHECK(found["ceilings"].is_object());
      CHECK(found["lines"].size() >= 3);
      for (const auto& line : found["lines"]) {
        CHECK(line["microseconds"] > 0);
        CHECK(line["rate"] > 0);
        for (const char* word : {"group", "operation", "shape", "unit", "ceiling"}) CHECK(line[word].is_string());
      }
    }
    const auto served = measured(
        "serve " + model +
        " --conversations 2 --characters 1 --turns 1 --prompt-tokens 32 --user-tokens 8 --reply-tokens 2 --check 2");
    CHECK(served["generated"] == 4);
    CHECK(served["replies_checked"] == 2);
    for (const char* times : {"first_token_ms", "between_tokens_ms"})
      for (const char* at : {"p50", "p90", "p99", "max"}) CHECK(served[times][at] > 0);
  }
}

TEST_CASE("kaiju-bench ops lists the operations if --only matches none") {
  const tiny::Folder folder;
  const Run bench = run(folder, "kaiju-bench",
                        "ops --only nonsense --threads 1 --rows 1 --seconds 0.001 --buffer-mib 64 --backend portable");
  CHECK(bench.status == 2);
  fails(bench, "--only nonsense: there are \"linear q\", \"linear k\"");
}

TEST_CASE("kaiju-bench serve names the backend that it used, and reports later turns only if there are any") {
  const tiny::Folder folder;
  const std::string serve = "serve '" + std::string(KAIJU_SOURCE_DIR) +
                            "/examples/chat/model/kaiju-nano.safetensors' --conversations 1 --characters 1 "
                            "--prompt-tokens 16 --user-tokens 4 --reply-tokens 2 --check 0 --turns ";
  const Run one = run(folder, "kaiju-bench", serve + "1"), two = run(folder, "kaiju-bench", serve + "2 --json");
  INFO(one.out << two.out);
  REQUIRE((one.status == 0 && two.status == 0));
  CHECK(tiny::contains(one.out, "kaiju-nano, " + kaiju::backend_names().front() + ": 1 conversations"));
  CHECK(!tiny::contains(one.out, "in later turns"));
  CHECK(nlohmann::json::parse(two.out)["backend"] == kaiju::backend_names().front());
}

TEST_CASE("kaiju-bench replay says so when no request was measured, and when a request does not fit the memory") {
  const tiny::Folder folder;
  tiny::write_file(folder / "none", "\n");
  fails(run(folder, "kaiju-bench", "replay --trace '" + (folder / "none") + "'"),
        "no request arrives in the measured time");
  fails(run(folder, "kaiju-bench", "replay --conversations 1 --characters 1 --hours 0.001"), "ask for more --hours");
  const Run bench = run(folder, "kaiju-bench", "replay --conversations 10 --characters 2 --hours 1 --memory 0.05");
  fails(bench, "--memory 0.05 is too little");
  CHECK(tiny::contains(bench.err, "in one memory, which"));
}

TEST_CASE("kaiju-bench hour says so when no message arrives in the counted time") {
  const tiny::Folder folder;
  const Run bench = run(folder, "kaiju-bench",
                        "hour '" + std::string(KAIJU_SOURCE_DIR) +
                            "/examples/chat/model/kaiju-nano.safetensors' --conversations 1 --characters 1 "
                            "--prompt-tokens 8 --user-tokens 4 --reply-tokens 2 --every-seconds 1000 "
                            "--settle-seconds 0 --seconds 0.001 --threads 1 --json");
  CHECK(bench.status == 1);
  CHECK(bench.out.empty());
  CHECK(tiny::contains(bench.err, "no message of 1 conversation arrives in the counted 0.001 seconds"));
}

TEST_CASE("kaiju-bench peers runs every program in turns, divides the speeds of one round, and leaves out what fails") {
  const tiny::Folder folder;
  const auto peers = [&](const std::string& more) {
    return run(
        folder, "kaiju-bench",
        "peers '" + (folder / "fair") + "' --threads 1 --rounds 3 --prompt 16 --context 16 --seconds 0.001 " + more);
  };
  fails(peers(""), "is no folder");
  std::filesystem::create_directories(folder / "fair/other");
  fails(peers(""), "has no file *.safetensors");
  std::filesystem::create_symlink(std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors",
                                  folder / "fair/model.safetensors");
  fails(peers(""), "has no subfolder with a program llama-bench");
  tiny::write_file(folder / "fair/other/model.gguf", "");
  const std::string program = folder / "fair/other/llama-bench";
  tiny::write_file(program,
                   "#!/bin/sh\necho \"$@\" >> \"$0.said\"\n"
                   "echo '[{\"n_prompt\": 16, \"n_gen\": 0, \"avg_ts\": 2.0}, '\n"
                   "echo '{\"n_prompt\": 0, \"n_gen\": 64, \"avg_ts\": 0.5}]'\n");
  const Run all_fail = peers("");
  CHECK(all_fail.status == 1);
  CHECK(tiny::contains(all_fail.err, "other is left out: this command failed"));
  CHECK(tiny::contains(all_fail.err, "every peer failed"));
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  tiny::write_file(folder / "fair/other/options", "-fa 1\n");
  const Run bench = peers("");
  INFO(bench.out << bench.err);
  REQUIRE(bench.status == 0);
  CHECK(tiny::contains(bench.out, "2.0 (2.0 to 2.0)"));
  CHECK(tiny::contains(bench.out, "0.5 (0.5 to 0.5)"));
  std::ifstream said(program + ".said");
  std::string line;
  int rounds = 0;
  while (std::getline(said, line)) {
    ++rounds;
    CHECK(tiny::contains(line, "-t 1 -p 16 -n 64 -o json -fa 1"));
  }
  CHECK(rounds == 3);
  said.close();

  fails(peers("--streams 2,4"), "has no program llama-batched-bench");
  const std::string batched = folder / "fair/other/llama-batched-bench";
  tiny::write_file(
      batched,
      "#!/bin/sh\necho \"$@\" >> \"$0.said\"\necho '|    PP |     TG |    B |' >&2\n"
      "echo '|-------|--------|------|' >&2\n"
      "echo '|     1 |     64 |    2 |    130 |    1.000 |     4.00 |    2.000 |     6.50 |    3.0 | 9.0 |' >&2\n"
      "echo '|     1 |     64 |    4 |    260 |    1.000 |     4.00 |    2.000 |     8.50 |    3.0 | 9.0 |'\n");
  std::filesystem::permissions(batched, std::filesystem::perms::owner_all);
  std::filesystem::create_directories(folder / "fair/broken");
  tiny::write_file(folder / "fair/broken/model.gguf", "");
  for (const char* name : {"fair/broken/llama-bench", "fair/broken/llama-batched-bench"}) {
    tiny::write_file(folder / name, "#!/bin/sh\necho no such tile >&2\nexit 3\n");
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }
  const Run together = peers("--streams 2,4");
  INFO(together.out << together.err);
  REQUIRE(together.status == 0);
  for (const char* line : {"decode of 2 ", "6.5 (6.5 to 6.5)", "decode of 4 ", "8.5 (8.5 to 8.5)"})
    CHECK(tiny::contains(together.out, line));
  CHECK(tiny::contains(together.out, "broken                failed"));
  CHECK(tiny::contains(together.err, "broken is left out: this command failed"));
  CHECK(tiny::contains(together.err, "no such tile"));
  said.open(batched + ".said");
  REQUIRE(std::getline(said, line));
  CHECK(tiny::contains(line, "-t 1 -c 260 -npp 1 -ntg 64 -npl 2,4"));
}

TEST_CASE("kaiju-bench cache measures as many rows as it takes") {
  const tiny::Folder folder;
  const Run bench = run(folder, "kaiju-bench", "cache --blocks 4096 --rows 2100 --seconds 0 --json");
  INFO(bench.err);
  REQUIRE(bench.status == 0);
  for (const auto& figure : nlohmann::json::parse(bench.out)["figures"]) CHECK(figure["value"] < 1e9);
}

TEST_CASE("kaiju-bench step times models of any shape in steps of any size") {
  const tiny::Folder folder;
  using kaiju::LayerKind, kaiju::ModelConfig;
  const auto timed = [&](const ModelConfig& config, const std::string& options) {
    REQUIRE(kaiju::write_random_checkpoint(folder / "model", config, 1).ok());
    return run(
        folder, "kaiju-bench",
        "step '" + (folder / "model") + "' --threads 1 --backend portable --seconds 0.0001 --buffer-mib 64 " + options);
  };
  const auto succeeds = [&](const ModelConfig& config, const std::string& options, const char* part) {
    const Run bench = timed(config, options);
    INFO(options << "\n" << bench.err << bench.out);
    CHECK(bench.status == 0);
    CHECK(tiny::contains(bench.out, part));
  };
  ModelConfig windows = tiny::config(), global = tiny::config(), small = tiny::config();
  windows.layers = {tiny::config().layers[0]};
  global.layers = {{LayerKind::kGlobal, 0, 0, 0}};
  for (ModelConfig* config : {&windows, &global}) config->derive_counts();
  succeeds(tiny::config(), "--chunk 1 --streams 1 --prompts 16 --context 16", "16 tokens");
  succeeds(tiny::config(), "--chunk 16 --streams 2 --prompts 16 --context 16 --after 16,40", "40 tokens after 16");
  for (const ModelConfig& config : {windows, global})
    succeeds(config, "--streams 1 --prompts 16 --context 16 --moved 2", "2 down and up");
  small.context = 40;
  succeeds(small, "--streams 1", "context 1");
  succeeds(small, "--streams 1 --context 39 --prompts 40", "context 39");
  fails(timed(small, "--context 40"), "the model's context is 40: choose --context at most 39");
  small.context = 1;
  fails(timed(small, ""), "the model's context of 1 has no position for a decode step");
}

TEST_CASE("the help of every kaiju-bench subcommand has examples and the defaults of lists") {
  const tiny::Folder folder;
  for (const std::string part :
       {"ops", "step", "cache", "replay", "serve", "hour", "policies", "chains", "fleet", "peers"}) {
    const Run help = run(folder, "kaiju-bench", part + " --help");
    INFO(help.out);
    for (size_t at = help.out.find("  kaiju-bench "); at != std::string::npos;
         at = help.out.find("  kaiju-bench ", at + 1))
      CHECK(help.out.substr(at + 14, part.size()) == part);
    CHECK(tiny::contains(help.out, "  kaiju-bench " + part));
  }
  CHECK(tiny::contains(run(folder, "kaiju-bench", "ops --help").out, "default: 1,4,16,64,512;"));
  const std::string step = run(folder, "kaiju-bench", "step --help").out;
  CHECK(tiny::contains(step, "default: 1,4,16,32)"));
  CHECK(tiny::contains(step, "default: 512,2048)"));
}

TEST_CASE("the table of kaiju-bench step keeps its columns, and counts all rows of a mixed step") {
  const tiny::Folder folder;
  const Run bench = run(folder, "kaiju-bench",
                        "step '" + std::string(KAIJU_SOURCE_DIR) +
                            "/examples/chat/model/kaiju-nano.safetensors' --seconds 0.0001 --streams 1 --prompts 64 "
                            "--context 32 --beside "
                            "64 --after 100,30 --threads 1 --buffer-mib 64");
  INFO(bench.out << bench.err);
  REQUIRE(bench.status == 0);
  std::istringstream table(bench.out.substr(bench.out.find("\nkaiju-nano")));
  std::string line;
  for (std::getline(table, line); std::getline(table, line) && line.find("share of ceiling") == std::string::npos;) {
  }
  const size_t column = line.find("rows") + 4;
  int32_t lines = 0;
  for (; std::getline(table, line); ++lines) {
    INFO(line);
    REQUIRE(line.size() > column);
    CHECK(line.find(' ', line.find_last_of(' ', column - 1) + 1) == column);
    if (tiny::contains(line, "mixed")) CHECK(tiny::contains(line, " 65 "));
  }
  CHECK(lines >= 4);
}

TEST_CASE("if kaiju-score cannot write all logits, the older file is unchanged and no other file is left") {
  const tiny::Folder folder;
  tiny::write_file(folder / "logits.npy", "older");
  const std::string score = std::string(KAIJU_PROGRAM_DIR) + "/kaiju-score' '" + KAIJU_SOURCE_DIR +
                            "/examples/chat/model/kaiju-nano.safetensors' --tokens - --logits logits.npy";
  const auto scored = [&](const std::string& before) {
    return WEXITSTATUS(std::system(
        ("cd '" + (folder / "") + "' && { " + before + " echo 5 6 7 | '" + score + " >out 2>err; }").c_str()));
  };
  CHECK(scored("trap '' XFSZ; ulimit -f 8;") == 1);
  CHECK(tiny::contains(tiny::read_file(folder / "err"), "logits.npy: cannot "));
  CHECK(tiny::read_file(folder / "logits.npy") == "older");
  CHECK(folder.file_count() == 3);
  CHECK(scored("") == 0);
  CHECK(tiny::read_file(folder / "logits.npy").size() == 128 + 3 * 8192 * 4);
  CHECK(folder.file_count() == 3);
}

TEST_CASE("kaiju-score stops reading when the model's context is full, and says so") {
  const tiny::Folder folder;
  const auto scored = [&](const std::string& endless) {
    const std::string score = std::string("'") + KAIJU_PROGRAM_DIR + "/kaiju-score' '" + KAIJU_SOURCE_DIR +
                              "/examples/chat/model/kaiju-nano.safetensors' --tokens - 2>'" + (folder / "err") + "'";
    return WEXITSTATUS(std::system((endless + " | timeout 60 " + score).c_str()));
  };
  const auto says = [&](const char* part) {
    const std::string said = tiny::read_file(folder / "err");
    INFO(said);
    CHECK(tiny::contains(said, part));
  };
  CHECK(scored("yes 1") == 1);
  says("more than 4096 tokens do not fit the model's context of 4096: give fewer");
  CHECK(scored("yes 1 | tr -d '\\n'") == 1);
  says("token 1 is \"1111111111111111111111111111111111111111\", not a number");
  CHECK(scored("yes ''") == 1);
  says("more than 262144 bytes, 64 for each token of the model's context of 4096");
}

TEST_CASE("kaiju-score writes the classifier's scores and the given tokens' log-probabilities") {
  const tiny::Folder folder;
  const std::string model = folder / "judge";
  REQUIRE(run(folder, "kaiju-make", "--preset nano --layers 2 --labels 3 --out '" + model + "'").status == 0);
  tiny::write_file(folder / "ids", "5 6 7 8 9");
  const auto outputs = [&](const std::string& options) {
    const Run scored =
        run(folder, "kaiju-score",
            "'" + model + "' --tokens '" + (folder / "ids") + "' --logits '" + (folder / "l.npy") + "' --scores '" +
                (folder / "s.npy") + "' --logprobs '" + (folder / "p.npy") + "' --threads 1 " + options);
    INFO(scored.err);
    REQUIRE(scored.status == 0);
    std::vector<std::string> files;
    for (const char* name : {"l.npy", "s.npy", "p.npy"}) files.push_back(tiny::read_file(folder / name));
    return files;
  };
  const std::vector<std::string> files = outputs("");
  const char* shapes[] = {"'shape': (5, 8192), }", "'shape': (5, 3), }", "'shape': (4,), }"};
  std::vector<std::vector<float>> values;
  for (size_t i = 0; i < files.size(); ++i) {
    CHECK(tiny::contains(files[i].substr(0, 128), shapes[i]));
    REQUIRE(files[i].size() > 128);
    values.emplace_back((files[i].size() - 128) / 4);
    std::memcpy(values.back().data(), files[i].data() + 128, files[i].size() - 128);
  }
  const auto& [logits, scores, logprobs] = std::tie(values[0], values[1], values[2]);
  REQUIRE(logits.size() == 5 * 8192);
  REQUIRE(logprobs.size() == 4);
  for (size_t i = 0; i < 4; ++i) {
    double total = 0;
    for (size_t n = 0; n < 8192; ++n) total += std::exp(static_cast<double>(logits[i * 8192 + n]));
    CHECK(std::abs(logprobs[i] - (logits[i * 8192 + 6 + i] - std::log(total))) < 1e-4);
  }
  REQUIRE(scores.size() == 15);
  for (const float score : scores) CHECK((std::isfinite(score) && score != 0));
  CHECK(outputs("--chunk 1") == files);
  CHECK(outputs("--backend reference --chunk 2 --batch 3") == files);
}

TEST_CASE("kaiju-score writes an empty array of log-probabilities for a single token") {
  const tiny::Folder folder;
  tiny::write_file(folder / "ids", "5");
  const Run scored =
      run(folder, "kaiju-score",
          "'" + std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors' --tokens '" +
              (folder / "ids") + "' --logprobs '" + (folder / "p.npy") + "'");
  INFO(scored.err);
  CHECK(scored.status == 0);
  const std::string file = tiny::read_file(folder / "p.npy");
  CHECK(file.size() == 128);
  CHECK(tiny::contains(file, "'shape': (0,), }"));
}

TEST_CASE("kaiju-score refuses scores of a model without a classifier, and two outputs of one file") {
  const tiny::Folder folder;
  tiny::write_file(folder / "ids", "5 6 7");
  const std::string model = folder / "plain.safetensors";
  REQUIRE(run(folder, "kaiju-make", "--preset nano --layers 1 --out '" + model + "'").status == 0);
  const std::string score = "'" + model + "' --tokens '" + (folder / "ids") + "' ";
  const auto count = folder.file_count() - 2;  // without what the programs say
  fails(run(folder, "kaiju-score", score + "--scores '" + (folder / "s.npy") + "'"),
        "--scores: " + model + " has no classifier");
  const auto refuses = [&](const std::string& first, const std::string& second) {
    fails(run(folder, "kaiju-score", score + "--logits '" + first + "' --logprobs '" + second + "'"),
          "--logprobs: " + second + " is the same file as --logits " + first);
  };
  refuses(folder / "x.npy", folder / "x.npy");
  refuses(folder / "x.npy", folder / "./x.npy");
  CHECK(folder.file_count() == count + 2);  // what the program said
  std::filesystem::create_symlink("x.npy", folder / "link.npy");
  refuses(folder / "x.npy", folder / "link.npy");
  refuses(folder / "link.npy", folder / "x.npy");
  CHECK(folder.file_count() == count + 3);
  tiny::write_file(folder / "x.npy", "older");
  std::filesystem::create_hard_link(folder / "x.npy", folder / "hard.npy");
  refuses(folder / "hard.npy", folder / "link.npy");
  CHECK(tiny::read_file(folder / "x.npy") == "older");
}

TEST_CASE("no program replaces a file that it reads, by whatever name its output leads there") {
  const tiny::Folder folder;
  const std::string model = folder / "model", ids = folder / "ids", config = folder / "config";
  const std::string bytes = tiny::bytes(), shape = kaiju::config_to_json(tiny::config());
  tiny::write_file(model, bytes);
  tiny::write_file(ids, "5 6 7");
  tiny::write_file(config, shape);
  std::filesystem::create_symlink("model", folder / "model link");
  std::filesystem::create_hard_link(ids, folder / "ids link");
  std::filesystem::create_symlink(config, folder / "config link");
  for (const char* option : {"--logits", "--scores", "--logprobs"})
    for (const char* name : {"model", "./model", "model link", "ids", "ids link"}) {
      INFO(option << " " << name);
      const std::string file = tiny::contains(name, "model") ? "FILE " + model : "--tokens " + ids;
      fails(run(folder, "kaiju-score",
                "'" + model + "' --tokens '" + ids + "' " + option + " '" + (folder / name) + "' --threads 1"),
            option + (": " + (folder / name)) + " is the same file as " + file);
    }
  fails(run(folder, "kaiju-score", "'" + model + "' --tokens - --logits '" + ids + "' <'" + ids + "'"),
        "--logits: " + ids + " is the same file as the standard input");
  for (const char* name : {"config", "./config", "config link"})
    fails(run(folder, "kaiju-make", "--config '" + config + "' --out '" + (folder / name) + "'"),
          "--out: " + (folder / name) + " is the same file as --config " + config);
  CHECK(tiny::read_file(model) == bytes);
  CHECK(tiny::read_file(ids) == "5 6 7");
  CHECK(tiny::read_file(config) == shape);
}

TEST_CASE("programs say what they cannot read, and why") {
  const tiny::Folder folder;
  const std::string model = "'" + std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors' ";
  fails(run(folder, "kaiju-perplexity", model + "--text /tmp"), "cannot read /tmp: Is a directory");
  fails(run(folder, "kaiju-perplexity", model + "--text /nowhere"), "cannot read /nowhere: No such file");
  fails(run(folder, "kaiju-score", model + "--tokens /tmp"), "cannot read /tmp, the file of token ids: Is a directory");
  fails(run(folder, "kaiju-score", model + "--tokens - <&-"), "cannot read the standard input");
}

TEST_CASE("kaiju-perplexity divides by the bytes of the tokens that it predicts") {
  using namespace kaiju::tests;
  const tiny::Folder folder;
  // With windows of 32 tokens: each letter, space and byte is a token, " the" and "hello" too.
  REQUIRE(kaiju::write_random_checkpoint(folder / "plain", tiny_config(kTinyVocabulary, 32), 1).ok());
  add_tokenizer(folder / "plain", folder / "model", tiny_model().bytes(), kTinyChat);
  add_tokenizer(folder / "plain", folder / "without symbols", tiny_model().bytes(), {});
  const auto measured = [&](const std::string& text, const std::string& model, const std::string& options) {
    tiny::write_file(folder / "text", text);
    const Run scored =
        run(folder, "kaiju-perplexity",
            "'" + (folder / model) + "' --text '" + (folder / "text") + "' --threads 1 --backend portable " + options);
    INFO(scored.err);
    REQUIRE(scored.status == 0);
    std::istringstream lines(scored.out);
    double tokens = 0, bytes = 0, perplexity = 0, bits = 0;
    std::string word;
    lines >> word >> tokens >> word >> bytes >> word >> perplexity >> word >> word >> word >> bits;
    CHECK(std::abs(bits * bytes / (tokens * std::log2(perplexity)) - 1) < 1e-3);
    return std::pair(tokens, bytes);
  };
  CHECK(measured("hello the", "model", "") == std::pair(2.0, 9.0));
  CHECK(measured("hello the", "model", "--raw") == std::pair(1.0, 4.0));
  CHECK(measured("hello the", "without symbols", "") == std::pair(1.0, 4.0));
  const std::string letters(70, 'b');  // three windows: tokens 0, 32 and 64 are not predicted
  CHECK(measured(letters, "model", "") == std::pair(70.0, 70.0));
  CHECK(measured(letters, "model", "--raw") == std::pair(67.0, 67.0));
}

TEST_CASE("kaiju-batch gives each line the same reply, whatever runs beside it, and adds what is missing") {
  const tiny::Folder folder;
  const std::string model = "'" + std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors' ";
  std::string prompts;
  for (const std::string said : {"Hello!", "Who are you?", "Do you like rain?", "Tell me a joke."})
    prompts += R"({"messages": [{"role": "card", "content": "Pip\nPip is a robot."}, {"role": "user", "content": ")" +
               said + "\"}]}\n";
  tiny::write_file(folder / "prompts", prompts);
  const auto replies = [&](const std::string& out, const std::string& options) {
    const Run batch = run(folder, "kaiju-batch",
                          model + "--prompts '" + (folder / "prompts") + "' --out '" + (folder / out) +
                              "' --threads 1 --temperature 0.8 --seed 5 --max-tokens 12 " + options);
    INFO(batch.err);
    REQUIRE(batch.status == 0);
    std::vector<std::string> lines;
    std::istringstream text(tiny::read_file(folder / out));
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  const auto alone = replies("alone", "--running 1");
  CHECK(alone.size() == 4);
  CHECK(replies("together", "--running 4") == alone);
  tiny::write_file(folder / "half", alone[1] + "\n" + alone[2] + "\n");
  CHECK(replies("half", "--running 2 --resume") == alone);
  tiny::write_file(folder / "cut", alone[1] + "\n" + alone[2].substr(0, 20));  // killed while it wrote
  CHECK(replies("cut", "--running 2 --resume").size() == 5);
  const std::string mended = tiny::read_file(folder / "cut");
  for (const std::string& line : alone) CHECK(tiny::contains(mended, line + "\n"));
  fails(run(folder, "kaiju-batch",
            model + "--prompts '" + (folder / "prompts") + "' --out '" + (folder / "prompts") + "'"),
        "is the same file as --prompts");
  CHECK(tiny::read_file(folder / "prompts") == prompts);
  tiny::write_file(folder / "prompts", prompts + "{\"messages\": [{\"role\": \"tool\", \"content\": \"\"}]}\n");
  fails(run(folder, "kaiju-batch",
            model + "--prompts '" + (folder / "prompts") + "' --out '" + (folder / "out of it") + "' --threads 1"),
        "line 5: a message has a \"role\"");
}

TEST_CASE("kaiju-make makes a classifier, and kaiju-inspect shows its labels") {
  const tiny::Folder folder;
  const std::string path = folder / "nano";
  const Run made = run(folder, "kaiju-make", "--preset nano --layers 1 --labels 3 --out '" + path + "'");
  INFO(made.err);
  REQUIRE(made.status == 0);
  const Run text = run(folder, "kaiju-inspect", "'" + path + "'");
  CHECK(text.status == 0);
  CHECK(tiny::contains(text.out, "3 labels: \"label 0\", \"label 1\", \"label 2\"\n"));
  CHECK(tiny::contains(text.out, "classifier.weight"));
}

TEST_CASE("kaiju-make takes any shape from a config file") {
  const tiny::Folder folder;
  tiny::write_file(folder / "shape.json", "\n " + kaiju::config_to_json(tiny::config(3)) + "\n");
  const Run made =
      run(folder, "kaiju-make",
          "--config '" + (folder / "shape.json") + "' --seed 18446744073709551615 --out '" + (folder / "model") + "'");
  INFO(made.err);
  REQUIRE(made.status == 0);
  CHECK(tiny::read_file(folder / "model") == tiny::make(tiny::config(3), UINT64_MAX));
}

TEST_CASE("kaiju-make takes a config of version 2, and kaiju-inspect shows its structure and its KV with scales") {
  const tiny::Folder folder;
  tiny::write_file(folder / "shape.json", kaiju::config_to_json(tiny::scaled_config()));
  const Run made = run(folder, "kaiju-make",
                       "--config '" + (folder / "shape.json") + "' --seed 3 --out '" + (folder / "model") + "'");
  INFO(made.err);
  REQUIRE(made.status == 0);
  CHECK(tiny::read_file(folder / "model") == tiny::make(tiny::scaled_config(), 3));
  const Run text = run(folder, "kaiju-inspect", "'" + (folder / "model") + "'");
  CHECK(text.status == 0);
  for (const char* part :
       {"  arithmetic            version 2\n", "  heads                 2 of 64 to 128, 1 to 2 for keys and values\n",
        "  d_ff                  64 to 192\n",
        "  structure             token scales, Hadamard blocks of 32, gated SiLU, residual f32, biases of q, k and v\n",
        "  norms                 before attention and feed-forward, and after them; of queries and keys; with gains\n",
        "  logits                a matrix of their own, capped at 30.5\n", "  KV per token, global  520 B in 1 slot\n",
        "  KV window, sliding    1.03 KiB per sequence in 1 slot\n",
        "     0  sliding        8     0  1 of 64              132  0, 2\n",
        "     1  global         -     1  2 of 128             520  1\n", "layers.1.attn.post_gain"}) {
    INFO(part << "\n" << text.out);
    CHECK(tiny::contains(text.out, part));
  }
  const Run json = run(folder, "kaiju-inspect", "'" + (folder / "model") + "' --json");
  REQUIRE(json.status == 0);
  const auto report = tiny::ordered_json::parse(json.out);
  CHECK(report["arithmetic"] == 2);
  CHECK(report["kv_bytes_per_token"] == 520);
  CHECK(report["kv_bytes_per_window"] == 8 * 132);
  CHECK(report["config"]["structure"]["hadamard"] == 32);
}

TEST_CASE("kaiju-make refuses wrong options by name") {
  const tiny::Folder folder;
  const std::string out = " --out '" + (folder / "model") + "'";
  const auto make = [&](const std::string& arguments) { return run(folder, "kaiju-make", arguments); };
  fails(make(""), "--out");
  fails(make(out), "--preset or --config");
  fails(make("--preset nano"), "--out");
  fails(make("--preset huge" + out), "choose nano, small, medium or large");
  fails(make("--preset nano --layers -3" + out), "--layers: give a whole number from 1 to 256");
  fails(make("--preset nano --layers 0" + out), "--layers: give a whole number");
  fails(make("--preset nano --layers 257" + out), "--layers: give a whole number");
  fails(make("--preset nano --layers many" + out), "--layers");
  fails(make("--preset nano --labels 0" + out), "--labels: give a whole number from 1 to 64");
  fails(make("--preset nano --labels 65" + out), "--labels: give a whole number");
  fails(make("--preset nano --seed -1" + out), "--seed: give a whole number from 0 to 2^64 - 1");
  fails(make("--preset nano --seed 18446744073709551616" + out), "--seed: give a whole number");
  fails(make("--preset nano --config x" + out), "--config");
  fails(make("--config '" + (folder / "nothing") + "'" + out), "nothing: No such file");
  fails(make("--config '" + (folder / "") + "'" + out), "Is a directory");
  fails(make("--preset nano --frobnicate" + out), "--frobnicate");
  fails(make("--preset nano --out '" + (folder / "no/such/folder") + "'"), "No such file");
  fails(make("--preset nano --out /dev/null"), "/dev/null");
  fails(make("--preset nano --out ''"), "--out: the value is empty");
  tiny::write_file(folder / "bad.json", "{\"name\": \"x\"}");
  fails(make("--config '" + (folder / "bad.json") + "'" + out), "config.vocab_size is missing");
  CHECK_FALSE(std::filesystem::exists(folder / "model"));
}

TEST_CASE("kaiju-inspect refuses invalid checkpoints") {
  const tiny::Folder folder;
  const auto inspect = [&](const std::string& arguments) { return run(folder, "kaiju-inspect", arguments); };
  fails(inspect(""), "FILE");
  fails(inspect("'" + (folder / "nothing") + "'"), "No such file");
  fails(inspect("'" + (folder / "") + "'"), "regular file");
  tiny::write_file(folder / "model", tiny::bytes());
  fails(inspect("'" + (folder / "model") + "' --loud"), "--loud");
  std::string damaged = tiny::bytes();
  damaged[damaged.size() - 2000] ^= 4;
  tiny::write_file(folder / "damaged", damaged);
  fails(inspect("'" + (folder / "damaged") + "'"), "its bytes do not match its digest");
  CHECK(inspect("'" + (folder / "damaged") + "' --no-verify").status == 0);
}

TEST_CASE("kaiju-inspect verifies the tokenizer and the chat symbols too") {
  using namespace kaiju::tests;
  const tiny::Folder folder;
  REQUIRE(kaiju::write_random_checkpoint(folder / "plain", tiny_config(kTinyVocabulary, 32), 1).ok());
  add_tokenizer(folder / "plain", folder / "good", tiny_model().bytes(), kTinyChat);
  add_tokenizer(folder / "plain", folder / "junk", "junk, not a tokenizer", kTinyChat);
  kaiju::ChatSymbols letters = kTinyChat;
  letters.user = 300;  // no control symbol
  add_tokenizer(folder / "plain", folder / "letters", tiny_model().bytes(), letters);
  const auto inspect = [&](const std::string& arguments) { return run(folder, "kaiju-inspect", arguments); };
  CHECK(tiny::contains(inspect("'" + (folder / "good") + "'").out, "row sum; tokenizer and chat symbols\n"));
  CHECK(tiny::contains(inspect("'" + (folder / "plain") + "'").out, "row sum\n"));
  fails(inspect("'" + (folder / "junk") + "'"), (folder / "junk") + ": tokenizer: ");
  fails(inspect("'" + (folder / "junk") + "' --json"), (folder / "junk") + ": tokenizer: ");
  fails(inspect("'" + (folder / "letters") + "'"), (folder / "letters") + ": ");
  CHECK(inspect("'" + (folder / "junk") + "' --no-verify").status == 0);
}

TEST_CASE("help has a value, a range and a default for an option, and nothing of CLI11's notation") {
  const tiny::Folder folder;
  for (const std::string line :
       {"kaiju-inspect", "kaiju-make", "kaiju-head", "kaiju-score", "kaiju-perplexity", "kaiju-batch", "kaiju-bench",
        "kaiju-chat", "kaiju-bench ops", "kaiju-bench step", "kaiju-bench cache", "kaiju-bench chains",
        "kaiju-bench replay", "kaiju-bench serve", "kaiju-bench hour", "kaiju-bench policies", "kaiju-bench fleet",
        "kaiju-bench peers"}) {
    const size_t space = line.find(' ');
    const Run help =
        run(folder, line.substr(0, space), (space == std::string::npos ? "" : line.substr(space)) + " --help");
    INFO(help.out);
    CHECK(help.status == 0);
    for (const char* raw :
         {":in [", "REQUIRED", "Needs:", "Excludes:", "=[", "INT", "FLOAT", KAIJU_SOURCE_DIR, "\n\n\n"})
      CHECK_FALSE(tiny::contains(help.out, raw));
    std::istringstream lines(help.out);
    for (std::string each; std::getline(lines, each);)
      if (each.starts_with("  -") || each.starts_with(std::string(30, ' '))) CHECK(each.size() <= 110);
  }
  const std::string step = run(folder, "kaiju-bench", "step --help").out;
  CHECK(
      tiny::contains(step, "  --chunk N                   most tokens in a prefill step (1 to 65536; default: 256)\n"));
  CHECK(tiny::contains(step, "needs --beside)\n"));
}

TEST_CASE("a mistake in a subcommand's line leads to the subcommand's help, and arguments too many keep their order") {
  const tiny::Folder folder;
  const auto bench = [&](const std::string& arguments) { return run(folder, "kaiju-bench", arguments); };
  for (const std::string line : {"--threads 0", "--threads=", "--streams 1,,2", "--nonsense", "--beside-after 5"}) {
    INFO(line);
    fails(bench("step x " + line), "(see kaiju-bench step --help)");
  }
  fails(bench("--nonsense"), "(see kaiju-bench --help)");
  fails(run(folder, "kaiju-inspect", "one two --three four"), "not expected: two --three four");
  fails(run(folder, "kaiju-inspect", "one two"), "The following argument was not expected: two ");
}

TEST_CASE("every program has help with examples") {
  const tiny::Folder folder;
  for (const char* program : {"kaiju-make", "kaiju-inspect", "kaiju-score"}) {
    const Run help = run(folder, program, "--help");
    CHECK(help.status == 0);
    CHECK(help.err.empty());
    CHECK(tiny::contains(help.out, "Examples:"));
  }
}
