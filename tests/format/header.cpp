// Malformed headers: what broke other loaders, one named case each. The file is otherwise true: digests are sealed
// again after the change.
#include "catch.hpp"
#include "tiny.hpp"

using kaiju::StatusCode;
using kaiju::Verify;
using tiny::ordered_json;
using tiny::Parts;

namespace {

std::string length_field(uint64_t length) { return {reinterpret_cast<const char*>(&length), 8}; }

void refused(const std::string& file, const std::string& part, StatusCode code = StatusCode::kBadModel) {
  for (const Verify verify : {Verify::kFull, Verify::kNone}) {
    const kaiju::Status status = tiny::load(file, verify);
    INFO(status.message());
    CHECK(status.code() == code);
    CHECK(tiny::contains(status.message(), part));
    CHECK(status.message().size() < 600);  // however long the offending name or number
  }
}
void refused(const std::string& name, const std::string& file, const std::string& part) {
  DYNAMIC_SECTION(name) { refused(file, part); }
}

struct HeaderCase {
  const char* name;
  const char* part;  // what the message must hold
  std::function<void(Parts&)> edit;
};

ordered_json& offsets(Parts& parts, const char* tensor) { return parts.header[tensor]["data_offsets"]; }

// Swaps the places, in file order, of two neighbours in the header only.
void rename(Parts& parts, const std::string& from, const std::string& to) {
  const ordered_json entry = parts.header[from];
  parts.header.erase(from);
  parts.header[to] = entry;
}

const std::vector<HeaderCase>& header_cases() {
  static const std::vector<HeaderCase> all = {
      {"offset past the end", "\"final.in_clip\": data_offsets end at",
       [](Parts& p) { offsets(p, "final.in_clip") = {p.data.size(), p.data.size() + 4}; }},
      {"offset 2^63", "\"embed.scale\"",
       [](Parts& p) { offsets(p, "embed.scale") = {uint64_t{1} << 63, (uint64_t{1} << 63) + 64}; }},
      {"offsets whose end wraps", "\"embed.scale\": data_offsets run backwards",
       [](Parts& p) { offsets(p, "embed.scale") = {UINT64_MAX - 31, 32}; }},
      {"offsets 2^64 - 1", "\"embed.scale\"",
       [](Parts& p) { offsets(p, "embed.scale") = {UINT64_MAX - 64, UINT64_MAX}; }},
      {"offsets run backwards", "\"embed.scale\": data_offsets run backwards",
       [](Parts& p) { offsets(p, "embed.scale") = {64, 0}; }},
      {"offset negative", "\"embed.scale\": data_offsets must be two",
       [](Parts& p) { offsets(p, "embed.scale") = {-64, 0}; }},
      {"offset a fraction", "\"embed.scale\": data_offsets must be two",
       [](Parts& p) { offsets(p, "embed.scale") = {1024.0, 1088.0}; }},
      {"offset a string", "\"embed.scale\": data_offsets must be two",
       [](Parts& p) { offsets(p, "embed.scale") = {"1024", "1088"}; }},
      {"offsets of three numbers", "\"embed.scale\": data_offsets must be two",
       [](Parts& p) { offsets(p, "embed.scale").push_back(0); }},
      {"offsets missing", "\"embed.scale\": data_offsets is missing",
       [](Parts& p) { p.header["embed.scale"].erase("data_offsets"); }},
      {"offsets null", "\"embed.scale\": data_offsets must be two",
       [](Parts& p) { offsets(p, "embed.scale") = nullptr; }},
      {"offsets of other length than the shape", "\"embed.scale\": data_offsets hold 60 bytes",
       [](Parts& p) { offsets(p, "embed.scale")[1] = offsets(p, "embed.scale")[1].get<uint64_t>() - 4; }},
      {"overlapping tensors", "overlaps tensor",
       [](Parts& p) { offsets(p, "embed.row_sum") = offsets(p, "embed.scale"); }},
      {"tensors overlapping by one byte", "overlaps tensor",
       [](Parts& p) {
         const auto [begin, end] = p.place("embed.row_sum");
         offsets(p, "embed.row_sum") = {begin - 1, end - 1};
       }},
      {"a gap between tensors", "unused bytes lie before it",
       [](Parts& p) {
         p.data.insert(p.place("embed.scale").first, 64, '\0');
         for (auto& [name, entry] : p.header.items())
           if (name != "__metadata__" && name != "embed.weight")
             for (auto& at : entry["data_offsets"]) at = at.get<uint64_t>() + 64;
       }},
      {"a gap before the first tensor", "unused bytes lie before it",
       [](Parts& p) {
         p.data.insert(0, 64, '\0');
         for (auto& [name, entry] : p.header.items())
           if (name != "__metadata__")
             for (auto& at : entry["data_offsets"]) at = at.get<uint64_t>() + 64;
       }},
      {"bytes after the last tensor", "after the last tensor", [](Parts& p) { p.data += std::string(64, '\0'); }},
      {"data cut short", "truncated", [](Parts& p) { p.data.resize(p.data.size() - 4); }},
      {"no data at all", "truncated", [](Parts& p) { p.data.clear(); }},
      {"shape whose product wraps to the right size", "\"embed.weight\": shape",
       [](Parts& p) { p.header["embed.weight"]["shape"] = {(uint64_t{1} << 62) + 4, 256}; }},
      {"shape of 2^62 by 2^62", "\"embed.weight\": shape: the number of bytes overflows",
       [](Parts& p) { p.header["embed.weight"]["shape"] = {uint64_t{1} << 62, uint64_t{1} << 62}; }},
      {"shape times element size wraps", "\"embed.scale\": shape: the number of bytes overflows",
       [](Parts& p) { p.header["embed.scale"]["shape"] = {uint64_t{1} << 62}; }},
      {"dimension zero", "\"embed.scale\": shape", [](Parts& p) { p.header["embed.scale"]["shape"] = {0}; }},
      {"dimension negative", "\"embed.scale\": shape", [](Parts& p) { p.header["embed.scale"]["shape"] = {-16}; }},
      {"dimension a fraction", "\"embed.scale\": shape", [](Parts& p) { p.header["embed.scale"]["shape"] = {16.5}; }},
      {"dimension 2^63", "\"embed.scale\": shape",
       [](Parts& p) { p.header["embed.scale"]["shape"] = {uint64_t{1} << 63}; }},
      {"shape empty", "\"embed.scale\": shape",
       [](Parts& p) { p.header["embed.scale"]["shape"] = ordered_json::array(); }},
      {"shape of three dimensions", "\"embed.scale\": shape",
       [](Parts& p) { p.header["embed.scale"]["shape"] = {1, 1, 16}; }},
      {"shape a number", "\"embed.scale\": shape", [](Parts& p) { p.header["embed.scale"]["shape"] = 16; }},
      {"shape missing", "\"embed.scale\": shape is missing", [](Parts& p) { p.header["embed.scale"].erase("shape"); }},
      {"shape turned around", "tensor kv.0.v.weight is I8",
       [](Parts& p) { p.header["kv.0.v.weight"]["shape"] = {32, 128}; }},
      {"a vector made a column", "tensor embed.scale is F32 [16, 1]",
       [](Parts& p) { p.header["embed.scale"]["shape"] = {16, 1}; }},
      {"dtype of the same size", "tensor embed.scale is I32",
       [](Parts& p) { p.header["embed.scale"]["dtype"] = "I32"; }},
      {"dtype unknown", "\"embed.weight\": dtype \"F8_E4M3\"",
       [](Parts& p) { p.header["embed.weight"]["dtype"] = "F8_E4M3"; }},
      {"dtype in lower case", "\"embed.weight\": dtype \"i8\"",
       [](Parts& p) { p.header["embed.weight"]["dtype"] = "i8"; }},
      {"dtype a number", "\"embed.weight\": dtype must be", [](Parts& p) { p.header["embed.weight"]["dtype"] = 8; }},
      {"dtype missing", "\"embed.weight\": dtype is missing",
       [](Parts& p) { p.header["embed.weight"].erase("dtype"); }},
      {"an unknown field of a tensor", "\"embed.weight\": unknown field \"alignment\"",
       [](Parts& p) { p.header["embed.weight"]["alignment"] = 13; }},
      {"a tensor that is a list", "\"embed.weight\": must be an object",
       [](Parts& p) { p.header["embed.weight"] = {1, 2}; }},
      {"a tensor that is null", "\"embed.weight\": must be an object",
       [](Parts& p) { p.header["embed.weight"] = nullptr; }},
      {"a tensor missing, its place another's", "tensor rope.1 is missing",
       [](Parts& p) { rename(p, "rope.1", "rope.2"); }},
      {"a tensor of an unknown name", "tensor layers.0.attn.q.scalar is missing",
       [](Parts& p) { rename(p, "layers.0.attn.q.scalar", "layers.0.attn.Q.scalar"); }},
      {"a name with escapes for a terminal", "is missing",
       [](Parts& p) { rename(p, "final.in_clip", "\x1b[2Jfinal.in_clip"); }},
      {"an empty name", "is missing", [](Parts& p) { rename(p, "final.in_clip", ""); }},
      {"a tensor nobody asked for", "\"extra\" is not one the config asks for",
       [](Parts& p) {
         const uint64_t end = p.data.size();
         p.header["extra"] = {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {end, end + 4}}};
         p.data += std::string(4, '\1');
       }},
      {"a tokenizer of the wrong type", "tensor tokenizer must be U8",
       [](Parts& p) {
         const uint64_t end = p.data.size();
         p.header["tokenizer"] = {{"dtype", "I8"}, {"shape", {4}}, {"data_offsets", {end, end + 4}}};
         p.data += "abcd";
       }},
      {"a scalar before the matrices", "is out of order",
       [](Parts& p) {
         p.data = p.data.substr(p.data.size() - 4) + p.data.substr(0, p.data.size() - 4);
         for (auto& [name, entry] : p.header.items())
           if (name != "__metadata__" && name != "final.in_clip")
             for (auto& at : entry["data_offsets"]) at = at.get<uint64_t>() + 4;
         offsets(p, "final.in_clip") = {0, 4};
       }},
      {"a tokenizer before the scalars", "is out of order",
       [](Parts& p) {
         const uint64_t begin = p.place("embed.in_scalar").first;  // the first scalar
         p.data.insert(begin, 64, 'x');
         for (auto& [name, entry] : p.header.items())
           if (name != "__metadata__" && entry["data_offsets"][0].get<uint64_t>() >= begin)
             for (auto& at : entry["data_offsets"]) at = at.get<uint64_t>() + 64;
         p.header["tokenizer"] = {{"dtype", "U8"}, {"shape", {64}}, {"data_offsets", {begin, begin + 64}}};
       }},
  };
  return all;
}

