// Scales: see scales.hpp. A file of scales is a file like a checkpoint whose config says what it fits.
#include "kaiju/format/scales.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "digest.hpp"
#include "json.hpp"
#include "loaded_checkpoint.hpp"
#include "overlay.hpp"
#include "reader.hpp"
#include "values.hpp"
#include "writer.hpp"

namespace kaiju {
namespace {

using Declarations = std::vector<CheckpointWriter::Declaration>;

constexpr const char* kTokens = "seen.tokens";
constexpr int32_t kMostBins = 256;

std::string clip_name(size_t slot, const char* which) { return fmt::format("kv.{}.{}_clip", slot, which); }
std::string seen_name(size_t slot, const char* which) { return fmt::format("seen.{}.{}", slot, which); }

int64_t width_of(const ModelConfig& config, size_t slot) {
  return config.width_of(Width::kKv, config.owner_of(static_cast<int32_t>(slot)));
}

// In an order that docs/checkpoint.md allows: multiples of 64 bytes first.
Declarations tensors_for(const ModelConfig& config, int32_t bins) {
  Declarations tensors;
  for (size_t slot = 0; slot < static_cast<size_t>(config.kv_slot_count); ++slot)
    for (const char* which : {"k", "v"}) {
      tensors.push_back({clip_name(slot, which), DType::kF32, {width_of(config, slot)}});
      tensors.push_back({seen_name(slot, which), DType::kU64, {width_of(config, slot), bins}});
    }
  tensors.push_back({kTokens, DType::kU64, {config.vocab_size}});
  const auto is_aligned = [](const auto& tensor) {
    return format::layout_group(tensor.name, format::tensor_bytes(tensor.dtype, tensor.shape)) == 0;
  };
  std::stable_partition(tensors.begin(), tensors.end(), is_aligned);
  return tensors;
}

class ScalesFile final : public format::LoadedCheckpoint {
 public:
  ScalesFile(std::string name, format::Source source, const Checkpoint& model)
      : LoadedCheckpoint(std::move(name), std::move(source)), model_(model) {}

  // Of the clips alone: what was seen changes no bit.
  uint64_t epoch() const {
    std::vector<TensorInfo> clips;
    for (const TensorInfo& tensor : tensors())
      if (tensor.name.starts_with("kv.")) clips.push_back(tensor);
    const std::string digest = format::root_digest("1", "scales", clips);
    uint64_t epoch = 0;
    std::from_chars(digest.data(), digest.data() + 16, epoch, 16);
    return epoch == 0 ? 1 : epoch;  // 0 is the epoch of the model's own
  }

 private:
  Status read_config(const format::Metadata& metadata, ModelConfig& config) const override {
    if (!format::has_scales(metadata))
      return invalid_argument("not a file of scales: kaiju_calibration_save writes one");
    constexpr format::JsonLimits kLimits = {1, 4, 4096};
    format::JsonObject object;
    KAIJU_TRY(format::parse_json(metadata.config, "config", kLimits, object));
    format::Reader reader(object, "config");
    std::string model;
    KAIJU_TRY(reader.string("scales_of", model));
    KAIJU_TRY(reader.number("bins", bins_));
    KAIJU_TRY(reader.end());
    if (model != model_.digest())
      return invalid_argument(
          fmt::format("scales of the model {}; this one is {}: give the scales that were made for it",
                      format::in_quotes(model), model_.digest()));
    if (bins_ < 1 || bins_ > kMostBins) return bad_model(fmt::format("config.bins must be from 1 to {}", kMostBins));
    config = model_.config();
    return {};
  }
  Declarations wanted_tensors() const override { return tensors_for(config(), bins_); }
  Status check_values() const override { return {}; }  // they are checked with the model's

  const Checkpoint& model_;
  mutable int32_t bins_ = 0;
};

class RescaledCheckpoint final : public format::Overlay {
 public:
  RescaledCheckpoint(std::shared_ptr<const Checkpoint> model, std::shared_ptr<const ScalesFile> scales)
      : Overlay(std::move(model), scales), epoch_(scales->epoch()) {}
  uint64_t scale_epoch() const override { return epoch_; }

