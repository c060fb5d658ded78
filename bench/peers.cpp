// kaiju-bench peers: runs this program's step and other projects' llama-bench, and llama-batched-bench for several
// streams, in turns on models of like shapes, and prints how many times as fast kaiju is, with the spread over the
// rounds. Speeds of a shared machine change from minute to minute, so only the figures of one round are divided by each
// other.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "kaiju/base/detail/core_count.hpp"

namespace kaiju::bench {
namespace {

namespace files = std::filesystem;

struct Options {
  std::string folder;
  int32_t threads = core_count(), rounds = 5, prompt = 512, generated = 64, context = 160;
  int32_t streams = 0;  // decoded at once, too; 0: one stream alone
  double seconds = 1;
};

// Tokens a second.
struct Speed {
  double prefill = 0, decode = 0, together = 0;  // the last: of all streams
};

// A program under test and what it did in each round.
struct Contestant {
  std::string name, command, batched;  // the latter: of several streams; empty: `command` does both
  bool is_ours = false;
  std::vector<Speed> speeds;
};

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The one file of a folder with this ending.
std::string only_file(const files::path& folder, const std::string& ending) {
  std::string found;
  for (const auto& entry : files::directory_iterator(folder)) {
    if (entry.path().extension() != ending) continue;
    if (!found.empty())
      throw Failed{invalid_argument(fmt::format("{} has several files *{}: leave one", folder.string(), ending))};
    found = entry.path().string();
  }
  if (found.empty())
    throw Failed{invalid_argument(fmt::format("{} has no file *{}: put the model there", folder.string(), ending))};
  return found;
}

std::string first_line(const files::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

// llama-batched-bench on as many positions as kaiju's timed steps have on average before them.
std::string batched_command(const files::path& folder, const std::string& model, const Options& options) {
  const files::path program = folder / "llama-batched-bench";
  if (!files::exists(program))
    throw Failed{invalid_argument(folder.string() + " has no program llama-batched-bench, which --streams runs")};
  const int32_t before = std::max(options.context - options.generated / 2, 1);
  return fmt::format("{} -m {} -t {} -c {} -npp {} -ntg {} -npl {} {}", quoted(program.string()), model,
                     options.threads, options.streams * (before + options.generated), before, options.generated,
                     options.streams, first_line(folder / "batched_options"));
}

// This program on the folder's checkpoint, and the llama-bench of each subfolder that has one.
std::vector<Contestant> contestants(const Options& options) {
  std::vector<Contestant> found;
  Contestant ours{"kaiju", "", "", true, {}};
  ours.command = fmt::format(
      "{} step {} --threads {} --prompts {} --chunk {} --streams 1{} --context {} --seconds {} --buffer-mib 64 --json",
      quoted(files::read_symlink("/proc/self/exe").string()), quoted(only_file(options.folder, ".safetensors")),
      options.threads, options.prompt, options.prompt, options.streams > 0 ? fmt::format(",{}", options.streams) : "",
      options.context, options.seconds);
  found.push_back(std::move(ours));
  for (const auto& entry : files::directory_iterator(options.folder)) {
    const files::path program = entry.path() / "llama-bench";
    if (!entry.is_directory() || !files::exists(program)) continue;
    Contestant peer{entry.path().filename().string(), "", "", false, {}};
    const std::string model = quoted(only_file(entry.path(), ".gguf"));
    peer.command =
        fmt::format("{} -m {} -t {} -p {} -n {} -o json {}", quoted(program.string()), model, options.threads,
                    options.prompt, options.generated, first_line(entry.path() / "options"));
    if (options.streams > 0) peer.batched = batched_command(entry.path(), model, options);
    found.push_back(std::move(peer));
  }
  std::sort(found.begin() + 1, found.end(), [](const Contestant& a, const Contestant& b) { return a.name < b.name; });
  if (found.size() == 1)
    throw Failed{invalid_argument(options.folder + " has no subfolder with a program llama-bench")};
  return found;
}

std::string output_of(const std::string& command, const char* errors = "2>/dev/null") {
  std::FILE* pipe = popen((command + " " + errors).c_str(), "r");
  if (!pipe) throw Failed{internal_error("the system started no shell for: " + command)};
  std::string text;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, got);
  if (pclose(pipe) != 0) throw Failed{invalid_argument("this command failed; run it to see why: " + command)};
  return text;
}

Speed speed_of_ours(const nlohmann::json& said) {
  Speed speed;
  for (const auto& line : said.at("lines")) {
    if (line.at("operation") == "prefill") speed.prefill = line.at("rate");
    if (line.at("operation") == "decode") (line.at("rows") == 1 ? speed.decode : speed.together) = line.at("rate");
  }
  return speed;
}
Speed speed_of_peer(const nlohmann::json& said) {
  Speed speed;
  for (const auto& test : said) {
    const bool generates = test.at("n_gen") > 0;
    (generates ? speed.decode : speed.prefill) = test.at("avg_ts");
  }
  return speed;
}

// The column "S_TG t/s" of the only row of llama-batched-bench's table, which ik_llama.cpp writes to standard error.
double speed_of_batch(const std::string& said) {
  constexpr int kColumn = 8;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind('|', 0) != 0) continue;
    std::istringstream columns(line);
    std::string column;
    for (int i = 0; i <= kColumn && std::getline(columns, column, '|'); ++i) {
      if (i == 1 && column.find_first_of("0123456789") == std::string::npos) break;  // a heading
      if (i == kColumn) return std::strtod(column.c_str(), nullptr);
    }
  }
  return 0;
}

