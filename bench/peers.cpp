// kaiju-bench peers: runs this program's step and other projects' llama-bench, and llama-batched-bench for several
// streams, in turns on models of like shapes, and prints how many times as fast kaiju is, with the spread over the
// rounds. Speeds of a shared machine change from minute to minute, so only the figures of one round are divided by each
// other. A peer that fails is left out from then on, and the others go on.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench.hpp"
#include "examples/tools/number_from.hpp"
#include "examples/tools/standard_streams.hpp"
#include "kaiju/base/detail/core_count.hpp"

namespace kaiju::bench {
namespace peers_command {
namespace {

namespace files = std::filesystem;

struct Options {
  std::string folder;
  int32_t threads = core_count(), rounds = 5, prompt = 512, generated = 64, context = 160;
  std::vector<int32_t> streams;  // decoded at once, beside one stream alone
  double seconds = 1;
};

// Tokens a second.
struct Speed {
  double prefill = 0, decode = 0;
  std::map<int32_t, double> together;  // by the number of streams: of all of them
};

// A program under test and what it did in each round.
struct Contestant {
  std::string name, command, batched;  // the latter: of several streams; empty: `command` does both
  bool is_ours = false, failed = false;
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
  const int32_t most = *std::max_element(options.streams.begin(), options.streams.end());
  return fmt::format("{} -m {} -t {} -c {} -npp {} -ntg {} -npl {} {}", quoted(program.string()), model,
                     options.threads, most * (before + options.generated), before, options.generated,
                     fmt::join(options.streams, ","), first_line(folder / "batched_options"));
}

// This program on the folder's checkpoint, and the llama-bench of each subfolder that has one.
std::vector<Contestant> contestants(const Options& options) {
  std::vector<Contestant> found;
  Contestant ours{"kaiju", "", "", true, false, {}};
  std::vector<int32_t> streams = {1};
  streams.insert(streams.end(), options.streams.begin(), options.streams.end());
  ours.command = fmt::format(
      "{} step {} --threads {} --prompts {} --chunk {} --streams {} --context {} --seconds {} "
      "--buffer-mib 64 --median --json",
      quoted(files::read_symlink("/proc/self/exe").string()), quoted(only_file(options.folder, ".safetensors")),
      options.threads, options.prompt, options.prompt, fmt::join(streams, ","), options.context, options.seconds);
  found.push_back(std::move(ours));
  for (const auto& entry : files::directory_iterator(options.folder)) {
    const files::path program = entry.path() / "llama-bench";
    if (!entry.is_directory() || !files::exists(program)) continue;
    Contestant peer{entry.path().filename().string(), "", "", false, false, {}};
    const std::string model = quoted(only_file(entry.path(), ".gguf"));
    peer.command =
        fmt::format("{} -m {} -t {} -p {} -n {} -o json {}", quoted(program.string()), model, options.threads,
                    options.prompt, options.generated, first_line(entry.path() / "options"));
    if (!options.streams.empty()) peer.batched = batched_command(entry.path(), model, options);
    found.push_back(std::move(peer));
  }
  std::sort(found.begin() + 1, found.end(), [](const Contestant& a, const Contestant& b) { return a.name < b.name; });
  if (found.size() == 1)
    throw Failed{invalid_argument(options.folder + " has no subfolder with a program llama-bench")};
  return found;
}

// A file for a command's standard error; gone with the object.
class ErrorFile {
 public:
  ErrorFile() : path_((files::temp_directory_path() / "kaiju-peers-XXXXXX").string()) {
    const int made = ::mkstemp(path_.data());
    if (made < 0) throw Failed{internal_error("the system has no place for a temporary file")};
    ::close(made);
  }
  ~ErrorFile() { ::unlink(path_.c_str()); }
  ErrorFile(const ErrorFile&) = delete;
  ErrorFile& operator=(const ErrorFile&) = delete;

  const std::string& path() const { return path_; }
  // The end of what is in it.
  std::string last_words() const {
    constexpr size_t kMost = 600;
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str().size() > kMost ? "... " + text.str().substr(text.str().size() - kMost) : text.str();
  }

