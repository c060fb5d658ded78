// kaiju-chat in a terminal of its own: keys in, screen out.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "catch.hpp"
#include "tests/capi/programs.hpp"

using namespace kaiju::tests;

namespace {

constexpr int kPatienceMs = 60000;  // far above any machine: a test that waits this long has failed

// A chat on a pseudo-terminal. `set` are environment variables, NAME=VALUE.
class Terminal {
 public:
  Terminal(std::vector<std::string> args, int columns, const std::vector<std::string>& set, int rows = 50) {
    args.insert(args.begin(), std::string(KAIJU_PROGRAM_DIR) + "/kaiju-chat");
    args.insert(args.end(), {"--threads", "1"});
    winsize size{};
    size.ws_row = static_cast<unsigned short>(rows);
    size.ws_col = static_cast<unsigned short>(columns);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    child_ = forkpty(&fd_, nullptr, nullptr, &size);
    if (child_ != 0) return;
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    setenv("HOME", temporary_folder().c_str(), 1);  // no ~/.editrc of whoever runs the test
    for (const std::string& each : set) putenv(const_cast<char*>(each.c_str()));
    execv(argv[0], argv.data());
    _exit(126);
  }
  ~Terminal() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(fd_);
  }
  Terminal(const Terminal&) = delete;

