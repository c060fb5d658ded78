// Memory the user did not ask for is a bug: a program computing with a model holds its weights, its KV cache and little
// more.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kaiju/format/presets.hpp"
#include "kaiju/format/random_model.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/step/executor.hpp"

namespace {

constexpr bool kSanitized =
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    true;
#else
    false;
#endif

// Bytes of /proc/PID/status's peak of what is resident, of the program the process runs now; 0 when it has ended.
int64_t peak_now(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}

// Most bytes resident at once in a child that ran `argv`; -1 when it did not end with 0. Not by wait4(): its figure has
// in it what this process held when it forked, and that is much more once a GPU's driver is in it.
int64_t peak_bytes(const std::vector<std::string>& argv) {
  const pid_t child = fork();
  if (child == 0) {
    std::vector<char*> pointers;
    for (const std::string& word : argv) pointers.push_back(const_cast<char*>(word.c_str()));
    pointers.push_back(nullptr);
    if (!std::freopen("/dev/null", "w", stdout)) _exit(126);
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  int status = 0;
  int64_t peak = 0;
  pid_t ended = 0;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
    if (const int64_t now = peak_now(child); now > 0)
      peak = now;  // the last: before it ran the program the child was a copy of this process
    ::usleep(500);
  }
  return ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? peak : -1;
}

}  // namespace

TEST_CASE("3,000 tokens of the bundled model take no more memory than weights, KV cache and 64 MiB") {
  if (kSanitized) return;  // shadow memory is not ours
  const std::string model = std::string(KAIJU_SOURCE_DIR) + "/examples/chat/model/kaiju-nano.safetensors";
  const std::string tokens =
      (std::filesystem::temp_directory_path() / fmt::format("kaiju-memory-{}.txt", static_cast<long>(::getpid())))
          .string();
  {
    std::ofstream file(tokens);
    for (int i = 0; i < 3000; ++i) file << 100 + i << ' ';
  }
  // On the processor: a GPU's driver keeps some 100 MB of its own on the host.
  const std::vector<std::string> names = kaiju::backend_names();
  const auto backend = std::find_if(names.begin(), names.end(), [](const std::string& name) { return name != "cuda"; });
  REQUIRE(backend != names.end());
  const int64_t peak = peak_bytes({std::string(KAIJU_PROGRAM_DIR) + "/kaiju-score", model, "--tokens", tokens,
                                   "--chunk", "64", "--threads", "2", "--backend", *backend});
  std::filesystem::remove(tokens);
  REQUIRE(peak > 0);  // -1: kaiju-score failed or is not there
  auto checkpoint = kaiju::Checkpoint::open(model, kaiju::Verify::kNone);
  REQUIRE(checkpoint.ok());
  kaiju::ExecutorOptions options;
  options.backend = *backend;
  options.slot_count = 1;
  options.step_tokens = 64;
  auto executor = kaiju::make_executor(*checkpoint, options);
  REQUIRE(executor.ok());
  const kaiju::ExecutorInfo& info = executor.value()->info();
  const int64_t weights = static_cast<int64_t>(std::filesystem::file_size(model));
  const int64_t cache = info.cache_bytes();
  INFO("peak " << peak << ", weights " << weights << ", KV cache " << cache);
  CHECK(peak <= weights + cache + (int64_t{64} << 20));
  CHECK(peak > weights / 2);  // it did run the model
}

TEST_CASE("more blocks than can be numbered are refused with the numbers, before any memory is allocated") {
  kaiju::ModelConfig config = kaiju::preset("nano", 7).value();
  config.context = 1 << 24;
  const std::string path = (std::filesystem::temp_directory_path() /
                            fmt::format("kaiju-memory-{}.safetensors", static_cast<long>(::getpid())))
                               .string();
  REQUIRE(kaiju::write_random_checkpoint(path, config, 1).ok());
  auto checkpoint = kaiju::Checkpoint::open(path, kaiju::Verify::kNone);
  std::filesystem::remove(path);
  REQUIRE(checkpoint.ok());
  kaiju::ExecutorOptions options;
  options.slot_count = 65536;
  const auto refused = kaiju::make_executor(*checkpoint, options);
  CHECK(refused.status().code() == kaiju::StatusCode::kInvalidArgument);
  INFO(refused.status().message());
  CHECK(refused.status().message().find("65536 live sequences of 16777216 tokens are 17179869184 blocks") !=
        std::string::npos);
  options.slot_count = 1;
  options.cache_bytes = int64_t{1} << 60;
  const auto too_much = kaiju::make_executor(*checkpoint, options);
  CHECK(too_much.status().code() == kaiju::StatusCode::kInvalidArgument);
  INFO(too_much.status().message());
  CHECK(too_much.status().message().find("cache bytes of 1152921504606846976 are ") == 0);
  CHECK(too_much.status().message().find("ask for at most ") != std::string::npos);
}

TEST_CASE("a KV cache larger than any memory is refused with the remedy") {
  kaiju::ModelConfig config = kaiju::preset("nano", 4).value();
  config.n_kv_heads = config.n_heads;
  config.head_dim = 256;  // the most blocks there can be are then more than a process can address
  const std::string path = (std::filesystem::temp_directory_path() /
                            fmt::format("kaiju-memory-{}.safetensors", static_cast<long>(::getpid())))
                               .string();
  REQUIRE(kaiju::write_random_checkpoint(path, config, 1).ok());
  auto checkpoint = kaiju::Checkpoint::open(path, kaiju::Verify::kNone);
  std::filesystem::remove(path);
  REQUIRE(checkpoint.ok());
  kaiju::ExecutorOptions options;
  options.backend = "portable";
  options.cache_bytes = int64_t{1} << 47;
  const auto refused = kaiju::make_executor(*checkpoint, options);
  CHECK(refused.status().code() == kaiju::StatusCode::kOutOfMemory);
  INFO(refused.status().message());
  CHECK(refused.status().message().find("the KV cache needs ") == 0);
  CHECK(refused.status().message().find("ask for fewer live sequences") != std::string::npos);
  CHECK(refused.status().message().find("fewer cache bytes") != std::string::npos);
}