 private:
  std::string path_;
};

// What a command writes to standard output; `with_errors`: and then what it writes to standard error.
std::string output_of(const std::string& command, bool with_errors = false) {
  const ErrorFile errors;
  std::FILE* pipe = popen(fmt::format("{} 2>{}", command, quoted(errors.path())).c_str(), "r");
  if (!pipe) throw Failed{internal_error("the system started no shell for: " + command)};
  std::string text;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, got);
  if (pclose(pipe) != 0)
    throw Failed{invalid_argument(fmt::format("this command failed: {}\n{}", command, errors.last_words()))};
  std::ifstream told(errors.path());
  if (with_errors) text.append(std::istreambuf_iterator<char>(told), {});
  return text;
}

Speed speed_of_ours(const nlohmann::json& said) {
  Speed speed;
  for (const auto& line : said.at("lines")) {
    if (line.at("operation") == "prefill") speed.prefill = line.at("rate");
    if (line.at("operation") == "decode") speed.together[line.at("rows")] = line.at("rate");
  }
  speed.decode = speed.together[1];
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

// The columns "B" and "S_TG t/s" of llama-batched-bench's table, which ik_llama.cpp writes to standard error.
std::map<int32_t, double> speeds_of_batches(const std::string& said) {
  constexpr int kStreams = 3, kSpeed = 8;
  std::map<int32_t, double> speeds;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind('|', 0) != 0) continue;
    std::istringstream columns(line);
    std::string column;
    int32_t streams = 0;
    for (int i = 0; i <= kSpeed && std::getline(columns, column, '|'); ++i) {
      if (i == kStreams) streams = std::atoi(column.c_str());
      if (i == kSpeed && streams > 0) speeds[streams] = std::strtod(column.c_str(), nullptr);
    }
  }
  return speeds;
}

Speed measure(const Contestant& who, const Options& options) {
  Speed speed;
  try {
    const nlohmann::json said = nlohmann::json::parse(output_of(who.command));
    speed = who.is_ours ? speed_of_ours(said) : speed_of_peer(said);
  } catch (const nlohmann::json::exception&) {
  }
  if (speed.prefill <= 0 || speed.decode <= 0)
    throw Failed{invalid_argument("this command printed no JSON of prefill and decode: " + who.command)};
  if (!who.batched.empty()) speed.together = speeds_of_batches(output_of(who.batched, true));
  for (const int32_t streams : options.streams)
    if (speed.together[streams] <= 0)
      throw Failed{invalid_argument(fmt::format("this command told no speed of {} streams: {}", streams,
                                                who.is_ours ? who.command : who.batched))};
  return speed;
}

// "1.52 (1.47 to 1.60)": the median, which of an even number is the mean of the two in the middle, the lowest and the
// highest.
std::string spread(std::vector<double> values, int digits) {
  std::sort(values.begin(), values.end());
  const double median = (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", median, digits, values.front(), digits, values.back(), digits);
}

void print_speeds(const std::vector<Contestant>& all, const std::string& what,
                  const std::function<double(const Speed&)>& part) {
  tools::print("\n{:<24}{:<32}{}\n", what, "tokens/s", "kaiju is so many times as fast");
  for (const Contestant& each : all) {
    if (each.failed) {
      tools::print("  {:<22}failed\n", each.name);
      continue;
    }
    std::vector<double> speeds, ratios;
    for (size_t round = 0; round < each.speeds.size(); ++round) {
      speeds.push_back(part(each.speeds[round]));
      ratios.push_back(part(all.front().speeds[round]) / speeds.back());
    }
    tools::print("  {:<22}{:<32}{}\n", each.name, spread(speeds, 1), each.is_ours ? std::string() : spread(ratios, 2));
  }
}

// A peer's failure is told; without kaiju's own figures, or without a peer, there is nothing to compare.
void take_turn(Contestant& who, const Options& options) {
  if (who.failed) return;
  try {
    who.speeds.push_back(measure(who, options));
  } catch (const Failed& failed) {
    if (who.is_ours) throw;
    who.failed = true;
    tools::print(stderr, "\n{} is left out: {}\n", who.name, failed.what());
  }
  tools::print(stderr, ".");
}

int run(const Options& options) {
  if (!files::is_directory(options.folder)) throw Failed{invalid_argument(options.folder + " is no folder")};
  std::vector<Contestant> all = contestants(options);
  for (int32_t round = 0; round < options.rounds; ++round)
    for (size_t i = 0; i < all.size(); ++i)
      take_turn(all[(i + static_cast<size_t>(round)) % all.size()], options);  // each is first in its turn
  tools::print(stderr, "\n");
  if (std::all_of(all.begin() + 1, all.end(), [](const Contestant& peer) { return peer.failed; }))
    throw Failed{invalid_argument("every peer failed")};
  tools::print("{} threads, {} rounds: median (lowest to highest)\n", options.threads, options.rounds);
  print_speeds(all, fmt::format("prefill of {}", options.prompt), [](const Speed& speed) { return speed.prefill; });
  print_speeds(all, "decode of 1 stream", [](const Speed& speed) { return speed.decode; });
  for (const int32_t streams : options.streams)
    print_speeds(all, fmt::format("decode of {}", streams),
                 [streams](const Speed& speed) { return speed.together.at(streams); });
  return 0;
}

}  // namespace
}  // namespace peers_command

void add_peers(CLI::App& app, int& status) {
  using namespace peers_command;
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
  command->add_option("--streams", options->streams, "numbers of streams to decode at once, beside one alone")
      ->check(tools::whole_number(2, 4096))
      ->delimiter(',');
  command->add_option("--seconds", options->seconds, "time that kaiju spends on each line")
      ->check(tools::number_from(0.0001, 86400))
      ->capture_default_str();
  command->footer(
      "Examples:\n  kaiju-bench peers peers\n  kaiju-bench peers peers --rounds 3 --streams 4,16\n"
      "where the folder peers has kaiju.safetensors, and other/llama-bench with other/model.gguf");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace kaiju::bench