Speed measure(const Contestant& who) {
  const nlohmann::json said = nlohmann::json::parse(output_of(who.command), nullptr, false);
  try {
    Speed speed = who.is_ours ? speed_of_ours(said) : speed_of_peer(said);
    if (!who.batched.empty()) {
      speed.together = speed_of_batch(output_of(who.batched, "2>&1"));
      if (speed.together <= 0)
        throw Failed{invalid_argument("this command printed no table of its streams: " + who.batched)};
    }
    if (speed.prefill > 0 && speed.decode > 0) return speed;
  } catch (const nlohmann::json::exception&) {
  }
  throw Failed{invalid_argument("this command printed no JSON of prefill and decode: " + who.command)};
}

// "1.52 (1.47 to 1.60)": the median, the lowest and the highest.
std::string spread(std::vector<double> values, int digits) {
  std::sort(values.begin(), values.end());
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", values[values.size() / 2], digits, values.front(), digits,
                     values.back(), digits);
}

void print_speeds(const std::vector<Contestant>& all, const char* what, double Speed::* part) {
  tools::print("\n{:<24}{:<32}{}\n", what, "tokens/s", "kaiju is so many times as fast");
  for (const Contestant& each : all) {
    std::vector<double> speeds, ratios;
    for (size_t round = 0; round < each.speeds.size(); ++round) {
      speeds.push_back(each.speeds[round].*part);
      ratios.push_back(all.front().speeds[round].*part / speeds.back());
    }
    tools::print("  {:<22}{:<32}{}\n", each.name, spread(speeds, 1), each.is_ours ? std::string() : spread(ratios, 2));
  }
}

int run(const Options& options) {
  if (!files::is_directory(options.folder)) throw Failed{invalid_argument(options.folder + " is no folder")};
  std::vector<Contestant> all = contestants(options);
  for (int32_t round = 0; round < options.rounds; ++round)
    for (size_t i = 0; i < all.size(); ++i) {
      Contestant& who = all[(i + static_cast<size_t>(round)) % all.size()];  // each is first in its turn
      who.speeds.push_back(measure(who));
      tools::print(stderr, ".");
    }
  tools::print(stderr, "\n");
  tools::print("{} threads, {} rounds: median (lowest to highest)\n", options.threads, options.rounds);
  print_speeds(all, fmt::format("prefill of {}", options.prompt).c_str(), &Speed::prefill);
  print_speeds(all, "decode of 1 stream", &Speed::decode);
  if (options.streams > 0) print_speeds(all, fmt::format("decode of {}", options.streams).c_str(), &Speed::together);
  return 0;
}

}  // namespace

void add_peers(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("peers", "runs step and llama-bench programs in turns and prints ratios");
  auto options = std::make_shared<Options>();
  command
      ->add_option("FOLDER", options->folder,
                   "a checkpoint (*.safetensors), and a subfolder for each peer with its program llama-bench, its "
                   "model (*.gguf) and, in the first line of a file `options`, more of its options; with --streams "
                   "llama-batched-bench, too, and `batched_options`")
      ->required();
  command->add_option("--threads", options->threads, "threads of every program")
      ->check(tools::whole_number(1, 256))
      ->capture_default_str();
  command->add_option("--rounds", options->rounds, "how often each program runs")
      ->check(tools::whole_number(1, 1000))
      ->capture_default_str();
  command->add_option("--prompt", options->prompt, "tokens of the prompt")
      ->check(tools::whole_number(2, 65536))
      ->capture_default_str();
  command->add_option("--generated", options->generated, "tokens that a peer generates")
      ->check(tools::whole_number(1, 65536))
      ->capture_default_str();
  command->add_option("--context", options->context, "positions before kaiju's timed decode steps")
      ->check(tools::whole_number(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--streams", options->streams, "also decode so many streams at once; 0: one alone")
      ->check(tools::whole_number(0, 4096))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "time that kaiju spends on each line")
      ->check(tools::number_from(0.0001, 86400))
      ->capture_default_str();
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