 private:
  uint64_t epoch_;
};

template <class T>
void copy_to(const Checkpoint& checkpoint, const std::string& name, std::vector<T>& to) {
  const auto values = checkpoint.view<T>(name);
  to.assign(values.begin(), values.end());
}

// The tensor's values among the scales.
std::span<const std::byte> bytes_of(const KvScales& scales, const std::string& name) {
  if (name == kTokens) return std::as_bytes(std::span(scales.tokens));
  for (size_t slot = 0; slot < scales.slots.size(); ++slot) {
    const KvScales::Slot& own = scales.slots[slot];
    if (name == clip_name(slot, "k")) return std::as_bytes(std::span(own.k_clip));
    if (name == clip_name(slot, "v")) return std::as_bytes(std::span(own.v_clip));
    if (name == seen_name(slot, "k")) return std::as_bytes(std::span(own.keys));
    if (name == seen_name(slot, "v")) return std::as_bytes(std::span(own.values));
  }
  return {};
}

}  // namespace

Result<KvScales> scales_of(const Checkpoint& checkpoint) {
  return guarded<Result<KvScales>>([&]() -> Result<KvScales> {
    const ModelConfig& config = checkpoint.config();
    if (!has_clips(config.shape)) return no_clips();
    KvScales scales;
    scales.slots.resize(static_cast<size_t>(config.kv_slot_count));
    for (size_t slot = 0; slot < scales.slots.size(); ++slot) {
      KvScales::Slot& own = scales.slots[slot];
      copy_to(checkpoint, clip_name(slot, "k"), own.k_clip);
      copy_to(checkpoint, clip_name(slot, "v"), own.v_clip);
      copy_to(checkpoint, seen_name(slot, "k"), own.keys);
      copy_to(checkpoint, seen_name(slot, "v"), own.values);
    }
    copy_to(checkpoint, kTokens, scales.tokens);
    return scales;
  });
}

Result<std::shared_ptr<const Checkpoint>> with_scales(std::shared_ptr<const Checkpoint> checkpoint,
                                                      const std::string& path, Verify verify) {
  if (!checkpoint) return invalid_argument("no checkpoint");
  if (!has_clips(checkpoint->config().shape)) return no_clips();
  std::shared_ptr<const ScalesFile> scales;
  const auto file = format::open_file(path, verify, {}, [&](const std::string& name, format::Source source) {
    auto made = std::make_shared<ScalesFile>(name, std::move(source), *checkpoint);
    scales = made;
    return made;
  });
  if (!file.ok()) return file.status();
  return format::guarded(path, [&]() -> format::Loaded {
    auto rescaled = std::make_shared<RescaledCheckpoint>(checkpoint, scales);
    KAIJU_TRY(format::check_scales(*rescaled));
    return std::shared_ptr<const Checkpoint>(std::move(rescaled));
  });
}

Status write_scales(const Checkpoint& checkpoint, const KvScales& scales, const std::string& path) {
  return guarded<Status>([&]() -> Status {
    const ModelConfig& config = checkpoint.config();
    if (!has_clips(config.shape)) return no_clips();
    if (static_cast<int32_t>(scales.slots.size()) != config.kv_slot_count)
      return invalid_argument(
          fmt::format("scales of {} KV slots; the model has {}", scales.slots.size(), config.kv_slot_count));
    const auto bins = static_cast<int32_t>(scales.slots[0].keys.size() / static_cast<size_t>(width_of(config, 0)));
    if (bins < 1 || bins > kMostBins)
      return invalid_argument(fmt::format("counts of {} bins; from 1 to {} are possible", bins, kMostBins));
    const Declarations tensors = tensors_for(config, bins);
    for (const auto& tensor : tensors)
      if (bytes_of(scales, tensor.name).size() != format::tensor_bytes(tensor.dtype, tensor.shape))
        return invalid_argument(fmt::format("{} has {} bytes, which is not what the model needs", tensor.name,
                                            bytes_of(scales, tensor.name).size()));
    auto writer =
        format::create_writer(path, config.arithmetic(),
                              fmt::format(R"({{"scales_of":"{}","bins":{}}})", checkpoint.digest(), bins), tensors);
    if (!writer.ok()) return writer.status();
    for (const auto& tensor : tensors) KAIJU_TRY((*writer)->write(bytes_of(scales, tensor.name)));
    return (*writer)->finish();
  });
}

}  // namespace kaiju