struct MetadataCase {
  const char* name;
  const char* part;
  std::function<void(ordered_json&)> edit;
  StatusCode code = StatusCode::kBadModel;
};

const std::vector<MetadataCase>& metadata_cases() {
  static const std::vector<MetadataCase> all = {
      {"another format", "__metadata__.format", [](auto& m) { m["format"] = "pt"; }},
      {"format missing", "__metadata__.format", [](auto& m) { m.erase("format"); }},
      {"format a number", "__metadata__.format", [](auto& m) { m["format"] = 1; }},
      {"format_version of the future", "__metadata__.format_version is \"2\"",
       [](auto& m) { m["format_version"] = "2"; }, StatusCode::kUnsupported},
      {"format_version missing", "__metadata__.format_version", [](auto& m) { m.erase("format_version"); }},
      {"format_version a number", "__metadata__.\"format_version\" must be a string",
       [](auto& m) { m["format_version"] = 1; }},
      {"arithmetic of the future", "__metadata__.arithmetic is \"3\"", [](auto& m) { m["arithmetic"] = "3"; },
       StatusCode::kUnsupported},
      {"arithmetic missing", "__metadata__.arithmetic", [](auto& m) { m.erase("arithmetic"); }},
      {"config missing", "__metadata__.config", [](auto& m) { m.erase("config"); }},
      {"config an object", "__metadata__.\"config\" must be a string",
       [](auto& m) { m["config"] = ordered_json::object(); }},
      {"config empty", "config", [](auto& m) { m["config"] = ""; }},
      {"config with a space more", "__metadata__.digest",
       [](auto& m) { m["config"] = m["config"].template get<std::string>() + " "; }},
      {"digests missing", "__metadata__.digests", [](auto& m) { m.erase("digests"); }},
      {"digests empty", "__metadata__.digests", [](auto& m) { m["digests"] = ""; }},
      {"digests lack a tensor", "__metadata__.digests lacks tensor embed.in_scalar",
       [](auto& m) { m["digests"] = "{}"; }},
      {"digests name no tensor", "__metadata__.digests names \"nobody\"",
       [](auto& m) {
         std::string text = m["digests"];
         m["digests"] = text.insert(1, "\"nobody\":\"" + std::string(32, '0') + "\",");
       }},
      {"digests name a tensor twice", "__metadata__.digests has the key \"embed.scale\" twice",
       [](auto& m) {
         std::string text = m["digests"];
         m["digests"] = text.insert(1, "\"embed.scale\":\"" + std::string(32, '0') + "\",");
       }},
      {"a digest of 31 digits", "32 lower-case hexadecimal digits",
       [](auto& m) {
         std::string text = m["digests"];
         m["digests"] = text.erase(text.rfind('"') - 1, 1);
       }},
      {"a digest in upper case", "32 lower-case hexadecimal digits",
       [](auto& m) {
         ordered_json digests = ordered_json::parse(m["digests"].template get<std::string>());
         digests["rope.0"] = std::string(32, 'A');
         m["digests"] = digests.dump();
       }},
      {"a digest that is a number", "32 lower-case hexadecimal digits",
       [](auto& m) {
         ordered_json digests = ordered_json::parse(m["digests"].template get<std::string>());
         digests["rope.0"] = 5;
         m["digests"] = digests.dump();
       }},
      {"digest missing", "__metadata__.digest", [](auto& m) { m.erase("digest"); }},
      {"digest of another model", "__metadata__.digest", [](auto& m) { m["digest"] = std::string(32, '0'); }},
      {"digest with a tail", "__metadata__.digest",
       [](auto& m) { m["digest"] = m["digest"].template get<std::string>() + "0"; }},
      {"an unknown field", "__metadata__.\"note\"", [](auto& m) { m["note"] = "trained on a Tuesday"; }},
  };
  return all;
}

}  // namespace

