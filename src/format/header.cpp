// The safetensors header: see header.hpp. Lengths and numbers are not trusted: each is compared with what it must be before it is used.
#include "header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "json.hpp"

namespace kaiju::format {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian and used in place");

constexpr DType kDTypes[] = {DType::kI8, DType::kU8, DType::kI32, DType::kU64, DType::kF32};
// Per tensor: itself (an object counts twice), dtype, shape and two dimensions, data_offsets and two numbers.
constexpr JsonLimits kHeaderLimits = {3, 9 * (kMostTensors + 1), size_t{16} << 20};

Status take_metadata(json& root, Metadata& out) {
  const auto found = root.find("__metadata__");
  if (found == root.end() || !found->is_object())
    return bad_model("__metadata__ is missing: a safetensors file, but not a Kaiju checkpoint; convert it with a Kaiju exporter");
  json& object = *found;
  const auto format = object.find("format");
  if (format == object.end() || *format != "kaiju") return bad_model("__metadata__.format is not \"kaiju\": not a Kaiju checkpoint");
  static constexpr std::string_view kFields[] = {"format", "format_version", "arithmetic", "config", "digests", "digest"};
  for (const auto& [key, value] : object.items()) {
    // Nothing rides along that the root digest does not cover.
    if (std::find(std::begin(kFields), std::end(kFields), key) == std::end(kFields))
      return bad_model(fmt::format("__metadata__.{} is not a field of a Kaiju checkpoint", in_quotes(key)));
    if (!value.is_string()) return bad_model(fmt::format("__metadata__.{} must be a string", in_quotes(key)));
  }
  for (const char* key : {"format_version", "arithmetic", "config", "digests", "digest"})
    if (!object.contains(key)) return bad_model(fmt::format("__metadata__.{} is missing", key));
  for (const auto& [key, known] : {std::pair("format_version", "1"), std::pair("arithmetic", "1")})
    if (object[key] != known)
      return {StatusCode::kUnsupported, fmt::format("__metadata__.{} is {}: this build of kaiju reads {}; use a build that knows it", key,
                                                    in_quotes(object[key].get_ref<const std::string&>()), known)};
  out.config = std::move(object["config"].get_ref<std::string&>());
  out.digests = std::move(object["digests"].get_ref<std::string&>());
  out.digest = std::move(object["digest"].get_ref<std::string&>());
  root.erase(found);
  return {};
}

Status take_tensor(const std::string& name, const json& entry, std::span<const std::byte> data, TensorInfo& out) {
  const auto refuse = [&](const std::string& rule) { return bad_model(fmt::format("tensor {}: {}", in_quotes(name), rule)); };
  if (!entry.is_object()) return refuse("must be an object with dtype, shape and data_offsets");
  for (const auto& [key, value] : entry.items())
    if (key != "dtype" && key != "shape" && key != "data_offsets") return refuse(fmt::format("unknown field {}", in_quotes(key)));
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!entry.contains(key)) return refuse(fmt::format("{} is missing", key));

  const json& dtype = entry["dtype"];
  if (!dtype.is_string()) return refuse("dtype must be a string");
  const auto& spelling = dtype.get_ref<const std::string&>();
  const auto known = std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](DType d) { return spelling == dtype_name(d); });
  if (known == std::end(kDTypes)) return refuse(fmt::format("dtype {} is not one of I8, U8, I32, U64, F32", in_quotes(spelling)));

  const json& shape = entry["shape"];
  if (!shape.is_array() || shape.empty() || shape.size() > 2) return refuse("shape must be a list of one or two numbers");
  std::vector<int64_t> dimensions;
  for (const json& dimension : shape) {
    // A fraction, an exponent, a negative number or one beyond 64 bits is not "unsigned" to the parser, so it cannot get past this line.
    if (!dimension.is_number_unsigned() || dimension.get<uint64_t>() == 0 || dimension.get<uint64_t>() > (uint64_t{1} << 62))
      return refuse("shape must hold whole numbers from 1 to 2^62");
    dimensions.push_back(static_cast<int64_t>(dimension.get<uint64_t>()));
  }
  const uint64_t bytes = tensor_bytes(*known, dimensions);
  if (bytes == 0) return refuse("shape: the number of bytes overflows 64 bits");

  const json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    return refuse("data_offsets must be two whole numbers");
  const auto begin = offsets[0].get<uint64_t>();
  const auto end = offsets[1].get<uint64_t>();
  if (begin > end) return refuse(fmt::format("data_offsets run backwards, {} to {}", begin, end));
  if (end > data.size())
    return refuse(fmt::format("data_offsets end at {}, past the {} bytes of data: the file is truncated", end, data.size()));
  if (end - begin != bytes) return refuse(fmt::format("data_offsets hold {} bytes, dtype and shape need {}", end - begin, bytes));
  out = {name, *known, std::move(dimensions), data.subspan(begin, bytes), {}};
  return {};
}

