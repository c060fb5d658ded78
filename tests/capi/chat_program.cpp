// kaiju-chat and the two small examples, run as a person would: what they print, what they refuse.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "broken_pipe.hpp"
#include "catch.hpp"
#include "tests/capi/host.hpp"
#include "tests/capi/programs.hpp"

using namespace kaiju::tests;

namespace {

Run chat_with_card(const std::string& card) {
  return chat({"--say", "hello", "--max-tokens", "2", "--character", write_file("test.card", card)});
}

}  // namespace

TEST_CASE("a scripted chat prints one line of JSON for each turn, with all keys") {
  const Run run = short_chat({"--say", "hello", "--say", "I say", "--json", "--seed", "18446744073709551615"});
  INFO(run.err);
  REQUIRE(run.code == 0);
  REQUIRE(run.lines().size() == 2);
  int number = 0;
  for (const std::string& line : run.lines()) {
    const auto turn = nlohmann::json::parse(line);
    CHECK(turn.size() == 9);
    CHECK(turn["turn"] == ++number);
    CHECK(turn["seed"] == UINT64_MAX);
    CHECK(turn["retries"] == 0);
    CHECK(turn["reply"].is_string());
    CHECK(turn["prompt_tokens"].get<int>() > turn["cached_tokens"].get<int>());
    CHECK(turn["prefill_tokens_per_second"].get<double>() > 0);
    CHECK(turn["decode_tokens_per_second"].get<double>() >= 0);
    CHECK((turn["finish"] == "stop" || turn["finish"] == "length"));
  }
  CHECK(nlohmann::json::parse(run.lines()[0])["cached_tokens"] == 0);
  CHECK(nlohmann::json::parse(run.lines()[1])["cached_tokens"].get<int>() > 10);
}

TEST_CASE("the same seed gives the same reply, and another seed gives another") {
  const std::vector<std::string> hot = {"--say", "hello", "--temperature", "1.5"};
  auto with_seed = [&](const char* seed) {
    auto args = hot;
    args.insert(args.end(), {"--seed", seed});
    return short_chat(args).out;
  };
  CHECK_FALSE(with_seed("7").empty());
  CHECK(with_seed("7") == with_seed("7"));
  CHECK(with_seed("7") != with_seed("8"));
  CHECK(with_seed("0") == short_chat(hot).out);
}

TEST_CASE("a scripted chat prints no control character of a reply; JSON escapes them") {
  const auto controls = [](const std::string& text) {
    return std::count_if(text.begin(), text.end(),
                         [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7F; });
  };
  int64_t in_replies = 0;
  for (const char* seed : {"1", "2", "3", "4", "5", "6"}) {
    const Run plain = short_chat({"--say", "hello", "--temperature", "10", "--seed", seed});
    CHECK(controls(plain.out) == 0);
    CHECK(plain.out.ends_with('\n'));
    const Run json = short_chat({"--say", "hello", "--temperature", "10", "--seed", seed, "--json"});
    CHECK(controls(json.out) == 0);
    in_replies += controls(nlohmann::json::parse(json.out)["reply"]);
  }
  CHECK(in_replies > 0);
}

TEST_CASE("a reply that is cut within a character ends before it") {
  const std::string half = "\xEF\xBF\xBD";  // what the library makes of it
  for (int seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    const Run run = chat({"--say", "hello", "--json", "--temperature", "10", "--max-tokens", "3", "--character",
                          short_card(), "--seed", std::to_string(seed)});
    const auto turn = nlohmann::json::parse(run.out);
    if (turn["finish"] == "length") CHECK_FALSE(turn["reply"].get<std::string>().ends_with(half));
  }
}

TEST_CASE("each line of piped input is a turn or a command") {
  const Run run = short_chat({"--temperature", "1.5"}, "hello\n\n/retry\n/stats\n/undo\nhello\n/quit\nnever\n");
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.out.find("\033") == std::string::npos);
  CHECK(run.out.find("Forgotten: hello") != std::string::npos);
  CHECK(run.out.find("seed") != std::string::npos);
  const auto lines = run.lines();
  CHECK(lines.front() == lines.back());    // the same question at the same place
  CHECK(lines.front() != run.lines()[1]);  // another stream
}

TEST_CASE("a last line without a newline still gets its reply") {
  CHECK(short_chat({}, "hello").out == short_chat({"--say", "hello"}).out);
}

