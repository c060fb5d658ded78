// Shows where the time of a GPU step goes. CUDA loads this library into a program (CUDA_INJECTION64_PATH); when the
// program ends, the library writes tables of what the GPU did.
//
// A step is the time between two waits for the GPU. A step that was started while another ran begins before the wait
// for the other is over; its first launches are shown as the last of the other step. Steps that launched the same
// kernels in the same order are of one kind. For every kind with at least kLeastSteps steps, the step of median length
// is shown: all GPU activities, one line each, then sums by kernel, then the host's calls. Kernels overlap, and a
// kernel that waits for previous kernels starts long before it computes. So the important column is `adds`: by how much
// a kernel extends the time so far, gaps included. The values of `adds` sum to the step's time.
//
// Tracing makes the start of a graph slower: a decode step of `small` takes the host about 100 us longer, which are
// shown as added by the first kernel after the copy.
//
// The environment variable KAIJU_TRACE names the output file; without it the tables go to standard error.
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr size_t kBufferBytes = 8 << 20;
constexpr size_t kLeastSteps = 8;

struct Work {  // of the GPU; times in ns
  uint64_t start, end;
  const char* name;
  int64_t blocks;  // 0: a copy
  int32_t threads;
  std::string what() const;
};
struct Call {  // of the host
  uint64_t start, end;
  const char* name;
};

std::mutex mutex;  // buffers complete on a thread of CUPTI's
std::vector<Work> works;
std::vector<Call> calls;

bool check(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return true;
  const char* why = nullptr;
  cuptiGetResultString(result, &why);
  std::fprintf(stderr, "trace: %s: %s\n", what, why ? why : "?");
  return false;
}

// "tile_kernel<128, 256>" of a mangled name: neither what it returns, nor where it is, nor what it takes.
std::string short_name(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> whole(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                     std::free);
  std::string name = status == 0 ? whole.get() : mangled;
  for (const std::string_view part :
       {"void ", "kaiju::cuda::", "(anonymous namespace)::", "(kaiju::cuda::MatmulKind)", "(int)", "(bool)"})
    for (size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, part.size());
  const size_t parameters = name.rfind('(');
  return name.substr(0, std::min(parameters, size_t{60}));
}

std::string Work::what() const {
  return blocks == 0 ? name : short_name(name) + " [" + std::to_string(blocks) + " x " + std::to_string(threads) + "]";
}

void take(const CUpti_ActivityKernel10& kernel) {
  works.push_back(
      {kernel.start, kernel.end, kernel.name, int64_t{kernel.gridX} * kernel.gridY * kernel.gridZ, kernel.blockX});
}
void take(const CUpti_ActivityMemcpy6& copy) {
  const char* kind = copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "copy to the GPU"
                     : copy.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "copy to the host"
                                                                        : "copy";
  works.push_back({copy.start, copy.end, kind, 0, 0});
}
void take(const CUpti_ActivityAPI& api) {
  const char* name = "?";
  cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, api.cbid, &name);
  calls.push_back({api.start, api.end, name});
}

void CUPTIAPI give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = *buffer ? kBufferBytes : 0;
  *most_records = 0;
}
void CUPTIAPI read_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t bytes) {
  const std::lock_guard lock(mutex);
  for (CUpti_Activity* record = nullptr; cuptiActivityGetNextRecord(buffer, bytes, &record) == CUPTI_SUCCESS;) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) take(*reinterpret_cast<CUpti_ActivityKernel10*>(record));
    if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) take(*reinterpret_cast<CUpti_ActivityMemcpy6*>(record));
    if (record->kind == CUPTI_ACTIVITY_KIND_RUNTIME) take(*reinterpret_cast<CUpti_ActivityAPI*>(record));
  }
  std::free(buffer);
}

struct Step {
  uint64_t begin, end;  // ns: from the end of one synchronisation to that of the next
  size_t first_work, end_work;
  size_t first_call, end_call;
};

std::vector<Step> find_steps() {
  std::vector<Step> steps;
  size_t work = 0, first_call = 0;
  uint64_t begin = 0;
  for (size_t c = 0; c < calls.size(); ++c) {
    const std::string_view call = calls[c].name;
    if (call.find("StreamSynchronize") == call.npos && call.find("EventSynchronize") == call.npos) continue;
    const size_t first_work = work;
    while (work < works.size() && works[work].start < calls[c].end) ++work;
    if (begin > 0 && work > first_work) steps.push_back({begin, calls[c].end, first_work, work, first_call, c + 1});
    begin = calls[c].end;
    first_call = c + 1;
  }
  return steps;
}

