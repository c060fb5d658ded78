// LoadedCheckpoint: see loaded_checkpoint.hpp.
#include "loaded_checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "digest.hpp"
#include "json.hpp"
#include "kaiju/base/detail/memory_placement.hpp"
#include "values.hpp"

namespace kaiju::format {

const TensorInfo* LoadedCheckpoint::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const TensorInfo& t, std::string_view n) { return t.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

Status LoadedCheckpoint::check_unchanged() const {
  const Status status = source_.check_unchanged(
      "after it was loaded: load it again, and replace a file in use by renaming a new one "
      "over it");
  return status.ok() ? status : Status(status.code(), fmt::format("{}: {}", name_, status.message()));
}

Status LoadedCheckpoint::read(std::span<const std::byte> bytes, std::byte* to) const {
  const std::span<const std::byte> all = source_.in_place();
  const std::less_equal<const std::byte*> up_to;  // of any two pointers
  if (!up_to(all.data(), bytes.data()) || !up_to(bytes.data() + bytes.size(), all.data() + all.size()))
    return Checkpoint::read(bytes, to);  // a copied tensor's
  const Status status = source_.read(static_cast<uint64_t>(bytes.data() - all.data()), {to, bytes.size()});
  return status.ok() ? status : Status(status.code(), fmt::format("{}: {}", name_, status.message()));
}

Status LoadedCheckpoint::interleave() const {
  return source_.is_file() ? interleave_file(source_.in_place(), "the weights") : Status();
}

Status LoadedCheckpoint::load(Verify verify, const Progress& progress, int32_t threads) {
  Header header;
  KAIJU_TRY(parse_header(source_, header));
  tensors_ = std::move(header.tensors);
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  KAIJU_TRY(read_config(header.metadata, config_));
  config_text_ = header.metadata.config;
  KAIJU_TRY(match_tensors());
  KAIJU_TRY(take_digests(header.metadata));
  if (source_.is_file()) KAIJU_TRY(copy_tensors());
  KAIJU_TRY(check_values());
  if (verify == Verify::kFull) KAIJU_TRY(check_bytes(*this, source_, progress, threads));
  if (progress && progress(1.0) != 0) return {StatusCode::kCancelled, "loading was cancelled by the progress callback"};
  return {};
}

Status LoadedCheckpoint::read_config(const Metadata& metadata, ModelConfig& config) const {
  if (is_head(metadata))
    return invalid_argument("the head of a model, not a model: load the model, and give the head beside it");
  if (has_scales(metadata))
    return invalid_argument("the scales of a model, not a model: load the model, and give the scales beside it");
  auto read = config_from_json(metadata.config);
  if (!read.ok()) return read.status();
  config = std::move(read).value();
  if (config.arithmetic() != metadata.arithmetic)
    return bad_model(fmt::format("__metadata__.arithmetic is \"{}\", but the config has the layers of version {}",
                                 metadata.arithmetic, config.arithmetic()));
  return {};
}

Status LoadedCheckpoint::check_values() const { return check_scales(*this); }

// Exactly the tensors the config asks for, of the types and shapes it asks for.
Status LoadedCheckpoint::match_tensors() const {
  size_t matched = 0;
  const std::vector<CheckpointWriter::Declaration> all = wanted_tensors();
  for (const CheckpointWriter::Declaration& wanted : all) {
    const TensorInfo* tensor = find(wanted.name);
    const std::string shape = fmt::format("{} [{}]", dtype_name(wanted.dtype), fmt::join(wanted.shape, ", "));
    if (!tensor)
      return bad_model(fmt::format("tensor {} is missing; the config asks for it as {}", wanted.name, shape));
    if (tensor->dtype != wanted.dtype || tensor->shape != wanted.shape)
      return bad_model(fmt::format("tensor {} is {} [{}]; the config asks for {}", wanted.name,
                                   dtype_name(tensor->dtype), fmt::join(tensor->shape, ", "), shape));
    ++matched;
  }
  if (const TensorInfo* tokenizer = find(kTokenizer)) {
    if (tokenizer->dtype != DType::kU8 || tokenizer->shape.size() != 1 || tokenizer->shape[0] > kMostTokenizerBytes)
      return bad_model(fmt::format("tensor tokenizer must be U8 [bytes], at most {} bytes", kMostTokenizerBytes));
    ++matched;
  }
  if (matched == tensors_.size()) return {};
  for (const TensorInfo& tensor : tensors_)
    if (tensor.name != kTokenizer &&
        std::none_of(all.begin(), all.end(), [&](const auto& wanted) { return wanted.name == tensor.name; }))
      return bad_model(fmt::format("tensor {} is not one the config asks for", in_quotes(tensor.name)));
  return internal_error("checkpoint: tensors lost count");
}

Status LoadedCheckpoint::take_digests(const Metadata& metadata) {
  constexpr JsonLimits kLimits = {1, kMostTensors + 1, 4096};
  JsonObject digests;
  KAIJU_TRY(parse_json(metadata.digests, "__metadata__.digests", kLimits, digests));
  for (TensorInfo& tensor : tensors_) {
    const auto found = digests.members.find(tensor.name);
    if (found == digests.members.end())
      return bad_model(fmt::format("__metadata__.digests lacks tensor {}", tensor.name));
    const std::string* text = found->second.text();
    if (!text || !is_digest(*text))
      return bad_model(
          fmt::format("__metadata__.digests: tensor {} must have 32 lower-case hexadecimal digits", tensor.name));
    tensor.digest = *text;
    digests.members.erase(found);
  }
  if (!digests.members.empty())
    return bad_model(
        fmt::format("__metadata__.digests names {}, which is no tensor", in_quotes(digests.members.begin()->first)));
  digest_ = root_digest(fmt::to_string(metadata.arithmetic), metadata.config, tensors_);
  if (digest_ != metadata.digest)
    return bad_model(fmt::format(
        "__metadata__.digest is {}, but config, shapes and digests give {}: the header was altered or damaged",
        in_quotes(metadata.digest), digest_));
  return {};
}

// Everything but the weights: what is checked is then what is used, whatever becomes of the file.
Status LoadedCheckpoint::copy_tensors() {
  size_t total = 0;
  const auto place = [&](const TensorInfo& tensor) {
    const size_t at = total;
    total += (tensor.bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
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

}  // namespace kaiju::format
