// kaiju-bench-attention: attention alone on a GPU. It compares the Hopper kernels and the kernel for every chip with
// the reference, then times them at the shapes of the preset `small`. It times three forms: the contract's exponential,
// the hardware's exponential, and the hardware's with scores computed once. The last two give other bits and show what
// exactness costs. All rows of a form are compared before it is timed.
//
//   cmake --preset cuda && cmake --build build/cuda --target kaiju-bench-attention
//   build/cuda/bin/kaiju-bench-attention STAGE
//
// Stages: `wgmma` checks one instruction of each kind against its description. `check FORM [FROM [TO]]` checks the
// cases from number FROM to before TO; FORM is mma (both forms of the kernel for every chip), whole (Hopper, all chunks
// of a row in one block), split (Hopper, chunks in several blocks), or reference (the CPU's part alone, to see how long
// it takes). `times [FROM [TO]]` times the shapes. `check-scaled` and `times-scaled` are for version 2 of the
// arithmetic (attention_scaled.cu).
//
// Shares are of the practical ceilings of an H200: 1,000 TOP/s (its matrix units do twice the operations that are
// counted), 4.40 TB/s. Operations are counted as in docs/arithmetic.md, 4 a visible key, row and channel; bytes are the
// keys and values, read once.
//
// This file has the times and main(); attention_check.cu has the check.
#include <cstdlib>
#include <string_view>
#include <type_traits>

#include "attention.cuh"
#include "cuda/kernels/sm90_attention_decode.cuh"
#include "cuda/kernels/sm90_attention_prefill.cuh"

namespace kaiju::cuda::bench {
namespace {

// Results that differ, and by how much at most.
struct Difference {
  unsigned long long count;
  int32_t most;
};
__global__ void find_difference(const int8_t* got, const int8_t* expected, int64_t count, Difference* found) {
  uint32_t wrong = 0;
  int32_t most = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x)
    wrong += got[i] != expected[i], most = max(most, abs(got[i] - expected[i]));
  if (wrong > 0) atomicAdd(&found->count, wrong), atomicMax(&found->most, most);
}

__global__ void fill_random(uint4* to, int64_t count, uint32_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u ^ seed;
    uint4 v;
    uint32_t* w = &v.x;
    for (int e = 0; e < 4; ++e) {
      x ^= x << 13, x ^= x >> 17, x ^= x << 5;
      w[e] = __vmaxs4(x, 0x81818181u);  // never -128
    }
    to[i] = v;
  }
}

float median_ms(int runs, const std::vector<float>& from) {
  std::vector<float> times = from;
  std::sort(times.begin(), times.end());
  return times[static_cast<size_t>(runs / 2)];
}

template <class Launch>
float time_ms(int runs, Launch launch) {
  cudaEvent_t start, stop;
  CHECKED(cudaEventCreate(&start));
  CHECKED(cudaEventCreate(&stop));
  for (int i = 0; i < 3; ++i) launch(i);
  CHECKED(cudaDeviceSynchronize());
  std::vector<float> times;
  for (int i = 0, at_once = 1; i < runs + 1;
       ++i) {  // the first says how many launches at once hide what the host takes
    CHECKED(cudaEventRecord(start));
    for (int j = 0; j < at_once; ++j) launch(i + j);
    CHECKED(cudaEventRecord(stop));
    CHECKED(cudaEventSynchronize(stop));
    float ms = 0;
    CHECKED(cudaEventElapsedTime(&ms, start, stop));
    if (i == 0)
      at_once = ms < 0.3f ? 20 : 1;
    else
      times.push_back(ms / static_cast<float>(at_once));
  }
  cudaEventDestroy(start), cudaEventDestroy(stop);
  return median_ms(runs, times);
}

// Of an H200: the matrix units do 8 operations where 4 are counted, 2,000 TOP/s of them; memory was measured.
constexpr double kFloorTops = 1000, kFloorTb = 4.40;