TEST_CASE("retries use other streams of the seed and are counted in JSON, and notes go to standard error") {
  const Run run = short_chat({"--temperature", "1.5", "--json"}, "hello\n/retry\n/retry\n/stats\n/undo\nhello\n");
  INFO(run.err);
  REQUIRE(run.code == 0);
  REQUIRE(run.lines().size() == 4);
  std::vector<nlohmann::json> turns;
  for (const std::string& line : run.lines()) turns.push_back(nlohmann::json::parse(line));
  for (int i = 0; i < 3; ++i) CHECK(turns[i]["retries"] == i);
  for (const auto& turn : turns) CHECK(turn["turn"] == 1);
  CHECK(turns[0]["reply"] != turns[1]["reply"]);
  CHECK(turns[0]["reply"] != turns[2]["reply"]);
  CHECK(turns[1]["reply"] != turns[2]["reply"]);
  CHECK(turns[3]["reply"] == turns[0]["reply"]);
  CHECK(run.err.find("Forgotten: hello") != std::string::npos);
}

TEST_CASE("a retry that could not differ is refused") {
  CHECK(short_chat({"--temperature", "0"}, "hello\n/retry\n").refuses("only one reply"));
}

TEST_CASE("an edited turn gets the same reply as if it had been said so at first") {
  const Run edited = short_chat({"--temperature", "1.5"}, "hello\nworld\n/edit I say\n");
  const Run direct = short_chat({"--temperature", "1.5"}, "hello\nI say\n");
  REQUIRE(edited.lines().size() == 3);
  REQUIRE(direct.lines().size() == 2);
  CHECK(edited.lines()[2] == direct.lines()[1]);
  CHECK(edited.lines()[2] != edited.lines()[1]);
  CHECK(short_chat({}, "/edit hello\n").refuses("there is no turn yet"));
  CHECK(short_chat({}, "hello\n/edit\n").refuses("after /edit"));
}

TEST_CASE("a loaded chat continues with its card and its seed") {
  const std::string file = temporary_folder() + "/chat.json";
  const Run before = short_chat({"--seed", "7", "--temperature", "1.5"},
                                "Gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80\n/retry\nhello\n/save " + file + "\n");
  REQUIRE(before.code == 0);
  const auto json = nlohmann::json::parse(slurp(file));
  CHECK(json["seed"] == 7);
  CHECK(json["character"]["name"] == "Ann");
  REQUIRE(json["exchanges"].size() == 2);
  CHECK(json["exchanges"][0]["user"] == "Gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80");
  CHECK(json["exchanges"][0]["retries"] == 1);
  CHECK(json["exchanges"][1]["reply"] == before.lines()[2]);

  const std::string other = write_file("other.card", "name: Bob\n\nthe world.\n");
  const Run after = chat({"--character", other, "--json", "--max-tokens", "12"},
                         "hello\n/load " + file + "\nhello\n/save " + file + "\n");
  INFO(after.err);
  REQUIRE(after.code == 0);
  REQUIRE(after.lines().size() == 2);
  const auto turn = nlohmann::json::parse(after.lines()[1]);
  CHECK(turn["turn"] == 3);
  CHECK(turn["seed"] == 7);
  CHECK(nlohmann::json::parse(slurp(file))["exchanges"].size() == 3);
}

TEST_CASE("a chat longer than the context can be saved, loaded, retried and undone to its beginning") {
  const std::string file = temporary_folder() + "/long.json";
  std::string input;
  for (int i = 0; i < 30; ++i) input += "hello the world, I say hello\n";
  REQUIRE(short_chat({}, input + "/save " + file + "\n").code == 0);
  REQUIRE(nlohmann::json::parse(slurp(file))["exchanges"].size() == 30);
  input = "/load " + file + "\n/retry\nhello\n/stats\n";
  for (int i = 0; i < 31; ++i) input += "/undo\n";
  const Run run = short_chat({}, input + "hello\n");
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.out.find("turns: 31") != std::string::npos);
  CHECK(run.lines().back() == short_chat({}, "hello\n").lines()[0]);
}

TEST_CASE("saving a chat changes no other file") {
  const std::string file = temporary_folder() + "/beside.json", other = write_file("beside.json.new", "another's");
  REQUIRE(short_chat({}, "hello\n/save " + file + "\n").code == 0);
  CHECK(slurp(other) == "another's");
  CHECK(short_chat({}, "/load " + file + "\n").code == 0);
}

