// See gate_file.hpp.
#include "gate_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <string_view>

#include "format/digest.hpp"
#include "format/header.hpp"
#include "format/json.hpp"
#include "format/labels.hpp"
#include "format/reader.hpp"

namespace kaiju {
namespace {

using format::in_quotes;
using format::Json;
using format::JsonObject;

constexpr std::array<std::string_view, 5> kFields = {"format", "format_version", "config", "notice", "digest"};
constexpr format::JsonLimits kConfigLimits = {3, 128, 1024};
constexpr int64_t kLeastBuckets = 256, kMostBuckets = int64_t{1} << 24;
constexpr float kMostMagnitude = 1e6f;  // of scales and biases: no sum can become infinite

Status take_metadata(const JsonObject& root, std::string& config, std::string& digest) {
  const Json* const found = root.find(format::kMetadata);
  const JsonObject* const object = found ? found->object() : nullptr;
  const auto text = [&](std::string_view key) {
    const Json* const value = object ? object->find(key) : nullptr;
    return value ? value->text() : nullptr;
  };
  if (!text("format") || *text("format") != "kaiju-gate")
    return bad_model("__metadata__.format is not \"kaiju-gate\": not a gate; examples/train/message_gate.py makes one");
  if (!text("format_version") || *text("format_version") != "1")
    return {StatusCode::kUnsupported,
            "__metadata__.format_version is not \"1\", which is what this build of kaiju reads"};
  for (const auto& [key, value] : object->members)
    if (std::find(kFields.begin(), kFields.end(), key) == kFields.end())
      return bad_model(fmt::format("__metadata__.{} is not a field of a gate", in_quotes(key)));
  for (const std::string_view key : kFields)
    if (!text(key)) return bad_model(fmt::format("__metadata__.{} is missing, or no string", key));
  config = *text("config");
  digest = *text("digest");
  return {};
}

Status read_labels(const std::string& config, std::vector<std::string>& labels) {
  JsonObject object;
  KAIJU_TRY(format::parse_json(config, "config", kConfigLimits, object));
  format::Reader reader(object, "config");
  const Json* classifier = nullptr;
  KAIJU_TRY(reader.find("classifier", &classifier));
  KAIJU_TRY(reader.end());
  KAIJU_TRY(format::read_classifier(*classifier, labels));
  return format::check_labels(labels);
}

// The tensors are those of a gate with so many labels.
Status check_tensors(const std::vector<TensorInfo>& tensors, int64_t labels) {
  const auto is = [&](size_t i, std::string_view name, DType dtype, const std::vector<int64_t>& shape) {
    return tensors[i].name == name && tensors[i].dtype == dtype && tensors[i].shape == shape;
  };
  const int64_t buckets = tensors.empty() ? 0 : tensors[0].shape[0];
  if (tensors.size() != 3 || !is(0, "weights", DType::kI8, {buckets, labels}) ||
      !is(1, "bias", DType::kF32, {labels}) || !is(2, "scale", DType::kF32, {labels}))
    return bad_model(fmt::format(
        "the tensors must be weights, I8 [buckets, {0}], bias and scale, F32 [{0}], in this order", labels));
  if (buckets < kLeastBuckets || buckets > kMostBuckets || !std::has_single_bit(static_cast<uint64_t>(buckets)))
    return bad_model(fmt::format("weights has {} buckets: must be a power of two from {} to {}", buckets, kLeastBuckets,
                                 kMostBuckets));
  return {};
}

template <class T>
Status read_values(const format::Source& file, const TensorInfo& tensor, format::Digest& digest, std::vector<T>& out) {
  out.resize(tensor.bytes.size() / sizeof(T));
  KAIJU_TRY(file.read(tensor.offset, std::as_writable_bytes(std::span(out))));
  digest.update(std::as_bytes(std::span(out)));
  return {};
}

Status check_magnitudes(std::string_view name, const std::vector<float>& values) {
  for (const float value : values)
    if (!(std::abs(value) <= kMostMagnitude))
      return bad_model(fmt::format("tensor {} has the value {}: must be finite, from -1e6 to 1e6", name, value));
  return {};
}

}  // namespace

Status read_gate(const format::Source& file, GateParts& out) {
  JsonObject root;
  uint64_t data_offset = 0;
  KAIJU_TRY(format::read_header(file, root, data_offset));
  std::string config, stored;
  KAIJU_TRY(take_metadata(root, config, stored));
  KAIJU_TRY(read_labels(config, out.labels));
  std::vector<TensorInfo> tensors;
  KAIJU_TRY(format::read_tensors(file, root, data_offset, tensors));
  KAIJU_TRY(check_tensors(tensors, static_cast<int64_t>(out.labels.size())));
  format::Digest digest;
  digest.update(std::as_bytes(std::span(config)));
  KAIJU_TRY(read_values(file, tensors[0], digest, out.weights));
  KAIJU_TRY(read_values(file, tensors[1], digest, out.biases));
  KAIJU_TRY(read_values(file, tensors[2], digest, out.scales));
  if (digest.text() != stored)
    return bad_model(fmt::format("the digest is {}, and __metadata__.digest says {}: the file is damaged",
                                 digest.text(), in_quotes(stored)));
  KAIJU_TRY(check_magnitudes("bias", out.biases));
  return check_magnitudes("scale", out.scales);
}

}  // namespace kaiju
