// CheckpointWriter: streams tensors into a temporary file and gives it its name when it is complete and on the disk.
// Digests are computed while writing. All digests have the same length, so the header's size is known at the start and
// the header is written last.
#include "writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "digest.hpp"
#include "header.hpp"
#include "json.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "new_file.hpp"

namespace kaiju {
namespace {

using Declarations = std::vector<CheckpointWriter::Declaration>;

constexpr size_t kBufferBytes = size_t{1} << 20;

std::string digests_json(const Declarations& tensors, const std::vector<std::string>& digests) {
  std::string text = "{";
  for (size_t i = 0; i < tensors.size(); ++i)
    text += fmt::format("{}\"{}\":\"{}\"", i ? "," : "", tensors[i].name, digests[i]);
  return text + "}";
}

// The declared tensors must be those the loader will ask for, in an order it will accept.
Status check_declarations(const ModelConfig& config, const Declarations& tensors) {
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  Declarations wanted = required_tensors(config);
  std::sort(wanted.begin(), wanted.end(), by_name);
  std::vector<bool> seen(wanted.size());
  int group = 0;
  bool tokenizer = false;
  for (const auto& tensor : tensors) {
    const uint64_t bytes = format::tensor_bytes(tensor.dtype, tensor.shape);
    const int own = format::layout_group(tensor.name, bytes);
    if (own < group)
      return invalid_argument(fmt::format(
          "tensor {} is out of order: declare tensors of a multiple of 64 bytes, then smaller ones, then the tokenizer",
          format::in_quotes(tensor.name)));
    group = own;
    if (tensor.name == format::kTokenizer) {
      if (tokenizer) return invalid_argument("tensor tokenizer is declared twice");
      if (tensor.dtype != DType::kU8 || tensor.shape.size() != 1 || bytes == 0 ||
          bytes > static_cast<uint64_t>(format::kMostTokenizerBytes))
        return invalid_argument("tensor tokenizer must be U8 [bytes]");
      tokenizer = true;
      continue;
    }
    const auto at = std::lower_bound(wanted.begin(), wanted.end(), tensor, by_name);
    if (at == wanted.end() || at->name != tensor.name)
      return invalid_argument(fmt::format("tensor {} is not one the config asks for", format::in_quotes(tensor.name)));
    if (at->dtype != tensor.dtype || at->shape != tensor.shape)
      return invalid_argument(
          fmt::format("tensor {} must be {} [{}]", tensor.name, dtype_name(at->dtype), fmt::join(at->shape, ", ")));
    if (seen[static_cast<size_t>(at - wanted.begin())])
      return invalid_argument(fmt::format("tensor {} is declared twice", tensor.name));
    seen[static_cast<size_t>(at - wanted.begin())] = true;
  }
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!seen[i]) return invalid_argument(fmt::format("tensor {} is not declared", wanted[i].name));
  return {};
}

class FileWriter final : public CheckpointWriter {
 public:
  FileWriter(std::string path, int32_t arithmetic, std::string config, Declarations tensors)
      : file_(std::move(path)),
        arithmetic_(arithmetic),
        config_(std::move(config)),
        tensors_(std::move(tensors)),
        digests_(tensors_.size(), std::string(32, '0')) {
    buffer_.reserve(kBufferBytes);
  }

  Status open() {
    KAIJU_TRY(file_.open());
    const std::string header =
        format::build_header({arithmetic_, config_, digests_json(tensors_, digests_), std::string(32, '0')}, tensors_);
    if (header.size() > format::kMostHeaderBytes) return invalid_argument("the header would exceed 64 MiB");
    header_bytes_ = at_ = header.size();
    uint64_t total = header.size();
    for (const auto& tensor : tensors_)
      if (__builtin_add_overflow(total, format::tensor_bytes(tensor.dtype, tensor.shape), &total) || total > INT64_MAX)
        return invalid_argument("the tensors' sizes overflow");
    return file_.reserve(total);
  }