TEST_CASE("the small test file is valid, also after it is taken apart and put together again") {
  CHECK(tiny::load(tiny::bytes()).ok());
  Parts parts = tiny::take_apart(tiny::bytes());
  CHECK(tiny::assemble(parts) == tiny::bytes());
  tiny::seal(parts);
  CHECK(tiny::load(tiny::assemble(parts)).ok());
}

TEST_CASE("every false tensor entry is refused by name", "[malformed]") {
  for (const HeaderCase& c : header_cases()) DYNAMIC_SECTION(c.name) {
      Parts parts = tiny::take_apart(tiny::bytes());
      c.edit(parts);
      try {  // digests made true where the change leaves them a meaning
        Parts sealed = parts;
        tiny::seal(sealed);
        parts = sealed;
      } catch (const std::exception&) {
      }
      refused(tiny::assemble(parts), c.part);
    }
}

TEST_CASE("every false metadata field is refused by name", "[malformed]") {
  for (const MetadataCase& c : metadata_cases()) DYNAMIC_SECTION(c.name) {
      Parts parts = tiny::take_apart(tiny::bytes());
      c.edit(parts.metadata());
      refused(tiny::assemble(parts), c.part, c.code);
    }
  Parts parts = tiny::take_apart(tiny::bytes());
  parts.header.erase("__metadata__");
  refused("no metadata", tiny::assemble(parts), "not a Kaiju checkpoint");
  parts.header["__metadata__"] = "kaiju";
  refused("metadata a string", tiny::assemble(parts), "not a Kaiju checkpoint");
}

