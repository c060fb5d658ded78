// BannedPhrases: finds phrases that a reply must not have in the text of its tokens, and which tokens may be told
// because no such phrase can begin in them. It knows texts, no engine. Letters of ASCII are compared without regard to
// their case.
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
  // Takes the text of one more token. Returns the index of the token in which the first phrase begins that the text now
  // has; -1: it has none.
  int32_t push(std::string_view piece) {
    const size_t before = text_.size();
    text_ += piece;
    lower(text_, before);
    ends_.push_back(text_.size());
    size_t first = std::string::npos;
    for (const std::string& phrase : phrases_) {
      const size_t from = before - std::min(before, phrase.size() - 1);
      first = std::min(first, text_.find(phrase, from));
    }
    return first == std::string::npos ? -1 : token_at(first);
  }
  // Forgets all tokens but the first `count`.
  void cut(int32_t count) {
    if (static_cast<size_t>(count) >= ends_.size()) return;
    ends_.resize(static_cast<size_t>(count));
    text_.resize(ends_.empty() ? 0 : ends_.back());
  }
  // How many of the first tokens end before any phrase that may still become complete.
  int32_t safe() const {
    size_t open = text_.size();  // where such a phrase begins
    for (const std::string& phrase : phrases_)
      for (size_t length = std::min(phrase.size() - 1, text_.size()); length > 0; --length)
        if (text_.compare(text_.size() - length, length, phrase, 0, length) == 0) {
          open = std::min(open, text_.size() - length);
          break;
        }
    return static_cast<int32_t>(std::upper_bound(ends_.begin(), ends_.end(), open) - ends_.begin());
  }

 private:
  static void lower(std::string& text, size_t from) {
    for (size_t i = from; i < text.size(); ++i)
      if (text[i] >= 'A' && text[i] <= 'Z') text[i] = static_cast<char>(text[i] + ('a' - 'A'));
  }
  int32_t token_at(size_t place) const {
    return static_cast<int32_t>(std::upper_bound(ends_.begin(), ends_.end(), place) - ends_.begin());
  }

  std::vector<std::string> phrases_;
  std::string text_;          // of all tokens
  std::vector<size_t> ends_;  // of each token in the text
};

}  // namespace kaiju