  void type(const std::string& keys) {
    REQUIRE(write(fd_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }

  // What came up to `text`, all of it since the last call; fails when it never comes.
  std::string until(const std::string& text) {
    while (pending_.find(text) == std::string::npos)
      if (!read_more()) FAIL("waited for '" << text << "', got: " << pending_);
    const size_t end = pending_.find(text) + text.size();
    const std::string out = pending_.substr(0, end);
    pending_.erase(0, end);
    return out;
  }

  bool in_line_mode() const {
    termios settings{};
    return tcgetattr(fd_, &settings) == 0 && (settings.c_lflag & (ICANON | ECHO)) != 0;
  }

  void resize(int columns, int rows = 50) {
    winsize size{};
    size.ws_row = static_cast<unsigned short>(rows);
    size.ws_col = static_cast<unsigned short>(columns);
    REQUIRE(ioctl(fd_, TIOCSWINSZ, &size) == 0);
  }

  // The most memory that the chat has had, in MiB.
  int64_t most_memory() const {
    std::ifstream status("/proc/" + std::to_string(child_) + "/status");
    std::string word;
    while (status >> word && word != "VmHWM:") {
    }
    int64_t kib = INT64_MAX;
    status >> kib;
    return kib >> 10;
  }

  // Leaves a chat that may be unsaved: a second Ctrl-D at the question leaves without saving.
  int leave() {
    type("\x04\x04");
    return wait_for_end();
  }

  // The exit code; 200 for a death by signal, 201 for none at all.
  int wait_for_end() {
    while (read_more()) {
    }
    int status = 0;
    if (pollfd ended{fd_, POLLIN, 0}; poll(&ended, 1, 0) == 0) return 201;  // still running: the destructor ends it
    waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
  }

  const std::string& seen() const { return seen_; }

 private:
  bool read_more() {
    pollfd ready{fd_, POLLIN, 0};
    if (poll(&ready, 1, kPatienceMs) <= 0) return false;
    char buffer[4096];
    const ssize_t size = read(fd_, buffer, sizeof buffer);
    if (size <= 0) return false;
    pending_.append(buffer, static_cast<size_t>(size));
    seen_.append(buffer, static_cast<size_t>(size));
    return true;
  }

  int fd_ = -1;
  pid_t child_ = -1;
  std::string pending_, seen_;
};

Terminal short_talk(int columns = 80, const std::vector<std::string>& set = {}, int rows = 50) {
  return Terminal({"--model", chat_model_file(), "--character", short_card(), "--max-tokens", "12", "--verbose"},
                  columns, set, rows);
}

// A model that talks for a long time when it is greedy.
const std::string& talkative_model() {
  static const std::string path = [] {
    const std::string plain = temporary_folder() + "/long-plain.kaiju.safetensors",
                      file = temporary_folder() + "/long.kaiju.safetensors";
    if (!kaiju::write_random_checkpoint(plain, tiny_config(kTinyVocabulary, 1 << 17), 1).ok())
      throw std::runtime_error("no checkpoint");
    add_tokenizer(plain, file, tiny_model().bytes(), kTinyChat);
    return file;
  }();
  return path;
}

Terminal long_talk(const char* max_tokens = "100000") {
  return Terminal({"--model", talkative_model(), "--character", short_card(), "--max-tokens", max_tokens,
                   "--temperature", "0", "--repetition-penalty", "1", "--circles", "--verbose"},
                  80, {});
}

constexpr const char* kPrompt = "You:";
constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";

constexpr const char* kAltEnter = "\x1b\r";

// As a terminal sends what was pasted.
std::string pasted(const std::string& text) { return "\x1b[200~" + text + "\x1b[201~"; }

// What the user said in the turns of a saved chat.
std::vector<std::string> said_in(const std::string& file) {
  std::vector<std::string> said;
  const auto chat = nlohmann::json::parse(slurp(file));
  for (const auto& turn : chat["exchanges"]) said.push_back(turn["user"]);
  return said;
}

size_t longest_line(const std::string& screen) {
  size_t longest = 0, length = 0;
  for (const char c : screen) {
    length = c == '\n' ? 0 : length + (c != '\r');
    longest = std::max(longest, length);
  }
  return longest;
}

}  // namespace

TEST_CASE("on a terminal a turn gets its reply and Ctrl-D leaves", "[terminal]") {
  Terminal screen = short_talk();
  screen.until(kPrompt);
  screen.type("hello\r");
  screen.until("tokens/s");
  screen.until(kPrompt);
  CHECK(screen.leave() == 0);
}

TEST_CASE("Ctrl-D works however soon after a prompt it is typed, and the terminal is left in line mode", "[terminal]") {
  for (int time = 0; time < 10; ++time) {
    Terminal screen = short_talk();
    screen.until(kPrompt);
    if (time % 2 == 1) {
      screen.type("\r");
      screen.until(kPrompt);
    }
    screen.type(kCtrlD);
    REQUIRE(screen.wait_for_end() == 0);
    CHECK(screen.in_line_mode());
  }
}

TEST_CASE("input that is typed before the first prompt is kept for it, Ctrl-D too", "[terminal]") {
  Terminal screen = short_talk();
  screen.type(std::string("/stats\r") + kCtrlD);
  screen.until("turns: 0");
  CHECK(screen.wait_for_end() == 0);
}

// There Ctrl-D would be the system's, and what is typed would show in the middle of a reply.
TEST_CASE("from the first prompt to the last the terminal is never in line mode", "[terminal]") {
  Terminal screen = short_talk();
  screen.until(kPrompt);
  std::atomic<bool> ends{false};
  std::atomic<int> looks{0}, found{0};
  std::thread watcher([&] {
    for (; !ends; ++looks) found += screen.in_line_mode();
  });
  for (int i = 0; i < 20 || looks < 100; ++i) {  // more where the watcher gets no turn
    screen.type(i % 2 ? "/help\r" : "hello\r");
    screen.until(i % 2 ? "Ctrl-C stops" : "tokens/s");
    screen.until(kPrompt);
  }
  ends = true;
  watcher.join();
  CHECK(found == 0);
  CHECK(screen.leave() == 0);
}

TEST_CASE("Ctrl-C at the prompt clears the line and does not end the chat", "[terminal]") {
  Terminal screen = short_talk();
  screen.until(kPrompt);
  screen.type(std::string("never said") + kCtrlC);
  screen.until(kPrompt);
  screen.type("hello\r");
  CHECK(screen.until("tokens/s").find("stopped") == std::string::npos);
  screen.until(kPrompt);
  screen.type("/undo\r");
  screen.until("Forgotten: hello");
  screen.type("/quit\r");
  CHECK(screen.wait_for_end() == 0);
}

TEST_CASE("Ctrl-C stops a reply, and the chat goes on", "[terminal]") {
  Terminal screen = long_talk();
  screen.until(kPrompt);
  screen.type("hello\r");
  screen.until("Ann:");
  screen.type(kCtrlC);
  screen.until("stopped");
  screen.until(kPrompt);
  screen.type("/undo\r");
  screen.until("Forgotten: hello");
  CHECK(screen.leave() == 0);
}

TEST_CASE("Ctrl-C stops a reply that the terminal holds back after Ctrl-S, and the chat goes on", "[terminal]") {
  Terminal screen = long_talk();
  screen.until(kPrompt);
  screen.type("hello\r");
  screen.until("Ann:");
  screen.type("\x13");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the chat waits in the middle of a write
  screen.type(kCtrlC);
  screen.until("stopped");
  screen.until(kPrompt);
  screen.type("/undo\r");
  screen.until("Forgotten: hello");
  CHECK(screen.leave() == 0);
}

TEST_CASE("input that is typed during a reply is kept for the next prompt, Ctrl-D too", "[terminal]") {
  Terminal screen = long_talk("4000");
  screen.until(kPrompt);
  screen.type("hello\r");
  screen.until("Ann:");
  screen.type(std::string("/stats\r") + kCtrlD + kCtrlD);
  const std::string reply = screen.until("tokens/s");
  CHECK(reply.find("/stats") == std::string::npos);
  screen.until("turns: 1");
  CHECK(screen.wait_for_end() == 0);
}

TEST_CASE("colours are printed unless NO_COLOR is set or the terminal has none", "[terminal]") {
  const auto screen_with = [](const std::vector<std::string>& set) {
    Terminal screen = short_talk(80, set);
    screen.until(kPrompt);
    screen.type("hello\r");
    screen.until("tokens/s");
    CHECK(screen.leave() == 0);
    return screen.seen();
  };
  CHECK(screen_with({}).find("\033[36m") != std::string::npos);
  CHECK(screen_with({"NO_COLOR=1"}).find("\033[36m") == std::string::npos);
  CHECK(screen_with({"TERM=dumb"}).find('\033') == std::string::npos);
}

TEST_CASE("lines wrap at the window's width without breaking words, also after a resize", "[terminal]") {
  const std::string card = write_file("long.card",
                                      "name: Ann\ngreeting: one fish two fish red fish blue fish and an "
                                      "incomprehensibilitiesandmore word\n\nthe world.\n");
  Terminal screen({"--model", chat_model_file(), "--character", card, "--max-tokens", "1"}, 16, {"TERM=dumb"});
  const std::string greeting = screen.until(kPrompt);
  INFO(greeting);
  CHECK(longest_line(greeting) < 16);
  CHECK(greeting.find("one fish") != std::string::npos);
  screen.resize(60);
  screen.type("/help\r");
  const std::string help = screen.until("Ctrl-C stops");
  INFO(help);
  CHECK(longest_line(help) < 60);
  CHECK(longest_line(help) > 30);
}

TEST_CASE("/edit brings what was said last back to be edited", "[terminal]") {
  Terminal screen = short_talk(80, {"TERM=dumb"});
  screen.until(kPrompt);
  screen.type("hello\r");
  screen.until("tokens/s");
  screen.type("/edit\r");
  screen.until("/edit hello");
  screen.type(" world\r");
  screen.until("tokens/s");
  screen.type("/undo\r");
  screen.until("Forgotten: hello world");
  CHECK(screen.leave() == 0);
}

TEST_CASE("letters of any script and emoji can be typed, whatever the locale", "[terminal]") {
  const std::string text = "Gr\xC3\xBC\xC3\x9F \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80",
                    file = temporary_folder() + "/typed.json";
  Terminal screen = short_talk(80, {"LC_ALL=C"});
  screen.until(kPrompt);
  screen.type(text + "x\x7F\r");  // one too many, and a backspace
  screen.until("tokens/s");
  screen.type("/save " + file + "\r");
  screen.until("Saved");
  CHECK(screen.leave() == 0);
  CHECK(nlohmann::json::parse(slurp(file))["exchanges"][0]["user"] == text);
}

TEST_CASE("a text with bytes that are not UTF-8 is refused by byte, whatever follows them", "[terminal]") {
  for (const std::string& term : {std::string("TERM=xterm"), std::string("TERM=emacs")}) {
    Terminal screen = short_talk(80, {term});
    screen.until(kPrompt);
    screen.type("caf\xE9 hello world\r");
    screen.until("not UTF-8 at byte 4");
    screen.until(kPrompt);
    screen.type("caf\xE9\r");  // the byte begins a character, which Enter cuts short
    screen.until("not UTF-8 at byte 4");
    screen.until(kPrompt);
    screen.type("\xED\xA0\x80 \xC3\xBC\xFF\r");
    screen.until("not UTF-8 at byte 1");
    screen.until(kPrompt);
    screen.type("\xC3\xBC\xFF\x7F\r");  // taken back
    screen.until("tokens/s");
    screen.until(kPrompt);
    screen.type("/undo\r");
    screen.until("Forgotten: \xC3\xBC\r");
    screen.until(kPrompt);
    CHECK(screen.leave() == 0);
  }
}

TEST_CASE("where libedit does not edit, the terminal's line mode shows, interrupts and ends input", "[terminal]") {
  const std::string home = temporary_folder() + "/home without editing";
  std::filesystem::create_directory(home);
  std::ofstream(home + "/.editrc") << "edit off\n";
  for (const std::string& set : {std::string("TERM=emacs"), "HOME=" + home}) {
    INFO(set);
    Terminal screen = short_talk(80, {set});
    screen.until(kPrompt);
    CHECK(screen.in_line_mode());
    screen.type("never said");
    screen.until("never said");
    screen.type(kCtrlC);
    screen.until(kPrompt);
    screen.type("hello\r");
    screen.until("hello");
    screen.until("tokens/s");
    screen.until(kPrompt);
    screen.type("/edit\r");
    screen.until("give the new text after /edit");
    screen.until(kPrompt);
    screen.type("/undo\r");
    screen.until("Forgotten: hello");
    screen.until(kPrompt);
    CHECK(screen.leave() == 0);
    CHECK(screen.in_line_mode());
  }
}

TEST_CASE("a chat in a window of any size works, and takes no memory for its cells", "[terminal]") {
  Terminal huge = short_talk(65535, {}, 65535);
  huge.until(kPrompt);
  huge.type("hello\r");
  huge.until("tokens/s");
  huge.until(kPrompt);
  CHECK(huge.most_memory() < 2048);
  CHECK(huge.leave() == 0);
  Terminal grown = short_talk();
  grown.until(kPrompt);
  grown.resize(65535, 65535);
  grown.type("hello\r");
  grown.until("tokens/s");
  grown.until(kPrompt);
  grown.resize(60);
  grown.type("hello\r");
  grown.until("tokens/s");
  grown.until(kPrompt);
  CHECK(grown.most_memory() < 2048);
  CHECK(grown.leave() == 0);
}

TEST_CASE("on a terminal a mistake is reported and the chat continues", "[terminal]") {
  Terminal screen = short_talk();
  screen.until(kPrompt);
  screen.type("/nonsense\r");
  screen.until("unknown command /nonsense");
  screen.type("/retry\r");
  screen.until("there is no turn yet");
  screen.type("/load /nowhere/x.json\r");
  screen.until("cannot read /nowhere/x.json: No such file");
  screen.type(kCtrlD);
  CHECK(screen.wait_for_end() == 0);
}

TEST_CASE("a paste of several lines is one turn, and nothing in it is a key", "[terminal]") {
  const std::string file = temporary_folder() + "/pasted.json";
  Terminal screen = short_talk();
  screen.until(kPrompt);
  screen.type(pasted("hello\rthe world\nI\tsay \xC3\xBC\x08\x01\x1b[A\r\r"));
  screen.type(", and more\r");
  screen.until("tokens/s");
  screen.until(kPrompt);
  screen.type(pasted("/undo\r"));  // a command when Enter is pressed, not before
  screen.until("/undo");
  screen.type(kCtrlC);
  screen.until(kPrompt);
  screen.type("/save " + file + "\r");
  screen.until("Saved");
  CHECK(screen.leave() == 0);
  CHECK(said_in(file) == std::vector<std::string>{"hello\nthe world\nI\tsay \xC3\xBC[A, and more"});
}

TEST_CASE("a paste during a reply waits for the next prompt, as one turn", "[terminal]") {
  const std::string file = temporary_folder() + "/pasted early.json";
  Terminal screen = long_talk("2000");
  screen.until(kPrompt);
  screen.type("hello\r");
  screen.until("Ann:");
  screen.type(pasted("the\rworld") + "\r");
  screen.until("tokens/s");
  screen.until("tokens/s");
  screen.type("/save " + file + "\r");
  screen.until("Saved");
  CHECK(screen.leave() == 0);
  CHECK(said_in(file) == std::vector<std::string>{"hello", "the\nworld"});
}

TEST_CASE("Alt-Enter and a backslash at the end of a line break it within a turn", "[terminal]") {
  const std::string file = temporary_folder() + "/broken.json";
  Terminal screen = short_talk();
  screen.until(kPrompt);
  screen.type(std::string("one") + kAltEnter + "two\r");
  screen.until("tokens/s");
  screen.until(kPrompt);
  screen.type("three\\\r");
  screen.until("...:");
  screen.type("\\\r");
  screen.until("...:");
  screen.type("four\r");
  screen.until("tokens/s");
  screen.until(kPrompt);
  screen.type("never\\\r");
  screen.until("...:");
  screen.type(kCtrlC);
  screen.until(kPrompt);
  screen.type("\x1b[A\r");  // fetches back the turn before, all lines of it
  screen.until("tokens/s");
  screen.until(kPrompt);
  screen.type("a path\\ \r");  // a space after it: no break
  screen.until("tokens/s");
  screen.until(kPrompt);
  screen.type("/edit\r");
  screen.until("/edit a path");
  screen.type(std::string(kAltEnter) + "more\r");
  screen.until("tokens/s");
  screen.type("/save " + file + "\r");
  screen.until("Saved");
  CHECK(screen.leave() == 0);
  const std::vector<std::string> said = said_in(file);
  REQUIRE(said.size() == 4);
  CHECK(said[0] == "one\ntwo");
  CHECK(said[1] == "three\n\nfour");
  CHECK(said[2] == said[1]);
  CHECK(said[3] == "a path\\ \nmore");
}

TEST_CASE("where libedit does not edit, a backslash breaks a line too", "[terminal]") {
  Terminal screen = short_talk(80, {"TERM=emacs"});
  screen.until(kPrompt);
  screen.type("hello\\\r");
  screen.until("...:");
  screen.type("world\r");
  screen.until("tokens/s");
  screen.type("/undo\r");
  screen.until("Forgotten: hello\r\nworld");
  CHECK(screen.leave() == 0);
}

TEST_CASE("a terminal is asked to mark pastes, and is left as it was found", "[terminal]") {
  const std::string on = "\x1b[?2004h", off = "\x1b[?2004l";
  Terminal screen = short_talk();
  screen.until(on);
  screen.until(kPrompt);
  screen.type(kCtrlD);
  CHECK(screen.wait_for_end() == 0);
  CHECK(screen.seen().rfind(off) != std::string::npos);
  CHECK(screen.seen().rfind(on) < screen.seen().rfind(off));
}

TEST_CASE("figures are shown with --verbose and by /stats, and otherwise never", "[terminal]") {
  Terminal screen({"--model", chat_model_file(), "--character", short_card(), "--max-tokens", "1", "--seed", "1"}, 80,
                  {"NO_COLOR=1", "CUDA_VISIBLE_DEVICES="});
  screen.until(kPrompt);
  screen.type("hello\r");
  const std::string reply = screen.until("[cut at 1 token]");  // not a figure: why the reply ends there
  CHECK(reply.find("tokens/s") == std::string::npos);
  screen.until(kPrompt);
  screen.type("/stats\r");
  const std::string stats = screen.until("seed");
  INFO(stats);
  for (const char* word : {"tokens/s", "reused", "machine", "cpu, ", ", 1 thread\r", "turns: 1"})
    CHECK(stats.find(word) != std::string::npos);
  CHECK(screen.leave() == 0);
  Terminal verbose = short_talk(120, {"NO_COLOR=1", "CUDA_VISIBLE_DEVICES="});
  CHECK(verbose.until(kPrompt).find("It runs on cpu, ") != std::string::npos);
  CHECK(verbose.leave() == 0);
}

TEST_CASE("leaving an unsaved chat asks, and the answer saves it, leaves it or returns to it", "[terminal]") {
  const std::string folder = temporary_folder() + "/leaving";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::string question = "Save this chat before leaving? [y/N/FILE]";
  const auto said = [](const std::string& how) {
    auto screen = std::make_unique<Terminal>(
        std::vector<std::string>{"--model", chat_model_file(), "--character", short_card(), "--max-tokens", "2"}, 80,
        std::vector<std::string>{"NO_COLOR=1"});
    screen->until(kPrompt);
    screen->type("hello\r");
    screen->until(kPrompt);
    screen->type(how);
    return screen;
  };
  for (const std::string& how : {std::string("/quit\r"), std::string(kCtrlD)}) {
    for (const char* no : {"\r", "n\r", "No\r", kCtrlD}) {
      auto screen = said(how);
      screen->until(question);
      screen->type(no);
      CHECK(screen->wait_for_end() == 0);
    }
    auto back = said(how);
    back->until(question);
    back->type(kCtrlC);
    back->until(kPrompt);
    back->type("/save " + folder + "/back.json\r");
    back->until("Saved: ");
    back->until(kPrompt);
    back->type("/quit\r");
    CHECK(back->wait_for_end() == 0);
    CHECK(back->seen().rfind(question) < back->seen().rfind("Saved: "));
    auto named = said(how);
    named->until(question);
    named->type("/nowhere/x.json\r");
    named->until("cannot write it");
    named->until(question);
    named->type(folder + "/a name.json\r");
    CHECK(named->wait_for_end() == 0);
    CHECK(said_in(folder + "/a name.json") == std::vector<std::string>{"hello"});
    std::filesystem::remove(folder + "/a name.json");
  }
  CHECK(std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()) == 1);
}

