// The commands of kaiju-load, each in a file of its own, and what they share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "client.hpp"

namespace kaiju::bench {

void add_hold(CLI::App& app, int& status);     // open connections, and the server's memory
void add_streams(CLI::App& app, int& status);  // what kaiju-bench serve does, over HTTP
void add_mixed(CLI::App& app, int& status);    // requests of all kinds, right and wrong

// A line of /proc/PID/status in MiB, such as VmRSS; 0 where there is none.
double memory_mib(int pid, const std::string& name = "VmRSS");
// Processor time of a process, in seconds.
double cpu_seconds(int pid);
double own_cpu_seconds();
Endpoint endpoint_of(int port);
// The sum of a metric's samples in the text of /metrics.
double metric(const std::string& text, const std::string& name);

}  // namespace kaiju::bench
