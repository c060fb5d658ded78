// Fuzz: a checkpoint in memory. The first byte says what the rest is: a whole file; a header before sound data; values
// to put into a sound model's tensors; a config; edits of a sound header. Digests are made true again, so that the
// rules behind them are met.
#include "kaiju/format/checkpoint.hpp"

#include "format/header.hpp"
#include "format/values.hpp"
#include "kaiju/model/weights.hpp"
#include "tests/format/tiny.hpp"
#include "tests/fuzz/fuzz.hpp"

using fuzz::promise;
using kaiju::Checkpoint;
using kaiju::ModelConfig;
using kaiju::Status;
using kaiju::StatusCode;

namespace {

constexpr int64_t kPerByte = 64, kFixed = 1 << 20;

void check_refusal(const Status& status) {
  promise(status.code() == StatusCode::kBadModel || status.code() == StatusCode::kUnsupported,
          "a bad file is a bad model or another version");
  promise(!status.message().empty() && status.message().size() < 600, "a refusal says why, briefly");
}

void check_accepted(const std::shared_ptr<const Checkpoint>& checkpoint, std::span<const std::byte> file) {
  promise(kaiju::config_from_json(kaiju::config_to_json(checkpoint->config())).ok(),
          "an accepted config survives being written");
  for (const auto& tensor : checkpoint->tensors()) {
    promise(checkpoint->find(tensor.name) == &tensor, "every tensor is found by its name");
    promise(
        tensor.bytes.data() >= file.data() && tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size(),
        "tensors lie within the file");
  }
  promise(kaiju::Weights::from(checkpoint).ok(), "an accepted checkpoint can be computed with");
}

Status load(std::span<const std::byte> file) {
  const auto loaded = Checkpoint::from_memory(file);
  if (!loaded.ok()) return check_refusal(loaded.status()), loaded.status();
  check_accepted(loaded.value(), file);
  return {};
}

// A sound small file whose header can be replaced without moving the data. As a checkpoint it is what the loader has
// when it comes to the values, so that a run about values need not parse the header again.
class Sound final : public Checkpoint, public std::enable_shared_from_this<Sound> {
 public:
  Sound() {
    ModelConfig config = tiny::config(1);
    config.n_heads = 1;
    config.labels = {"violence", "self-harm", "spam"};
    parts_ = tiny::take_apart(tiny::make(config));
    config.derive_counts();
    config_ = config;
    header_ = parts_.header.dump();
    arena_ = std::make_unique<tiny::Aligned>(std::string(kMostHeader, '\0') + parts_.data);
    kaiju::format::Header parsed;
    promise(kaiju::format::parse_header(kaiju::format::Source(with_header(header_)), parsed).ok(),
            "a sound header is sound");
    tensors_ = std::move(parsed.tensors);
    std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (kaiju::TensorInfo& tensor : tensors_) seal(tensor);
  }

  const ModelConfig& config() const override { return config_; }
  const std::string& digest() const override { return header_; }  // nobody asks
  const std::vector<kaiju::TensorInfo>& tensors() const override { return tensors_; }
  const kaiju::TensorInfo* find(std::string_view name) const override {
    const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                     [](const auto& tensor, std::string_view n) { return tensor.name < n; });
    return at != tensors_.end() && at->name == name ? &*at : nullptr;
  }

  const std::string& header() const { return header_; }

  // The file with this header, padded; empty when it is too long.
  std::span<const std::byte> with_header(std::string_view header) {
    const size_t length = (8 + header.size() + 63) / 64 * 64 - 8;
    if (8 + length > kMostHeader) return {};
    begin_ = kMostHeader - 8 - length;
    std::memset(bytes() + begin_, ' ', 8 + length);
    std::memcpy(bytes() + begin_, &length, 8);
    std::memcpy(bytes() + begin_ + 8, header.data(), header.size());
    return file();
  }
  std::span<const std::byte> file() const { return arena_->bytes().subspan(begin_); }

  // Loads; when only the root digest was wrong, once more with the one the loader computed.
  void load_sealed() {
    const std::string_view kGives = "and digests give ";
    const std::string message = load(file()).message();
    const size_t at = message.rfind(kGives);
    if (at == std::string::npos || at + kGives.size() + 32 > message.size()) return;
    const std::string_view header(bytes() + begin_ + 8, kMostHeader - begin_ - 8);
    const size_t digest = header.rfind("\"digest\":\"");
    if (digest == std::string_view::npos || digest + 10 + 32 > header.size()) return;
    std::memcpy(bytes() + begin_ + 8 + digest + 10, message.data() + at + kGives.size(), 32);
    (void)load(file());
  }