// Contiguous from the first byte of data to the last, in the order of the groups.
Status check_layout(const std::vector<TensorInfo>& tensors, std::span<const std::byte> data) {
  const std::byte* at = data.data();
  int group = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.bytes.data() < at)
      return bad_model(fmt::format("tensor {}: overlaps tensor {}", in_quotes(tensor.name), in_quotes(tensors[i - 1].name)));
    if (tensor.bytes.data() > at)
      return bad_model(fmt::format("tensor {}: {} unused bytes lie before it; tensors must be contiguous", in_quotes(tensor.name),
                                   tensor.bytes.data() - at));
    at += tensor.bytes.size();
    const int own = layout_group(tensor.name, tensor.bytes.size());
    if (own < group)
      return bad_model(
          fmt::format("tensor {}: is out of order: tensors of a multiple of 64 bytes come first, then scalars, then the tokenizer",
                      in_quotes(tensor.name)));
    group = own;
  }
  if (at != data.data() + data.size())
    return bad_model(fmt::format("{} bytes after the last tensor belong to none", data.data() + data.size() - at));
  return {};
}

}  // namespace

uint64_t tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  uint64_t bytes = dtype_bytes(dtype);
  for (const int64_t dimension : shape)
    if (dimension <= 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes)) return 0;
  return bytes;
}

int layout_group(std::string_view name, uint64_t bytes) { return name == kTokenizer ? 2 : bytes % kAlignment == 0 ? 0 : 1; }

Status parse_header(std::span<const std::byte> file, Header& out) {
  uint64_t length = 0;
  if (file.size() < sizeof length) return bad_model(fmt::format("header: the file has {} bytes, too few for any checkpoint", file.size()));
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kMostHeaderBytes)
    return bad_model(
        fmt::format("header length is {}, at most {} allowed: not a safetensors file, or a damaged one", length, kMostHeaderBytes));
  if (length > file.size() - sizeof length)
    return bad_model(fmt::format("header length is {}, but the file has only {} bytes: it is truncated", length, file.size()));
  const uint64_t data_offset = sizeof length + length;
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof length, length);

  json root;
  KAIJU_TRY(parse_json(text, "header", kHeaderLimits, root));
  KAIJU_TRY(take_metadata(root, out.metadata));
  if (data_offset % kAlignment != 0)
    return bad_model(fmt::format("header length is {}: the data would begin at byte {}, not a multiple of 64; pad the header with spaces",
                                 length, data_offset));
  if (root.size() > kMostTensors) return bad_model(fmt::format("header names {} tensors, at most {} allowed", root.size(), kMostTensors));
  const auto data = file.subspan(data_offset);
  out.tensors.reserve(root.size());
  for (const auto& [name, entry] : root.items()) {
    out.tensors.emplace_back();
    KAIJU_TRY(take_tensor(name, entry, data, out.tensors.back()));
  }
  std::sort(out.tensors.begin(), out.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.bytes.data() < b.bytes.data(); });
  return check_layout(out.tensors, data);
}

std::string build_header(const Metadata& metadata, const std::vector<CheckpointWriter::Declaration>& tensors) {
  const nlohmann::ordered_json fields = {
      {"format", "kaiju"},         {"format_version", "1"},       {"arithmetic", fmt::to_string(kArithmeticVersion)},
      {"config", metadata.config}, {"digests", metadata.digests}, {"digest", metadata.digest}};
  std::string text = "{\"__metadata__\":" + fields.dump();
  uint64_t begin = 0;
  for (const CheckpointWriter::Declaration& tensor : tensors) {  // names are those of required_tensors: nothing in them needs escaping
    const uint64_t end = begin + tensor_bytes(tensor.dtype, tensor.shape);
    text += fmt::format(",\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", tensor.name, dtype_name(tensor.dtype),
                        fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  text += '}';
  uint64_t length = text.size();
  length += (kAlignment - (sizeof length + length) % kAlignment) % kAlignment;
  text.resize(length, ' ');
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace kaiju::format