TEST_CASE("a GGUF file and a file of a Hugging Face folder are answered with how to import them", "[malformed]") {
  const std::string advice = "kaiju-import SOURCE --out FILE";
  std::string gguf = "GGUF" + std::string(60, '\0');
  gguf[4] = 3;
  refused("gguf", gguf, "a GGUF file, not a Kaiju checkpoint");
  refused("gguf", gguf, advice);
  Parts parts = tiny::take_apart(tiny::bytes());
  parts.header["__metadata__"] = {{"format", "pt"}};
  refused("format pt", tiny::assemble(parts), advice);
  parts.header.erase("__metadata__");
  refused("no metadata", tiny::assemble(parts), advice);
}

TEST_CASE("every false header length is refused", "[malformed]") {
  const std::string good = tiny::bytes();
  uint64_t length = 0;
  std::memcpy(&length, good.data(), 8);
  const auto with_length = [&](uint64_t value) { return length_field(value) + good.substr(8); };
  refused("no bytes", "", "header");
  refused("seven bytes", good.substr(0, 7), "too few");
  refused("eight bytes", good.substr(0, 8), "truncated");
  refused("length 2^64 - 1", with_length(UINT64_MAX), "header length is 18446744073709551615");
  refused("length 2^64 - 8", with_length(UINT64_MAX - 7), "header length");
  refused("length 2^63", with_length(uint64_t{1} << 63), "header length");
  refused("length above 64 MiB", with_length((uint64_t{64} << 20) + 1), "at most 67108864");
  refused("length past the end by one", with_length(good.size() - 7), "truncated");
  refused("length of the whole file", with_length(good.size() - 8), "header");
  refused("length 0", with_length(0), "header");
  refused("length 1", with_length(1), "header");
  refused("length short by 64", with_length(length - 64), "header");
  refused("length long by 64", with_length(length + 64), "header");
}

