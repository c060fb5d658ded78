// kaiju-load: load for kaiju-server from a process of its own. README.md of examples/server has what it measured.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "commands.hpp"
#include "examples/tools/program.hpp"

namespace kaiju::bench {

double memory_mib(int pid, const std::string& name) {
  std::ifstream in(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name + ":")) return std::atof(line.c_str() + name.size() + 1) / 1024;
  return 0;
}

double cpu_seconds(int pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::istringstream rest(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string word;
  for (int i = 0; i < 11; ++i) rest >> word;
  double user = 0, system = 0;
  rest >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double own_cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

Endpoint endpoint_of(int port) { return {asio::ip::make_address("127.0.0.1"), static_cast<unsigned short>(port)}; }

double metric(const std::string& text, const std::string& name) {
  std::istringstream in(text);
  double sum = 0;
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name) && line.size() > name.size() && (line[name.size()] == '{' || line[name.size()] == ' '))
      sum += std::atof(line.c_str() + line.rfind(' '));
  return sum;
}

}  // namespace kaiju::bench

namespace {

int run(int argc, char** argv) {
  using namespace kaiju::bench;
  std::signal(SIGPIPE, SIG_IGN);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
  }
  CLI::App app("Load for a kaiju-server that runs.", "kaiju-load");
  app.require_subcommand(1);
  int status = 0;
  add_hold(app, status);
  add_streams(app, status);
  add_mixed(app, status);
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  return status;
}

}  // namespace

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-load", run, argc, argv); }