TEST_CASE("files that are no saved chat are neither loaded nor overwritten") {
  const std::string good = R"({"kaiju_chat": 1, "character": {"name": "A", "greeting": "", "description": "the"}, )"
                           R"("seed": 1, "exchanges": [{"user": "a", "reply": "b", "retries": 0}]})";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  REQUIRE(short_chat({}, "/load " + write_file("good.json", good) + "\n").code == 0);
  const std::pair<const char*, std::string> bad[] = {
      {"empty", ""},
      {"cut", good.substr(0, good.size() / 2)},
      {"another program's", "{}"},
      {"an array", "[1]"},
      {"another version", with("\"kaiju_chat\": 1", "\"kaiju_chat\": 2")},
      {"a seed in letters", with("\"seed\": 1", "\"seed\": \"x\"")},
      {"a negative seed", with("\"seed\": 1", "\"seed\": -1")},
      {"negative retries", with("\"retries\": 0", "\"retries\": -1")},
      {"more retries than a stream's number", with("\"retries\": 0", "\"retries\": 4294967296")},
      {"half a retry", with("\"retries\": 0", "\"retries\": 0.5")},
      {"no name", with("\"name\": \"A\"", "\"name\": \"\"")},
      {"a control character", with("\"name\": \"A\"", "\"name\": \"\\u001b[31m\"")},
      {"not UTF-8", with("\"user\": \"a\"", "\"user\": \"\xFF\"")},
      {"an empty message", with("\"user\": \"a\"", "\"user\": \"\"")},
      {"exchanges missing", with("exchanges", "exchange")},
      {"exchanges that are no list", with("[{\"user\": \"a\", \"reply\": \"b\", \"retries\": 0}]", "{}")},
      {"half a version", with("\"kaiju_chat\": 1", "\"kaiju_chat\": 1.0")},
  };
  for (const auto& [what, text] : bad) {
    INFO(what);
    const std::string file = write_file("bad.json", text);
    CHECK(short_chat({}, "/load " + file + "\n").refuses("bad.json"));
    CHECK(short_chat({}, "/save " + file + "\n").refuses("choose another name"));
    CHECK(slurp(file) == text);
  }
  CHECK(short_chat({}, "/load /nowhere/chat.json\n").refuses("/nowhere/chat.json"));
  CHECK(short_chat({}, "/save /nowhere/chat.json\n").refuses("/nowhere/chat.json"));
  CHECK(short_chat({}, "/load " + temporary_folder() + "\n").refuses("a folder"));
  CHECK(short_chat({}, "/save\n").refuses("give a file"));
}

TEST_CASE("a loaded chat gives the reply that it would have given without the break") {
  const std::string file = temporary_folder() + "/break.json";
  for (const char* seed : {"1", "2", "3", "4"}) {
    const std::vector<std::string> args = {"--temperature", "1.5", "--seed", seed};
    const Run whole = short_chat(args, "hello\nthe world\n/retry\nI say\nhello\n");
    REQUIRE(short_chat(args, "hello\nthe world\n/retry\n/save " + file + "\n").code == 0);
    const Run rest = short_chat(args, "/load " + file + "\nI say\n/save " + file + "\n/load " + file + "\nhello\n");
    INFO(rest.err << rest.out << slurp(file));
    REQUIRE(whole.lines().size() == 5);
    REQUIRE(rest.lines().size() == 5);
    CHECK(rest.lines()[1] == whole.lines()[3]);
    CHECK(rest.lines()[4] == whole.lines()[4]);
    CHECK(rest.out.find("tokenised anew") == std::string::npos);
  }
}

TEST_CASE("tokens of a saved chat that do not spell its text are not used, and the user is told") {
  const std::string good = R"({"kaiju_chat": 1, "character": {"name": "A", "greeting": "", "description": "the"}, )"
                           R"("seed": 1, "exchanges": [{"user": "a", "reply": "hello", "retries": 0)";
  const auto loaded = [&](const std::string& more) {
    return short_chat({}, "/load " + write_file("tokens.json", good + more + "}]}") + "\nhello\n");
  };
  const Run old = loaded(""), same = loaded(R"(, "reply_tokens": "292")");
  REQUIRE(old.code == 0);
  CHECK(same.out == old.out);
  CHECK(old.out.find("tokenised anew") == std::string::npos);
  CHECK(loaded(R"(, "reply_tokens": "271 268 275 275 278")").out.find("tokenised anew") == std::string::npos);
  for (const char* other : {"271", "", "9999", "5 1", "292 292"}) {
    INFO(other);
    const Run run = loaded(fmt::format(R"(, "reply_tokens": "{}")", other));
    REQUIRE(run.code == 0);
    CHECK(run.out.find("The saved tokens of 1 reply do not spell the text") != std::string::npos);
    CHECK(run.lines().back() == old.lines().back());
  }
  for (const char* bad : {R"("x")", R"("-1")", R"("5,3")", R"("99999999999")", "5", "[292]"})
    CHECK(loaded(fmt::format(R"(, "reply_tokens": {})", bad)).refuses("tokens.json"));
}

TEST_CASE("a command that takes no argument refuses one by name") {
  for (const char* command : {"/undo", "/retry", "/quit", "/exit", "/q", "/stats", "/help"}) {
    INFO(command);
    const Run run = short_chat({}, "hello\n" + std::string(command) + " 5\n");
    CHECK(run.refuses(std::string(command) + " takes no argument"));
  }
  CHECK(short_chat({}, "hello\n/undo \n").code == 0);
}