  Status write(std::span<const std::byte> bytes) override {
    return once([&] { return write_pieces(bytes); });
  }

  Status finish() override {
    KAIJU_TRY(once([&] { return complete(); }));
    status_ = invalid_argument("the checkpoint is finished: nothing more can be written");
    return {};
  }

 private:
  // After the first failure every call repeats it: a file with a hole must not be finished.
  template <class F>
  Status once(F&& body) try {
    if (status_.ok()) status_ = body();
    return status_;
  } catch (const std::bad_alloc&) {
    return status_ = out_of_memory();
  }

  uint64_t current_bytes() const { return format::tensor_bytes(tensors_[current_].dtype, tensors_[current_].shape); }

  Status write_pieces(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (current_ == tensors_.size()) return invalid_argument("more bytes than the declared tensors hold");
      const auto piece = bytes.first(std::min<uint64_t>(bytes.size(), current_bytes() - written_));
      digest_.update(piece);
      KAIJU_TRY(store(piece));
      written_ += piece.size();
      bytes = bytes.subspan(piece.size());
      if (written_ == current_bytes()) {
        digests_[current_++] = digest_.text();
        digest_.restart();
        written_ = 0;
      }
    }
    return {};
  }

  Status complete() {
    if (current_ < tensors_.size())
      return invalid_argument(fmt::format("tensor {} has {} of its {} bytes: write all tensors before finish()",
                                          tensors_[current_].name, written_, current_bytes()));
    KAIJU_TRY(flush());
    std::vector<TensorInfo> sorted;
    for (size_t i = 0; i < tensors_.size(); ++i)
      sorted.push_back({tensors_[i].name, tensors_[i].dtype, tensors_[i].shape, {}, digests_[i]});
    std::sort(sorted.begin(), sorted.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
    const std::string digest = format::root_digest(fmt::to_string(arithmetic_), config_, sorted);
    const std::string header =
        format::build_header({arithmetic_, config_, digests_json(tensors_, digests_), digest}, tensors_);
    if (header.size() != header_bytes_) return internal_error("checkpoint writer: the header changed its length");
    at_ = 0;
    KAIJU_TRY(put(std::as_bytes(std::span(header))));
    return file_.commit();
  }

  Status store(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > kBufferBytes) KAIJU_TRY(flush());
    if (bytes.size() >= kBufferBytes) return put(bytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    return {};
  }

  Status flush() {
    KAIJU_TRY(put(buffer_));
    buffer_.clear();
    return {};
  }

  Status put(std::span<const std::byte> bytes) {
    KAIJU_TRY(file_.put(bytes, at_));
    at_ += bytes.size();
    return {};
  }

  format::NewFile file_;
  int32_t arithmetic_;
  std::string config_;
  Declarations tensors_;
  std::vector<std::string> digests_;
  uint64_t header_bytes_ = 0;
  uint64_t at_ = 0;  // where the next put goes
  std::vector<std::byte> buffer_;
  format::Digest digest_;
  size_t current_ = 0;    // tensor being written
  uint64_t written_ = 0;  // its bytes so far
  Status status_;         // the first failure
};

}  // namespace

Result<std::unique_ptr<CheckpointWriter>> format::create_writer(const std::string& path, int32_t arithmetic,
                                                                std::string config, Declarations tensors) {
  auto writer = std::make_unique<FileWriter>(path, arithmetic, std::move(config), std::move(tensors));
  if (Status status = writer->open(); !status.ok()) return status;
  return std::unique_ptr<CheckpointWriter>(std::move(writer));
}

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::create(const std::string& path, const ModelConfig& config,
                                                                   std::vector<Declaration> tensors) try {
  if (Status status = check_config(config); !status.ok()) return Status(StatusCode::kInvalidArgument, status.message());
  if (Status status = check_declarations(config, tensors); !status.ok()) return status;
  return format::create_writer(path, config.arithmetic(), config_to_json(config), std::move(tensors));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

}  // namespace kaiju
