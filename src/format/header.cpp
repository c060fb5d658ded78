// Reads and writes the safetensors header: see header.hpp. Lengths and numbers are not trusted: each is checked before
// it is used.
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

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian and used in place");

constexpr DType kDTypes[] = {DType::kI8, DType::kU8, DType::kI32, DType::kU64, DType::kF32};
// Per tensor: itself (an object counts twice), dtype, shape and two dimensions, data_offsets and two numbers.
constexpr JsonLimits kHeaderLimits = {3, 9 * (kMostTensors + 1), size_t{16} << 20};

constexpr const char* kImport =
    "examples/import/kaiju-import SOURCE --out FILE makes one of a GGUF file or a Hugging Face folder";
constexpr uint64_t kGguf = 0x46554747;  // the letters with which a GGUF file begins

Status take_metadata(const JsonObject& root, Metadata& out) {
  const Json* found = root.find(kMetadata);
  const JsonObject* object = found ? found->object() : nullptr;
  if (!object)
    return bad_model(
        fmt::format("__metadata__ is missing: a safetensors file, but not a Kaiju checkpoint; {}", kImport));
  const auto field = [&](std::string_view key) {
    const Json* value = object->find(key);
    return value ? value->text() : nullptr;
  };
  const std::string* format = field("format");
  if (!format || *format != "kaiju")
    return bad_model(fmt::format("__metadata__.format is not \"kaiju\": not a Kaiju checkpoint; {}", kImport));
  static constexpr std::string_view kFields[] = {"format", "format_version", "arithmetic",
                                                 "config", "digests",        "digest"};
  for (const auto& [key, value] : object->members) {
    // Nothing rides along that the root digest does not cover.
    if (std::find(std::begin(kFields), std::end(kFields), key) == std::end(kFields))
      return bad_model(fmt::format("__metadata__.{} is not a field of a Kaiju checkpoint", in_quotes(key)));
    if (!value.text()) return bad_model(fmt::format("__metadata__.{} must be a string", in_quotes(key)));
  }
  for (const std::string_view key : kFields)
    if (!field(key)) return bad_model(fmt::format("__metadata__.{} is missing", key));
  const auto unknown = [&](std::string_view key, const char* known) -> Status {
    return {StatusCode::kUnsupported,
            fmt::format("__metadata__.{} is {}: this build of kaiju reads {}; use a build that knows it", key,
                        in_quotes(*field(key)), known)};
  };
  if (*field("format_version") != "1") return unknown("format_version", "1");
  const std::string& arithmetic = *field("arithmetic");
  if (arithmetic != "1" && arithmetic != "2") return unknown("arithmetic", "1 and 2");
  out = {arithmetic == "1" ? 1 : 2, *field("config"), *field("digests"), *field("digest")};
  return {};
}

// `data` begins at byte `data_offset` of the file.
Status take_tensor(const std::string& name, const Json& value, std::span<const std::byte> data, uint64_t data_offset,
                   TensorInfo& out) {
  const auto refuse = [&](const std::string& rule) {
    return bad_model(fmt::format("tensor {}: {}", in_quotes(name), rule));
  };
  const JsonObject* entry = value.object();
  if (!entry) return refuse("must be an object with dtype, shape and data_offsets");
  for (const auto& [key, field] : entry->members)
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return refuse(fmt::format("unknown field {}", in_quotes(key)));
  for (const char* key : {"dtype", "shape", "data_offsets"})
    if (!entry->find(key)) return refuse(fmt::format("{} is missing", key));

  const std::string* spelling = entry->find("dtype")->text();
  if (!spelling) return refuse("dtype must be a string");
  const auto known =
      std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](DType d) { return *spelling == dtype_name(d); });
  if (known == std::end(kDTypes))
    return refuse(fmt::format("dtype {} is not one of I8, U8, I32, U64, F32", in_quotes(*spelling)));

  const std::vector<Json>* shape = entry->find("shape")->array();
  if (!shape || shape->empty() || shape->size() > 2) return refuse("shape must be a list of one or two numbers");
  std::vector<int64_t> dimensions;
  for (const Json& dimension : *shape) {
    // A fraction, an exponent, a negative number or one beyond 64 bits is not whole to the parser, so it cannot get
    // past this line.
    const uint64_t* whole = dimension.whole();
    if (!whole || *whole == 0 || *whole > (uint64_t{1} << 62))
      return refuse("shape must hold whole numbers from 1 to 2^62");
    dimensions.push_back(static_cast<int64_t>(*whole));
  }
  const uint64_t bytes = tensor_bytes(*known, dimensions);
  if (bytes == 0) return refuse("shape: the number of bytes overflows 64 bits");

  const std::vector<Json>* offsets = entry->find("data_offsets")->array();
  if (!offsets || offsets->size() != 2 || !(*offsets)[0].whole() || !(*offsets)[1].whole())
    return refuse("data_offsets must be two whole numbers");
  const uint64_t begin = *(*offsets)[0].whole(), end = *(*offsets)[1].whole();
  if (begin > end) return refuse(fmt::format("data_offsets run backwards, {} to {}", begin, end));
  if (end > data.size())
    return refuse(
        fmt::format("data_offsets end at {}, past the {} bytes of data: the file is truncated", end, data.size()));
  if (end - begin != bytes)
    return refuse(fmt::format("data_offsets hold {} bytes, dtype and shape need {}", end - begin, bytes));
  out = {name, *known, std::move(dimensions), data.subspan(begin, bytes), {}, data_offset + begin};
  return {};
}