TEST_CASE("a chat is saved under the longest name that a file may have") {
  const std::string file = temporary_folder() + "/" + std::string(255, 'n');
  const Run run = short_chat({}, "hello\n/save " + file + "\nhello\n/save " + file + "\n");
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(nlohmann::json::parse(slurp(file))["exchanges"].size() == 2);
  std::filesystem::remove(file);
}

TEST_CASE("a loaded chat tells the user if its seed differs from --seed") {
  const std::string file = temporary_folder() + "/seed.json";
  REQUIRE(short_chat({"--seed", "7"}, "hello\n/save " + file + "\n").code == 0);
  const std::string load = "/load " + file + "\n", said = "the saved seed 7, not with --seed 8";
  CHECK(short_chat({"--seed", "8"}, load).out.find(said) != std::string::npos);
  CHECK(short_chat({"--seed", "7"}, load).out.find("the saved seed") == std::string::npos);
  CHECK(short_chat({}, load).out.find("the saved seed") == std::string::npos);
}

TEST_CASE("a chat longer than the context continues, and its card stays in the prompt") {
  std::vector<std::string> args = {"--json"};
  for (int i = 0; i < 60; ++i) args.insert(args.end(), {"--say", "hello the world, I say hello"});
  const Run run = short_chat(args);
  INFO(run.err);
  REQUIRE(run.code == 0);
  REQUIRE(run.lines().size() == 60);
  int cuts = 0, last = 0, cached = 0, prompts = 0;
  for (const std::string& line : run.lines()) {
    const auto turn = nlohmann::json::parse(line);
    const int prompt = turn["prompt_tokens"];
    CHECK(prompt + 12 <= kTinyContext);
    cuts += prompt < last;
    if (prompt < last)
      CHECK(prompt <=
            kTinyContext / 2 + 20);  // the reply before may have made it too long: then the new message comes on top
    last = prompt;
    prompts += prompt;
    cached += turn["cached_tokens"].get<int>();
  }
  CHECK(cuts >= 2);
  CHECK(cuts <= 10);
  CHECK(cached > prompts * 8 / 10);
}

TEST_CASE("a chat begins with the card and the greeting as the chat format writes them") {
  const Host host;
  const std::string card = "Ann\nthe world.", greeting = "hello", said = "I say";
  const auto message = [](int32_t role, const std::string& text) {
    return kaiju_message{role, 0, text.data(), text.size(), nullptr, 0};
  };
  const kaiju_message messages[] = {message(KAIJU_ROLE_CARD, card), message(KAIJU_ROLE_CHARACTER, greeting),
                                    message(KAIJU_ROLE_USER, said)};
  size_t count = 0;
  REQUIRE(kaiju_chat_format(host.model, messages, sizeof messages[0], 3, KAIJU_CHAT_REPLY, nullptr, 0, &count,
                            nullptr) == KAIJU_OK);
  const Run run = short_chat({"--say", said, "--json"});
  INFO(run.err);
  REQUIRE(run.lines().size() == 1);
  CHECK(nlohmann::json::parse(run.lines()[0])["prompt_tokens"] == count);
}

TEST_CASE("a reply that repeats itself is cut, and the chat continues from the rest of it") {
  const std::vector<std::string> greedy = {
      "--say",       "the world",  "--say",        "I say", "--temperature", "0", "--repetition-penalty", "1",
      "--character", short_card(), "--max-tokens", "120"};
  const auto turns = [&](std::vector<std::string> args, const char* more) {
    args.emplace_back(more);
    std::vector<nlohmann::json> all;
    for (const std::string& line : chat(args).lines()) all.push_back(nlohmann::json::parse(line));
    REQUIRE(all.size() == 2);
    return all;
  };
  auto args = greedy;
  args.emplace_back("--json");
  const auto endless = turns(args, "--circles"), short_ones = turns(args, "--json");
  const std::string whole = endless[0]["reply"], left = short_ones[0]["reply"];
  INFO(whole);
  CHECK(endless[0]["finish"] == "length");
  CHECK(short_ones[0]["finish"] == "circle");
  CHECK(left.size() < whole.size() / 2);
  CHECK(whole.substr(0, left.size()) == left);
  CHECK(short_ones[1]["prompt_tokens"] < endless[1]["prompt_tokens"].get<int>() - 60);
  CHECK(chat(greedy).lines()[0] == left);  // printed as it came
}

TEST_CASE("at least six bundled characters are listed, and all can be read") {
  const Run run = run_program("kaiju-chat", {"--list"});
  CHECK(run.code == 0);
  CHECK(run.err.empty());
  CHECK(run.lines().size() >= 6);
}

TEST_CASE("help and version succeed") {
  CHECK(run_program("kaiju-chat", {"--help"}).out.find("Examples") != std::string::npos);
  CHECK(run_program("kaiju-chat", {"--help"}).code == 0);
  CHECK(run_program("kaiju-chat", {"--version"}).out == "0.1.0\n");
}

