// Fuzz: a tokenizer as a checkpoint may carry it: a SentencePiece model or, if it begins with '{', byte-level BPE. The
// first byte asks for the whole file or for the normaliser's rules inside a sound SentencePiece model. Whatever is
// accepted must then work.
#include "tests/fuzz/fuzz.hpp"
#include "tests/text/tiny_tokenizer.hpp"

using fuzz::promise;

namespace {

constexpr int32_t kVocabulary = 512;

// Few pieces, so that a run is short.
std::string with_rules(std::string_view charsmap) {
  kaiju::tests::TinyModel tiny;
  tiny.add("<unk>", 0, kaiju::PieceKind::kUnknown);
  tiny.add("a", -1, kaiju::PieceKind::kNormal);
  tiny.add("\xE2\x96\x81", -2, kaiju::PieceKind::kNormal);
  tiny.model.charsmap = charsmap;
  return tiny.bytes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const bool rules_alone = input.take() % 2 == 1;
  const std::string bytes = rules_alone ? with_rules(input.rest()) : std::string(input.rest());
  const fuzz::MemoryBound bound(bytes.size(), 512, 256 << 10);
  const auto tokenizer = kaiju::tests::load(bytes, kVocabulary);
  if (!tokenizer.ok()) {
    const auto code = tokenizer.status().code();
    promise(code == kaiju::StatusCode::kBadModel || (bytes[0] == '{' && code == kaiju::StatusCode::kUnsupported),
            "a damaged tokenizer is a bad model");
    promise(!tokenizer.status().message().empty() && tokenizer.status().message().size() < 600,
            "a refusal says why, briefly");
    return 0;
  }
  const kaiju::Tokenizer& good = *tokenizer.value();
  promise(good.size() >= 1 && good.size() <= kVocabulary, "a tokenizer has no more pieces than the vocabulary");
  for (const char* text : {"", "a", "aa hello <s> \xC3\xA9\xE2\x84\xAB\xF0\x9F\x98\x80  \t\n", " <|end|> .<think>\n1"})
    for (const auto& tokens : {good.encode(text), good.encode_with_special_tokens(text)}) {
      if (!tokens.ok()) continue;
      for (const int32_t token : tokens.value())
        promise(token >= 0 && token < good.size(), "encode gives ids of the vocabulary");
      promise(good.decode(tokens.value()).ok(), "what was encoded can be decoded");
    }
  return 0;
}
