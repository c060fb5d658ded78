// BannedPhrases: finds phrases that a reply must not have in the text of its tokens, and which tokens are settled: they
// may be told, because the reply never goes back before them. It knows texts, no engine. Letters of ASCII are compared
// without regard to their case.
//
// A token is settled once no phrase can begin in it any more. When the reply then goes back, an earlier part of its
// text can be the beginning of a phrase again, settled tokens too. If such a phrase is completed, another way is taken
// behind them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kaiju {

class BannedPhrases {
 public:
  BannedPhrases() = default;
  explicit BannedPhrases(std::vector<std::string> phrases) : phrases_(std::move(phrases)) {
    for (std::string& phrase : phrases_) lower(phrase, 0);
  }

  bool any() const { return !phrases_.empty(); }
  // Takes the text of one more token. Returns -1 if the text has no phrase now. Else returns the index of the token to
  // go back before: that in which the first phrase begins, or the first one that is not settled.
  int32_t push(std::string_view piece) {
    const size_t before = text_.size();
    text_ += piece;
    lower(text_, before);
    ends_.push_back(text_.size());
    const size_t first = first_phrase(before);
    if (first != std::string::npos) return std::max(settled_, tokens_before(first));
    settled_ = std::max(settled_, tokens_before(open_phrase()));
    return -1;
  }
  // Whether the text would have a phrase with this token in a place, and nothing after it.
  bool completes(int32_t place, std::string_view piece) {
    const size_t before = place == 0 ? 0 : ends_[static_cast<size_t>(place) - 1];
    const std::string after = text_.substr(before);
    text_.replace(before, std::string::npos, piece);
    lower(text_, before);
    const bool found = first_phrase(before) != std::string::npos;
    text_.replace(before, std::string::npos, after);
    return found;
  }
  // Forgets all tokens but the first `count`.
  void cut(int32_t count) {
    if (static_cast<size_t>(count) >= ends_.size()) return;
    ends_.resize(static_cast<size_t>(count));
    text_.resize(ends_.empty() ? 0 : ends_.back());
    settled_ = std::min(settled_, count);
  }
  int32_t settled() const { return settled_; }

 private:
  // Where the first phrase begins that the text has only since it is longer than `before`.
  size_t first_phrase(size_t before) const {
    size_t first = std::string::npos;
    for (const std::string& phrase : phrases_)
      first = std::min(first, text_.find(phrase, before - std::min(before, phrase.size() - 1)));
    return first;
  }
  static void lower(std::string& text, size_t from) {
    for (size_t i = from; i < text.size(); ++i)
      if (text[i] >= 'A' && text[i] <= 'Z') text[i] = static_cast<char>(text[i] + ('a' - 'A'));
  }
  // Where a phrase begins that may still become complete; the end of the text: nowhere.
  size_t open_phrase() const {
    size_t open = text_.size();
    for (const std::string& phrase : phrases_)
      for (size_t length = std::min(phrase.size() - 1, text_.size()); length > 0; --length)
        if (text_.compare(text_.size() - length, length, phrase, 0, length) == 0) {
          open = std::min(open, text_.size() - length);
          break;
        }
    return open;
  }
  // How many tokens end there or before.
  int32_t tokens_before(size_t place) const {
    return static_cast<int32_t>(std::upper_bound(ends_.begin(), ends_.end(), place) - ends_.begin());
  }

  std::vector<std::string> phrases_;
  std::string text_;          // of all tokens
  std::vector<size_t> ends_;  // of each token in the text
  int32_t settled_ = 0;       // tokens
};

}  // namespace kaiju