TEST_CASE("a header that would misalign the data is refused", "[malformed]") {
  const Parts parts = tiny::take_apart(tiny::bytes());
  std::string text = parts.header.dump();
  while ((8 + text.size()) % 64 != 13) text += ' ';
  refused("data at 13 past a multiple of 64", tiny::assemble(text, parts.data, 1), "multiple of 64");
  while ((8 + text.size()) % 64 != 32) text += ' ';
  refused("data at 32 past a multiple of 64", tiny::assemble(text, parts.data, 1), "multiple of 64");
}

TEST_CASE("misleading header text is refused", "[malformed]") {
  const Parts parts = tiny::take_apart(tiny::bytes());
  const std::string good = parts.header.dump();
  const auto text = [&](const std::string& header) { return tiny::assemble(header, parts.data); };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = good;
    return text(changed.replace(changed.find(from), from.size(), to));
  };
  refused("only spaces", text("  "), "begin with");
  refused("a list", text("[]"), "begin with");
  refused("an empty object", text("{}"), "not a Kaiju checkpoint");
  refused("a byte order mark", text("\xef\xbb\xbf" + good), "begin with");
  refused("leading space", text(" " + good), "begin with");
  refused("two objects", text(good + "{}"), "after its closing brace");
  refused("NUL padding", text(good + std::string(64, '\0')), "after its closing brace");
  refused("a comma too many", with("\"dtype\":\"I8\"", "\"dtype\":\"I8\","), "JSON");
  refused("not UTF-8", with("final.in_clip", "final.in_cli\xff"), "JSON");
  refused("a lone surrogate", with("final.in_clip", "final.in_cli\\ud800"), "JSON");
  refused("a NUL in a name", with("\"final.in_clip\":{", "\"final.in_clip\\u0000\":{"), "is missing");
  refused("a raw newline in a name", with("final.in_clip", "final.in\nclip"), "JSON");
  refused("a number of 400 digits", with("\"data_offsets\":[0,", "\"data_offsets\":[" + std::string(400, '9') + ","),
          "JSON");
  refused("a number of 30 digits", with("\"data_offsets\":[0,", "\"data_offsets\":[" + std::string(30, '9') + ","),
          "data_offsets must be two");
  refused("an exponent", with("\"data_offsets\":[0,", "\"data_offsets\":[0e0,"), "data_offsets must be two");
  refused("minus zero", with("\"data_offsets\":[0,", "\"data_offsets\":[-0,"), "data_offsets must be two");
  refused("a tensor twice", with("\"embed.scale\":", "\"embed.scale\":1,\"embed.scale\":"), "\"embed.scale\" twice");
  refused("a tensor twice, once with an escape", with("\"embed.scale\":", "\"embed.\\u0073cale\":1,\"embed.scale\":"),
          "\"embed.scale\" twice");
  refused("a metadata field twice", with("\"format\":\"kaiju\"", "\"format\":\"kaiju\",\"format\":\"kaiju\""),
          "\"format\" twice");
  refused("metadata twice", with("\"embed.weight\":", "\"__metadata__\":{},\"embed.weight\":"),
          "\"__metadata__\" twice");
  refused("a tensor's field twice", with("\"dtype\":\"I8\"", "\"dtype\":\"I8\",\"dtype\":\"I8\""), "\"dtype\" twice");
  refused("nested a million deep", text("{\"x\":" + std::string(1000000, '[')), "nested");
  refused("nested a million deep in objects", text([] {
            std::string deep;
            for (int i = 0; i < 1000000; ++i) deep += "{\"x\":";
            return deep;
          }()),
          "nested");
  refused("an endless string", text("{\"x"), "ends early");
  refused("a string ending in a backslash", text("{\"x\\"), "ends early");
}

