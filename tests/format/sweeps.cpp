// Sweeps over a whole small file: every length, every bit of the header, and random damage. Nothing may crash, and
// nothing may be believed.
#include <random>

#include "catch.hpp"
#include "tiny.hpp"

using kaiju::Checkpoint;
using kaiju::Verify;

namespace {

const std::string& one_layer() {
  static const std::string made = [] {
    kaiju::ModelConfig config = tiny::config(1);
    config.n_heads = 1;
    return tiny::make(config);
  }();
  return made;
}

uint64_t header_end(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  return 8 + length;
}

// What a reader sees of a checkpoint; two files that agree here are the same model.
std::string seen(const Checkpoint& checkpoint) {
  std::string text = checkpoint.digest() + kaiju::config_to_json(checkpoint.config());
  for (const auto& tensor : checkpoint.tensors()) {
    text += tensor.name + tensor.digest + kaiju::dtype_name(tensor.dtype);
    text.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  return text;
}

}  // namespace

TEST_CASE("a file cut at any length is refused", "[malformed][sweep]") {
  const std::string& good = one_layer();
  for (size_t size = 0; size < good.size(); ++size) {
    const kaiju::Status status = tiny::load(good.substr(0, size), Verify::kNone);
    if (status.code() != kaiju::StatusCode::kBadModel || status.message().empty())
      FAIL("length " << size << ": " << status.message());
  }
  SUCCEED();
}

TEST_CASE("every bit flip of the header is refused, or changes nothing", "[malformed][sweep]") {
  std::string file = one_layer();
  const tiny::Aligned original(file);
  const std::string wanted = seen(**Checkpoint::from_memory(original.bytes()).operator->());
  const uint64_t end = header_end(file);
  size_t harmless = 0;
  const tiny::Aligned aligned(file);
  auto* bytes = const_cast<char*>(reinterpret_cast<const char*>(aligned.bytes().data()));
  for (uint64_t at = 0; at < end; ++at)
    for (int bit = 0; bit < 8; ++bit) {
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      const auto result = Checkpoint::from_memory(aligned.bytes(), Verify::kNone);
      if (result.ok()) {
        ++harmless;
        if (seen(*result.value()) != wanted) FAIL("bit " << bit << " of byte " << at << " changed the model unseen");
      } else if (result.status().message().empty()) {
        FAIL("bit " << bit << " of byte " << at << ": no message");
      }
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
    }
  INFO(harmless << " flips were harmless");
  CHECK(harmless < end / 100);
}

TEST_CASE("random damage anywhere is refused, or changes nothing", "[malformed][sweep]") {
  const std::string& good = one_layer();
  const tiny::Aligned original(good);
  const std::string wanted = seen(**Checkpoint::from_memory(original.bytes()).operator->());
  const uint64_t end = header_end(good);
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
    std::string file = good;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t at = below(4) ? below(std::min<size_t>(end, file.size())) : below(file.size());
      switch (below(6)) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + below(70));
          break;
        case 2:
          file.insert(at, 1 + below(70), static_cast<char>(random()));
          break;
        case 3:
          file.insert(at, file.substr(below(file.size()), below(200)));
          break;
        case 4:
          file[at] = "0123456789{}[]\",:-.eE "[below(22)];
          break;
        default:
          std::swap(file[at], file[below(file.size())]);
      }
      if (file.size() < 64) file.resize(64);
    }
    // Half of them with a header length that fits, so that the parser meets the damage.
    if (below(2)) {
      const uint64_t length = end - 8 + file.size() - good.size();
      std::memcpy(file.data(), &length, 8);
    }
    const tiny::Aligned aligned(file);
    const auto result = Checkpoint::from_memory(aligned.bytes());
    if (result.ok() && seen(*result.value()) != wanted) FAIL("seed " << seed << " changed the model unseen");
  }
  SUCCEED();
}

TEST_CASE("random changes with matching digests are refused by name or give another valid model",
          "[malformed][sweep]") {
  const tiny::Parts good = tiny::take_apart(one_layer());
  std::vector<std::string> names;
  for (const auto& [name, entry] : good.header.items())
    if (name != "__metadata__") names.push_back(name);
  size_t accepted = 0;
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
    const auto value = [&]() -> tiny::ordered_json {
      switch (below(8)) {
        case 0:
          return random();
        case 1:
          return random() >> below(64);
        case 2:
          return -static_cast<int64_t>(below(100));
        case 3:
          return static_cast<double>(below(1000)) / 7;
        case 4:
          return nullptr;
        case 5:
          return std::vector<uint64_t>{random() >> below(64), random() >> below(64)};
        case 6:
          return std::vector<const char*>{"I8", "U8", "I32", "U64", "F32", "global", "sliding"}[below(7)];
        default:
          return 64 * below(5);
      }
    };
    tiny::Parts parts = good;
    for (size_t edits = 1 + below(2); edits > 0; --edits) {
      if (below(3) == 0) {
        parts.edit_config([&](tiny::ordered_json& config) {
          const auto field = std::next(config.begin(), static_cast<long>(below(config.size())));
          if (field.key() == "layers" && below(4)) {
            auto& layer = (*field)[below(field->size())];
            *std::next(layer.begin(), static_cast<long>(below(layer.size()))) = value();
            if (below(3) == 0) field->push_back(layer);
          } else {
            *field = value();
          }
        });
        if (!tiny::ordered_json::parse(parts.metadata()["config"].get<std::string>())["layers"].is_array()) break;
      } else if (below(2)) {
        auto& entry = parts.header[names[below(names.size())]];
        *std::next(entry.begin(), static_cast<long>(below(entry.size()))) = value();
        if (below(3)) break;
      } else {
        parts.put<uint32_t>(names[below(names.size())], 0, static_cast<uint32_t>(random() >> below(64)));
      }
    }
    try {
      tiny::seal(parts);
    } catch (const std::exception&) {  // offsets that are none
    }
    const kaiju::Status status = tiny::load(tiny::assemble(parts));
    accepted += status.ok();
    if (!status.ok() &&
        (status.code() != kaiju::StatusCode::kBadModel || status.message().empty() || status.message().size() > 600))
      FAIL("seed " << seed << ": " << status.message());
  }
  INFO(accepted << " accepted");
  CHECK(accepted < 2000);
}