TEST_CASE("yes saves an unsaved chat to its own file, or to a new one that it names", "[terminal]") {
  const std::string folder = temporary_folder() + "/yes", file = folder + "/mine.json";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  for (int time = 1; time <= 2; ++time) {
    Terminal screen = short_talk();
    screen.until(kPrompt);
    screen.type("hello\r");
    screen.until("tokens/s");
    screen.type("/quit\r");
    screen.until("[y/N/FILE]");
    screen.type("y\r");
    screen.until(time == 1 ? "Saved: ann.json" : "Saved: ann-2.json");
    CHECK(screen.wait_for_end() == 0);
  }
  Terminal screen = short_talk();
  screen.until(kPrompt);
  screen.type("/load ann.json\r");
  screen.until("Loaded");
  screen.type("/save " + file + "\r");
  screen.until("Saved");
  screen.type("hello\r");
  screen.until("tokens/s");
  screen.type("/character " + short_card() + "\r");
  screen.until("Save this chat first? [y/N/FILE]");
  screen.type(kCtrlD);  // not yet
  screen.until(kPrompt);
  screen.type("/load ann.json\r");
  screen.until("Save this chat first? [y/N/FILE]");
  screen.type("y\r");
  screen.until("Saved: " + file);
  screen.until("Loaded: 1 turn with Ann");
  screen.type(kCtrlD);  // nothing was said since: no question
  CHECK(screen.wait_for_end() == 0);
  CHECK(said_in(file).size() == 2);
  std::filesystem::current_path(before);
}

