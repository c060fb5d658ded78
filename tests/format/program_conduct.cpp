// How every program answers a wrong command line and an output that cannot be written.
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "catch.hpp"

namespace {

const std::string kPrograms = KAIJU_PROGRAM_DIR;
const std::string kModel = std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors";

int exit_code(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("a wrong command line is exit code 2, from every program") {
  for (const char* line :
       {"kaiju-inspect", "kaiju-make", "kaiju-score", "kaiju-perplexity", "kaiju-bench", "kaiju-bench nonsense",
        "kaiju-score x --tokens y --chunk -1", "kaiju-bench step x --seconds 0",
        "kaiju-make --out x --preset nano --layers 0", "kaiju-inspect x --nonsense",
        "kaiju-bench serve x --cache-bytes -1", "kaiju-bench hour x --host-bytes -1",
        "kaiju-bench step x --seconds nan", "kaiju-bench serve x --top-p 0", "kaiju-bench hour x --seed -1",
        "kaiju-bench serve x --temperature 0.0005"}) {
    INFO(line);
    CHECK(exit_code(kPrograms + "/" + line + " >/dev/null 2>&1") == 2);
  }
}

TEST_CASE("traffic that makes no sense is exit code 2, before anything is made of it") {
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
  for (const char* name : {"inspect", "make", "score", "perplexity", "bench"})
    for (const char* option : {"--help", "--version"})
      CHECK(exit_code(kPrograms + "/kaiju-" + name + " " + option + " | grep -q .") == 0);
}

TEST_CASE("so it is with the scripts of tests on a GPU, which need none to say so") {
  for (const char* name : {"sanitize", "digests"}) {
    const std::string script = "sh " + std::string(KAIJU_SOURCE_DIR) + "/tests/" + name + "_cuda.sh ";
    INFO(script);
    CHECK(exit_code(script + "--help | grep -q usage:") == 0);
    for (const char* wrong : {"--programs", "--nonsense", "nonsense"})
      CHECK(exit_code(script + wrong + " 2>&1 >/dev/null | grep -q \"^" + name + "_cuda.sh: \"") == 0);
  }
  CHECK(exit_code("sh " + std::string(KAIJU_SOURCE_DIR) + "/tests/sanitize_cuda.sh --jobs x 2>/dev/null") == 2);
}

TEST_CASE("an output that cannot be written is exit code 1") {
  CHECK(exit_code("echo 5 6 7 | " + kPrograms + "/kaiju-score " + kModel + " --tokens - >/dev/full 2>/dev/null") == 1);
  CHECK(exit_code(kPrograms + "/kaiju-inspect " + kModel + " >/dev/full 2>/dev/null") == 1);
}

TEST_CASE("kaiju-score refuses tokens that are none, by name") {
  for (const char* tokens : {"8192", "-1", "abc", "1,2,3", "99999999999999999999", ""}) {
    INFO(tokens);
    CHECK(exit_code(std::string("echo '") + tokens + "' | " + kPrograms + "/kaiju-score " + kModel +
                    " --tokens - >/dev/null 2>&1") == 1);
  }
}

TEST_CASE("what kaiju-score says of tokens that are none holds nothing that a terminal obeys") {
  CHECK(exit_code("printf '\\033[2J\\377' | " + kPrograms + "/kaiju-score " + kModel +
                  " --tokens - 2>&1 | LC_ALL=C grep -q '[^ -~]'") == 1);
  CHECK(exit_code("printf '\\033[2J\\377' | " + kPrograms + "/kaiju-score " + kModel +
                  " --tokens - 2>&1 | grep -q '\"?\\[2J?\"'") == 0);
}
