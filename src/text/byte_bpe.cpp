// Byte-level BPE: see byte_bpe.hpp. Text goes through added tokens, NFC, the split into words and the merges.
#include "byte_bpe.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "added_tokens.hpp"
#include "merge.hpp"
#include "nfc.hpp"

namespace kaiju {
namespace {

// Words of one text that were merged before, with the place of their tokens. A word that falls on another's entry
// replaces it: no text can make it slow or large.
class WordCache {
 public:
  struct Entry {
    std::string_view word;
    size_t begin = 0, count = 0;  // tokens, in the output
  };

  explicit WordCache(size_t text_bytes)
      : entries_(std::bit_ceil(std::clamp<size_t>(text_bytes / 8, 16, size_t{1} << 14))) {}
  Entry& of(std::string_view word) { return entries_[XXH3_64bits(word.data(), word.size()) & (entries_.size() - 1)]; }

 private:
  std::vector<Entry> entries_;
};

class ByteBpe final : public Tokenizer {
 public:
  ByteBpe(ByteBpeData data, int32_t vocab_size)
      : data_(std::move(data)),
        merges_(std::move(data_.merges), data_.tokens.size()),
        trusted_(added([](TokenRole role) { return role == TokenRole::kControl || role == TokenRole::kVisible; })),
        literal_(added([](TokenRole role) { return role == TokenRole::kLiteral; })),
        vocab_size_(vocab_size) {}

  int32_t size() const override { return static_cast<int32_t>(data_.tokens.size()); }
  int32_t vocab_size() const override { return vocab_size_; }
  bool adds_space() const override { return data_.add_prefix_space; }

  std::string_view piece(int32_t token) const override {
    return known(token) && !is_control(token) ? std::string_view(data_.tokens[token]) : std::string_view();
  }
  bool is_control(int32_t token) const override { return known(token) && data_.roles[token] == TokenRole::kControl; }
  bool is_special(int32_t token) const override {
    return is_control(token) || (known(token) && data_.roles[token] == TokenRole::kVisible);
  }

  Result<std::vector<int32_t>> encode(std::string_view text) const override {
    return guarded<Result<std::vector<int32_t>>>([&]() -> Result<std::vector<int32_t>> {
      KAIJU_TRY(check_text(text));
      std::vector<int32_t> tokens;
      KAIJU_TRY(encode_plain(text, tokens));
      return tokens;
    });
  }

  Result<std::vector<int32_t>> encode_with_special_tokens(std::string_view text) const override {
    return guarded<Result<std::vector<int32_t>>>([&]() -> Result<std::vector<int32_t>> {
      KAIJU_TRY(check_text(text));
      std::vector<int32_t> tokens;
      for (size_t at = 0; at < text.size();) {
        const AddedTokens::Found found = trusted_.next(text, at);
        KAIJU_TRY(encode_plain(text.substr(at, found.begin - at), tokens));
        if (found.id >= 0) tokens.push_back(found.id);
        at = found.end;
      }
      return tokens;
    });
  }

 private:
  bool known(int32_t token) const { return token >= 0 && token < size(); }

  template <class Wanted>
  AddedTokens added(const Wanted& wanted) const {
    std::vector<AddedTokens::Token> tokens;
    for (size_t i = 0; i < data_.tokens.size(); ++i)
      if (wanted(data_.roles[i])) tokens.push_back({data_.tokens[i], static_cast<int32_t>(i), data_.edges[i]});
    return AddedTokens(std::move(tokens));
  }

  // Text without trusted tokens.
  Status encode_plain(std::string_view raw, std::vector<int32_t>& tokens) const {
    if (raw.empty()) return {};
    std::string changed;
    if (data_.add_prefix_space && !raw.starts_with(' ')) changed.append(1, ' ').append(raw);
    if (data_.nfc && !is_plainly_nfc(raw)) changed = nfc(changed.empty() ? raw : changed);
    const std::string_view text = changed.empty() ? raw : std::string_view(changed);
    if (text.size() > kMaxTextBytes)
      return invalid_argument(
          fmt::format("text of {} bytes, which the tokenizer's rules make {}; the limit of one text is {}: shorten it, "
                      "or encode it in parts",
                      raw.size(), text.size(), kMaxTextBytes));
    WordCache cache(text.size());
    Merger merger;
    for (size_t at = 0; at < text.size();) {
      const AddedTokens::Found found = literal_.next(text, at);
      encode_words(text.substr(at, found.begin - at), cache, merger, tokens);
      if (found.id >= 0) tokens.push_back(found.id);
      at = found.end;
    }
    return {};
  }

  void encode_words(std::string_view text, WordCache& cache, Merger& merger, std::vector<int32_t>& tokens) const {
    std::vector<uint32_t> ends;
    split_words(*data_.split, text, ends);
    size_t begin = 0;
    for (const uint32_t end : ends) {
      const std::string_view word = text.substr(begin, end - begin);
      begin = end;
      WordCache::Entry& entry = cache.of(word);
      if (entry.word == word) {
        for (size_t i = 0; i < entry.count; ++i) tokens.push_back(tokens[entry.begin + i]);
        continue;
      }
      const size_t before = tokens.size();
      const int32_t whole = data_.ignore_merges ? data_.find(word) : -1;
      if (whole >= 0)
        tokens.push_back(whole);
      else
        merger.merge(word, merges_, data_.byte_tokens, tokens);
      entry = {word, before, tokens.size() - before};
    }
  }

  ByteBpeData data_;
  MergeTable merges_;
  AddedTokens trusted_, literal_;
  int32_t vocab_size_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_byte_bpe(ByteBpeData data, int32_t vocab_size) {
  return std::make_shared<ByteBpe>(std::move(data), vocab_size);
}

}  // namespace kaiju
