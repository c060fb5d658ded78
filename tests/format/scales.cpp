// Files of scales: what was written is read, and what does not fit is refused.
#include "kaiju/format/scales.hpp"

#include "catch.hpp"
#include "tiny.hpp"

using kaiju::Checkpoint;
using kaiju::KvScales;
using kaiju::StatusCode;

namespace {

std::shared_ptr<const Checkpoint> open(const std::string& path) {
  auto opened = Checkpoint::open(path);
  INFO(opened.status().message());
  REQUIRE(opened.ok());
  return std::move(opened).value();
}

// The scales of a model, with counts of every channel.
KvScales scales_for(const Checkpoint& model) {
  KvScales scales = kaiju::scales_of(model).value();
  uint64_t next = 0;
  for (KvScales::Slot& slot : scales.slots) {
    for (float& clip : slot.k_clip) clip *= 1.25f;
    for (size_t i = 0; i < slot.k_clip.size() * 33; ++i) {
      slot.keys.push_back(++next);
      slot.values.push_back(++next);
    }
  }
  for (int32_t i = 0; i < model.config().vocab_size; ++i) scales.tokens.push_back(++next);
  return scales;
}

struct Files {
  Files() {
    tiny::write_file(model, tiny::make(tiny::config()));
    const kaiju::Status status = kaiju::write_scales(*open(model), scales_for(*open(model)), scales);
    INFO(status.message());
    REQUIRE(status.ok());
  }
  void edit(const std::function<void(tiny::Parts&)>& change) {
    tiny::Parts parts = tiny::take_apart(tiny::read_file(scales));
    change(parts);
    tiny::seal(parts);
    tiny::write_file(scales, tiny::assemble(parts));
  }
  void refuses(StatusCode code, const std::string& words) const {
    auto made = kaiju::with_scales(open(model), scales);
    INFO(made.status().message());
    CHECK(made.status().code() == code);
    CHECK(tiny::contains(made.status().message(), words));
  }

  tiny::Folder folder;
  std::string model = folder / "model", scales = folder / "scales";
};

}  // namespace

TEST_CASE("scales are read as they were written, and all else is the model's") {
  const Files files;
  const auto model = open(files.model);
  auto with = kaiju::with_scales(model, files.scales);
  INFO(with.status().message());
  REQUIRE(with.ok());
  CHECK((*with)->digest() == model->digest());
  CHECK((*with)->scale_epoch() != 0);
  CHECK(model->scale_epoch() == 0);
  const KvScales read = kaiju::scales_of(**with).value(), written = scales_for(*model);
  CHECK(read.tokens == written.tokens);
  REQUIRE(read.slots.size() == written.slots.size());
  for (size_t s = 0; s < read.slots.size(); ++s) {
    CHECK(read.slots[s].k_clip == written.slots[s].k_clip);
    CHECK(read.slots[s].v_clip == written.slots[s].v_clip);
    CHECK(read.slots[s].keys == written.slots[s].keys);
    CHECK(read.slots[s].values == written.slots[s].values);
  }
  for (const kaiju::TensorInfo& tensor : model->tensors()) {
    const kaiju::TensorInfo* other = (*with)->find(tensor.name);
    REQUIRE(other != nullptr);
    std::vector<std::byte> bytes(other->bytes.size());
    REQUIRE((*with)->read(other->bytes, bytes.data()).ok());
    CHECK(std::equal(bytes.begin(), bytes.end(), other->bytes.begin(), other->bytes.end()));
    const bool is_same = std::equal(bytes.begin(), bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    CHECK(is_same == !tensor.name.ends_with("k_clip"));
  }
  CHECK(kaiju::scales_of(*model)->slots[0].keys.empty());
}

TEST_CASE("files of scales that do not fit are refused by name") {
  const auto refused = [](const std::function<void(tiny::Parts&)>& change, StatusCode code, const char* words) {
    Files files;
    files.edit(change);
    files.refuses(code, words);
  };
  refused([](tiny::Parts& parts) { parts.put<float>("kv.0.k_clip", 3, -1.0f); }, StatusCode::kBadModel, "kv.0.k_clip");
  refused([](tiny::Parts& parts) { parts.edit_config([](auto& config) { config["bins"] = 32; }); },
          StatusCode::kBadModel, "seen.0.k");
  refused([](tiny::Parts& parts) { parts.edit_config([](auto& config) { config["bins"] = 0; }); },
          StatusCode::kBadModel, "config.bins");
  refused(
      [](tiny::Parts& parts) { parts.edit_config([](auto& config) { config["scales_of"] = std::string(32, '0'); }); },
      StatusCode::kInvalidArgument, "give the scales that were made for it");

  Files files;
  const auto opened = Checkpoint::open(files.scales);
  CHECK(opened.status().code() == StatusCode::kInvalidArgument);
  CHECK(tiny::contains(opened.status().message(), "give the scales beside it"));
  std::string damaged = tiny::read_file(files.scales);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  tiny::write_file(files.scales, damaged);
  files.refuses(StatusCode::kBadModel, "digest");
  tiny::write_file(files.scales, tiny::read_file(files.model));
  files.refuses(StatusCode::kInvalidArgument, "not a file of scales");
  files.scales = files.folder / "none";
  files.refuses(StatusCode::kIo, "none");

  const auto model = open(files.model);
  KvScales wrong = scales_for(*model);
  wrong.slots[0].k_clip.pop_back();
  CHECK(kaiju::write_scales(*model, wrong, files.folder / "x").code() == StatusCode::kInvalidArgument);
  wrong.slots.pop_back();
  CHECK(kaiju::write_scales(*model, wrong, files.folder / "x").code() == StatusCode::kInvalidArgument);
}
