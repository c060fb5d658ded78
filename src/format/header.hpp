// The safetensors header: reads metadata and the place of every tensor and checks them against the file's length; also
// writes a header. checkpoint.cpp interprets the config and the tensors. read_header and read_tensors alone serve other
// safetensors files of ours (src/text/message_gate.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json.hpp"
#include "kaiju/base/status.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "source.hpp"

namespace kaiju::format {

inline constexpr uint64_t kMostHeaderBytes = uint64_t{64} << 20;
inline constexpr size_t kMostTensors = 65536;
inline constexpr uint64_t kAlignment = 64;  // of the data, and of every tensor before the smaller ones
inline constexpr std::string_view kTokenizer = "tokenizer";
inline constexpr int64_t kMostTokenizerBytes = INT32_MAX;  // what a SentencePiece model can be

struct Metadata {
  int32_t arithmetic = 1;
  std::string config;   // JSON text, as it stands: the root digest covers every byte
  std::string digests;  // JSON text
  std::string digest;   // the root digest
};

struct Header {
  Metadata metadata;
  std::vector<TensorInfo> tensors;  // in file order, their bytes where `file` has them; digests not filled in
};

inline constexpr std::string_view kMetadata = "__metadata__";
// Reads the header's JSON, and where the data begins.
Status read_header(const Source& file, JsonObject& root, uint64_t& data_offset);
// Reads the tensors that a header names, in file order, and checks that they are the whole of the data.
Status read_tensors(const Source& file, const JsonObject& root, uint64_t data_offset, std::vector<TensorInfo>& out);
// Both, with the metadata of a checkpoint. kBadModel names the tensor or field and the rule; kUnsupported means another
// format or arithmetic version.
Status parse_header(const Source& file, Header& out);

// Bytes of a tensor of this type and shape; 0 when that overflows or a dimension is not positive.
uint64_t tensor_bytes(DType dtype, std::span<const int64_t> shape);
// 0: a multiple of 64 bytes, 1: the smaller ones after them, 2: the tokenizer.
int layout_group(std::string_view name, uint64_t bytes);

// The first bytes of a file, length field and padding included. The length depends on names, shapes and the config
// only, not on the digests.
std::string build_header(const Metadata& metadata, const std::vector<CheckpointWriter::Declaration>& tensors);

}  // namespace kaiju::format