// One shape: its batch and operands on the GPU, and the time of each kernel that serves it.
template <int kHeadDim>
class TimedShape {
 public:
  TimedShape(const char* what, int32_t heads, int32_t window, const Rows& rows, bool decode)
      : what_(what),
        heads_(heads),
        window_(window),
        decode_(decode),
        tables_(scattered_tables(rows, random_, blocks_)),
        kind_(window > 0 ? BlockKind::kWindow : BlockKind::kGlobal),
        batch_(rows, tables_, kind_),
        pool_(static_cast<size_t>(kSlotBytes * kCopies * blocks_)),
        elements_(batch_.count() * static_cast<size_t>(heads) * kHeadDim),
        queries_(elements_),
        out_(elements_),
        expected_(elements_),
        args_{queries_.data, heads, 3.3e-5f, out_inverse_.data, out_.data},
        slot_{pool_.data, kSlotBytes * kCopies, 0, 1, kHeadDim, kind_, window},
        there_(batch_.there()) {
    fill_random<<<1024, 256>>>(reinterpret_cast<uint4*>(pool_.data), static_cast<int64_t>(pool_.count / 16), 1);
    fill_random<<<1024, 256>>>(reinterpret_cast<uint4*>(queries_.data), static_cast<int64_t>(queries_.count / 16), 2);
    double keys = 0, seen = 0;  // visible keys of all rows; keys that must be read
    for (const auto& [position, count] : rows) {
      for (int32_t p = position; p < position + count; ++p) keys += p + 1 - slot_.first_visible(p);
      seen += position + count - slot_.first_visible(position);
    }
    operations_ = 4.0 * keys * heads * kHeadDim, bytes_ = 2.0 * seen * kHeadDim;
    // Every timed kernel is compared with this: the kernel for every chip with each row in one place, which `check mma`
    // holds to the reference.
    CHECKED(attend_sm80(nullptr, chip_, {queries_.data, heads, args_.z, out_inverse_.data, expected_.data}, there_,
                        slot_, {}));
  }

  void run() {
    time("mma.sync", true, [&] { return attend_sm80(nullptr, chip_, args_, there_, slot_, scratch_.view); });
    if constexpr (kHeadDim <= 128) time_sm90();
  }

 private:
  static constexpr int32_t kCopies = 4;  // of the cache, used in turn: the L2 cache holds none of them
  static constexpr int64_t kSlotBytes = int64_t{2} * kBlockTokens * kHeadDim;

  void time_sm90() {
    contract("contract", ChunksApart::kWhereFaster);
    if (!decode_ && batch_.count() <= 512) contract("whole", ChunksApart::kNever);
    AttentionWork work = attention_work(args_, there_, slot_, scratch_.view);
    if (decode_ && !work.one_row_each) return;  // prefill's kernel takes it
    if (decode_) {
      contract("whole", ChunksApart::kNever);
      contract("apart", ChunksApart::kAlways);
      CHECKED(plan_decode(nullptr, work));
    }
    // Decode: by the kernel of many sequences, also windows that go by pairs of blocks; so the contract's time by that
    // kernel, too.
    weighed_by<HardwareWeight>("hardware", work);
    weighed_by<OnePassWeight>("one pass", work);
    if (decode_) weighed_by<ContractWeight>("many sequences", work);
  }
  // Planned once, as for the layers of a step.
  void contract(const char* how, ChunksApart apart) {
    scratch_.view.apart = apart;
    int32_t& planned = scratch_.view.planned[static_cast<int32_t>(kind_)];
    planned = 0;
    time(how, true, [&] {
      const cudaError_t error = attend_sm90(nullptr, args_, there_, slot_, scratch_.view);
      planned = 1 + window_;
      return error;
    });
    scratch_.view.apart = ChunksApart::kWhereFaster;
  }
  template <class Weight>
  void weighed_by(const char* how, AttentionWork& work) {
    time(how, std::is_same_v<Weight, ContractWeight>, [&] {
      work.kv.slot_offset = slot_.slot_offset;
      if (decode_) return launch_decode_of<kHeadDim, 40, Weight>(nullptr, work);
      const auto tiles =
          static_cast<int32_t>((batch_.count() * static_cast<size_t>(work.heads) + kWideRows - 1) / kWideRows);
      return launch_prefill<kHeadDim, Weight>(nullptr, work, tiles + work.segment_count);
    });
  }

