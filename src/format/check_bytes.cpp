// Checks every byte of a checkpoint: digests, no weight of -128, row sums. Threads share the tensors.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <vector>

#include "digest.hpp"
#include "kaiju/base/detail/thread_pool.hpp"
#include "values.hpp"

namespace kaiju::format {
namespace {

constexpr std::string_view kWeight = ".weight";

// Pieces small enough to be in the cache still when the rows are scanned after the digest.
constexpr size_t kPieceBytes = size_t{128} << 10;

// `bytes` are whole rows of the tensor, from row `first` on.
Status check_rows(const TensorInfo& tensor, std::span<const int32_t> row_sums, size_t first,
                  std::span<const std::byte> bytes) {
  const auto width = static_cast<size_t>(tensor.shape[1]);
  const auto* weights = reinterpret_cast<const int8_t*>(bytes.data());
  for (size_t row = first; row < first + bytes.size() / width; ++row) {
    const RowScan scan = scan_row(weights + (row - first) * width, width);
    if (scan.has_minus_128)
      return bad_model(
          fmt::format("tensor {}: row {} holds the weight -128; weights run from -127 to 127", tensor.name, row));
    if (scan.sum != row_sums[row])
      return bad_model(fmt::format("tensor {}.row_sum[{}] is {}, but the row sums to {}",
                                   std::string_view(tensor.name).substr(0, tensor.name.size() - kWeight.size()), row,
                                   row_sums[row], scan.sum));
  }
  return {};
}

// What one thread checks tensors with.
struct Checker {
  Digest digest;
  std::vector<std::byte> read;  // of a file
};

// Checks one tensor. `passed(bytes)` is called after each piece; what it returns, unless it is kOk, ends the check.
template <class Passed>
Status check_tensor(const Checkpoint& checkpoint, const Source& source, const TensorInfo& tensor, Checker& checker,
                    Passed&& passed) {
  const bool is_weight = tensor.dtype == DType::kI8;
  const size_t row_bytes = is_weight ? static_cast<size_t>(tensor.shape[1]) : 1;  // at most 65,536
  const size_t piece_bytes = kPieceBytes / row_bytes * row_bytes;
  std::span<const int32_t> row_sums;
  if (is_weight)
    row_sums = checkpoint.view<int32_t>(tensor.name.substr(0, tensor.name.size() - kWeight.size()) + ".row_sum");

  checker.digest.restart();
  // A broken rule is told after the digest: damage in transit is the likelier cause, and "copy it again" the better
  // advice.
  Status broken;
  for (size_t at = 0; at < tensor.bytes.size(); at += piece_bytes) {
    std::span<const std::byte> piece = tensor.bytes.subspan(at, std::min(piece_bytes, tensor.bytes.size() - at));
    if (is_weight && source.is_file()) {
      const std::span to = std::span(checker.read).first(piece.size());
      KAIJU_TRY(source.read(tensor.offset + at, to));
      piece = to;
    }
    checker.digest.update(piece);
    if (is_weight && broken.ok()) broken = check_rows(tensor, row_sums, at / row_bytes, piece);
    KAIJU_TRY(passed(piece.size()));
  }
  if (checker.digest.text() != tensor.digest)
    return bad_model(fmt::format(
        "tensor {}: its bytes do not match its digest: the file is damaged; copy or download it again", tensor.name));
  return broken;
}

// Counts what all threads have checked, and tells the host of it on the thread that called.
class Passed {
 public:
  Passed(size_t total, const Checkpoint::Progress& progress) : total_(total), progress_(progress) {}

  Status add(size_t bytes, bool may_tell) {
    done_.fetch_add(bytes, std::memory_order_relaxed);
    if (!may_tell || !progress_ || cancelled_.load(std::memory_order_relaxed)) return status();
    const size_t done = done_.load(std::memory_order_relaxed);
    if (done >> 24 == told_ >> 24) return {};  // every 16 MiB or so
    told_ = done;
    if (progress_(static_cast<double>(done) / static_cast<double>(total_)) != 0) cancelled_.store(true);
    return status();
  }

 private:
  Status status() const {
    if (!cancelled_.load(std::memory_order_relaxed)) return {};
    return {StatusCode::kCancelled, "loading was cancelled by the progress callback"};
  }

  size_t total_, told_ = 0;
  const Checkpoint::Progress& progress_;
  std::atomic<size_t> done_{0};
  std::atomic<bool> cancelled_{false};
};

}  // namespace

Status check_bytes(const Checkpoint& checkpoint, const Source& source, const Checkpoint::Progress& progress,
                   int32_t threads) {
  std::vector<const TensorInfo*> in_file_order;
  size_t total = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    in_file_order.push_back(&tensor);
    total += tensor.bytes.size();
  }
  std::sort(in_file_order.begin(), in_file_order.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });

  ThreadPool pool(threads);
  std::vector<Checker> checkers(static_cast<size_t>(pool.threads()));
  for (Checker& checker : checkers) checker.read.resize(source.is_file() ? kPieceBytes : 0);
  std::vector<Status> found(in_file_order.size());
  std::atomic<int32_t> first_bad{INT32_MAX};  // tensors behind it need no look: the first complaint is the one told
  Passed passed(total, progress);
  std::exception_ptr thrown;
  pool.parallel_for(static_cast<int32_t>(found.size()), [&](int32_t i, int32_t thread) {
    if (i > first_bad.load()) return;
    Status& status = found[static_cast<size_t>(i)];
    try {
      status = check_tensor(checkpoint, source, *in_file_order[static_cast<size_t>(i)],
                            checkers[static_cast<size_t>(thread)],
                            [&](size_t bytes) { return passed.add(bytes, thread == 0); });
    } catch (const std::bad_alloc&) {
      status = out_of_memory();
    } catch (...) {  // the host's callback threw
      status = internal_error("an exception");
      if (thread == 0) thrown = std::current_exception();
    }
    int32_t lowest = first_bad.load();
    while (!status.ok() && i < lowest && !first_bad.compare_exchange_weak(lowest, i)) {
    }
  });
  if (thrown) std::rethrow_exception(thrown);
  const int32_t bad = first_bad.load();
  return bad == INT32_MAX ? Status() : found[static_cast<size_t>(bad)];
}

}  // namespace kaiju::format
