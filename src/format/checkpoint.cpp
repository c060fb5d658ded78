// Checkpoint: opens a file, checks its header, config, tensors and values, and refuses a file that breaks a rule of
// docs/checkpoint.md.
#include "kaiju/format/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <new>
#include <utility>

#include "digest.hpp"
#include "header.hpp"
#include "json.hpp"
#include "kaiju/base/buffer.hpp"
#include "kaiju/base/float_state.hpp"
#include "path.hpp"
#include "source.hpp"
#include "values.hpp"

namespace kaiju {
namespace {

using format::in_quotes;

bool by_name(const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; }

class LoadedCheckpoint final : public Checkpoint {
 public:
  LoadedCheckpoint(std::string name, format::Source source) : name_(std::move(name)), source_(std::move(source)) {}

  const ModelConfig& config() const override { return config_; }
  const std::string& digest() const override { return digest_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                     [](const TensorInfo& t, std::string_view n) { return t.name < n; });
    return at != tensors_.end() && at->name == name ? &*at : nullptr;
  }

  Status check_unchanged() const override {
    const Status status = source_.check_unchanged(
        "after it was loaded: load it again, and replace a file in use by renaming a new one "
        "over it");
    return status.ok() ? status : Status(status.code(), fmt::format("{}: {}", name_, status.message()));
  }
  Status read(std::span<const std::byte> bytes, std::byte* to) const override {
    const std::span<const std::byte> all = source_.in_place();
    const std::less_equal<const std::byte*> up_to;  // of any two pointers
    if (!up_to(all.data(), bytes.data()) || !up_to(bytes.data() + bytes.size(), all.data() + all.size()))
      return Checkpoint::read(bytes, to);  // a copied tensor's
    const Status status = source_.read(static_cast<uint64_t>(bytes.data() - all.data()), {to, bytes.size()});
    return status.ok() ? status : Status(status.code(), fmt::format("{}: {}", name_, status.message()));
  }

  const format::Source& source() const { return source_; }

  Status load(Verify verify, const Progress& progress) {
    format::Header header;
    KAIJU_TRY(format::parse_header(source_, header));
    tensors_ = std::move(header.tensors);
    std::sort(tensors_.begin(), tensors_.end(), by_name);

    auto config = config_from_json(header.metadata.config);
    if (!config.ok()) return config.status();
    config_ = std::move(config).value();
    if (config_.arithmetic() != header.metadata.arithmetic)
      return bad_model(fmt::format("__metadata__.arithmetic is \"{}\", but the config has the layers of version {}",
                                   header.metadata.arithmetic, config_.arithmetic()));
    KAIJU_TRY(match_tensors());
    KAIJU_TRY(take_digests(header.metadata));
    if (source_.is_file()) KAIJU_TRY(copy_tensors());
    KAIJU_TRY(format::check_scales(*this));
    if (verify == Verify::kFull) KAIJU_TRY(format::check_bytes(*this, source_, progress));
    if (progress && progress(1.0) != 0)
      return {StatusCode::kCancelled, "loading was cancelled by the progress callback"};
    return {};
  }

 private:
  // Exactly the tensors the config asks for, of the types and shapes it asks for.
  Status match_tensors() const {
    size_t matched = 0;
    for (const CheckpointWriter::Declaration& wanted : required_tensors(config_)) {
      const TensorInfo* tensor = find(wanted.name);
      const std::string shape = fmt::format("{} [{}]", dtype_name(wanted.dtype), fmt::join(wanted.shape, ", "));
      if (!tensor)
        return bad_model(fmt::format("tensor {} is missing; the config asks for it as {}", wanted.name, shape));
      if (tensor->dtype != wanted.dtype || tensor->shape != wanted.shape)
        return bad_model(fmt::format("tensor {} is {} [{}]; the config asks for {}", wanted.name,
                                     dtype_name(tensor->dtype), fmt::join(tensor->shape, ", "), shape));
      ++matched;
    }
    if (const TensorInfo* tokenizer = find(format::kTokenizer)) {
      if (tokenizer->dtype != DType::kU8 || tokenizer->shape.size() != 1 ||
          tokenizer->shape[0] > format::kMostTokenizerBytes)
        return bad_model(
            fmt::format("tensor tokenizer must be U8 [bytes], at most {} bytes", format::kMostTokenizerBytes));
      ++matched;
    }
    if (matched == tensors_.size()) return {};
    const auto wanted = required_tensors(config_);
    for (const TensorInfo& tensor : tensors_)
      if (tensor.name != format::kTokenizer &&
          std::none_of(wanted.begin(), wanted.end(), [&](const auto& w) { return w.name == tensor.name; }))
        return bad_model(fmt::format("tensor {} is not one the config asks for", in_quotes(tensor.name)));
    return internal_error("checkpoint: tensors lost count");
  }