  // Compares what it computes with what is expected, then times it.
  template <class Launch>
  void time(const char* how, bool exact, Launch&& launch) {
    slot_.slot_offset = 0;
    CHECKED(launch());  // plans
    CHECKED(cudaMemset(out_.data, 0xA5, elements_));
    CHECKED(cudaMemset(difference_.data, 0, sizeof(Difference)));
    CHECKED(launch());
    find_difference<<<1024, 256>>>(out_.data, expected_.data, static_cast<int64_t>(elements_), difference_.data);
    const Difference found = difference_.back()[0];
    if (exact && found.count > 0) {
      ++failures;
      std::printf("WRONG %s %s: %llu of %zu results, by up to %d; not timed\n", what_, how, found.count, elements_,
                  found.most);
      return;
    }
    report(how, time_ms(decode_ ? 40 : 10, [&](int i) {
             slot_.slot_offset = kSlotBytes * (i % kCopies);
             CHECKED(launch());
           }));
    if (!exact)
      std::printf(" (other bits: %.2g%% of the results, by up to %d)",
                  100.0 * static_cast<double>(found.count) / static_cast<double>(elements_), found.most);
    std::printf("\n");
    std::fflush(stdout);
  }
  void report(const char* how, float ms) const {
    const double tops = operations_ / ms * 1e-9, tb = bytes_ / ms * 1e-9, matrix = tops / kFloorTops,
                 memory = tb / kFloorTb;
    std::printf("%-34s %-14s %9.1f us  %7.1f TOP/s  %6.3f TB/s  %3.0f%% of %s", what_, how, 1e3 * ms, tops, tb,
                100 * std::max(matrix, memory), matrix > memory ? "the matrix units" : "memory");
  }

  const char* what_;
  int32_t heads_, window_;
  bool decode_;
  std::mt19937_64 random_{5};
  int32_t blocks_ = 0;
  std::vector<std::vector<BlockId>> tables_;
  BlockKind kind_;
  Rowed batch_;
  There<std::byte> pool_;
  size_t elements_;
  There<int8_t> queries_, out_, expected_;
  There<float> out_inverse_{std::vector<float>(kHeadDim, 2.0f)};
  There<Difference> difference_{1};
  Scratch scratch_{2560, kHeadDim};
  Chip chip_ = this_chip();
  AttentionArgs args_;
  KvSlot slot_;
  Batch there_;
  double operations_ = 0, bytes_ = 0;
};
template <int kHeadDim>
void time_shape(const char* what, int32_t heads, int32_t window, const Rows& rows, bool decode) {
  TimedShape<kHeadDim>(what, heads, window, rows, decode).run();
}