double us(uint64_t from, uint64_t to) { return 1e-3 * static_cast<double>(static_cast<int64_t>(to - from)); }

void show(std::FILE* out, const Step& step, size_t count, double least, double most) {
  struct Sum {
    int count = 0;
    double lasts = 0, adds = 0;
  };
  std::map<std::string, Sum> sums;
  const double whole = us(step.begin, step.end);
  std::fprintf(out, "\n==== %zu steps of %zu launches and copies, %.1f to %.1f us; this one %.1f us ====\n", count,
               step.end_work - step.first_work, least, most, whole);
  std::fprintf(out, "%10s %9s %9s %9s  %s\n", "start us", "lasts", "gap", "adds", "what");
  uint64_t last_end = step.begin;
  double idle = 0;
  for (size_t w = step.first_work; w < step.end_work; ++w) {
    const Work& work = works[w];
    const double gap = us(last_end, work.start), adds = work.end > last_end ? us(last_end, work.end) : 0,
                 lasts = us(work.start, work.end);
    std::fprintf(out, "%10.2f %9.2f %9.2f %9.2f  %s\n", us(step.begin, work.start), lasts, gap, adds,
                 work.what().c_str());
    idle += std::max(gap, 0.0);
    Sum& sum = sums[work.what()];
    ++sum.count, sum.lasts += lasts, sum.adds += adds;
    last_end = std::max(last_end, work.end);
  }
  std::fprintf(out, "%10.2f %29.2f  until the host has it\nidle %.1f us of %.1f\n\n%6s %9s %9s %9s %7s  %s\n",
               us(step.begin, step.end), us(last_end, step.end), idle + us(last_end, step.end), whole, "count",
               "lasts us", "adds us", "in all", "share", "what");
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.adds > b.second.adds; });
  for (const auto& [what, sum] : sorted)
    std::fprintf(out, "%6d %9.2f %9.2f %9.1f %6.1f%%  %s\n", sum.count, sum.lasts / sum.count, sum.adds / sum.count,
                 sum.adds, 100 * sum.adds / whole, what.c_str());
  std::fprintf(out, "\n%10s %9s  %s\n", "start us", "lasts", "the host's calls");
  for (size_t c = step.first_call; c < step.end_call; ++c)
    std::fprintf(out, "%10.2f %9.2f  %s\n", us(step.begin, calls[c].start), us(calls[c].start, calls[c].end),
                 calls[c].name);
}

void write() {
  check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "the last records");
  const std::lock_guard lock(mutex);
  const char* path = std::getenv("KAIJU_TRACE");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(path ? std::fopen(path, "w") : nullptr,
                                                             [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  std::FILE* out = file ? file.get() : stderr;
  const auto earlier = [](const auto& a, const auto& b) { return a.start < b.start; };
  std::sort(works.begin(), works.end(), earlier);
  std::sort(calls.begin(), calls.end(), earlier);
  std::fprintf(out, "%zu launches and copies, %zu calls\n", works.size(), calls.size());
  std::map<std::string, std::vector<Step>> kinds;
  for (const Step& step : find_steps()) {
    std::string kind;
    for (size_t w = step.first_work; w < step.end_work; ++w) kind += works[w].what() + '\n';
    kinds[kind].push_back(step);
  }
  for (auto& [kind, steps] : kinds) {
    if (steps.size() < kLeastSteps) continue;
    std::sort(steps.begin(), steps.end(),
              [](const Step& a, const Step& b) { return a.end - a.begin < b.end - b.begin; });
    show(out, steps[steps.size() / 2], steps.size(), us(steps.front().begin, steps.front().end),
         us(steps.back().begin, steps.back().end));
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  const bool ready = check(cuptiActivityRegisterCallbacks(give_buffer, read_buffer), "buffers") &&
                     check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "kernels") &&
                     check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY), "copies") &&
                     check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME), "calls");
  if (ready) std::atexit(write);
  return ready;
}
