// The checks of kaiju-bench-attention (attention.cu): every form of attention against the reference, bit for bit, and
// one wgmma instruction of each kind against its description.
#include <string_view>

#include "attention.cuh"
#include "cuda/tiles/sm90_wgmma_attention.cuh"
#include "kaiju/backend/reference.hpp"

namespace kaiju::cuda::bench {
namespace {

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
    std::printf("\nWRONG %s %s: %zu of %zu, in %zu of %zu rows, first in row %zu at %zu: %d, not %d\n", what,
                case_name.c_str(), wrong, got.size(), rows, got.size() / width, first / width, first % width,
                static_cast<int>(got[first]), static_cast<int>(expected[first]));
}

enum class Form { kReference, kMma, kWhole, kSplit };

// One form of attention against the reference.
void check(Form form, uint64_t seed, int32_t head_dim, int32_t kv_heads, int32_t heads, int32_t window, float z,
           const Rows& rows) {
  char name[256];
  std::snprintf(name, sizeof name, "case %d: D %d, kv %d, heads %d, window %d, z %g, %zu segments, first %d + %d",
                static_cast<int>(seed), head_dim, kv_heads, heads, window, static_cast<double>(z), rows.size(),
                rows[0].first, rows[0].second);
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
  const size_t width = static_cast<size_t>(kv_heads) * head_dim,
               pool_bytes = static_cast<size_t>(3 * slot_bytes * blocks);
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
  CHECKED(append(nullptr, Chip{}, k_there.data, v_there.data, filling.there(), angles_there.data, inverse_there.data,
                 inverse_there.data, slot));
  CHECKED(cudaDeviceSynchronize());
  const There<int8_t> out(queries.size());
  const AttentionArgs args{queries_there.data, heads, z, out_inverse_there.data, out.data};
  Scratch scratch(form == Form::kSplit ? 512 : 0, head_dim);
  if (form == Form::kWhole) scratch.view.apart = ChunksApart::kNever;
  if (form == Form::kSplit) scratch.view.apart = ChunksApart::kAlways;
  if (form == Form::kMma) {
    CHECKED(attend_sm80(nullptr, this_chip(), args, batch.there(), slot, scratch.view));
    CHECKED(cudaDeviceSynchronize());
    compare("whole", out.back(), expected, static_cast<size_t>(heads) * head_dim);
    const Scratch apart(512, head_dim);
    CHECKED(attend_sm80(nullptr, this_chip(), args, batch.there(), slot, apart.view));
    CHECKED(cudaDeviceSynchronize());
  } else {
    if (!attends_sm90(args, slot, scratch.view)) return;
    CHECKED(attend_sm90(nullptr, args, batch.there(), slot, scratch.view));
  }
  CHECKED(cudaDeviceSynchronize());
  compare(form_name, out.back(), expected, static_cast<size_t>(heads) * head_dim);
}

// One wgmma of each kind on operands as tiles/sm90_wgmma_attention.cuh describes them: tells a wrong description of
// shared memory from a wrong kernel.
__global__ void wgmma_kernel(const int8_t* a, const int8_t* b, int32_t* c, bool registers) {
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
    for (int i = 0; i < 4; ++i)
      p[i] = *reinterpret_cast<const uint32_t*>(a + (row + 8 * (i % 2)) * 32 + 16 * (i / 2) + lane % 4 * 4);
    wgmma_fence();
    multiply_registers(d, p, operand(shared_address(right), 64), 0);
  } else {
    wgmma_fence();
    multiply_shared(d, operand(shared_address(left), 64), operand(shared_address(right), 64), 0);
  }
  wgmma_commit();
  wgmma_wait<0>();
  wgmma_settle(d);
  for (int i = 0; i < 32; ++i) c[(row + 8 * (i / 2 % 2)) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
#endif
}

// The cases, one after another, by number; those from `from` to before `to` are checked.
class Cases {
 public:
  Cases(const char* name, Form form, int from, int to) : name_(name), form_(form), from_(from), to_(to) {}
  int checked() const { return checked_; }

  void all() {
    for (const int32_t head_dim : {64, 128, 256}) basic_shapes(head_dim);
    random_shapes();
    uneven_shares();
    shared_tiles();
    many_heads();
    for (const int32_t head_dim : {64, 128}) windows(head_dim);
  }

 private:
  void one(int32_t head_dim, int32_t kv_heads, int32_t heads, int32_t window, float z, const Rows& rows) {
    const int mine = next_case++;
    if (mine < from_ || mine >= to_) return;
    ++checked_;
    std::printf(mine == from_ ? "%s from case %d " : ".", name_, mine);
    std::fflush(stdout);
    check(form_, static_cast<uint64_t>(mine), head_dim, kv_heads, heads, window, z, rows);
  }
  void basic_shapes(int32_t head_dim) {
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
  void random_shapes() {
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
  }
  void uneven_shares() {
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
  }
  // Tiles of 64 rows that clusters of 8, 6, 5, 4, 3 and 2 blocks share, tiles of 128 that 3 and 2 share, and tiles of a
  // block each.
  void shared_tiles() {
    for (const int32_t count : {20, 110, 27, 35, 48, 60, 100, 160, 230}) {
      one(128, 1, 40, 0, 3e-5f, {{480, count}});
      one(128, 1, 40, 300, 3e-5f, {{900, count}});
    }
    one(128, 1, 40, 0, 3e-5f, {{4600, 20}});
    for (const int32_t window : {0, 600})
      one(128, 1, 40, window, 1e-4f, {{3000, 25}, {10, 30}, {600, 20}, {1500, 1}, {4400, 8}, {1023, 1}});
    one(64, 2, 16, 0, 1e-4f, {{1100, 250}, {900, 40}});
    one(64, 2, 16, 300, 1e-2f, {{1100, 250}, {900, 40}});
  }
  // More query heads on a KV head than an item takes: equal parts, and others; windows by pairs of blocks; beside a
  // prompt's tokens; 120 whole histories by tiles.
  void many_heads() {
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
  }
  // Windows of one chunk, of two and of three, whose blocks are all seen and not, by as many pairs of blocks as run at
  // once and by more; beside a prompt's tokens.
  void windows(int32_t head_dim) {
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

  const char* name_;
  Form form_;
  int from_, to_, checked_ = 0;
};

}  // namespace

void check_wgmma() {
  std::mt19937_64 random(3);
  std::vector<int8_t> a(64 * 32), b(64 * 32);
  for (auto& x : a) x = static_cast<int8_t>(random());
  for (auto& x : b) x = static_cast<int8_t>(random());
  const There<int8_t> a_there(a), b_there(b);
  for (const bool registers : {false, true}) {
    const There<int32_t> c(64 * 64);
    wgmma_kernel<<<1, 128>>>(a_there.data, b_there.data, c.data, registers);
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
  std::printf("wgmma: %s\n", failures == 0 ? "as described" : "WRONG");
}

void checks(const char* name, int from, int to) {
  const std::string_view wanted = name;
  const Form form = wanted == "mma"     ? Form::kMma
                    : wanted == "whole" ? Form::kWhole
                    : wanted == "split" ? Form::kSplit
                                        : Form::kReference;
  on_gpu = form != Form::kReference;
  form_name = name;
  end_case = to;
  Cases cases(name, form, from, to);
  cases.all();
  std::printf("\n%s: %d cases from %d, %d wrong\n", name, cases.checked(), from, failures);
}

}  // namespace kaiju::cuda::bench