  Status take_digests(const format::Metadata& metadata) {
    constexpr format::JsonLimits kLimits = {1, format::kMostTensors + 1, 4096};
    format::JsonObject digests;
    KAIJU_TRY(format::parse_json(metadata.digests, "__metadata__.digests", kLimits, digests));
    for (TensorInfo& tensor : tensors_) {
      const auto found = digests.members.find(tensor.name);
      if (found == digests.members.end())
        return bad_model(fmt::format("__metadata__.digests lacks tensor {}", tensor.name));
      const std::string* text = found->second.text();
      if (!text || !format::is_digest(*text))
        return bad_model(
            fmt::format("__metadata__.digests: tensor {} must have 32 lower-case hexadecimal digits", tensor.name));
      tensor.digest = *text;
      digests.members.erase(found);
    }
    if (!digests.members.empty())
      return bad_model(
          fmt::format("__metadata__.digests names {}, which is no tensor", in_quotes(digests.members.begin()->first)));
    digest_ = format::root_digest(fmt::to_string(metadata.arithmetic), metadata.config, tensors_);
    if (digest_ != metadata.digest)
      return bad_model(fmt::format(
          "__metadata__.digest is {}, but config, shapes and digests give {}: the header was altered or damaged",
          in_quotes(metadata.digest), digest_));
    return {};
  }

  // Everything but the weights: what is checked is then what is used, whatever becomes of the file.
  Status copy_tensors() {
    size_t total = 0;
    const auto place = [&](const TensorInfo& tensor) {
      const size_t at = total;
      total += (tensor.bytes.size() + format::kAlignment - 1) / format::kAlignment * format::kAlignment;
      return at;
    };
    for (const TensorInfo& tensor : tensors_)
      if (tensor.dtype != DType::kI8) place(tensor);
    auto copies = Buffer<std::byte>::make(total, "the model's scales, row sums and tokenizer");
    if (!copies.ok()) return copies.status();
    copies_ = std::move(copies).value();
    total = 0;
    for (TensorInfo& tensor : tensors_) {
      if (tensor.dtype == DType::kI8) continue;
      const std::span to(copies_.data() + place(tensor), tensor.bytes.size());
      KAIJU_TRY(source_.read(tensor.offset, to));
      tensor.bytes = to;
    }
    return {};
  }

  std::string name_;
  format::Source source_;
  Buffer<std::byte> copies_;
  ModelConfig config_;
  std::string digest_;
  std::vector<TensorInfo> tensors_;
};

using Loaded = Result<std::shared_ptr<const Checkpoint>>;

// No exception leaves the library: out of memory is an answer, and so is a callback that throws.
template <class F>
Loaded guarded(std::string_view source, F&& body) {
  try {
    Loaded loaded = body();
    if (loaded.ok()) return loaded;
    const Status status = loaded.status();
    return Status(status.code(), fmt::format("{}: {}", source, status.message()));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return internal_error(fmt::format("{}: {}", source, error.what()));
  } catch (...) {
    return internal_error(fmt::format("{}: an exception", source));
  }
}

}  // namespace

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::string& path, Verify verify,
                                                           const Progress& progress) {
  KAIJU_TRY(format::check_path(path));
  return guarded(path, [&]() -> Loaded {
    const FloatState float_state;
    Progress report;
    if (progress) report = [&](double done) { return float_state.as_found([&] { return progress(done); }); };
    auto file = format::Source::open(path);
    if (!file.ok()) return file.status();
    auto checkpoint = std::make_shared<LoadedCheckpoint>(path, std::move(file).value());
    Status status = checkpoint->load(verify, report);
    // A file that is being written explains any other complaint, so this one goes first.
    if (Status changed = checkpoint->source().check_unchanged();
        !changed.ok() && status.code() != StatusCode::kCancelled)
      return changed;
    if (!status.ok()) return status;
    return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
  });
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::from_memory(std::span<const std::byte> bytes, Verify verify) {
  return guarded("checkpoint in memory", [&]() -> Loaded {
    const FloatState float_state;
    if (reinterpret_cast<uintptr_t>(bytes.data()) % format::kAlignment != 0)
      return invalid_argument("the bytes are not aligned: give an address that is a multiple of 64");
    auto checkpoint = std::make_shared<LoadedCheckpoint>("checkpoint in memory", format::Source(bytes));
    if (Status status = checkpoint->load(verify, {}); !status.ok()) return status;
    return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
  });
}

}  // namespace kaiju
