// Splits by name: see split.hpp. The regular expressions that the rules stand for, with \s for White_Space:
//
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm  each \p{N} alone, and gpt2 for the texts between them
//   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
//           |\s+(?!\S)|\s+
//   qwen2   llama3 with \p{N} in place of \p{N}{1,3}
//   tekken  [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+
//           |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}
//           | ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
#include "split.hpp"

#include <iterator>

#include "unicode.hpp"

namespace kaiju {
namespace {

using enum Split::Contractions;

constexpr Split kSplits[] = {
    // name, contractions, any_before_letters, cased, digits_apart, most_digits, after_punctuation, ends_after_newline
    {"gpt2", kLowerCase, false, false, false, 0, "", false},   {"smollm", kLowerCase, false, false, true, 1, "", false},
    {"llama3", kAnyCase, true, false, false, 3, "\r\n", true}, {"qwen2", kAnyCase, true, false, false, 1, "\r\n", true},
    {"tekken", kNone, true, true, false, 1, "\r\n/", true},
};

// Each function takes the place where a word begins, and returns where it ends: the same place if it is no such word.
// Each passes over the characters of a word a fixed number of times, and at most once over white space or capital
// letters that it then leaves to the next word.
class Scanner {
 public:
  Scanner(const Split& split, std::string_view text) : split_(split), text_(text) {}

  size_t word(size_t at) {
    for (const auto kind : {&Scanner::contraction, &Scanner::letters, &Scanner::number, &Scanner::punctuation})
      if (const size_t end = (this->*kind)(at); end > at) return end;
    return white_space(at);
  }
  size_t looked() const { return looked_; }

 private:
  Character look(size_t at) {
    ++looked_;
    return character_at(text_, at);
  }
  bool is_space_character(size_t at) const { return at < text_.size() && text_[at] == ' '; }

  size_t run(size_t at, unsigned classes) {
    for (Character next = look(at); next.is(classes); next = look(at)) at += next.bytes;
    return at;
  }

  size_t contraction(size_t at) {
    if (split_.contractions == kNone || text_[at] != '\'') return at;
    const std::string_view rest = text_.substr(at + 1, 2);
    std::string folded(rest);
    if (split_.contractions == kAnyCase) {
      if (rest == "\u017F") return at + 3;  // the long s, whose capital letter is S
      for (char& c : folded)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    for (const std::string_view end : {"s", "t", "re", "ve", "m", "ll", "d"})
      if (folded.starts_with(end)) return at + 1 + end.size();
    return at;
  }

  size_t letters(size_t at) {
    const Character first = look(at);
    const bool before = split_.any_before_letters ? !first.is(kLetter | kNumber | kNewline) : is_space_character(at);
    const size_t begin = before ? at + first.bytes : at;
    if (split_.cased) return cased_letters(at, begin);
    const size_t end = run(begin, kLetter);
    return end > begin ? end : at;
  }

  // A mark may begin a word at `at`, or be the character before one at `begin`.
  size_t cased_letters(size_t at, size_t begin) {
    const CasedEnds after = upper_then_lower(begin), with = begin == at ? after : upper_then_lower(at);
    for (const size_t end : {after.lower_last, with.lower_last, after.upper_alone, with.upper_alone})
      if (end != 0) return end;
    return at;
  }

  // Where a word of upper case, then lower case ends; 0 if there is none.
  struct CasedEnds {
    size_t lower_last = 0, upper_alone = 0;
  };

  // Some letters and the marks are both cases: if no lower case follows, the last of these is it.
  CasedEnds upper_then_lower(size_t from) {
    size_t at = from, after_both = 0;
    for (Character next = look(at); next.is(kUpper); next = look(at)) {
      at += next.bytes;
      if (next.is(kLower)) after_both = at;
    }
    const size_t end = run(at, kLower);
    return {end > at ? end : after_both, at > from ? at : 0};
  }

  size_t number(size_t at) {
    if (split_.most_digits == 0) {
      const size_t begin = is_space_character(at) ? at + 1 : at, end = run(begin, kNumber);
      return end > begin ? end : at;
    }
    for (int digits = 0; digits < split_.most_digits; ++digits) {
      const Character next = look(at);
      if (!next.is(kNumber)) break;
      at += next.bytes;
    }
    return at;
  }

  size_t punctuation(size_t at) {
    const size_t begin = is_space_character(at) ? at + 1 : at;
    size_t end = begin;
    for (Character next = look(end); next.bytes > 0 && !next.is(kLetter | kNumber | kSpace); next = look(end))
      end += next.bytes;
    if (end == begin) return at;
    while (end < text_.size() && split_.after_punctuation.find(text_[end]) != std::string_view::npos) ++end, ++looked_;
    return end;
  }

  // The last character of white space goes to the next word, unless it is the only one or no word follows.
  size_t white_space(size_t at) {
    size_t end = at, last = at, after_newline = at;
    Character next;
    for (next = look(end); next.is(kSpace); next = look(end)) {
      last = end;
      end += next.bytes;
      if (next.is(kNewline)) after_newline = end;
    }
    if (split_.ends_after_newline && after_newline > at) return after_newline;
    const bool at_end = next.bytes == 0 || (split_.digits_apart && next.is(kNumber));
    return at_end || last == at ? end : last;
  }

  const Split& split_;
  std::string_view text_;
  size_t looked_ = 0;
};

}  // namespace

const Split* find_split(std::string_view name) {
  for (const Split& split : kSplits)
    if (split.name == name) return &split;
  return nullptr;
}

std::string split_names() {
  std::string names;
  for (const Split& split : kSplits) names.append(names.empty() ? "" : ", ").append(split.name);
  return names;
}

size_t split_words(const Split& split, std::string_view text, std::vector<uint32_t>& ends) {
  Scanner scanner(split, text);
  for (size_t at = 0; at < text.size();) {
    at = scanner.word(at);
    ends.push_back(static_cast<uint32_t>(at));
  }
  return scanner.looked();
}

}  // namespace kaiju
