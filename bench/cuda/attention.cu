// Attention on a GPU, alone: checks the Hopper kernels and the one for every chip against the reference, then times them at the shapes of
// the preset `small`, with the contract's exponential and beside it with the hardware's, and with the hardware's and the scores found once
// (which give other bits: they tell what exactness costs). All rows of whatever is timed are compared first.
//
//   cmake --preset cuda && cmake --build build/cuda --target kaiju-bench-attention && build/cuda/bin/kaiju-bench-attention STAGE
//
// Stages: `products`: one product of each kind, against its description. `check FORM [FROM [TO]]`: the cases from number FROM to before TO,
// where FORM is mma (the kernel for every chip, in both ways), whole (Hopper's, every chunk of a row in one place), split (chunks apart),
// or reference (the CPU's part alone, to see how long it takes). `times [FROM [TO]]`: the shapes.
//
// Shares are of an H200's floors: 1,000 TOP/s so counted (its matrix units do twice as many), 4.40 TB/s.
// Operations are counted as in docs/arithmetic.md: 4 a visible key, row and channel. Bytes are the keys and values read once.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/kernels/attention_decode.cuh"
#include "kaiju/backend/reference.hpp"

namespace kaiju::cuda {
namespace {

// The case under way, and where to go on after one that faulted.
std::string case_name;
const char* form_name = nullptr;
int next_case = 0, end_case = 1000, failures = 0;
[[noreturn]] void fault() {
  std::printf("FAULT %s\n", case_name.c_str());
  std::fflush(stdout);
  if (form_name)
    execl("/proc/self/exe", "attention", "check", form_name, std::to_string(next_case).c_str(), std::to_string(end_case).c_str(),
          std::to_string(failures + 1).c_str(), nullptr);
  std::exit(2);
}

#define CHECKED(call)                                                                          \
  do {                                                                                         \
    const cudaError_t error_ = (call);                                                         \
    if (error_ != cudaSuccess) {                                                               \
      std::printf("\n%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      fault();                                                                                 \
    }                                                                                          \
  } while (0)

bool on_gpu = true;

template <class T>
struct There {
  T* data = nullptr;
  size_t count = 0;
  explicit There(size_t n) : count(n) {
    if (!on_gpu) return;
    CHECKED(cudaMalloc(&data, std::max<size_t>(n * sizeof(T), 16)));
    CHECKED(cudaMemset(data, 0xA5, n * sizeof(T)));
  }
  explicit There(const std::vector<T>& from) : There(from.size()) {
    if (on_gpu) CHECKED(cudaMemcpy(data, from.data(), count * sizeof(T), cudaMemcpyHostToDevice));
  }
  There(const There&) = delete;
  ~There() {
    if (on_gpu) cudaFree(data);
  }
  std::vector<T> back() const {
    std::vector<T> to(count);
    CHECKED(cudaMemcpy(to.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return to;
  }
};

struct Scratch {
  AttentionScratch view;
  Scratch(int32_t units, int32_t head_dim) {
    cudaDeviceProp properties{};
    CHECKED(cudaGetDeviceProperties(&properties, 0));
    view.hopper = properties.major == 9;
    view.multiprocessors = properties.multiProcessorCount;
    view.units = units;
    CHECKED(cudaMalloc(&view.parts, std::max<size_t>(1, static_cast<size_t>(units)) * kTileRows * sizeof(AttentionPart)));
    CHECKED(cudaMalloc(&view.sums, std::max<size_t>(1, static_cast<size_t>(units)) * kTileRows * head_dim * sizeof(float)));
    CHECKED(cudaMemset(view.sums, 0xFF, static_cast<size_t>(units) * kTileRows * head_dim * sizeof(float)));
    CHECKED(cudaMalloc(&view.counters, static_cast<size_t>(units + 1) * sizeof(int32_t)));
    CHECKED(cudaMemset(view.counters, 0, static_cast<size_t>(units + 1) * sizeof(int32_t)));
    CHECKED(cudaMalloc(&view.plans, static_cast<size_t>(kBlockKinds * 2 * view.multiprocessors * kAttentionPlanBytes)));
  }
  ~Scratch() { cudaFree(view.parts), cudaFree(view.sums), cudaFree(view.counters), cudaFree(view.plans); }
};

// Rows of sequences: {position of the first, count}.
using Rows = std::vector<std::pair<int32_t, int32_t>>;

// A batch on the host and on the GPU.
struct Rowed {
  std::vector<int32_t> positions, row_segment;
  std::vector<BatchSegment> segments;
  std::vector<std::vector<BlockId>> tables;
  std::vector<There<BlockId>*> tables_there;
  There<int32_t>*positions_there = nullptr, *row_segment_there = nullptr;
  There<BatchSegment>* segments_there = nullptr;

  Rowed(const Rows& rows, const std::vector<std::vector<BlockId>>& all_tables, BlockKind kind) : tables(all_tables) {
    std::vector<BatchSegment> there;
    for (size_t s = 0; s < rows.size(); ++s) {
      BatchSegment segment{static_cast<int32_t>(positions.size()), rows[s].second, rows[s].first, 0, {nullptr, nullptr}};
      for (int32_t r = 0; r < segment.row_count; ++r)
        positions.push_back(segment.position + r), row_segment.push_back(static_cast<int32_t>(s));
      tables_there.push_back(new There<BlockId>(tables[s]));
      segment.table[static_cast<int32_t>(kind)] = tables_there.back()->data;
      there.push_back(segment);
      segment.table[static_cast<int32_t>(kind)] = tables[s].data();
      segments.push_back(segment);
    }
    positions_there = new There<int32_t>(positions), row_segment_there = new There<int32_t>(row_segment),
    segments_there = new There<BatchSegment>(there);
  }
  ~Rowed() {
    for (auto* t : tables_there) delete t;
    delete positions_there, delete row_segment_there, delete segments_there;
  }
  size_t count() const { return positions.size(); }
  Batch host() const { return {static_cast<int32_t>(count()), positions, positions, segments, row_segment}; }
  Batch there() const {
    return {static_cast<int32_t>(count()),
            {positions_there->data, count()},
            {positions_there->data, count()},
            {segments_there->data, segments.size()},
            {row_segment_there->data, count()}};
  }
};

std::vector<std::vector<BlockId>> scattered_tables(const Rows& rows, std::mt19937_64& random, int32_t& blocks) {
  blocks = 3;
  for (const auto& [position, count] : rows) blocks += (position + count) / kBlockTokens + 1;
  std::vector<BlockId> free(static_cast<size_t>(blocks));
  for (int32_t i = 0; i < blocks; ++i) free[static_cast<size_t>(i)] = i;
  std::shuffle(free.begin(), free.end(), random);
  std::vector<std::vector<BlockId>> tables;
  for (const auto& [position, count] : rows) {
    auto& table = tables.emplace_back();
    for (int32_t i = 0; i <= (position + count) / kBlockTokens; ++i) table.push_back(free.back()), free.pop_back();
  }
  return tables;
}

// `width`: of a row, for the place of the first difference.
template <class T>
void compare(const char* what, const std::vector<T>& got, const std::vector<T>& expected, size_t width) {
  size_t wrong = 0, first = 0, rows = 0, last_row = expected.size();
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    if (wrong++ == 0) first = i;
    if (i / width != last_row) last_row = i / width, ++rows;
  }
  if (wrong == 0) return;
  ++failures;
  if (failures <= 10)
    std::printf("\nWRONG %s %s: %zu of %zu, in %zu of %zu rows, first in row %zu at %zu: %d, not %d\n", what, case_name.c_str(), wrong,
                got.size(), rows, got.size() / width, first / width, first % width, static_cast<int>(got[first]),
                static_cast<int>(expected[first]));
}

enum class Form { kReference, kMma, kWhole, kSplit };

Chip this_chip() {
  cudaDeviceProp properties{};
  CHECKED(cudaGetDeviceProperties(&properties, 0));
  return {.capability = 10 * properties.major + properties.minor, .multiprocessors = properties.multiProcessorCount};
}

// One form of attention against the reference.
void check(Form form, uint64_t seed, int32_t head_dim, int32_t kv_heads, int32_t heads, int32_t window, float z, const Rows& rows) {
  char name[256];
  std::snprintf(name, sizeof name, "case %d: D %d, kv %d, heads %d, window %d, z %g, %zu segments, first %d + %d", static_cast<int>(seed),
                head_dim, kv_heads, heads, window, static_cast<double>(z), rows.size(), rows[0].first, rows[0].second);
  case_name = name;
  std::mt19937_64 random(seed);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
  const BlockKind kind = window > 0 ? BlockKind::kWindow : BlockKind::kGlobal;
  int32_t blocks = 0;
  const auto tables = scattered_tables(rows, random, blocks);
  Rows all;
  for (const auto& [position, count] : rows) all.push_back({0, position + count});
  const Rowed filling(all, tables, kind), batch(rows, tables, kind);
  const int64_t slot_bytes = int64_t{2} * kBlockTokens * kv_heads * head_dim;
  const size_t width = static_cast<size_t>(kv_heads) * head_dim, pool_bytes = static_cast<size_t>(3 * slot_bytes * blocks);
  std::normal_distribution<float> normal;
  std::vector<float> k(filling.count() * width), v(k.size()), inverse(width), out_inverse(width);
  for (float& x : k) x = normal(random);
  for (float& x : v) x = normal(random);
  const float bias = below(3) == 0 ? 2.0f : 0.0f;  // sums of values near their limits
  for (float& x : v) x += bias;
  for (float& x : inverse) x = 40.0f * (0.25f + static_cast<float>(below(1000)) * 0.004f);
  for (float& x : out_inverse) x = 2.0f * (0.25f + static_cast<float>(below(1000)) * 0.004f);
  std::vector<int8_t> queries(batch.count() * static_cast<size_t>(heads) * head_dim);
  const int32_t limit = below(4) == 0 ? 20 : 127;
  for (int8_t& q : queries) q = static_cast<int8_t>(below(2 * limit + 1) - limit);
  std::vector<arith::CosSin> angles(filling.count() * static_cast<size_t>(head_dim / 2), arith::CosSin{1.0f, 0.0f});
  std::vector<std::byte> pool(pool_bytes);
  for (auto& b : pool) b = static_cast<std::byte>(random());

  ReferenceBackend reference;
  KvSlot slot{pool.data(), 3 * slot_bytes, slot_bytes, kv_heads, head_dim, kind, window};
  std::vector<int8_t> expected(queries.size());
  const There<std::byte> pool_there(pool);
  reference.append(k.data(), v.data(), filling.host(), angles.data(), inverse.data(), inverse.data(), slot);
  reference.attend({queries.data(), heads, z, out_inverse.data(), expected.data()}, batch.host(), slot);
  if (form == Form::kReference) return;

  const There<float> k_there(k), v_there(v), inverse_there(inverse), out_inverse_there(out_inverse);
  const There<int8_t> queries_there(queries);
  const There<arith::CosSin> angles_there(angles);
  slot.pool = pool_there.data;
  CHECKED(append(nullptr, Chip{}, k_there.data, v_there.data, filling.there(), angles_there.data, inverse_there.data, inverse_there.data,
                 slot));
  CHECKED(cudaDeviceSynchronize());
  const There<int8_t> out(queries.size());
  const AttentionArgs args{queries_there.data, heads, z, out_inverse_there.data, out.data};
  Scratch scratch(form == Form::kSplit ? 512 : 0, head_dim);
  if (form == Form::kWhole) scratch.view.apart = ChunksApart::kNever;
  if (form == Form::kSplit) scratch.view.apart = ChunksApart::kAlways;
  if (form == Form::kMma) {
    CHECKED(attend_mma(nullptr, this_chip(), args, batch.there(), slot, scratch.view));
    CHECKED(cudaDeviceSynchronize());
    compare("whole", out.back(), expected, static_cast<size_t>(heads) * head_dim);
    const Scratch apart(512, head_dim);
    CHECKED(attend_mma(nullptr, this_chip(), args, batch.there(), slot, apart.view));
    CHECKED(cudaDeviceSynchronize());
  } else {
    if (!attends_sm90(args, slot, scratch.view)) return;
    CHECKED(attend_sm90(nullptr, args, batch.there(), slot, scratch.view));
  }
  CHECKED(cudaDeviceSynchronize());
  compare(form_name, out.back(), expected, static_cast<size_t>(heads) * head_dim);
}

// One product of each kind, as tiles/wgmma.cuh describes operands: tells a wrong description of shared memory from a wrong kernel.
__global__ void product_kernel(const int8_t* a, const int8_t* b, int32_t* c, bool registers) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ __align__(128) int8_t left[64 * 32], right[64 * 32];
  for (int i = static_cast<int>(threadIdx.x); i < 64 * 32; i += 128)
    left[byte_in_columns(64, i / 32, i % 32)] = a[i], right[byte_in_columns(64, i / 32, i % 32)] = b[i];
  publish_stores();
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  int32_t d[32];
  if (registers) {
    uint32_t p[4];
    for (int i = 0; i < 4; ++i) p[i] = *reinterpret_cast<const uint32_t*>(a + (row + 8 * (i % 2)) * 32 + 16 * (i / 2) + lane % 4 * 4);
    begin_products();
    multiply_registers(d, p, operand(shared_address(right), 64), 0);
  } else {
    begin_products();
    multiply_shared(d, operand(shared_address(left), 64), operand(shared_address(right), 64), 0);
  }
  commit_products();
  wait_products<0>();
  pin(d);
  for (int i = 0; i < 32; ++i) c[(row + 8 * (i / 2 % 2)) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
#endif
}
void check_products() {
  std::mt19937_64 random(3);
  std::vector<int8_t> a(64 * 32), b(64 * 32);
  for (auto& x : a) x = static_cast<int8_t>(random());
  for (auto& x : b) x = static_cast<int8_t>(random());
  const There<int8_t> a_there(a), b_there(b);
  for (const bool registers : {false, true}) {
    const There<int32_t> c(64 * 64);
    product_kernel<<<1, 128>>>(a_there.data, b_there.data, c.data, registers);
    CHECKED(cudaGetLastError());
    CHECKED(cudaDeviceSynchronize());
    std::vector<int32_t> expected(64 * 64, 0);
    for (size_t i = 0; i < expected.size(); ++i)
      for (size_t k = 0; k < 32; ++k) {
        const int8_t left = a[i / 64 * 32 + k];
        expected[i] += (registers ? static_cast<int32_t>(static_cast<uint8_t>(left)) : left) * b[i % 64 * 32 + k];
      }
    case_name = registers ? "left operand in registers" : "both operands in shared memory";
    compare("wgmma", c.back(), expected, 64);
  }
  std::printf("products: %s\n", failures == 0 ? "as described" : "WRONG");
}

void checks(const char* name, int from, int to) {
  const std::string_view wanted = name;
  const Form form = wanted == "mma" ? Form::kMma : wanted == "whole" ? Form::kWhole : wanted == "split" ? Form::kSplit : Form::kReference;
  on_gpu = form != Form::kReference;
  form_name = name;
  end_case = to;
  int checked = 0;
  const auto one = [&](int32_t head_dim, int32_t kv_heads, int32_t heads, int32_t window, float z, const Rows& rows) {
    const int mine = next_case++;
    if (mine < from || mine >= to) return;
    ++checked;
    std::printf(mine == from ? "%s from case %d " : ".", name, mine);
    std::fflush(stdout);
    check(form, static_cast<uint64_t>(mine), head_dim, kv_heads, heads, window, z, rows);
  };
  for (const int32_t head_dim : {64, 128, 256}) {
    one(head_dim, 1, 1, 0, 1e-4f, {{0, 1}});
    one(head_dim, 1, 1, 0, 1e-4f, {{0, 64}});
    one(head_dim, 1, 1, 0, 1e-4f, {{0, 65}});
    one(head_dim, 1, 8, 0, 1e-4f, {{500, 30}});
    one(head_dim, 1, 40, 0, 1e-4f, {{570, 30}});
    one(head_dim, 1, 40, 0, 3e-5f, {{2000, 1}});
    one(head_dim, 1, 40, 0, 3e-5f, {{511, 1}, {512, 1}, {63, 1}, {1030, 1}, {0, 1}});
    one(head_dim, 2, 112, 0, 1e-3f, {{523, 7}});
    one(head_dim, 1, 96, 256, 1e-3f, {{599, 1}});
    one(head_dim, 1, 16, 1024, 1e-9f, {{3000, 20}, {1023, 1}, {1024, 1}, {10, 3}});
    one(head_dim, 1, 40, 1024, 1e-4f, {{5000, 1}, {5001, 1}, {1500, 1}});
    one(head_dim, 4, 16, 0, 1e-2f, {{700, 20}, {1200, 1}, {1300, 16}, {1301, 17}});
    one(head_dim, 1, 8, 0, 3e-5f, {{9000, 1}, {300, 1}, {8191, 1}, {8192, 1}});
  }
  std::mt19937_64 random(7);
  const auto pick = [&](std::initializer_list<int32_t> values) { return values.begin()[random() % values.size()]; };
  for (int i = 0; i < 48; ++i) {
    const int32_t kv_heads = pick({1, 1, 2, 4}), heads = kv_heads * pick({1, 2, 3, 7});
    const float z = std::initializer_list<float>{1e-4f, 1e-3f, 3e-5f, 1e-2f, 1e-9f, 1.0f}.begin()[random() % 6];
    Rows rows;
    for (int32_t s = 1 + static_cast<int32_t>(random() % 4); s > 0; --s) {
      const int32_t length = pick({1, 2, 63, 64, 65, 127, 128, 300, 511, 512, 513, 700, 1030, 1600}),
                    count = std::min(length, random() % 10 < 6 ? 1 : 1 + static_cast<int32_t>(random() % 40));
      rows.push_back({length - count, count});
    }
    one(pick({64, 128, 256}), kv_heads, heads, pick({0, 0, 1, 63, 64, 65, 200, 512, 1024}), z, rows);
  }
  {  // more chunks than blocks of threads on an H200, some of which have one of an item and others two
    Rows rows(12, {16383, 1});
    rows[3].first = 15000, rows[7].first = 1100;
    one(128, 1, 40, 0, 3e-5f, rows);
  }
  for (const int32_t count : {35, 50, 70, 100}) {  // as many pairs of blocks as run at once, then more
    Rows rows;
    for (int32_t i = 0; i < count; ++i) rows.push_back({530 + 7 * i, 1});
    one(128, 1, 40, 600, 1e-4f, rows);
  }
  // Tiles of 64 rows that clusters of 8, 6, 5, 4, 3 and 2 blocks share, tiles of 128 that 3 and 2 share, and tiles of a block each.
  for (const int32_t count : {20, 110, 27, 35, 48, 60, 100, 160, 230}) {
    one(128, 1, 40, 0, 3e-5f, {{480, count}});
    one(128, 1, 40, 300, 3e-5f, {{900, count}});
  }
  one(128, 1, 40, 0, 3e-5f, {{4600, 20}});
  for (const int32_t window : {0, 600}) one(128, 1, 40, window, 1e-4f, {{3000, 25}, {10, 30}, {600, 20}, {1500, 1}, {4400, 8}, {1023, 1}});
  one(64, 2, 16, 0, 1e-4f, {{1100, 250}, {900, 40}});
  one(64, 2, 16, 300, 1e-2f, {{1100, 250}, {900, 40}});
  // More query heads on a KV head than an item takes: equal parts, and others; windows by pairs of blocks; beside a prompt's tokens; 120
  // whole histories by tiles.
  for (const auto& [kv_heads, heads] : {std::pair{1, 96}, {1, 56}, {1, 41}, {2, 182}, {1, 128}}) {
    one(128, kv_heads, heads, 0, 3e-5f, {{4095, 1}, {5, 1}, {1600, 1}, {511, 1}});
    one(128, kv_heads, heads, 600, 1e-4f, {{4095, 1}, {5, 1}, {1600, 1}, {511, 1}});
  }
  one(64, 1, 96, 0, 1e-3f, {{2100, 1}, {600, 1}, {1023, 1}});
  one(128, 1, 96, 0, 3e-5f, {{600, 2}, {700, 1}, {3000, 30}, {10, 1}, {2047, 1}});
  one(128, 1, 96, 300, 3e-5f, {{600, 2}, {700, 1}, {3000, 30}, {10, 1}, {2047, 1}});
  for (const int32_t count : {9, 25, 60, 120}) {
    Rows rows;
    for (int32_t i = 0; i < count; ++i) rows.push_back({530 + 7 * i, 1});
    for (const int32_t window : {0, 600}) one(128, 1, 96, window, 1e-4f, rows);
  }
  // Windows of one chunk, of two and of three, whose blocks are all seen and not, by as many pairs of blocks as run at once and by more;
  // beside a prompt's tokens.
  for (const int32_t head_dim : {64, 128}) {
    Rows rows;
    for (int32_t i = 0; i < 43; ++i) rows.push_back({29 * i + (i == 42 ? 1200 : 0), 1});
    one(head_dim, 1, 40, 1024, 1e-4f, rows);
    for (auto& [position, count] : rows) position += 1024;
    one(head_dim, 1, 33, 1023, 1e-3f, rows);
    one(head_dim, 1, 15, 1024, 3e-5f, rows);
    one(head_dim, 2, 16, 512, 1e-4f, rows);
    rows.resize(17);
    one(head_dim, 2, 40, 900, 1e-2f, rows);
    rows.push_back({700, 45});
    one(head_dim, 1, 40, 1024, 1e-4f, rows);
  }
  std::printf("\n%s: %d cases from %d, %d wrong\n", name, checked, from, failures);
}

// ---- timing ----
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
  for (int i = 0, at_once = 1; i < runs + 1; ++i) {  // the first says how many launches at once hide what the host takes
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

// Of an H200: the matrix units do 8 products where 4 are counted, 2,000 TOP/s of them; memory was measured.
constexpr double kFloorTops = 1000, kFloorTb = 4.40;

template <int kHeadDim>
void time_shape(const char* what, int32_t heads, int32_t window, const Rows& rows, bool decode) {
  constexpr int32_t kCopies = 4;  // of the cache, used in turn: the L2 cache holds none of them
  std::mt19937_64 random(5);
  int32_t blocks = 0;
  const auto tables = scattered_tables(rows, random, blocks);
  const BlockKind kind = window > 0 ? BlockKind::kWindow : BlockKind::kGlobal;
  const Rowed batch(rows, tables, kind);
  const int64_t slot_bytes = int64_t{2} * kBlockTokens * kHeadDim;
  const There<std::byte> pool(static_cast<size_t>(slot_bytes * kCopies * blocks));
  const size_t elements = batch.count() * static_cast<size_t>(heads) * kHeadDim;
  const There<int8_t> queries(elements), out(elements);
  fill_random<<<1024, 256>>>(reinterpret_cast<uint4*>(pool.data), static_cast<int64_t>(pool.count / 16), 1);
  fill_random<<<1024, 256>>>(reinterpret_cast<uint4*>(queries.data), static_cast<int64_t>(queries.count / 16), 2);
  const There<float> out_inverse(std::vector<float>(kHeadDim, 2.0f));
  Scratch scratch(2560, kHeadDim);
  const AttentionArgs args{queries.data, heads, 3.3e-5f, out_inverse.data, out.data};
  KvSlot slot{pool.data, slot_bytes * kCopies, 0, 1, kHeadDim, kind, window};
  const Batch there = batch.there();

  double keys = 0, seen = 0;  // visible keys of all rows; keys that must be read
  for (const auto& [position, count] : rows) {
    for (int32_t p = position; p < position + count; ++p) keys += p + 1 - slot.first_visible(p);
    seen += position + count - slot.first_visible(position);
  }
  const double operations = 4.0 * keys * heads * kHeadDim, bytes = 2.0 * seen * kHeadDim;
  const auto report = [&](const char* how, float ms) {
    const double tops = operations / ms * 1e-9, tb = bytes / ms * 1e-9, matrix = tops / kFloorTops, memory = tb / kFloorTb;
    std::printf("%-34s %-9s %9.1f us  %7.1f TOP/s  %6.3f TB/s  %3.0f%% of %s", what, how, 1e3 * ms, tops, tb,
                100 * std::max(matrix, memory), matrix > memory ? "the matrix units" : "memory");
  };
  const int runs = decode ? 40 : 10;
  const Chip chip = this_chip();
  // Bits first: of every row, beside those of the kernel for every chip with each row in one place, which `check mma` holds to the
  // reference.
  const There<int8_t> expected(elements);
  const There<Difference> difference(1);
  CHECKED(attend_mma(nullptr, chip, {queries.data, heads, args.z, out_inverse.data, expected.data}, there, slot, {}));
  const auto time = [&](const char* how, bool exact, auto&& launch) {
    slot.slot_offset = 0;
    CHECKED(launch());  // plans
    CHECKED(cudaMemset(out.data, 0xA5, elements));
    CHECKED(cudaMemset(difference.data, 0, sizeof(Difference)));
    CHECKED(launch());
    find_difference<<<1024, 256>>>(out.data, expected.data, static_cast<int64_t>(elements), difference.data);
    const Difference found = difference.back()[0];
    if (exact && found.count > 0) {
      ++failures;
      std::printf("WRONG %s %s: %llu of %zu results, by up to %d; not timed\n", what, how, found.count, elements, found.most);
      return;
    }
    const float ms = time_ms(runs, [&](int i) {
      slot.slot_offset = slot_bytes * (i % kCopies);
      CHECKED(launch());
    });
    report(how, ms);
    if (!exact)
      std::printf(" (other bits: %.2g%% of the results, by up to %d)",
                  100.0 * static_cast<double>(found.count) / static_cast<double>(elements), found.most);
    std::printf("\n");
    std::fflush(stdout);
  };
  time("mma.sync", true, [&] { return attend_mma(nullptr, chip, args, there, slot, scratch.view); });
  if constexpr (kHeadDim <= 128) {
    const auto contract = [&](const char* how, ChunksApart apart) {  // planned once, as for the layers of a step
      scratch.view.apart = apart;
      int32_t& planned = scratch.view.planned[static_cast<int32_t>(kind)];
      planned = 0;
      time(how, true, [&] {
        const cudaError_t error = attend_sm90(nullptr, args, there, slot, scratch.view);
        planned = 1 + window;
        return error;
      });
      scratch.view.apart = ChunksApart::kWhereFaster;
    };
    contract("contract", ChunksApart::kWhereFaster);
    if (!decode && batch.count() <= 512) contract("whole", ChunksApart::kNever);
    AttentionWork work = attention_work(args, there, slot, scratch.view);
    const auto other = [&]<class Weight>(Weight*, const char* how) {
      time(how, std::is_same_v<Weight, ContractWeight>, [&] {
        work.kv.slot_offset = slot.slot_offset;
        if (decode) return launch_decode_of<kHeadDim, 40, Weight>(nullptr, work);
        const auto tiles = static_cast<int32_t>((batch.count() * static_cast<size_t>(work.heads) + kWideRows - 1) / kWideRows);
        return launch_sm90<kHeadDim, Weight>(nullptr, work, tiles + work.segment_count);
      });
    };
    if (decode && !work.one_row_each) return;  // prefill's kernel takes it
    if (decode) {
      contract("whole", ChunksApart::kNever);
      contract("apart", ChunksApart::kAlways);
      CHECKED(plan_decode(nullptr, work));
    }
    other(static_cast<HardwareWeight*>(nullptr), "hardware");
    other(static_cast<OnePassWeight*>(nullptr), "one pass");
    if (decode) other(static_cast<ContractWeight*>(nullptr), "no cluster");  // as the two lines above
  }
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
        const std::string what =
            std::to_string(heads) + " heads, 4k x " + std::to_string(count) + (window > 0 ? ", window " + std::to_string(window) : "");
        of_heads(heads, what.c_str(), window, each(count, 4095));
      }
}

}  // namespace
}  // namespace kaiju::cuda

int main(int argc, char** argv) {
  using namespace kaiju::cuda;
  const std::string_view stage = argc > 1 ? argv[1] : "";
  const auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
  failures = number(5, 0);  // before a fault
  if (stage == "products") {
    check_products();
  } else if (stage == "check" && argc > 2) {
    checks(argv[2], number(3, 0), number(4, 1000));
  } else if (stage == "times") {
    timings(number(2, 0), number(3, 1000));
  } else {
    std::printf("products | check mma|whole|split|reference [FROM [TO]] | times [FROM [TO]]\n");
    return 2;
  }
  return failures == 0 ? 0 : 1;
}