TEST_CASE("a card may have Windows line endings and a byte-order mark") {
  CHECK(chat_with_card("\xEF\xBB\xBFname: A\r\ngreeting: hello\r\n\r\nthe world\r\n").code == 0);
}
TEST_CASE("a card without a name is refused") {
  CHECK(chat_with_card("greeting: hello\n\nworld\n").refuses("test.card:1: the name is missing"));
}
TEST_CASE("an empty card file is refused") { CHECK(chat_with_card("").refuses("test.card:1: the card is empty")); }
TEST_CASE("a card of blank lines is refused") {
  CHECK(chat_with_card("\n \n\n").refuses("test.card:1: the card is empty"));
}
TEST_CASE("a card that begins with its description is refused") {
  CHECK(chat_with_card("the world\n").refuses("test.card:1: expected"));
}
TEST_CASE("a card without a description is refused") {
  CHECK(chat_with_card("name: A\n\n \n").refuses("description is missing"));
}
TEST_CASE("a card with an unknown line in its header is refused by line") {
  CHECK(chat_with_card("name: A\nage: 5\n\nworld\n").refuses("test.card:2: expected"));
}
TEST_CASE("a card with two names is refused by line") {
  CHECK(chat_with_card("name: A\nname: B\n\nworld\n").refuses("test.card:2: a second 'name:'"));
}
TEST_CASE("a card with an empty name is refused by line") {
  CHECK(chat_with_card("name:  \n\nworld\n").refuses("test.card:1: 'name:' has nothing"));
}
TEST_CASE("a card with a name that is too long is refused by line") {
  CHECK(chat_with_card("name: " + std::string(101, 'x') + "\n\nworld\n").refuses("test.card:1: the name is longer"));
}
TEST_CASE("a card that is not UTF-8 is refused by line and byte") {
  CHECK(chat_with_card("name: A\n\nthe w\xFFrld\n").refuses("test.card:3: not UTF-8 at byte 6"));
}
TEST_CASE("a card with a control character is refused by line") {
  CHECK(chat_with_card("name: A\n\nthe \033[31m\n").refuses("test.card:3: a control character"));
}
TEST_CASE("a card too long for the context is refused") {
  CHECK(chat_with_card("name: A\n\n" + std::string(2000, 'z') + "\n").refuses("has room for 256"));
}
TEST_CASE("a card above the size limit is refused") {
  CHECK(chat_with_card("name: A\n\n" + std::string(1 << 21, 'z') + "\n").refuses("longer than 1048576 bytes"));
}
TEST_CASE("a card that is a folder is refused") {
  CHECK(chat({"--say", "x", "--character", temporary_folder() + "/"}).refuses("a folder"));
}
TEST_CASE("a card or a saved chat that is a pipe is refused without waiting") {
  const std::string pipe = temporary_folder() + "/pipe";
  std::remove(pipe.c_str());
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(chat({"--say", "x", "--character", pipe}).refuses("not a regular file"));
  CHECK(short_chat({}, "/load " + pipe + "\n").refuses("not a regular file"));
}
TEST_CASE("a card that does not exist is refused by path") {
  CHECK(chat({"--say", "x", "--character", "/nowhere/x.card"}).refuses("/nowhere/x.card"));
}
TEST_CASE("an unknown character is refused with a list of the known ones") {
  CHECK(chat({"--say", "x", "--character", "nobody"}).refuses("wren"));
}