void timings(int from, int to) {
  const auto each = [](int32_t count, int32_t position) { return Rows(static_cast<size_t>(count), {position, 1}); };
  int at = 0;
  const auto of_heads = [&](int32_t heads, const char* what, int32_t window, const Rows& rows) {
    if (at >= from && at < to) time_shape<128>(what, heads, window, rows, rows[0].second == 1);
    ++at;
  };
  const auto shape = [&](const char* what, int32_t window, const Rows& rows) { of_heads(40, what, window, rows); };
  shape("prefill 8k causal", 0, {{0, 8192}});
  shape("prefill 32k causal", 0, {{0, 32768}});
  shape("prefill 8k, window 1024", 1024, {{0, 8192}});
  shape("prefill 2k after 30k", 0, {{30720, 2048}});
  shape("decode 4k x 256", 0, each(256, 4095));
  shape("decode 131k x 2", 0, each(2, 131071));
  shape("decode 4k x 64", 0, each(64, 4095));
  shape("decode 16k x 64", 0, each(64, 16383));
  shape("decode 4k x 1", 0, each(1, 4095));
  shape("decode 4k x 256, window 1024", 1024, each(256, 4095));
  shape("decode 4k x 1, window 1024", 1024, each(1, 4095));
  shape("decode 4k x 300", 0, each(300, 4095));
  shape("decode 4k x 64, window 1024", 1024, each(64, 4095));
  shape("decode 4.1k x 64, window 1024", 1024, each(64, 4150));
  shape("decode 4.1k x 256, window 1024", 1024, each(256, 4150));
  shape("decode 4.1k x 1, window 1024", 1024, each(1, 4150));
  shape("decode 4k x 16", 0, each(16, 4095));
  shape("decode 4k x 132", 0, each(132, 4095));
  if (at >= from && at < to) time_shape<64>("prefill 32k causal, 64 channels", 40, 0, {{0, 32768}}, false);
  ++at;
  const auto wide = [&](const char* what, int32_t window, const Rows& rows) {
    if (at >= from && at < to) time_shape<256>(what, 20, window, rows, rows[0].second == 1);
    ++at;
  };
  wide("prefill 8k, 256 channels", 0, {{0, 8192}});
  wide("prefill 8k, window 1024, 256", 1024, {{0, 8192}});
  wide("decode 4k x 256, 256 channels", 0, each(256, 4095));
  wide("decode 4k x 64, 256 channels", 0, each(64, 4095));
  wide("decode 4k x 1, 256 channels", 0, each(1, 4095));
  wide("decode 131k x 2, 256 channels", 0, each(2, 131071));
  shape("100 after 16k", 0, {{16384, 100}});
  shape("64 after 4k", 0, {{4096, 64}});
  shape("30 after 10k", 0, {{10000, 30}});
  shape("4 x 30 after 10k", 0, {{10000, 30}, {9000, 30}, {11000, 30}, {10000, 30}});
  shape("200 after 10k", 0, {{10000, 200}});
  shape("200", 0, {{0, 200}});
  shape("100 after 16k, window 1024", 1024, {{16384, 100}});
  shape("30 after 10k, window 1024", 1024, {{10000, 30}});
  shape("200 after 10k, window 1024", 1024, {{10000, 200}});
  for (const int32_t heads : {96, 56})
    for (const int32_t window : {0, 1024})
      for (const int32_t count : {1, 4, 16, 64, 256}) {
        const std::string what = std::to_string(heads) + " heads, 4k x " + std::to_string(count) +
                                 (window > 0 ? ", window " + std::to_string(window) : "");
        of_heads(heads, what.c_str(), window, each(count, 4095));
      }
}

}  // namespace
}  // namespace kaiju::cuda::bench

int main(int argc, char** argv) {
  using namespace kaiju::cuda::bench;
  const std::string_view stage = argc > 1 ? argv[1] : "";
  const auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
  failures = number(5, 0);  // before a fault
  if (stage == "wgmma") {
    check_wgmma();
  } else if (stage == "check" && argc > 2) {
    checks(argv[2], number(3, 0), number(4, 1000));
  } else if (stage == "times") {
    timings(number(2, 0), number(3, 1000));
  } else if (stage == "check-scaled") {
    scaled_checks(number(2, 0), number(3, 1000));
  } else if (stage == "times-scaled") {
    scaled_times(argc > 2 ? argv[2] : "");
  } else {
    std::printf(
        "wgmma | check mma|whole|split|reference [FROM [TO]] | times [FROM [TO]] | check-scaled [FROM [TO]] | "
        "times-scaled [PART OF A NAME]\n");
    return 2;
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    std::fputs("kaiju-bench-attention: cannot write to the standard output\n", stderr);
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