TEST_CASE("a small header cannot make the loader allocate much memory", "[malformed]") {
  const auto many = [](const char* first, const std::function<std::string(int)>& next, int count, const char* last) {
    std::string text = first;
    for (int i = 0; i < count; ++i) text += (i ? "," : "") + next(i);
    return tiny::assemble(text + last, "");
  };
  refused("a hundred thousand tiny tensors",
          many(
              "{",
              [](int i) {
                return "\"t" + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
              },
              100000, "}"),
          "header holds more than");
  refused(
      "a hundred thousand empty entries",
      many(
          "{\"__metadata__\":{}", [](int i) { return (i ? "\"t" : ",\"t") + std::to_string(i) + "\":0"; }, 100000, "}"),
      "not a Kaiju");
  refused("seven hundred thousand empty lists",
          many("{\"x\":[", [](int) { return "[]"; }, 700000, "]}"), "header holds more than");
  refused("a string of 20 MiB", tiny::assemble("{\"" + std::string(20 << 20, 'x') + "\":1}", ""), "string longer");

  std::string header = tiny::take_apart(tiny::bytes()).header.dump();
  header.pop_back();
  for (int i = 0; i < 65536; ++i) header += ",\"t" + std::to_string(i) + "\":0";
  refused("65,536 tensors more than there are", tiny::assemble(header + "}", ""), "header names 6");
}