TEST_CASE("wrong options are refused in one line") {
  CHECK(short_chat({"--nonsense"}).refuses("--nonsense"));
  CHECK(short_chat({"--temperature", "hot"}).refuses("--temperature"));
  CHECK(
      short_chat({"--say", "x", "--temperature", "-1"}).refuses("--temperature: give 0 or a number from 0.001 to 100"));
  CHECK(short_chat({"--say", "x", "--top-p", "1.5"}).refuses("--top-p: give a number from 1e-06 to 1"));
  CHECK(short_chat({"--say", "x", "--top-p", "0"}).refuses("--top-p: give a number from 1e-06 to 1"));
  CHECK(short_chat({"--say", "x", "--temperature", "0.0005"})
            .refuses("--temperature: give 0 or a number from 0.001 to 100"));
  CHECK(short_chat({"--say", "x", "--temperature", "nan"})
            .refuses("--temperature: give 0 or a number from 0.001 to 100"));
  CHECK(short_chat({"--say", "x", "--min-p", "-0.5"}).refuses("--min-p: give a number from 0 to 1"));
  CHECK(short_chat({"--say", "x", "--repetition-penalty", "0"})
            .refuses("--repetition-penalty: give a number from 0.01 to 100"));
  CHECK(short_chat({"--seed", "1.5"}).refuses("--seed"));
  for (const char* number : {"010", "0x10", "+1", " 1", "1 ", "00"}) {
    INFO(number);
    for (const char* option : {"--seed", "--max-tokens", "--threads", "--top-k", "--temperature", "--top-p", "--min-p",
                               "--repetition-penalty"})
      CHECK(short_chat({"--say", "x", option, number}).refuses(std::string(option) + ": give "));
  }
  for (const char* option : {"--model", "--character", "--backend", "--products-file", "--seed"}) {
    INFO(option);
    CHECK(run_program("kaiju-chat", {"--say", "x", option, ""}).refuses(option));
    CHECK(run_program("kaiju-chat", {"--say", "x", option + std::string("="), "y"}).refuses(option));
    CHECK(run_program("kaiju-chat", {"--say", "x", option, ""}).code == 2);
  }
  CHECK(chat({"--max-tokens", "0"}).refuses("--max-tokens"));
  CHECK(chat({"--threads", "1000"}).refuses("--threads"));
  CHECK(run_program("kaiju-chat", {"--say"}).refuses("--say"));
  CHECK(run_program("kaiju-chat", {"--say", ""}).refuses("nothing to say"));
  CHECK(run_program("kaiju-chat", {"--say", "hello", "--say", " \t"}).refuses("nothing to say"));
  CHECK(short_chat({"--say", "x", "--backend", "quantum"}).refuses("quantum"));
  CHECK(run_program("kaiju-chat", {"--say", "x", "--model", "/nowhere.safetensors"}).refuses("/nowhere.safetensors"));
  CHECK(run_program("kaiju-chat", {"--say", "x", "--model", plain_model_file()}).refuses("cannot chat"));
}

TEST_CASE("a text that is not UTF-8 or too long is refused") {
  CHECK(short_chat({"--say", "ab\xFF"}).refuses("not UTF-8 at byte 3"));
  CHECK(short_chat({"--say", std::string(3000, 'z')}).refuses("there is room for"));
  CHECK(short_chat({}, "hello\nab\xFF\n").refuses("line 2: the text is not UTF-8 at byte 3"));
}

TEST_CASE("a mistyped option or command is refused with the one that was meant") {
  CHECK(short_chat({"--temprature", "1"}).refuses("--temprature: did you mean --temperature? (see"));
  CHECK(short_chat({"--sayy=x"}).refuses("did you mean --say?"));
  CHECK(short_chat({"--charcter", "wren"}).refuses("did you mean --character?"));
  CHECK_FALSE(short_chat({"--nonsense"}).refuses("did you mean"));
  CHECK(short_chat({}, "/stast\n").refuses("line 1: unknown command /stast: did you mean /stats?"));
  CHECK(chat({"--say", "x", "--character", "Silsa"}).refuses("did you mean silas?"));
}

TEST_CASE("piped and scripted chats never ask whether to save") {
  for (const std::string& input :
       {std::string("hello\n"), std::string("hello\n/quit\n"), "hello\n/character " + short_card() + "\n"}) {
    const Run run = short_chat({}, input);
    CHECK(run.code == 0);
    CHECK((run.out + run.err).find("Save this chat") == std::string::npos);
  }
  CHECK(short_chat({"--say", "hello"}).out.find("Save") == std::string::npos);
}

TEST_CASE("in a pipe a line is a turn, whatever it ends with") {
  const std::string file = temporary_folder() + "/backslash.json";
  REQUIRE(short_chat({}, "hello\\\nworld\n/save " + file + "\n").code == 0);
  const auto turns = nlohmann::json::parse(slurp(file))["exchanges"];
  REQUIRE(turns.size() == 2);
  CHECK(turns[0]["user"] == "hello\\");
  CHECK(short_chat({}, " /undo\n/save " + file + "\n").code == 0);
  CHECK(nlohmann::json::parse(slurp(file))["exchanges"][0]["user"] == " /undo");  // a space: no command
}

TEST_CASE("--verbose adds figures on standard error and nothing to the output") {
  for (const Run& run : {short_chat({"--say", "hello", "--verbose"}), short_chat({"--verbose"}, "hello\n")}) {
    CHECK(run.out == short_chat({"--say", "hello"}).out);
    CHECK(run.err.find("tokens/s") != std::string::npos);
  }
  CHECK(short_chat({"--say", "hello"}).err.empty());
  CHECK(short_chat({}, "hello\n").err.empty());
}

