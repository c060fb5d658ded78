// A small model for tests of the format: its bytes, and the tools to break them. Sealing again after a change makes the
// digests true, so that the rule behind them is reached.
#pragma once

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/format/checkpoint.hpp"
#include "kaiju/format/detail/layer_tensors.hpp"
#include "kaiju/format/random_model.hpp"

namespace tiny {

using kaiju::Checkpoint;
using kaiju::LayerKind;
using kaiju::ModelConfig;
using kaiju::Status;
using kaiju::Verify;
using nlohmann::ordered_json;

// A folder of its own, gone at the end of the scope.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "kaiju-format-XXXXXX").string();
    path_ = ::mkdtemp(path.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  size_t file_count() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

// Bytes at an address that is a multiple of 64, exactly as long as they are, so that a read past the end is seen by the
// sanitizers.
class Aligned {
 public:
  explicit Aligned(const std::string& bytes) : size_(bytes.size()) {
    if (::posix_memalign(&data_, 64, std::max<size_t>(size_, 1)) != 0) std::abort();
    std::memcpy(data_, bytes.data(), size_);
  }
  ~Aligned() { std::free(data_); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

inline std::string read_file(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(bytes).str();
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Two layers, one of each kind; with a third, it shares the first one's slot.
inline ModelConfig config(int layers = 2) {
  ModelConfig c;
  c.name = "tiny";
  c.vocab_size = 16;
  c.d_model = 64;
  c.n_heads = 2;
  c.n_kv_heads = 1;
  c.head_dim = 64;
  c.d_ff = 64;
  c.context = 256;
  c.layers = {{LayerKind::kWindow, 8, 0, 0}, {LayerKind::kGlobal, 0, 1, 1}, {LayerKind::kWindow, 8, 0, 0}};
  c.layers.resize(static_cast<size_t>(layers));
  c.chat.begin = 1;
  c.chat.close = 6;
  c.derive_counts();
  return c;
}

// Three layers of version 2 of the arithmetic: the second has dimensions of its own, the third shares the first one's
// slot.
inline ModelConfig scaled_config() {
  ModelConfig c = config(3);
  c.shape.activations = kaiju::Activations::kTokenScales;
  c.shape.hadamard = 32;
  c.shape.ffn = kaiju::Ffn::kGatedSilu;
  c.shape.residual = kaiju::Residual::kF32;
  c.shape.output = kaiju::OutputMatrix::kOwn;
  c.shape.biases = kaiju::Biases::kQkv;
  c.shape.norm_gains = c.shape.norms_after = c.shape.head_norms = true;
  c.shape.logit_cap = 30.5f;
  c.score_scale = 0.1f;
  c.layers[1].head_dim = 128;
  c.layers[1].n_kv_heads = 2;
  c.layers[1].d_ff = 192;
  c.layers[1].values_from_keys = true;
  c.layers[2].factor = -0.75f;
  return c;
}

// The names of all matrices of a model's layers, and of the embedding.
inline std::vector<std::string> matrices_of(const ModelConfig& config) {
  std::vector<std::string> names = {"embed"};
  for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer)
    for (const kaiju::LayerMatmul& matmul : kaiju::matmuls_of(config, layer)) names.push_back(matmul.name);
  return names;
}

inline std::string make(const ModelConfig& config, uint64_t seed = 1) {
  const Folder folder;
  const Status status = kaiju::write_random_checkpoint(folder / "model", config, seed);
  if (!status.ok()) throw std::runtime_error(status.message());
  return read_file(folder / "model");
}

inline const std::string& bytes() {
  static const std::string made = make(config());
  return made;
}

// A file taken apart.
struct Parts {
  ordered_json header;
  std::string data;

  ordered_json& metadata() { return header["__metadata__"]; }
  std::pair<uint64_t, uint64_t> place(const std::string& tensor) const {
    const ordered_json& offsets = header.at(tensor).at("data_offsets");
    return {offsets[0], offsets[1]};
  }
  template <class T>
  void put(const std::string& tensor, size_t index, T value) {
    std::memcpy(&data[place(tensor).first + index * sizeof(T)], &value, sizeof(T));
  }
  template <class T>
  T get(const std::string& tensor, size_t index) const {
    T value;
    std::memcpy(&value, &data[place(tensor).first + index * sizeof(T)], sizeof(T));
    return value;
  }
  // Changes the config's text in its own terms.
  void edit_config(const std::function<void(ordered_json&)>& edit) {
    ordered_json config = ordered_json::parse(metadata()["config"].get<std::string>());
    edit(config);
    metadata()["config"] = config.dump();
  }
};

inline Parts take_apart(const std::string& file) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  return {ordered_json::parse(file.substr(8, length)), file.substr(8 + length)};
}

// A header given as text, padded like the real one, and data.
inline std::string assemble(std::string header, const std::string& data, size_t alignment = 64) {
  header.resize(header.size() + (alignment - (8 + header.size()) % alignment) % alignment, ' ');
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

inline std::string assemble(const Parts& parts) { return assemble(parts.header.dump(), parts.data); }

inline std::string xxh3(const std::string& bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) text += {kDigits[byte >> 4], kDigits[byte & 15]};
  return text;
}

// Makes digests and root digest true for what is there now: docs/checkpoint.md spelled out a second time, on purpose.
inline void seal(Parts& parts) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : parts.header.items())
    if (name != "__metadata__") names.push_back(name);
  std::sort(names.begin(), names.end());
  ordered_json digests = ordered_json::object();
  std::string root =
      parts.metadata()["arithmetic"].get<std::string>() + "\n" + parts.metadata()["config"].get<std::string>() + "\n";
  for (const std::string& name : names) {
    const ordered_json& entry = parts.header.at(name);
    const auto [begin, end] = parts.place(name);
    const std::string digest = xxh3(parts.data.substr(begin, end - begin));
    std::string shape;
    for (const ordered_json& dimension : entry.at("shape"))
      shape += (shape.empty() ? "" : ",") + std::to_string(dimension.get<int64_t>());
    digests[name] = digest;
    root += name + " " + entry.at("dtype").get<std::string>() + " " + shape + " " + digest + "\n";
  }
  parts.metadata()["digests"] = digests.dump();
  parts.metadata()["digest"] = xxh3(root);
}

// What the loader says of these bytes; from memory, so that nothing but the bytes matters.
inline Status load(const std::string& file, Verify verify = Verify::kFull) {
  const Aligned aligned(file);
  return Checkpoint::from_memory(aligned.bytes(), verify).status();
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace tiny
