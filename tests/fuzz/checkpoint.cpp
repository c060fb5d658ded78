// Fuzz: a checkpoint in memory. The first byte says what the rest is: a whole file; a header before sound data; values to put into a sound
// model's tensors; a config. Digests are made true again where the loader tells what they should be, so that the rules behind them are met.
#include "kaiju/format/checkpoint.hpp"

#include "kaiju/model/weights.hpp"
#include "tests/format/tiny.hpp"
#include "tests/fuzz/fuzz.hpp"

using fuzz::promise;
using kaiju::Checkpoint;
using kaiju::Status;
using kaiju::StatusCode;

namespace {

constexpr int64_t kPerByte = 64, kFixed = 1 << 20;

void check_refusal(const Status& status) {
  promise(status.code() == StatusCode::kBadModel || status.code() == StatusCode::kUnsupported, "a bad file is a bad model or another version");
  promise(!status.message().empty() && status.message().size() < 600, "a refusal says why, briefly");
}

void check_accepted(const std::shared_ptr<const Checkpoint>& checkpoint, std::span<const std::byte> file) {
  promise(kaiju::config_from_json(kaiju::config_to_json(checkpoint->config())).ok(), "an accepted config survives being written");
  for (const auto& tensor : checkpoint->tensors()) {
    promise(checkpoint->find(tensor.name) == &tensor, "every tensor is found by its name");
    promise(tensor.bytes.data() >= file.data() && tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size(), "tensors lie within the file");
  }
  promise(kaiju::Weights::from(checkpoint).ok(), "an accepted checkpoint can be computed with");
}

Status load(std::span<const std::byte> file) {
  const auto loaded = Checkpoint::from_memory(file);
  if (!loaded.ok()) return check_refusal(loaded.status()), loaded.status();
  check_accepted(loaded.value(), file);
  return {};
}

// A sound small file whose header can be replaced without moving the data.
class Sound {
 public:
  Sound() {
    kaiju::ModelConfig config = tiny::config(1);
    config.n_heads = 1;
    parts_ = tiny::take_apart(tiny::make(config));
    header_ = parts_.header.dump();
    arena_ = std::make_unique<tiny::Aligned>(std::string(kMostHeader, '\0') + parts_.data);
    for (const auto& [name, entry] : parts_.header.items())
      if (name != "__metadata__") names_.push_back(name);
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
    const size_t at = message.find(kGives);
    const std::string_view header(bytes() + begin_ + 8, kMostHeader - begin_ - 8);
    const size_t digest = header.rfind("\"digest\":\"");
    if (at == std::string::npos || digest == std::string_view::npos || digest + 10 + 32 > header.size()) return;
    std::memcpy(bytes() + begin_ + 8 + digest + 10, message.data() + at + kGives.size(), 32);
    (void)load(file());
  }

  // Puts four bytes into a tensor, at a multiple of four, and makes the tensor's digest true. Undone by restore().
  void put(size_t tensor, size_t index, uint32_t value) {
    const std::string& name = names_[tensor % names_.size()];
    const auto [first, last] = parts_.place(name);
    std::memcpy(bytes() + kMostHeader + first + index % ((last - first) / 4) * 4, &value, 4);
    const std::string digest = tiny::xxh3(std::string(bytes() + kMostHeader + first, last - first));
    const std::string key = "\\\"" + name + "\\\":\\\"";
    std::memcpy(bytes() + begin_ + 8 + header_.find(key) + key.size(), digest.data(), 32);
  }
  void restore() { std::memcpy(bytes() + kMostHeader, parts_.data.data(), parts_.data.size()); }

 private:
  static constexpr size_t kMostHeader = 16 << 10;
  char* bytes() const { return const_cast<char*>(reinterpret_cast<const char*>(arena_->bytes().data())); }

  tiny::Parts parts_;
  std::string header_;
  std::vector<std::string> names_;
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

void values(Sound& sound, fuzz::Input input) {
  (void)sound.with_header(sound.header());
  for (int edits = 0; edits < 8 && !input.done(); ++edits) {
    const auto tensor = input.take<uint8_t>();
    const auto index = input.take<uint16_t>();
    sound.put(tensor, index, input.take<uint32_t>());
  }
  {
    const fuzz::MemoryBound bound(sound.file().size(), kPerByte, kFixed);
    sound.load_sealed();
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
  static Sound sound;
  fuzz::Input input(data, size);
  switch (input.take() % 4) {
    case 0: whole_file(input.rest()); break;
    case 1: header(sound, input.rest()); break;
    case 2: values(sound, input); break;
    default: config(input.rest());
  }
  return 0;
}