TEST_CASE("--help and /help fit their windows, and --help names the defaults") {
  const auto longest = [](const Run& run) {
    size_t most = 0;
    for (const std::string& line : run.lines()) most = std::max(most, line.size());
    return most;
  };
  const Run options = run_program("kaiju-chat", {"--help"}), commands = short_chat({}, "/help\n");
  INFO(options.out << commands.out);
  CHECK(longest(options) <= 110);
  CHECK(longest(commands) <= 88);
  for (const std::string option :
       {"--character", "--model", "--max-tokens", "--seed", "--temperature", "--top-p", "--min-p", "--top-k",
        "--repetition-penalty", "--circles", "--threads", "--backend", "--products-file"}) {
    INFO(option);
    const auto lines = options.lines();
    const auto line = std::find_if(lines.begin(), lines.end(),
                                   [&](const std::string& each) { return each.starts_with("  " + option + " "); });
    REQUIRE(line != lines.end());
    CHECK(line->find("(default: ") != std::string::npos);
  }
  for (const char* command : {"/retry", "/edit", "/undo", "/save", "/load", "/character", "/stats", "/help", "/quit"})
    CHECK(("\n" + commands.out).find(std::string("\n  ") + command + " ") != std::string::npos);
}

// Each is asked alone, at the beginning of a chat. A fact is a number or a word of the card that the question has not.
TEST_CASE("the bundled model answers every suggested question with a fact of the card") {
  const std::string folder = std::string(KAIJU_SOURCE_DIR) + "/examples/chat/characters";
  const std::set<std::string> common = {"that", "this", "with", "from", "have", "there", "where", "what", "your"};
  const auto words_of = [&](const std::string& text) {
    std::set<std::string> words;
    std::string word;
    for (const char c : text + " ") {
      if (std::isalnum(static_cast<unsigned char>(c))) {
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else {
        if (word.size() > 3 || (!word.empty() && std::isdigit(static_cast<unsigned char>(word[0])))) words.insert(word);
        word.clear();
      }
    }
    return words;
  };
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string card = slurp(entry.path().string());
    const auto facts = words_of(card.substr(card.find("\n\n")));
    std::string input;
    std::vector<std::string> asks;
    for (size_t at = card.find("\nask: "); at != std::string::npos; at = card.find("\nask: ", at + 1)) {
      asks.push_back(card.substr(at + 6, card.find('\n', at + 1) - at - 6));
      input += asks.back() + "\n/undo\n";
    }
    CHECK(asks.size() >= 2);
    CHECK(asks.size() <= 3);
    for (const char* temperature : {"0", "0.7"}) {
      const Run run = run_program(
          "kaiju-chat", {"--character", entry.path().string(), "--json", "--temperature", temperature}, input);
      REQUIRE(run.lines().size() == asks.size());
      for (size_t i = 0; i < asks.size(); ++i) {
        const std::string reply = nlohmann::json::parse(run.lines()[i])["reply"];
        INFO(asks[i] << " " << reply);
        const auto asked = words_of(asks[i]);
        bool fact = false;
        for (const std::string& word : words_of(reply))
          fact = fact || (facts.count(word) > 0 && asked.count(word) + common.count(word) == 0);
        CHECK(fact);
      }
    }
  }
}

TEST_CASE("output that cannot be written is an error, which is reported if possible") {
  for (const std::string bad : {">/dev/full", ">&-", ">&9"}) {
    INFO(bad);
    const BrokenPipe broken;
    const std::string said = "cannot write to the standard output";
    CHECK(run_program("kaiju-chat", {"--list"}, "", bad).refuses(said));
    CHECK(run_program("kaiju-chat", {"--help"}, "", bad).refuses(said));
    CHECK(short_chat({"--say", "hello"}, "", bad).refuses(said));
    CHECK(short_chat({}, "hello\n/stats\n", bad).refuses(said));
    CHECK(short_chat({"--json"}, "hello\n", bad).refuses(said));
    CHECK(run_program("minimal", {chat_model_file(), "hello"}, "", bad).refuses(said));
    CHECK(run_program("host_loop", {chat_model_file(), "hello", "world"}, "", bad).refuses(said));
    for (const std::string both : {"2>/dev/full", "2>&-", "2>&9"})
      CHECK(short_chat({"--say", "hello"}, "", bad + " " + both).code == 1);
  }
}

TEST_CASE("a chat continues if errors and notes cannot be printed") {
  for (const std::string bad : {"2>/dev/full", "2>&-", "2>&9"}) {
    INFO(bad);
    const BrokenPipe broken;
    CHECK(short_chat({"--json"}, "/stats\nhello\n/undo\n", bad).code == 0);
    CHECK(short_chat({"--json"}, "hello\n/nonsense\n", bad).code == 1);
    CHECK(short_chat({"--nonsense"}, "", bad).code == 2);
    CHECK(run_program("kaiju-chat", {"--say", "x", "--model", "/nowhere"}, "", bad).code == 1);
    CHECK(run_program("minimal", {"/nowhere", "x"}, "", bad).code == 1);
    CHECK(run_program("host_loop", {"/nowhere", "x", "y"}, "", bad).code == 1);
    CHECK(run_program("host_loop", {}, "", bad).code == 2);
  }
}