TEST_CASE("a mistyped command, character or word is answered with what was meant", "[terminal]") {
  Terminal screen = short_talk(200);
  screen.until(kPrompt);
  for (const auto& [typed, meant] :
       {std::pair("/retyr", "unknown command /retyr: did you mean /retry?"),
        std::pair("/Save x", "unknown command /Save: did you mean /save?"),
        std::pair("/char", "unknown command /char: did you mean /character?"),
        std::pair("/qiut", "unknown command /qiut: did you mean /quit?"),
        std::pair("/xyzzy", "unknown command /xyzzy; /help lists the commands"),
        std::pair("/character wern", "no character 'wern': did you mean wren?"),
        std::pair("help", "the command is /help"), std::pair("quit", "the command is /quit")}) {
    screen.type(std::string(typed) + "\r");
    screen.until(meant);
    screen.until(kPrompt);
  }
  screen.type(kCtrlD);
  CHECK(screen.wait_for_end() == 0);
}

TEST_CASE("a retry that gives the same reply says so", "[terminal]") {
  Terminal screen({"--model", chat_model_file(), "--character", short_card(), "--max-tokens", "4", "--top-k", "1"}, 80,
                  {});
  screen.until(kPrompt);
  screen.type("hello\r");
  screen.until(kPrompt);
  screen.type("/retry\r");
  screen.until("The same reply came again");
  CHECK(screen.leave() == 0);
}

TEST_CASE("the first screen says what the model is and what to ask", "[terminal]") {
  Terminal bundled({}, 78, {"NO_COLOR=1"});
  const std::string first = bundled.until(kPrompt);
  INFO(first);
  for (const char* word : {"kaiju-nano", "34 M parameters", "plain questions", "Cindergrove", "/help", "/character",
                           "Try: ", "How old are you?"})
    CHECK(first.find(word) != std::string::npos);
  CHECK(longest_line(first.substr(first.find("The model"))) < 78);
  bundled.type("/character wren\r");
  CHECK(bundled.until(kPrompt).find("Try: ") != std::string::npos);
  CHECK(bundled.leave() == 0);
  const std::string card = write_file("asks.card", "name: Ann\nask: Who?\nASK: Where?\n\nthe world.\n");
  Terminal other({"--model", chat_model_file(), "--character", card}, 200, {"NO_COLOR=1"});
  const std::string second = other.until(kPrompt);
  INFO(second);
  CHECK(second.find("Try: Who?  Where?\r\n") != std::string::npos);
  CHECK(second.find("The model is ") != std::string::npos);
  CHECK(second.find("plain questions") == std::string::npos);
  CHECK(other.leave() == 0);
}