  // Puts four bytes into a tensor, at a multiple of four, and makes its digest true. Undone by restore().
  void put(size_t which, size_t index, uint32_t value) {
    kaiju::TensorInfo& tensor = tensors_[which % tensors_.size()];
    const size_t offset =
        static_cast<size_t>(tensor.bytes.data() - arena_->bytes().data()) + index % (tensor.bytes.size() / 4) * 4;
    std::memcpy(bytes() + offset, &value, 4);
    seal(tensor);
    changed_.push_back({which % tensors_.size(), offset});
  }
  void restore() {
    for (const auto& [which, offset] : changed_)
      std::memcpy(bytes() + offset, parts_.data.data() + (offset - kMostHeader), 4);
    for (const auto& [which, offset] : changed_) seal(tensors_[which]);
    changed_.clear();
  }

 private:
  static constexpr size_t kMostHeader = 16 << 10;
  char* bytes() const { return const_cast<char*>(reinterpret_cast<const char*>(arena_->bytes().data())); }

  static void seal(kaiju::TensorInfo& tensor) {
    tensor.digest = tiny::xxh3({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
  }

  tiny::Parts parts_;
  ModelConfig config_;
  std::string header_;
  std::vector<kaiju::TensorInfo> tensors_;
  std::vector<std::pair<size_t, size_t>> changed_;  // tensor, byte of the arena
  std::unique_ptr<tiny::Aligned> arena_;
  size_t begin_ = 0;
};

void whole_file(std::string_view rest) {
  const tiny::Aligned file{std::string(rest)};
  const fuzz::MemoryBound bound(rest.size(), kPerByte, kFixed);
  (void)load(file.bytes());
}

void header(Sound& sound, std::string_view rest) {
  if (sound.with_header(rest).empty()) return;
  const fuzz::MemoryBound bound(sound.file().size(), kPerByte, kFixed);
  sound.load_sealed();
}

// Edits of a sound header: mostly of one with three tensors, which takes a twentieth of the time.
void edits(Sound& sound, fuzz::Input input) {
  static const std::string kThree =
      R"({"__metadata__":{"format":"kaiju","format_version":"1","arithmetic":"1","config":"{}","digests":"{}",)"
      R"("digest":"00000000000000000000000000000000"},)"
      R"("a.weight":{"dtype":"I8","shape":[2,64],"data_offsets":[0,128]},)"
      R"("b":{"dtype":"F32","shape":[16],"data_offsets":[128,192]},)"
      R"("rope.0":{"dtype":"U64","shape":[32],"data_offsets":[192,448]}})";
  const bool whole = input.take() == 0;
  std::string text = whole ? sound.header() : kThree;
  for (int edits = 0; edits < 4 && !input.done(); ++edits) {
    const size_t at = input.take<uint16_t>() % text.size();
    const size_t cut = input.take() % 16;
    const std::string_view put = input.take_text(input.take() % 32);
    text.replace(at, cut, put);
  }
  if (whole) return header(sound, text);
  const tiny::Aligned file{tiny::assemble(text, std::string(448, '\1'))};
  const fuzz::MemoryBound bound(file.bytes().size(), kPerByte, kFixed);
  (void)load(file.bytes());
}

void values(Sound& sound, fuzz::Input input) {
  for (int edits = 0; edits < 8 && !input.done(); ++edits) {
    const auto tensor = input.take<uint8_t>();
    const auto index = input.take<uint16_t>();
    sound.put(tensor, index, input.take<uint32_t>());
  }
  {
    const fuzz::MemoryBound bound(sound.file().size(), kPerByte, kFixed);
    Status status = kaiju::format::check_scales(sound);
    if (status.ok()) status = kaiju::format::check_bytes(sound, kaiju::format::Source(sound.file()), {}, 1);
    if (status.ok())
      promise(kaiju::Weights::from(sound.shared_from_this()).ok(), "values that were accepted can be computed with");
    else
      check_refusal(status);
  }
  sound.restore();
}

void config(std::string_view text) {
  const fuzz::MemoryBound bound(text.size(), kPerByte, kFixed);
  const auto config = kaiju::config_from_json(text);
  if (!config.ok()) return check_refusal(config.status());
  const std::string written = kaiju::config_to_json(config.value());
  const auto again = kaiju::config_from_json(written);
  promise(again.ok() && kaiju::config_to_json(again.value()) == written, "a config written out is the same config");
  promise(!kaiju::required_tensors(config.value()).empty(), "a config asks for tensors");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto sound = std::make_shared<Sound>();
  fuzz::Input input(data, size);
  switch (input.take() % 5) {
    case 0:
      whole_file(input.rest());
      break;
    case 1:
      header(*sound, input.rest());
      break;
    case 2:
      values(*sound, input);
      break;
    case 3:
      config(input.rest());
      break;
    default:
      edits(*sound, input);
  }
  return 0;
}
