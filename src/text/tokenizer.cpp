// The tokenizer: chooses its kind, and SentencePiece's: SentencePiece splits text into pieces; this file keeps its own
// table of pieces.
#include "kaiju/text/tokenizer.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "byte_bpe.hpp"
#include "kaiju/base/float_state.hpp"
#include "sentencepiece_model.hpp"

namespace kaiju {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// What a piece stands for in text.
std::string surface(const SentencepieceModel::Piece& piece, bool escaped) {
  if (piece.kind == PieceKind::kControl) return {};
  if (piece.kind == PieceKind::kUnknown) return "\xEF\xBF\xBD";  // U+FFFD
  if (piece.kind == PieceKind::kByte) return std::string(1, static_cast<char>(byte_of_piece(piece.text)));
  std::string text(piece.text);
  if (!escaped) return text;
  for (size_t at = 0; (at = text.find(kSpaceMark, at)) != std::string::npos; ++at)
    text.replace(at, kSpaceMark.size(), 1, ' ');
  return text;
}

class SentencepieceTokenizer final : public Tokenizer {
 public:
  explicit SentencepieceTokenizer(int32_t vocab_size) : vocab_size_(vocab_size) {}

  Status open(const SentencepieceModel& model) {
    const auto status = processor_.LoadFromSerializedProto(clean_copy(model));
    if (!status.ok() && std::string_view(status.message()).find("bad_alloc") != std::string_view::npos)
      return out_of_memory();  // the model is not to blame
    if (!status.ok()) return bad_model(fmt::format("tokenizer: SentencePiece refuses it: {}", status.message()));
    if (processor_.GetPieceSize() != static_cast<int>(model.pieces.size()))
      return internal_error("tokenizer: SentencePiece lost pieces");
    for (const auto& piece : model.pieces) {
      pieces_.push_back(surface(piece, model.escape_whitespaces));
      control_.push_back(piece.kind == PieceKind::kControl);
    }
    adds_space_ = model.add_dummy_prefix && !model.whitespace_as_suffix;
    normaliser_ = Normaliser(model.charsmap);
    return {};
  }

  int32_t size() const override { return static_cast<int32_t>(pieces_.size()); }
  int32_t vocab_size() const override { return vocab_size_; }

  Result<std::vector<int32_t>> encode(std::string_view text) const override {
    KAIJU_TRY(check_text(text));
    if (const size_t bytes = normaliser_.bytes_of(text); bytes > kMaxTextBytes)
      return invalid_argument(
          fmt::format("text of {} bytes, which the tokenizer's rules make {}; the limit of one text is {}: shorten it, "
                      "or encode it in parts",
                      text.size(), bytes, kMaxTextBytes));
    const FloatState float_state;
    try {
      std::vector<int> ids;
      const auto status = processor_.Encode(text, &ids);
      if (!status.ok()) return internal_error(fmt::format("SentencePiece: {}", status.message()));
      return std::vector<int32_t>(ids.begin(), ids.end());
    } catch (const std::bad_alloc&) {
      return out_of_memory();
    } catch (const std::exception& error) {
      return internal_error(fmt::format("SentencePiece: {}", error.what()));
    }
  }
  Result<std::vector<int32_t>> encode_with_special_tokens(std::string_view) const override {
    return Status(
        StatusCode::kUnsupported,
        "the model's tokenizer is SentencePiece's, which finds no special tokens in a text: insert their ids");
  }

  std::string_view piece(int32_t token) const override {
    return token >= 0 && token < size() ? std::string_view(pieces_[token]) : std::string_view();
  }
  bool is_control(int32_t token) const override { return token >= 0 && token < size() && control_[token]; }
  bool adds_space() const override { return adds_space_; }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> pieces_;
  std::vector<bool> control_;
  bool adds_space_ = true;
  Normaliser normaliser_;
  int32_t vocab_size_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(std::span<const std::byte> model, int32_t vocab_size) {
  const FloatState float_state;
  try {
    if (!model.empty() && model.front() == std::byte{'{'}) {  // no SentencePiece model begins so
      auto data = read_byte_bpe(model, vocab_size);
      if (!data.ok()) return data.status();
      return make_byte_bpe(std::move(*data), vocab_size);
    }
    auto checked = read_sentencepiece_model(model, vocab_size);
    if (!checked.ok()) return checked.status();
    auto tokenizer = std::make_shared<SentencepieceTokenizer>(vocab_size);
    KAIJU_TRY(tokenizer->open(*checked));
    return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::exception& error) {
    return bad_model(fmt::format("tokenizer: {}", error.what()));
  }
}

Status Tokenizer::check_text(std::string_view text) {
  if (text.size() > kMaxTextBytes)
    return invalid_argument(
        fmt::format("text of {} bytes; the limit of one text is {}: shorten it, or encode it in parts", text.size(),
                    kMaxTextBytes));
  if (const size_t good = utf8_valid_prefix(text); good != text.size())
    return invalid_argument(fmt::format("text is not UTF-8 at byte {}", good + 1));
  return {};
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size())
      return invalid_argument(fmt::format("token {} is {}; tokens are 0 to {}", i, tokens[i], vocab_size() - 1));
    text += piece(tokens[i]);
  }
  if (adds_space() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

size_t utf8_valid_prefix(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0u; };
  size_t i = 0;
  while (i < text.size()) {
    const uint32_t a = at(i);
    if (a < 0x80) {
      ++i;
      continue;
    }
    const uint32_t b = at(i + 1), c = at(i + 2), d = at(i + 3);
    const auto tail = [](uint32_t byte) { return (byte & 0xC0) == 0x80; };
    if (a >= 0xC2 && a <= 0xDF && tail(b)) {
      i += 2;
    } else if (a >= 0xE0 && a <= 0xEF && tail(b) && tail(c) && !(a == 0xE0 && b < 0xA0) && !(a == 0xED && b >= 0xA0)) {
      i += 3;
    } else if (a >= 0xF0 && a <= 0xF4 && tail(b) && tail(c) && tail(d) && !(a == 0xF0 && b < 0x90) &&
               !(a == 0xF4 && b >= 0x90)) {
      i += 4;
    } else {
      return i;
    }
  }
  return i;
}

}  // namespace kaiju
