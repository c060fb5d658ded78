// Tiny checkpoints with random weights, made once per run in a temporary folder: one that can chat, one without
// tokenizer and symbols.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "kaiju/format/checkpoint.hpp"
#include "kaiju/format/random_model.hpp"

namespace kaiju::tests {

// Removed at exit.
inline const std::string& temporary_folder() {
  static const struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "kaiju-capi-XXXXXX").string();
    Folder() {
      if (!mkdtemp(path.data())) throw std::runtime_error("cannot make a temporary folder");
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } folder;
  return folder.path;
}

inline ModelConfig tiny_config(int32_t vocab_size, int32_t context) {
  ModelConfig config;
  config.name = "tiny";
  config.vocab_size = vocab_size;
  config.d_model = 64;
  config.n_heads = 2;
  config.n_kv_heads = 1;
  config.head_dim = 64;
  config.d_ff = 128;
  config.context = context;
  config.layers = {{LayerKind::kWindow, 128, 0, 0}, {LayerKind::kGlobal, 0, 1, 1}};
  config.derive_counts();
  return config;
}

// The same checkpoint with a chat format and a tokenizer; throws with the reason it cannot be.
inline void add_tokenizer(const std::string& from, const std::string& to, const std::string& tokenizer,
                          const ChatSymbols& chat, const std::optional<ChatTemplate>& chat_format = {}) {
  const auto must = [](const Status& status) {
    if (!status.ok()) throw std::runtime_error(status.message());
  };
  auto source = Checkpoint::open(from);
  must(source.status());
  ModelConfig config = source.value()->config();
  config.chat = chat;
  config.chat_format = chat_format;
  auto tensors = required_tensors(config);
  tensors.push_back({"tokenizer", DType::kU8, {static_cast<int64_t>(tokenizer.size())}});
  auto writer = CheckpointWriter::create(to, config, tensors);
  must(writer.status());
  for (const auto& tensor : tensors) {
    if (tensor.name == "tokenizer")
      must(writer.value()->write(std::as_bytes(std::span(tokenizer))));
    else
      must(writer.value()->write(source.value()->find(tensor.name)->bytes));
  }
  must(writer.value()->finish());
}

inline constexpr ChatSymbols kTinyChat = {
    .begin = 1, .end = 2, .card = 3, .user = 4, .character = 5, .close = 6, .text = 7};

}  // namespace kaiju::tests
