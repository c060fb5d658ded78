// Reads and checks a byte-level BPE tokenizer: see byte_bpe_data.hpp.
#include "byte_bpe_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "format/json.hpp"
#include "kaiju/text/tokenizer.hpp"

namespace kaiju {
namespace {

using format::Json;
using format::JsonObject;

constexpr size_t kMaxFileBytes = size_t{64} << 20;
constexpr size_t kMaxTokenBytes = 512;
constexpr size_t kMaxMerges = size_t{1} << 21;
constexpr format::JsonLimits kLimits{.depth = 2, .values = size_t{6} << 20, .string_bytes = 12 * kMaxTokenBytes};

Status bad_data(std::string_view what) { return bad_model(fmt::format("tokenizer: {}", what)); }

// The alphabet in which a string shows bytes, as GPT-2 published it: printable Latin-1 characters stand for
// themselves, the other 68 bytes in order for U+0100 to U+0143. Values are bytes, indexed by code point; -1 elsewhere.
std::array<int16_t, 0x144> byte_alphabet() {
  std::array<int16_t, 0x144> bytes;
  bytes.fill(-1);
  int other = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    bytes[printable ? byte : other++] = static_cast<int16_t>(byte);
  }
  return bytes;
}

// False where `shown`, which is UTF-8, has a character outside the alphabet.
bool bytes_of(std::string_view shown, std::string& bytes) {
  static const auto alphabet = byte_alphabet();
  for (size_t i = 0; i < shown.size(); ++i) {
    size_t code = static_cast<uint8_t>(shown[i]);
    if (code >= 0xE0) return false;
    if (code >= 0x80) code = (code & 0x1F) << 6 | (static_cast<uint8_t>(shown[++i]) & 0x3F);
    if (code >= alphabet.size() || alphabet[code] < 0) return false;
    bytes += static_cast<char>(alphabet[code]);
  }
  return true;
}

std::string shown(const ByteBpeData& data, int32_t token) {
  return fmt::format("{} ({})", token, format::in_quotes(data.tokens[token]));
}

Status read_tokens(const Json& value, int32_t vocab_size, ByteBpeData& data) {
  const auto* tokens = value.array();
  if (!tokens) return bad_data("tokens must be an array of strings");
  if (tokens->size() > static_cast<size_t>(vocab_size))
    return bad_data(fmt::format("it has {} tokens, the model's vocabulary only {}", tokens->size(), vocab_size));
  for (size_t i = 0; i < tokens->size(); ++i) {
    const std::string* text = (*tokens)[i].text();
    if (!text) return bad_data(fmt::format("token {} is no string", i));
    std::string bytes;
    if (!bytes_of(*text, bytes))
      return bad_data(
          fmt::format("token {} has a character outside the byte alphabet: {}", i, format::in_quotes(*text)));
    if (bytes.size() > kMaxTokenBytes)
      return bad_data(fmt::format("token {} is {} bytes long; the limit is {}", i, bytes.size(), kMaxTokenBytes));
    data.roles.push_back(bytes.empty() ? TokenRole::kUnused : TokenRole::kOrdinary);
    data.tokens.push_back(std::move(bytes));
  }
  data.edges.resize(data.tokens.size());
  return {};
}

// An id that has a token, or -1.
int32_t token_id(const Json& value, const ByteBpeData& data) {
  const uint64_t* id = value.whole();
  return id && *id < data.tokens.size() && !data.tokens[*id].empty() ? static_cast<int32_t>(*id) : -1;
}

Status read_roles(const Json& value, std::string_view name, TokenRole role, ByteBpeData& data) {
  const auto* ids = value.array();
  if (!ids) return bad_data(fmt::format("{} must be an array of token ids", name));
  for (size_t i = 0; i < ids->size(); ++i) {
    const int32_t id = token_id((*ids)[i], data);
    if (id < 0) return bad_data(fmt::format("entry {} of {} is not the id of a token", i, name));
    if (data.roles[id] != TokenRole::kOrdinary)
      return bad_data(
          fmt::format("token {} of {} is named twice in control, visible and literal", shown(data, id), name));
    if (utf8_valid_prefix(data.tokens[id]) != data.tokens[id].size())
      return bad_data(fmt::format("token {} of {} is not UTF-8", shown(data, id), name));
    data.roles[id] = role;
  }
  return {};
}

Status read_edges(const Json& value, std::string_view name, bool TokenEdges::* edge, ByteBpeData& data) {
  const auto* ids = value.array();
  if (!ids) return bad_data(fmt::format("{} must be an array of token ids", name));
  for (size_t i = 0; i < ids->size(); ++i) {
    const int32_t id = token_id((*ids)[i], data);
    if (id < 0 || (data.roles[id] != TokenRole::kControl && data.roles[id] != TokenRole::kVisible))
      return bad_data(fmt::format("entry {} of {} is not the id of a token in control or visible", i, name));
    if (data.edges[id].*edge) return bad_data(fmt::format("token {} is named twice in {}", shown(data, id), name));
    data.edges[id].*edge = true;
  }
  return {};
}

// An ordinary token may have the bytes of another role's: only ordinary ones are made by merges.
Status check_tokens(ByteBpeData& data) {
  std::vector<int32_t> added;
  for (size_t i = 0; i < data.tokens.size(); ++i)
    if (data.roles[i] != TokenRole::kUnused)
      (data.roles[i] == TokenRole::kOrdinary ? data.by_bytes : added).push_back(static_cast<int32_t>(i));
  for (auto* ids : {&data.by_bytes, &added}) {
    std::sort(ids->begin(), ids->end(), [&](int32_t a, int32_t b) {
      return std::pair<std::string_view, int32_t>(data.tokens[a], a) <
             std::pair<std::string_view, int32_t>(data.tokens[b], b);
    });
    for (size_t i = 1; i < ids->size(); ++i)
      if (data.tokens[(*ids)[i]] == data.tokens[(*ids)[i - 1]])
        return bad_data(
            fmt::format("token {} occurs twice: it is token {} too", shown(data, (*ids)[i]), (*ids)[i - 1]));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    data.byte_tokens[byte] = data.find({&text, 1});
    const bool needed = byte == '\n' || (byte >= 0x20 && byte <= 0x7E) || (byte >= 0x80 && byte <= 0xBF) ||
                        (byte >= 0xC2 && byte <= 0xF0);
    if (data.byte_tokens[byte] < 0 && needed)
      return bad_data(fmt::format("the token of the byte 0x{:02X} is missing", byte));
  }
  return {};
}

Status read_merges(const Json& value, ByteBpeData& data) {
  const auto* ids = value.array();
  if (!ids || ids->size() % 2 != 0 || ids->size() / 2 > kMaxMerges)
    return bad_data(fmt::format("merges must be an array of token ids, two a merge, of at most {} merges", kMaxMerges));
  data.merges.reserve(ids->size() / 2);
  std::string bytes;
  for (size_t i = 0; i < ids->size(); i += 2) {
    const int32_t left = token_id((*ids)[i], data), right = token_id((*ids)[i + 1], data);
    if (left < 0 || right < 0) return bad_data(fmt::format("merge {} has an id that is not the id of a token", i / 2));
    for (const int32_t id : {left, right})
      if (data.roles[id] != TokenRole::kOrdinary)
        return bad_data(
            fmt::format("merge {} has token {}, which is in control, visible or literal", i / 2, shown(data, id)));
    bytes.assign(data.tokens[left]).append(data.tokens[right]);
    const int32_t result = data.find(bytes);
    if (result < 0)
      return bad_data(
          fmt::format("merge {} makes no token: there is no ordinary token {}", i / 2, format::in_quotes(bytes)));
    data.merges.push_back({left, right, static_cast<uint32_t>(i / 2), result});
  }
  std::sort(data.merges.begin(), data.merges.end(), [](const auto& a, const auto& b) {
    return std::tie(a.left, a.right, a.rank) < std::tie(b.left, b.right, b.rank);
  });
  for (size_t i = 1; i < data.merges.size(); ++i)
    if (const auto &a = data.merges[i - 1], &b = data.merges[i]; a.left == b.left && a.right == b.right)
      return bad_data(fmt::format("merge {} is merge {} again", b.rank, a.rank));
  return {};
}

Status read_bool(const Json& value, std::string_view name, bool& out) {
  const bool* read = std::get_if<bool>(&value.value);
  if (!read) return bad_data(fmt::format("{} must be true or false", name));
  out = *read;
  return {};
}

// The fields of the object, which has them all: unknown and missing ones are refused before.
Status read_fields(const JsonObject& object, int32_t vocab_size, ByteBpeData& data) {
  const auto field = [&](std::string_view name) -> const Json& { return *object.find(name); };
  const std::string* split = field("split").text();
  if (!split) return bad_data("split must be the name of a split");
  data.split = find_split(*split);
  if (!data.split)
    return bad_data(fmt::format("the split {} is unknown; kaiju knows {}", format::in_quotes(*split), split_names()));
  const std::string* normalization = field("normalization").text();
  if (!normalization || (*normalization != "none" && *normalization != "nfc"))
    return bad_data("normalization must be \"none\" or \"nfc\"");
  data.nfc = *normalization == "nfc";
  KAIJU_TRY(read_bool(field("ignore_merges"), "ignore_merges", data.ignore_merges));
  KAIJU_TRY(read_bool(field("add_prefix_space"), "add_prefix_space", data.add_prefix_space));
  KAIJU_TRY(read_tokens(field("tokens"), vocab_size, data));
  KAIJU_TRY(read_roles(field("control"), "control", TokenRole::kControl, data));
  KAIJU_TRY(read_roles(field("visible"), "visible", TokenRole::kVisible, data));
  KAIJU_TRY(read_roles(field("literal"), "literal", TokenRole::kLiteral, data));
  if (data.add_prefix_space && !field("literal").array()->empty())
    return bad_data("add_prefix_space is true and literal has tokens: kaiju does not support both together");
  KAIJU_TRY(read_edges(field("lstrip"), "lstrip", &TokenEdges::left_strip, data));
  KAIJU_TRY(read_edges(field("rstrip"), "rstrip", &TokenEdges::right_strip, data));
  KAIJU_TRY(read_edges(field("single_word"), "single_word", &TokenEdges::single_word, data));
  KAIJU_TRY(check_tokens(data));
  return read_merges(field("merges"), data);
}

}  // namespace