TEST_CASE("a chat ends when its output pipe is closed, however much input there is") {
  const BrokenPipe broken;
  for (const char* bad : {">/dev/full", ">&9"})
    for (const char* input : {"hello", "/stats"}) {
      INFO(bad << " " << input);
      const std::string command = quoted(std::string(KAIJU_PROGRAM_DIR) + "/kaiju-chat") + " --model " +
                                  quoted(chat_model_file()) + " --character " + quoted(short_card()) +
                                  " --max-tokens 2 --threads 1 2>/dev/null ";
      CHECK(WEXITSTATUS(std::system(("yes " + std::string(input) + " | timeout 60 " + command + bad).c_str())) == 1);
    }
}

TEST_CASE("endless input is refused with the limit and does not fill the memory") {
  const Run run = short_chat({}, "", "</dev/zero");
  CHECK(run.refuses("line 1 is longer than 1048576 bytes"));
  CHECK(short_chat({}, "hello\n" + std::string((1 << 20) + 1, ' ') + "\n")
            .refuses("line 2 is longer than 1048576 bytes"));
  CHECK(short_chat({}, std::string(1 << 20, ' ') + "\nhello\n").code == 0);
  const std::string large = write_file("large.json", std::string((size_t{64} << 20) + 1, ' '));
  CHECK(short_chat({}, "/load " + large + "\n").refuses("longer than 67108864 bytes"));
  std::remove(large.c_str());
}

TEST_CASE("a byte-order mark at the beginning of input is not part of the first turn") {
  const std::string mark = "\xEF\xBB\xBF", file = temporary_folder() + "/mark.json";
  CHECK(short_chat({}, mark + "hello\n" + mark + "world\n/save " + file + "\n").code == 0);
  const auto said = nlohmann::json::parse(slurp(file))["exchanges"];
  CHECK(said[0]["user"] == "hello");
  CHECK(said[1]["user"] == mark + "world");
  CHECK(short_chat({}, mark + "/load " + write_file("marked.json", mark + slurp(file)) + "\n").code == 0);
}

TEST_CASE("a chat that cannot be saved leaves no partial file, and an older file unchanged") {
  const std::string file = temporary_folder() + "/limited.json";
  REQUIRE(short_chat({}, "hello\n/save " + file + "\n").code == 0);
  const std::string before = slurp(file);
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator(temporary_folder()),
                         std::filesystem::directory_iterator());
  };
  std::string input;
  for (int i = 0; i < 12; ++i) input += "hello the world, I say hello\n";
  write_file("in", input + "/save " + file + "\n");
  const std::string err = write_file("err", "");
  const auto count = files();
  const int status =
      std::system(("cd " + quoted(temporary_folder()) + " && ulimit -f 2 && " +
                   quoted(std::string(KAIJU_PROGRAM_DIR) + "/kaiju-chat") + " --model " + quoted(chat_model_file()) +
                   " --character " + quoted(short_card()) + " --max-tokens 12 --threads 1 <in >/dev/null 2>err")
                      .c_str());
  INFO(slurp(err));
  CHECK(Run{WEXITSTATUS(status), "", slurp(err)}.refuses("/limited.json: cannot write it: File too large"));
  CHECK(slurp(file) == before);
  CHECK(files() == count);
}

TEST_CASE("a chat whose standard input is closed says so, and reads no other file instead") {
  const std::string program = quoted(std::string(KAIJU_PROGRAM_DIR) + "/kaiju-chat"), out = temporary_folder() + "/out",
                    err = temporary_folder() + "/err";
  const int status = std::system((program + " --max-tokens 2 <&- >" + quoted(out) + " 2>" + quoted(err)).c_str());
  CHECK(Run{WEXITSTATUS(status), slurp(out), slurp(err)}.refuses("cannot read the standard input"));
  CHECK(slurp(out).empty());
}

TEST_CASE("the host_loop example serves two prompts at once") {
  const Run run = run_program("host_loop", {chat_model_file(), "hello", "world"});
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(run.out.find("1: done after") != std::string::npos);
  CHECK(run.out.find("2: done after") != std::string::npos);
  CHECK(run_program("host_loop", {"/nowhere", "a", "b"}).refuses("/nowhere"));
}

TEST_CASE("the yes_or_no example says yes or no and nothing else") {
  const Run run = run_program("yes_or_no", {chat_model_file(), "hello?"});
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK((run.out == "yes\n" || run.out == "no\n"));
  CHECK(run_program("yes_or_no", {"/nowhere", "a"}).refuses("/nowhere"));
}

TEST_CASE("the examples of the README print what it says") {
  const std::string bundled = std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors";
  CHECK(run_program("minimal", {bundled, "What do you grow?"}).out == "I grow blue tomatoes.\n");
}

TEST_CASE("the minimal example gives one reply") {
  const Run run = run_program("minimal", {chat_model_file(), "hello"});
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK_FALSE(run.out.empty());
  CHECK(run_program("minimal", {plain_model_file(), "hello"}).refuses("cannot chat"));
}
