// ReferenceFile: log-probabilities of a float model, as examples/import/float_reference.py writes them: a safetensors
// file with the tensors tokens, lengths, logprobs and hidden.L. Reads rows on demand.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/base/status.hpp"

namespace kaiju::tools {

class ReferenceFile {
 public:
  static Result<ReferenceFile> open(const std::string& path) {
    ReferenceFile file;
    file.path_ = path;
    file.stream_.open(path, std::ios::binary);
    if (!file.stream_) return Status(StatusCode::kIo, path + " cannot be opened");
    KAIJU_TRY(file.read_header());
    return file;
  }

  const std::vector<std::vector<int32_t>>& texts() const { return texts_; }
  int64_t vocab_size() const { return logprobs_.shape[1]; }
  int64_t d_model() const { return hidden_.empty() ? 0 : hidden_[0].shape[1]; }
  size_t layers() const { return hidden_.size(); }  // whose hidden states the file has

  // Natural logarithms of the probabilities of what follows token `row` of all texts.
  Status read_logprobs(int64_t row, std::vector<float>& out) { return read_row(logprobs_, row, out); }
  // The residual stream after a layer, at token `row` of all texts.
  Status read_hidden(size_t layer, int64_t row, std::vector<float>& out) { return read_row(hidden_[layer], row, out); }

 private:
  struct Tensor {
    std::string type;
    std::vector<int64_t> shape;
    uint64_t begin = 0, end = 0;
    size_t bytes() const { return type == "F16" ? 2 : 4; }
  };

  Status bad(const std::string& problem) const {
    return {StatusCode::kBadModel, path_ + " is no file of float_reference.py: " + problem};
  }

  Status read_header() {
    constexpr uint64_t kMostHeader = 1 << 24;
    uint64_t length = 0;
    stream_.seekg(0, std::ios::end);
    const auto file_bytes = static_cast<uint64_t>(stream_.tellg());
    stream_.seekg(0);
    if (!stream_.read(reinterpret_cast<char*>(&length), sizeof length) || length > kMostHeader ||
        length + sizeof length > file_bytes)
      return bad("it does not begin as a safetensors file does");
    std::string text(length, ' ');
    if (!stream_.read(text.data(), static_cast<std::streamsize>(length))) return bad("it is cut short");
    data_ = sizeof length + length;
    const nlohmann::json header = nlohmann::json::parse(text, nullptr, false);
    if (!header.is_object()) return bad("its header is no JSON object");
    Tensor tokens, lengths;
    KAIJU_TRY(find(header, "tokens", "I32", 1, file_bytes, tokens));
    KAIJU_TRY(find(header, "lengths", "I32", 1, file_bytes, lengths));
    KAIJU_TRY(find(header, "logprobs", "", 2, file_bytes, logprobs_));
    for (size_t layer = 0; header.contains("hidden." + std::to_string(layer)); ++layer)
      KAIJU_TRY(find(header, "hidden." + std::to_string(layer), "F32", 2, file_bytes, hidden_.emplace_back()));
    std::vector<int32_t> ids, counts;
    KAIJU_TRY(read_whole(tokens, ids));
    KAIJU_TRY(read_whole(lengths, counts));
    size_t at = 0;
    for (const int32_t count : counts) {
      if (count < 1 || static_cast<size_t>(count) > ids.size() - at) return bad("the lengths do not add up");
      texts_.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(at),
                          ids.begin() + static_cast<std::ptrdiff_t>(at + static_cast<size_t>(count)));
      at += static_cast<size_t>(count);
    }
    if (at != ids.size() || logprobs_.shape[0] != static_cast<int64_t>(at)) return bad("the lengths do not add up");
    for (const Tensor& hidden : hidden_)
      if (hidden.shape[0] != static_cast<int64_t>(at)) return bad("the lengths do not add up");
    return {};
  }

  Status find(const nlohmann::json& header, const std::string& name, const std::string& type, size_t dimensions,
              uint64_t file_bytes, Tensor& out) const try {
    const nlohmann::json& entry = header.at(name);
    out.type = entry.at("dtype").get<std::string>();
    out.shape = entry.at("shape").get<std::vector<int64_t>>();
    out.begin = data_ + entry.at("data_offsets").at(0).get<uint64_t>();
    out.end = data_ + entry.at("data_offsets").at(1).get<uint64_t>();
    if (out.shape.size() != dimensions || (type.empty() ? out.type != "F16" && out.type != "F32" : out.type != type))
      return bad(name + " has another type or shape");
    uint64_t bytes = out.bytes();
    for (const int64_t size : out.shape) {
      if (size < 1 || size > INT32_MAX) return bad(name + " has an impossible shape");
      bytes *= static_cast<uint64_t>(size);
    }
    if (out.end > file_bytes || out.end - out.begin != bytes) return bad(name + " lies past the end of the file");
    return {};
  } catch (const nlohmann::json::exception&) {
    return bad(name + " is missing or not described as a tensor");
  }

  Status read_whole(const Tensor& tensor, std::vector<int32_t>& out) {
    out.resize(static_cast<size_t>(tensor.shape[0]));
    return read(tensor.begin, out.data(), out.size() * sizeof(int32_t));
  }

  Status read_row(const Tensor& tensor, int64_t row, std::vector<float>& out) {
    const auto width = static_cast<size_t>(tensor.shape[1]);
    out.resize(width);
    const uint64_t at = tensor.begin + static_cast<uint64_t>(row) * width * tensor.bytes();
    if (tensor.type == "F32") return read(at, out.data(), width * sizeof(float));
    halves_.resize(width);
    KAIJU_TRY(read(at, halves_.data(), width * sizeof(uint16_t)));
    for (size_t i = 0; i < width; ++i) out[i] = from_half(halves_[i]);
    return {};
  }

  Status read(uint64_t at, void* to, size_t bytes) {
    stream_.seekg(static_cast<std::streamoff>(at));
    if (stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) return {};
    return {StatusCode::kIo, path_ + " cannot be read: the file is cut short or the disk failed"};
  }

  static float from_half(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16, rest = half & 0x7FFF;
    if (rest >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000u | (rest & 0x3FF) << 13);
    // The exponent's bias differs by 112; the product makes subnormal numbers right, too.
    const float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
    return sign ? -magnitude : magnitude;
  }

  std::string path_;
  std::ifstream stream_;
  uint64_t data_ = 0;
  std::vector<std::vector<int32_t>> texts_;
  Tensor logprobs_;
  std::vector<Tensor> hidden_;
  std::vector<uint16_t> halves_;
};

}  // namespace kaiju::tools
