// How every program answers a wrong command line and an output that cannot be written.
#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <tuple>

#include "broken_pipe.hpp"
#include "catch.hpp"
#include "kaiju/run/executors.hpp"
#include "tiny.hpp"

namespace {

const std::string kPrograms = KAIJU_PROGRAM_DIR;
const std::string kModel = std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors";

int exit_code(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a wrong command line gives exit code 2 in every program") {
  for (const char* line : {"kaiju-inspect",
                           "kaiju-make",
                           "kaiju-head",
                           "kaiju-head x",
                           "kaiju-score",
                           "kaiju-perplexity",
                           "kaiju-bench",
                           "kaiju-bench nonsense",
                           "kaiju-score x --tokens y --chunk -1",
                           "kaiju-bench step x --seconds 0",
                           "kaiju-make --out x --preset nano --layers 0",
                           "kaiju-inspect x --nonsense",
                           "kaiju-bench serve x --cache-bytes -1",
                           "kaiju-bench hour x --host-bytes -1",
                           "kaiju-bench step x --seconds nan",
                           "kaiju-bench serve x --top-p 0",
                           "kaiju-bench hour x --seed -1",
                           "kaiju-bench serve x --temperature 0.0005",
                           "kaiju-score x --tokens y --backend nonsense",
                           "kaiju-score x --tokens y --chunk 2048 --batch 64",
                           "kaiju-perplexity x --text y --backend nonsense",
                           "kaiju-batch x --prompts y",
                           "kaiju-batch x --prompts y --out z --running 0",
                           "kaiju-bench ops --backend reference",
                           "kaiju-bench step x --backend nonsense",
                           "kaiju-bench step x --after 16",
                           "kaiju-bench step x --chunk 65537",
                           "kaiju-bench serve x --backend nonsense",
                           "kaiju-bench serve x --staggered --conversations 4",
                           "kaiju-bench hour x --backend nonsense",
                           "kaiju-bench policies x --width 33",
                           "kaiju-bench replay --preset nonsense",
                           "kaiju-bench replay --messages-least 5 --messages-most 4",
                           "kaiju-bench fleet --rules nonsense",
                           "kaiju-bench fleet --machines 3 --lose 3",
                           "kaiju-bench fleet --messages-per-second 1e6 --every-seconds 86400",
                           "kaiju-chat --backend nonsense",
                           "kaiju-chat --say '\377'"}) {
    INFO(line);
    CHECK(exit_code(kPrograms + "/" + line + " >/dev/null 2>&1") == 2);
  }
}

TEST_CASE("contradictory traffic options give exit code 2 before any traffic is generated") {
  for (const char* option : {"--gap-hours nan",
                             "--gap-hours 0",
                             "--hours nan",
                             "--hours 0",
                             "--hours -1",
                             "--seed -1",
                             "--hours 1e300",
                             "--warm-up-hours nan",
                             "--think-seconds nan",
                             "--think-seconds -5",
                             "--sitting-turns -1",
                             "--user-tokens -5",
                             "--reply-tokens nan",
                             "--swipe 7",
                             "--edit nan",
                             "--new-chat 2",
                             "--versions-per-day -1",
                             "--truncation-step -5",
                             "--messages-least -1",
                             "--conversations 0",
                             "--memory nan"}) {
    INFO(option);
    CHECK(exit_code("timeout 20 " + kPrograms + "/kaiju-bench replay " + option + " >/dev/null 2>&1") == 2);
  }
}

TEST_CASE("--help and --version are a success") {
  for (const char* name : {"inspect", "make", "score", "perplexity", "batch", "bench"})
    for (const char* option : {"--help", "--version"})
      CHECK(exit_code(kPrograms + "/kaiju-" + name + " " + option + " | grep -q .") == 0);
  for (const char* name : {"ops", "step", "cache", "replay", "serve", "hour", "fleet"})
    CHECK(exit_code(kPrograms + "/kaiju-bench " + name + " --version | grep -q '^[0-9.]*$'") == 0);
}

TEST_CASE("every backend that the library lists is a name that --backend takes") {
  for (const std::string& name : kaiju::backend_names()) {
    INFO(name);
    CHECK(exit_code(kPrograms + "/kaiju-score /nowhere --tokens y --backend " + name + " 2>/dev/null") == 1);
  }
}

TEST_CASE("options that exclude or need each other are refused by name with exit code 2") {
  const std::tuple<const char*, const char*, const char*> lines[] = {
      {"kaiju-chat --list --json", "--list", "--json"},
      {"kaiju-chat --list --say x", "--list", "--say"},
      {"kaiju-chat --list --character wren", "--list", "--character"},
      {"kaiju-bench replay --backend auto", "--backend", "--model"},
      {"kaiju-bench replay --threads 1", "--threads", "--model"},
      {"kaiju-bench replay --check 1", "--check", "--model"},
      {"kaiju-bench replay --model x --memory 1", "--memory", "--model"},
      {"kaiju-bench replay --model x --slots 1", "--slots", "--model"},
      {"kaiju-bench replay --model x --preset nano", "--preset", "--model"},
      {"kaiju-bench replay --in-turn 2 --trace x", "--in-turn", "--trace"},
      {"kaiju-bench replay --in-turn 2 --seed 1", "--in-turn", "--seed"},
      {"kaiju-bench replay --trace x --conversations 1", "--trace", "--conversations"},
      {"kaiju-bench serve x --staggered --over-seconds 1", "--staggered", "--over-seconds"},
      {"kaiju-bench step x --beside-after 5", "--beside-after", "--beside"},
  };
  for (const auto& [line, one, other] : lines) {
    INFO(line);
    const std::string command = "timeout 20 " + kPrograms + "/" + line;
    CHECK(exit_code(command + " >/dev/null 2>&1") == 2);
    for (const char* name : {one, other})
      CHECK(exit_code(command + " 2>&1 | grep -q -e '" + std::string(name) + "'") == 0);
  }
}

TEST_CASE("a mistyped option is refused with the one that was meant, of a subcommand too") {
  const std::pair<const char*, const char*> lines[] = {{"kaiju-inspect x --vresion", "did you mean --version?"},
                                                       {"kaiju-score x --token y", "did you mean --tokens?"},
                                                       {"kaiju-bench serve x --conversatons 4", "--conversations?"},
                                                       {"kaiju-bench serve x --bacend=auto", "--backend?"}};
  for (const auto& [line, meant] : lines) {
    INFO(line);
    CHECK(exit_code(kPrograms + "/" + line + " >/dev/null 2>&1") == 2);
    CHECK(exit_code(kPrograms + "/" + line + " 2>&1 | grep -q -F -e '" + std::string(meant) + "'") == 0);
  }
}

TEST_CASE("an empty item of a list is refused by the option's name") {
  const std::pair<const char*, const char*> lines[] = {
      {"kaiju-bench replay --memory 4,,2", "--memory"},
      {"kaiju-bench replay --memory=,4", "--memory"},
      {"kaiju-bench ops --rows 1,", "--rows"},
      {"kaiju-bench ops --rows 1 ,2", "--rows"},
      {"kaiju-bench step x --streams 1,,2", "--streams"},
      {"kaiju-bench step x --prompts ,", "--prompts"},
      {"kaiju-bench hour x --conversations 4,,8", "--conversations"},
  };
  for (const auto& [line, name] : lines) {
    INFO(line);
    const std::string command = "timeout 20 " + kPrograms + "/" + line;
    CHECK(exit_code(command + " >/dev/null 2>&1") == 2);
    CHECK(exit_code(command + " 2>&1 | grep -q -e '" + std::string(name) + ": an item of the list is empty'") == 0);
  }
}

TEST_CASE("scripts for tests on a GPU show their help and refuse wrong options without a GPU") {
  for (const char* name : {"sanitize", "digests"}) {
    const std::string script = "sh " + std::string(KAIJU_SOURCE_DIR) + "/tests/" + name + "_cuda.sh ";
    INFO(script);
    CHECK(exit_code(script + "--help | grep -q usage:") == 0);
    for (const char* wrong : {"--programs", "--nonsense", "nonsense"})
      CHECK(exit_code(script + wrong + " 2>&1 >/dev/null | grep -q \"^" + name + "_cuda.sh: \"") == 0);
  }
  CHECK(exit_code("sh " + std::string(KAIJU_SOURCE_DIR) + "/tests/sanitize_cuda.sh --jobs x 2>/dev/null") == 2);
}

TEST_CASE("an output that cannot be written gives exit code 1") {
  CHECK(exit_code("echo 5 6 7 | " + kPrograms + "/kaiju-score " + kModel + " --tokens - >/dev/full 2>/dev/null") == 1);
  CHECK(exit_code(kPrograms + "/kaiju-inspect " + kModel + " >/dev/full 2>/dev/null") == 1);
}

TEST_CASE("a failed print ends no program by a signal, and a result that cannot be printed gives exit code 1") {
  const kaiju::tests::BrokenPipe broken;
  const tiny::Folder folder;
  tiny::write_file(folder / "ids", "5 6 7");
  tiny::write_file(folder / "text", "Once upon a time there was a fish.");
  const std::string ids = " --tokens " + (folder / "ids") + " ", text = " --text " + (folder / "text") + " ",
                    out = " --out " + (folder / "out") + " ";
  struct Line {
    std::string line;
    int code;             // where everything can be printed
    bool results = true;  // on the standard output
  };
  const auto ends = [](const Line& run, const std::string& streams, bool out_fails) {
    INFO(run.line << streams);
    CHECK(exit_code("timeout 60 " + kPrograms + "/" + run.line + streams) == (out_fails && run.results ? 1 : run.code));
  };
  for (const Line& run : {
           Line{"kaiju-inspect --help", 0},
           Line{"kaiju-inspect " + kModel + " --no-verify", 0},
           Line{"kaiju-inspect /nowhere", 1, false},
           Line{"kaiju-make --version", 0},
           Line{"kaiju-make --preset nano --layers 1" + out, 0, false},
           Line{"kaiju-make --preset huge" + out, 2, false},
           Line{"kaiju-head --help", 0},
           Line{"kaiju-head /nowhere" + out, 1, false},
           Line{"kaiju-score --help", 0},
           Line{"kaiju-score " + kModel + ids + "--threads 1", 0},
           Line{"kaiju-score /nowhere" + ids, 1, false},
           Line{"kaiju-perplexity --help", 0},
           Line{"kaiju-batch --help", 0},
           Line{"kaiju-perplexity " + kModel + " --text /nowhere", 1, false},
           Line{"kaiju-bench", 2, false},
           Line{"kaiju-bench step --help", 0},
           Line{"kaiju-bench replay --in-turn 2 --memory 4", 0},
           Line{"kaiju-bench replay --trace /nowhere", 1, false},
           Line{"kaiju-bench ops --backend nonsense --threads 1", 2, false},
           Line{"kaiju-bench step /nowhere --threads 1", 1, false},
       })
    for (const std::string bad : {"/dev/full", "&-", "&9"}) {
      ends(run, " 2>" + bad + " >/dev/null", false);
      ends(run, " 2>/dev/null >" + bad, true);
      ends(run, " 2>" + bad + " >" + bad + " <&-", true);
    }
  const std::string
      chats = " --threads 1 --conversations 1 --characters 1 --prompt-tokens 8 --user-tokens 4 --reply-tokens 2 ",
      short_time = " --threads 1 --seconds 0.0001 --buffer-mib 64 ";
  for (const Line& run : {
           Line{"kaiju-perplexity " + kModel + text + "--threads 1", 0},
           Line{"kaiju-bench cache --blocks 4096 --rows 1 --seconds 0", 0},
           Line{"kaiju-bench ops --backend portable --rows 1 --only norm" + short_time, 0},
           Line{"kaiju-bench step " + kModel + " --streams 1 --prompts 16 --context 16 --json" + short_time, 0},
           Line{"kaiju-bench serve " + kModel + chats + "--turns 1", 0},
           Line{"kaiju-bench hour " + kModel + chats + "--every-seconds 0.05 --settle-seconds 0.1 --seconds 0.1", 0},
       }) {
    ends(run, " 2>/dev/full >/dev/null", false);
    ends(run, " 2>&- >/dev/full", true);
  }
}

TEST_CASE("every program reports a result that cannot be written") {
  const tiny::Folder folder;
  for (const std::string name : {"inspect", "make", "score", "perplexity", "batch", "bench"}) {
    INFO(name);
    CHECK(exit_code(kPrograms + "/kaiju-" + name + " --help 2>'" + (folder / "err") + "' >/dev/full") == 1);
    CHECK(tiny::read_file(folder / "err").starts_with("kaiju-" + name + ": cannot write to the standard output"));
  }
}

TEST_CASE("a limit on file sizes ends no program by a signal and leaves no partial file") {
  const tiny::Folder folder;
  const auto limited = [&](const std::string& line) {
    return exit_code("cd '" + (folder / "") + "' && { ulimit -f 8; " + kPrograms + "/" + line + "; }");
  };
  CHECK(limited("kaiju-make --preset nano --layers 1 --out x 2>err") == 1);
  CHECK(tiny::contains(tiny::read_file(folder / "err"), "kaiju-make: x: cannot "));
  CHECK(folder.file_count() == 1);
  CHECK(limited("kaiju-inspect " + kModel + " --no-verify --json 2>err >out") == 1);
  CHECK(tiny::contains(tiny::read_file(folder / "err"), "cannot write to the standard output"));
}

TEST_CASE("numbers are decimal: no program reads 010 as eight, or 0x10 as sixteen") {
  const std::string lines[] = {
      "kaiju-make --preset nano --out /nowhere/x --seed 010",
      "kaiju-make --preset nano --out /nowhere/x --layers 010",
      "kaiju-make --preset nano --out /nowhere/x --labels 0x10",
      "kaiju-make --preset nano --out /nowhere/x --labels +5",
      "kaiju-perplexity x --text y --threads 010",
      "kaiju-batch x --prompts y --out z --max-tokens 010",
      "kaiju-bench ops --threads 010",
      "kaiju-bench ops --rows 1,010",
      "kaiju-bench ops --seconds 0x1",
      "kaiju-bench ops --seconds 01",
      "kaiju-bench ops --buffer-mib 0100",
      "kaiju-bench step x --streams 0x10",
      "kaiju-bench step x --context ' 16'",
      "kaiju-bench cache --blocks 0x4096",
      "kaiju-bench cache --rows 010",
      "kaiju-bench replay --seed 010",
      "kaiju-bench replay --conversations 010",
      "kaiju-bench replay --memory 0.25,0x1",
      "kaiju-bench replay --host-bytes 010",
      "kaiju-bench serve x --cache-bytes 0x10",
      "kaiju-bench serve x --cache-bytes 010GiB",
      "kaiju-bench serve x --turns 010",
      "kaiju-bench hour x --seed 010",
      "kaiju-bench hour x --host-bytes 010",
      "kaiju-bench hour x --conversations 64,010",
  };
  for (const std::string& line : lines) {
    INFO(line);
    CHECK(exit_code("timeout 20 " + kPrograms + "/" + line + " 2>&1 | grep -q -e '--[a-z-]*: give '") == 0);
    CHECK(exit_code("timeout 20 " + kPrograms + "/" + line + " >/dev/null 2>&1") == 2);
  }
}

TEST_CASE("an empty value is refused by name and never stands for a default") {
  const std::pair<const char*, const char*> lines[] = {
      {"kaiju-inspect ''", "FILE"},
      {"kaiju-make --preset nano --out ''", "--out"},
      {"kaiju-make --config '' --out x", "--config"},
      {"kaiju-make --config= --out x", "--config"},
      {"kaiju-score '' --tokens x", "FILE"},
      {"kaiju-score x --tokens ''", "--tokens"},
      {"kaiju-score x --tokens= y", "--tokens"},
      {"kaiju-score x --tokens y --logits ''", "--logits"},
      {"kaiju-perplexity x --text ''", "--text"},
      {"kaiju-batch x --prompts '' --out z", "--prompts"},
      {"kaiju-perplexity x --text= y", "--text"},
      {"kaiju-perplexity x --text y --backend ''", "--backend"},
      {"kaiju-bench replay --trace ''", "--trace"},
      {"kaiju-bench replay --trace=", "--trace"},
      {"kaiju-bench replay --model ''", "--model"},
      {"kaiju-bench replay --preset ''", "--preset"},
      {"kaiju-bench ops --only ''", "--only"},
      {"kaiju-bench ops --products-file ''", "--products-file"},
      {"kaiju-bench step ''", "FILE"},
      {"kaiju-bench serve '' --products-file x", "FILE"},
      {"kaiju-bench hour ''", "FILE"},
  };
  for (const auto& [line, name] : lines) {
    INFO(line);
    const std::string command = "timeout 20 " + kPrograms + "/" + line;
    CHECK(exit_code(command + " >/dev/null 2>&1") == 2);
    CHECK(exit_code(command + " 2>&1 | grep -q -e ': " + name + ": the value is empty'") == 0);
  }
}

TEST_CASE("endless input is refused with the limit and does not fill the memory") {
  const std::string zeros = " 2>&1 </dev/zero | grep -q 'longer than ";
  const auto refused = [&](const std::string& line, const std::string& limit) {
    INFO(line);
    CHECK(exit_code("ulimit -v 4000000; timeout 60 " + kPrograms + "/" + line + zeros + limit + " bytes'") == 0);
  };
  refused("kaiju-perplexity " + kModel + " --text /dev/zero", "67108864");
  refused("kaiju-perplexity " + kModel + " --text /dev/stdin", "67108864");
  refused("kaiju-make --out x --config /dev/zero", "262144");
  refused("kaiju-bench replay --trace /dev/zero", "4194304");
  refused("kaiju-bench replay --trace /dev/stdin", "4194304");
}

TEST_CASE("a byte-order mark at the beginning of a text is skipped") {
  const tiny::Folder folder;
  const std::string mark = "\xEF\xBB\xBF", config = kaiju::config_to_json(tiny::config(3));
  const auto output = [&](const std::string& line) {
    REQUIRE(exit_code("cd '" + (folder / "") + "' && " + kPrograms + "/" + line + " >out") == 0);
    return tiny::read_file(folder / "out");
  };
  tiny::write_file(folder / "plain", "Once upon a time there was a fish.");
  tiny::write_file(folder / "marked", mark + "Once upon a time there was a fish.");
  const std::string perplexity = "kaiju-perplexity " + kModel + " --threads 1 --text ";
  CHECK(output(perplexity + "plain") == output(perplexity + "marked"));
  tiny::write_file(folder / "shape.json", mark + config);
  output("kaiju-make --config shape.json --out model");
  const std::string request = R"({"timestamp": 0, "input_length": 512, "output_length": 9, "hash_ids": [1]})";
  tiny::write_file(folder / "trace", mark + request + "\n" + request);
  CHECK(tiny::contains(output("kaiju-bench replay --json --memory 1 --trace trace"), "\"requests\": 2"));
}

TEST_CASE("kaiju-score refuses malformed tokens by name") {
  for (const char* tokens : {"8192", "-1", "abc", "1,2,3", "99999999999999999999", ""}) {
    INFO(tokens);
    CHECK(exit_code(std::string("echo '") + tokens + "' | " + kPrograms + "/kaiju-score " + kModel +
                    " --tokens - >/dev/null 2>&1") == 1);
  }
}

TEST_CASE("kaiju-score says that a number is outside the vocabulary, however large it is") {
  for (const char* token : {"8192", "99999999999999999999", "-99999999999999999999"})
    CHECK(exit_code(std::string("echo ") + token + " | " + kPrograms + "/kaiju-score " + kModel +
                    " --tokens - 2>&1 | grep -q -e 'token 1 is " + token + ", outside the vocabulary of 0 to 8191'") ==
          0);
}

TEST_CASE("no program prints a control character of a file's name") {
  const tiny::Folder folder;
  const std::string name = "\033[2J\n\x7F \xC2\x9B.x";
  tiny::write_file(folder / name, tiny::bytes());
  const std::string file = "'" + (folder / name) + "'";
  for (const std::string& line :
       {"kaiju-inspect " + file, "kaiju-inspect " + file + "x", "kaiju-score " + file + "x --tokens y",
        "kaiju-score " + kModel + " --tokens " + file + "x", "kaiju-perplexity " + kModel + " --text " + file + "x",
        "kaiju-make --config " + file + " --out y", "kaiju-bench step " + file + "x",
        "kaiju-bench replay --trace " + file, "kaiju-chat --say x --model " + file + "x"}) {
    INFO(line);
    const std::string said = "timeout 60 " + kPrograms + "/" + line + " 2>&1";
    CHECK(exit_code(said + " | LC_ALL=C grep -q -e '\033' -e '\x7F' -e '\xC2\x9B'") == 1);
    CHECK(exit_code(said + " | grep -q -F '\\x1b[2J\\x0a\\x7f \\xc2\\x9b.x'") == 0);
  }
}

TEST_CASE("kaiju-score's message about malformed tokens has no control characters") {
  CHECK(exit_code("printf '\\033[2J\\377' | " + kPrograms + "/kaiju-score " + kModel +
                  " --tokens - 2>&1 | LC_ALL=C grep -q '[^ -~]'") == 1);
  CHECK(exit_code("printf '\\033[2J\\377' | " + kPrograms + "/kaiju-score " + kModel +
                  " --tokens - 2>&1 | grep -q '\"?\\[2J?\"'") == 0);
}