// Contiguous from the first byte of data to the end of the file, in the order of the groups.
Status check_layout(const std::vector<TensorInfo>& tensors, uint64_t data_offset, uint64_t file_bytes) {
  uint64_t at = data_offset;
  int group = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.offset < at)
      return bad_model(
          fmt::format("tensor {}: overlaps tensor {}", in_quotes(tensor.name), in_quotes(tensors[i - 1].name)));
    if (tensor.offset > at)
      return bad_model(fmt::format("tensor {}: {} unused bytes lie before it; tensors must be contiguous",
                                   in_quotes(tensor.name), tensor.offset - at));
    at += tensor.bytes.size();
    const int own = layout_group(tensor.name, tensor.bytes.size());
    if (own < group)
      return bad_model(
          fmt::format("tensor {}: is out of order: tensors of a multiple of 64 bytes come first, then smaller ones, "
                      "then the tokenizer",
                      in_quotes(tensor.name)));
    group = own;
  }
  if (at != file_bytes) return bad_model(fmt::format("{} bytes after the last tensor belong to none", file_bytes - at));
  return {};
}

}  // namespace

uint64_t tensor_bytes(DType dtype, std::span<const int64_t> shape) {
  uint64_t bytes = dtype_bytes(dtype);
  for (const int64_t dimension : shape)
    if (dimension <= 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes)) return 0;
  return bytes;
}

int layout_group(std::string_view name, uint64_t bytes) {
  return name == kTokenizer ? 2 : bytes % kAlignment == 0 ? 0 : 1;
}

Status read_header(const Source& file, JsonObject& root, uint64_t& data_offset) {
  uint64_t length = 0;
  if (file.size() < sizeof length)
    return bad_model(fmt::format("header: the file has {} bytes, too few for any checkpoint", file.size()));
  KAIJU_TRY(file.read(0, std::as_writable_bytes(std::span(&length, 1))));
  if ((length & 0xFFFFFFFF) == kGguf) return bad_model(fmt::format("a GGUF file, not a Kaiju checkpoint; {}", kImport));
  if (length > kMostHeaderBytes)
    return bad_model(fmt::format("header length is {}, at most {} allowed: not a safetensors file, or a damaged one",
                                 length, kMostHeaderBytes));
  if (length > file.size() - sizeof length)
    return bad_model(
        fmt::format("header length is {}, but the file has only {} bytes: it is truncated", length, file.size()));
  data_offset = sizeof length + length;
  std::string text(length, ' ');
  KAIJU_TRY(file.read(sizeof length, std::as_writable_bytes(std::span(text))));
  return parse_json(text, "header", kHeaderLimits, root);
}

Status read_tensors(const Source& file, const JsonObject& root, uint64_t data_offset, std::vector<TensorInfo>& out) {
  if (data_offset % kAlignment != 0)
    return bad_model(fmt::format(
        "header length is {}: the data would begin at byte {}, not a multiple of 64; pad the header with spaces",
        data_offset - sizeof(uint64_t), data_offset));
  const size_t count = root.members.size() - 1;
  if (count > kMostTensors)
    return bad_model(fmt::format("header names {} tensors, at most {} allowed", count, kMostTensors));
  const auto data = file.in_place().subspan(data_offset);
  out.reserve(count);
  for (const auto& [name, entry] : root.members) {
    if (name == kMetadata) continue;
    out.emplace_back();
    KAIJU_TRY(take_tensor(name, entry, data, data_offset, out.back()));
  }
  std::sort(out.begin(), out.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.offset < b.offset; });
  return check_layout(out, data_offset, file.size());
}

Status parse_header(const Source& file, Header& out) {
  JsonObject root;
  uint64_t data_offset = 0;
  KAIJU_TRY(read_header(file, root, data_offset));
  KAIJU_TRY(take_metadata(root, out.metadata));
  return read_tensors(file, root, data_offset, out.tensors);
}

std::string build_header(const Metadata& metadata, const std::vector<CheckpointWriter::Declaration>& tensors) {
  std::string text = fmt::format(
      "{{\"__metadata__\":{{\"format\":\"kaiju\",\"format_version\":\"1\",\"arithmetic\":\"{}\",\"config\":{},"
      "\"digests\":{},\"digest\":\"{}\"}}",
      metadata.arithmetic, json_string(metadata.config), json_string(metadata.digests), metadata.digest);
  uint64_t begin = 0;
  for (const CheckpointWriter::Declaration& tensor :
       tensors) {  // names are those of required_tensors: nothing in them needs escaping
    const uint64_t end = begin + tensor_bytes(tensor.dtype, tensor.shape);
    text += fmt::format(",\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", tensor.name,
                        dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  text += '}';
  uint64_t length = text.size();
  length += (kAlignment - (sizeof length + length) % kAlignment) % kAlignment;
  text.resize(length, ' ');
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

}  // namespace kaiju::format
