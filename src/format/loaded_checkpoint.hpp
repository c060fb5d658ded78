// LoadedCheckpoint: the tensors of a file that keeps the rules of docs/checkpoint.md. Here it is a whole model;
// head.cpp and scales.cpp derive a part of a model from it.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "header.hpp"
#include "kaiju/base/buffer.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/format/checkpoint.hpp"
#include "path.hpp"
#include "source.hpp"

namespace kaiju::format {

// Whether the config is that of a head, or of scales.
inline bool is_head(const Metadata& metadata) { return metadata.config.find("\"head_of\"") != std::string::npos; }
inline bool has_scales(const Metadata& metadata) { return metadata.config.find("\"scales_of\"") != std::string::npos; }

class LoadedCheckpoint : public Checkpoint {
 public:
  LoadedCheckpoint(std::string name, Source source) : name_(std::move(name)), source_(std::move(source)) {}

  const ModelConfig& config() const override { return config_; }
  const std::string& digest() const override { return digest_; }
  std::string_view config_text() const override { return config_text_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override;
  Status check_unchanged() const override;
  Status read(std::span<const std::byte> bytes, std::byte* to) const override;
  Status interleave() const override;

  const Source& source() const { return source_; }
  Status load(Verify verify, const Progress& progress, int32_t threads = 1);

 protected:
  virtual Status read_config(const Metadata& metadata, ModelConfig& config) const;
  virtual std::vector<CheckpointWriter::Declaration> wanted_tensors() const { return required_tensors(config_); }
  virtual Status check_values() const;  // those that are no weights

 private:
  Status match_tensors() const;
  Status take_digests(const Metadata& metadata);
  Status copy_tensors();

  std::string name_;
  Source source_;
  Buffer<std::byte> copies_;
  ModelConfig config_;
  std::string config_text_;
  std::string digest_;
  std::vector<TensorInfo> tensors_;  // sorted by name
};

using Loaded = Result<std::shared_ptr<const Checkpoint>>;

// Puts the name of the source before an error. No exception leaves the library: out of memory is an answer, and so is a
// callback that throws.
template <class F>
Loaded guarded(std::string_view source, F&& body) {
  try {
    Loaded loaded = body();
    if (loaded.ok()) return loaded;
    const Status status = loaded.status();
    return Status(status.code(), fmt::format("{}: {}", source, status.message()));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return internal_error(fmt::format("{}: {}", source, error.what()));
  } catch (...) {
    return internal_error(fmt::format("{}: an exception", source));
  }
}

// Opens a file. `make` returns a LoadedCheckpoint of a path and a source.
template <class Make>
Loaded open_file(const std::string& path, Verify verify, const Checkpoint::Progress& progress, Make&& make,
                 int32_t threads = 1) {
  KAIJU_TRY(check_path(path));
  return guarded(path, [&]() -> Loaded {
    const FloatState float_state;
    Checkpoint::Progress report;
    if (progress) report = [&](double done) { return float_state.as_found([&] { return progress(done); }); };
    auto file = Source::open(path);
    if (!file.ok()) return file.status();
    const auto checkpoint = make(path, std::move(file).value());
    Status status = checkpoint->load(verify, report, threads);
    // A file that is being written explains any other complaint, so this one goes first.
    if (Status changed = checkpoint->source().check_unchanged();
        !changed.ok() && status.code() != StatusCode::kCancelled)
      return changed;
    if (!status.ok()) return status;
    return std::shared_ptr<const Checkpoint>(checkpoint);
  });
}

}  // namespace kaiju::format
