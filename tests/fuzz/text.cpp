// Fuzz: text on its way to tokens and back, through SentencePiece with byte fallback and with normalisation, and
// through byte-level BPE with every split; UTF-8 streams and stop strings however the text is cut.
#include "examples/chat/utf8.hpp"
#include "kaiju/sample/detail/stop.hpp"
#include "kaiju/text/chat.hpp"
#include "kaiju/text/utf8_stream.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/text/byte_bpe_model.hpp"
#include "tests/text/tiny_tokenizer.hpp"
#include "tests/text/trained_tokenizer.hpp"

using fuzz::promise;
using kaiju::Tokenizer;

namespace {

using Shared = std::shared_ptr<const Tokenizer>;

const Shared& plain() {
  static const Shared tokenizer = kaiju::tests::load(kaiju::tests::tiny_model().bytes()).value();
  return tokenizer;
}
const Shared& normalising() {
  static const Shared tokenizer = kaiju::tests::load(kaiju::tests::train_tokenizer("nmt_nfkc"), 512).value();
  return tokenizer;
}

const std::vector<Shared>& byte_level() {
  static const std::vector<Shared> tokenizers = [] {
    std::vector<Shared> all;
    for (const char* split : {"gpt2", "smollm", "llama3", "qwen2", "tekken"})
      all.push_back(
          kaiju::tests::load(kaiju::tests::changed_bpe([&](auto& model) { model.split = split; }), 512).value());
    return all;
  }();
  return tokenizers;
}

void check_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) {
    promise(token >= 0 && token < tokenizer.size(), "encode gives ids of the vocabulary");
    promise(!tokenizer.is_control(token), "no text can forge a control symbol");
  }
}

// Every code point survives but the mark that stands for a space.
std::string without_marks(std::string text) {
  constexpr std::string_view kMark = "\xE2\x96\x81";
  for (size_t at = 0; (at = text.find(kMark, at)) != std::string::npos;) text.replace(at, kMark.size(), " ");
  return text;
}

void through_tokenizers(std::string_view text) {
  const bool valid = kaiju::utf8_valid_prefix(text) == text.size();
  promise(valid == kaiju::is_utf8(text), "two ways to ask whether a text is UTF-8 agree");
  promise(valid == (chat::utf8_error(text) == std::string_view::npos), "the chat's way agrees");
  (void)byte_level();  // made before memory is counted
  const fuzz::MemoryBound bound(text.size(), 2048, 64 << 10);
  for (const Shared& tokenizer : {plain(), normalising()}) {
    const auto tokens = tokenizer->encode(text);
    promise(tokens.ok() == valid, "encode refuses what is not UTF-8 and nothing else");
    if (!tokens.ok()) continue;
    check_tokens(*tokenizer, tokens.value());
    const auto decoded = tokenizer->decode(tokens.value());
    promise(decoded.ok(), "what was encoded can be decoded");
    if (tokenizer == plain())
      promise(decoded.value() == without_marks(std::string(text)), "text survives the way to tokens and back");
  }
  for (const Shared& tokenizer : byte_level()) {
    const auto tokens = tokenizer->encode(text);
    promise(tokens.ok() == valid, "byte-level BPE refuses what is not UTF-8 and nothing else");
    if (!tokens.ok()) continue;
    check_tokens(*tokenizer, tokens.value());
    promise(tokenizer->decode(tokens.value()).value() == text, "text survives the way to bytes and back");
  }
}

// The pieces of `text`, 1 to 8 bytes each as `cuts` says, through a UTF-8 stream and a stop matcher.
struct Streamed {
  std::string text, before_stop;
  bool stopped = false;
};
Streamed stream(std::string_view text, const std::vector<std::string>& stops, fuzz::Input cuts) {
  Streamed out;
  kaiju::Utf8Stream utf8;
  kaiju::StopMatcher matcher(stops);
  const auto push = [&](std::string_view whole) {
    out.text += whole;
    out.stopped = out.stopped || matcher.push(std::string(whole), out.before_stop);
  };
  for (std::string whole; !text.empty(); whole.clear()) {
    const std::string_view piece = text.substr(0, 1 + cuts.take() % 8);
    text.remove_prefix(piece.size());
    utf8.push(piece, whole);
    push(whole);
  }
  std::string rest;
  utf8.finish(rest);
  push(rest);
  if (!out.stopped) matcher.finish(out.before_stop);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)plain(), (void)normalising();
  fuzz::Input input(data, size);
  const size_t stop_bytes = input.take() % 8;
  const std::string_view stop = input.take_text(stop_bytes);
  const std::string_view text = input.rest();
  through_tokenizers(text);

  std::vector<std::string> stops;
  if (!stop.empty() && kaiju::is_utf8(stop)) stops = {std::string(stop), std::string(stop) + "x"};
  const Streamed cut = stream(text, stops, fuzz::Input(data, size));
  const Streamed bytewise = stream(text, stops, fuzz::Input(nullptr, 0));
  promise(kaiju::is_utf8(cut.text), "a stream gives whole UTF-8");
  promise(cut.text == bytewise.text, "a stream does not depend on how the bytes were cut");
  promise(cut.stopped == bytewise.stopped && cut.before_stop == bytewise.before_stop, "nor does a stop string");
  if (!stops.empty())
    promise(cut.stopped == (cut.text.find(stop) != std::string::npos), "a stop string is found where it occurs");
  return 0;
}