int32_t ByteBpeData::find(std::string_view bytes) const {
  const auto at = std::lower_bound(by_bytes.begin(), by_bytes.end(), bytes,
                                   [&](int32_t id, std::string_view wanted) { return tokens[id] < wanted; });
  return at != by_bytes.end() && tokens[*at] == bytes ? *at : -1;
}

Result<ByteBpeData> read_byte_bpe(std::span<const std::byte> json, int32_t vocab_size) {
  if (json.size() > kMaxFileBytes)
    return bad_data(fmt::format("{} bytes of JSON; the limit is {}", json.size(), kMaxFileBytes));
  JsonObject object;
  KAIJU_TRY(format::parse_json({reinterpret_cast<const char*>(json.data()), json.size()}, "tokenizer: the JSON",
                               kLimits, object));
  const Json* type = object.find("type");
  if (!type || !type->text() || *type->text() != "byte_bpe")
    return bad_data("type must be \"byte_bpe\", the only kind of tokenizer in JSON that kaiju reads");
  const Json* version = object.find("version");
  if (!version || !version->whole()) return bad_data("version must be a whole number");
  if (*version->whole() != 1)
    return Status(StatusCode::kUnsupported,
                  fmt::format("tokenizer: version {} of the format; kaiju reads version 1", *version->whole()));
  constexpr std::string_view kFields[] = {"type",    "version", "normalization", "split",      "add_prefix_space",
                                          "tokens",  "merges",  "ignore_merges", "lstrip",     "rstrip",
                                          "control", "visible", "literal",       "single_word"};
  for (const auto& [name, value] : object.members)
    if (std::find(std::begin(kFields), std::end(kFields), name) == std::end(kFields))
      return bad_data(fmt::format("the field {} is unknown", format::in_quotes(name)));
  for (const std::string_view name : kFields)
    if (!object.find(name)) return bad_data(fmt::format("the field \"{}\" is missing", name));
  ByteBpeData data;
  KAIJU_TRY(read_fields(object, vocab_size, data));
  return data;
}

}  // namespace kaiju
