// Fuzz: a gate. The first byte says what the rest is: a whole file; the config of a sound one; values for its scales
// and biases; else a text that is scored. Digests are made true again, so that the rules behind them are met.
#include <cmath>

#include "kaiju/text/message_gate.hpp"
#include "kaiju/text/tokenizer.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/text/tiny_gate.hpp"

using fuzz::promise;
using kaiju::MessageGate;
using kaiju::StatusCode;
using kaiju::tests::TinyGate;

namespace {

using Scores = std::vector<float>;

Scores score(const MessageGate& gate, std::string_view text) {
  Scores found(gate.labels().size());
  heap::reset();
  gate.score(text, found);
  promise(heap::count().allocations == 0, "scoring allocates nothing");
  for (const float each : found) promise(each >= 0.0f && each <= 1.0f, "a score is a probability");
  return found;
}

void load(std::string_view file) {
  const fuzz::MemoryBound bound(file.size(), 64, 1 << 20);
  const auto loaded = MessageGate::from_memory(std::as_bytes(std::span(file)));
  if (loaded.ok()) {
    for (const std::string& label : loaded.value()->labels()) promise(!label.empty(), "a label has a name");
    Scores found(loaded.value()->labels().size());
    loaded.value()->score("any text, of several words", found);
    for (const float each : found) promise(each >= 0.0f && each <= 1.0f, "a gate that was accepted can score");
    return;
  }
  const kaiju::Status status = loaded.status();
  promise(status.code() == StatusCode::kBadModel || status.code() == StatusCode::kUnsupported,
          "a bad file is a bad model or another version");
  promise(!status.message().empty() && status.message().size() < 600, "a refusal says why, briefly");
}

const MessageGate& sound() {
  static const std::shared_ptr<const MessageGate> gate = [] {
    const std::string file = TinyGate().file();
    return MessageGate::from_memory(std::as_bytes(std::span(file))).value();
  }();
  return *gate;
}

// What shows the same has the same score.
void check_text(std::string_view text) {
  const Scores plain = score(sound(), text);
  std::string upper(text), longer = " \n" + upper + "  ", soft;
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  promise(score(sound(), upper) == plain, "case changes no score");
  promise(score(sound(), longer) == plain, "spaces around a text change no score");
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (!ascii) return;
  for (const char c : text) (soft += c) += "\xC2\xAD";
  promise(score(sound(), soft) == plain, "characters that are not seen change no score");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)sound();
  fuzz::Input input(data, size);
  const auto mode = input.take();
  if (mode == 0) {
    load(input.rest());
  } else if (mode == 1) {
    TinyGate tiny;
    const std::string config(input.rest());
    tiny.metadata["config"] = kaiju::utf8_valid_prefix(config) == config.size() ? config : "{}";
    load(tiny.file());
  } else if (mode == 2) {
    TinyGate tiny;
    for (float& value : tiny.scales) value = input.take<float>();
    for (float& value : tiny.biases) value = input.take<float>();
    load(tiny.file());
  } else {
    check_text(input.rest());
  }
  return 0;
}
