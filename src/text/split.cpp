// Splits text by regular expressions with PCRE2: see split.hpp.
//
// PCRE2 bounds how often a match may backtrack, but not how many bytes it scans: with `\w*!|.` each letter of a long
// word costs a look at the whole word. So a pattern sees a window of the text, which is doubled as long as the match
// would look past its end (a partial match). The answer is that for the whole text, and the sizes of the larger windows
// bound the work, which is limited in proportion to the text.
//
// Within a window a match may backtrack a number of times in proportion to it, which known models need: `\s*[\r\n]+`
// gives back each space of a long run. A hostile pattern such as `\w*\w*!` scans the window again each time, so one
// word can cost the square of its length. Known limit: only the model's file can ask for that, no text.
#include "split.hpp"

#include <fmt/format.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>

namespace kaiju {
namespace {

constexpr size_t kWindowBytes = 64;     // longer than nearly every word
constexpr size_t kWorkPerByte = 16;     // bytes of larger windows for each byte of text; known models take up to 4
constexpr size_t kWorkFloor = 1 << 16;  // and for any text
constexpr size_t kMatchLimit = 256;     // of a match, and for each byte of the window:
constexpr size_t kMatchLimitPerByte = 8;
constexpr uint32_t kHeapKilobytes = 16 << 10;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* handle) const {
    Free(handle);
  }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;

// PCRE2's \s would match U+180E too, which is no white space since Unicode 6.3.
std::string by_white_space_property(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    out += pattern[i];
    if (pattern[i] != '\\' || i + 1 == pattern.size()) continue;
    const char next = pattern[++i];
    if (next == 's' || next == 'S')
      out += next == 's' ? "p{WSpace}" : "P{WSpace}";
    else
      out += next;
  }
  return out;
}

Status refused(size_t number, std::string_view why) {
  return bad_model(fmt::format("tokenizer: pattern {} of split {}", number + 1, why));
}

Result<std::shared_ptr<pcre2_code>> compile_one(const std::string& text, size_t number, uint32_t more_options) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) return out_of_memory();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // the library's own build may have chosen otherwise
  pcre2_set_bsr(context.get(), PCRE2_BSR_UNICODE);
  int error = 0;
  size_t place = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | more_options, &error, &place,
                          context.get()));
  if (!code) {
    if (error == PCRE2_ERROR_HEAP_FAILED) return out_of_memory();
    char why[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(why), sizeof why);
    return refused(number, fmt::format("does not compile: {} at byte {}", why, place));
  }
  uint32_t matches_nothing = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0) return refused(number, "may match nothing at all; each match must be a character or more");
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);  // it works without, only slower
  return std::shared_ptr<pcre2_code>(std::move(code));
}

bool inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
}

struct Match {
  size_t begin = 0, end = 0;
};

}  // namespace

struct Split::Pattern {
  size_t number;
  std::shared_ptr<pcre2_code> anywhere, here;  // `here` matches at the start offset alone
};

namespace {

// Finds the matches of one pattern in one text after the other.
class Finder {
 public:
  // `work` is what is left of the bytes that larger windows may have.
  static Result<Finder> create(size_t number, const pcre2_code* anywhere, const pcre2_code* here, size_t& work) {
    Finder finder(number, anywhere, here, work);
    if (!finder.data_ || !finder.context_) return out_of_memory();
    pcre2_set_heap_limit(finder.context_.get(), kHeapKilobytes);
    return finder;
  }

  // The first match at or after `from`; an empty one at the end where there is none.
  Status next(std::string_view text, size_t from, Match& match) {
    while (from < text.size()) {
      size_t end = window_end(text, from, kWindowBytes);
      Answer answer = Answer::kNone;
      KAIJU_TRY(look(anywhere_, text.substr(0, end), from, end == text.size(), answer, match));
      if (answer == Answer::kFound) return {};
      if (answer == Answer::kNone) {
        from = end;
        continue;
      }
      from = match.begin;  // a match may begin here: no earlier place has one
      for (size_t bytes = 2 * kWindowBytes; answer == Answer::kMore; bytes *= 2) {
        end = window_end(text, from, bytes);
        if (end - from > work_) return refused(number_, "looks at too many bytes of this text again and again");
        work_ -= end - from;
        KAIJU_TRY(look(here_, text.substr(0, end), from, end == text.size(), answer, match));
      }
      if (answer == Answer::kFound) return {};
      ++from;
      while (inside_character(text, from)) ++from;
    }
    match = {text.size(), text.size()};
    return {};
  }

 private:
  enum class Answer { kNone, kFound, kMore };

  Finder(size_t number, const pcre2_code* anywhere, const pcre2_code* here, size_t& work)
      : number_(number),
        anywhere_(anywhere),
        here_(here),
        work_(work),
        data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {}

  static size_t window_end(std::string_view text, size_t from, size_t bytes) {
    size_t end = text.size() - from > bytes ? from + bytes : text.size();
    while (inside_character(text, end)) ++end;
    return end;
  }

  // kMore, where the answer depends on bytes after `seen`: match.begin is then where a match may begin.
  Status look(const pcre2_code* code, std::string_view seen, size_t from, bool whole, Answer& answer, Match& match) {
    const auto limit = static_cast<uint32_t>(kMatchLimit + kMatchLimitPerByte * (seen.size() - from));
    pcre2_set_match_limit(context_.get(), limit);
    pcre2_set_depth_limit(context_.get(), limit);
    const uint32_t options = PCRE2_NO_UTF_CHECK | (whole ? 0 : PCRE2_PARTIAL_HARD);
    const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(seen.data()), seen.size(), from, options,
                                   data_.get(), context_.get());
    if (result == PCRE2_ERROR_NOMEMORY) return out_of_memory();
    if (result < 0 && result != PCRE2_ERROR_NOMATCH && result != PCRE2_ERROR_PARTIAL) return failed(result, from);
    if (result == PCRE2_ERROR_NOMATCH) {
      answer = Answer::kNone;
      return {};
    }
    const size_t* offsets = pcre2_get_ovector_pointer(data_.get());
    match = {offsets[0], offsets[1]};
    answer = result == PCRE2_ERROR_PARTIAL ? Answer::kMore : Answer::kFound;
    if (match.begin < from || (answer == Answer::kFound && match.end <= match.begin))
      return refused(number_, "moves the start of its match, which it may not");
    return {};
  }

  Status failed(int result, size_t at) const {
    if (result == PCRE2_ERROR_MATCHLIMIT || result == PCRE2_ERROR_DEPTHLIMIT || result == PCRE2_ERROR_HEAPLIMIT ||
        result == PCRE2_ERROR_JIT_STACKLIMIT)
      return refused(number_,
                     fmt::format("reached its match limit: it backtracks too often on this text, at byte {}", at + 1));
    char why[256] = {};
    pcre2_get_error_message(result, reinterpret_cast<PCRE2_UCHAR*>(why), sizeof why);
    return internal_error(fmt::format("tokenizer: PCRE2: {}", why));
  }

  size_t number_;
  const pcre2_code* anywhere_;
  const pcre2_code* here_;
  size_t& work_;
  MatchData data_;
  MatchContext context_;
};

}  // namespace

Result<Split> Split::compile(std::span<const std::string> patterns) {
  Split split;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const std::string text = by_white_space_property(patterns[i]);
    auto anywhere = compile_one(text, i, 0);
    if (!anywhere.ok()) return anywhere.status();
    auto here = compile_one(text, i, PCRE2_ANCHORED);
    if (!here.ok()) return here.status();
    split.patterns_.push_back(std::make_shared<const Pattern>(Pattern{i, *anywhere, *here}));
  }
  return split;
}

Status Split::words(std::string_view text, std::vector<uint32_t>& ends) const {
  if (text.empty()) return {};
  std::vector<uint32_t> coarse, fine = {static_cast<uint32_t>(text.size())};
  for (const auto& pattern : patterns_) {
    size_t work = kWorkFloor + kWorkPerByte * text.size();
    auto finder = Finder::create(pattern->number, pattern->anywhere.get(), pattern->here.get(), work);
    if (!finder.ok()) return finder.status();
    std::swap(coarse, fine);
    fine.clear();
    size_t begin = 0;
    for (const uint32_t end : coarse) {
      const std::string_view word = text.substr(begin, end - begin);
      for (size_t at = 0; at < word.size();) {
        Match match;
        KAIJU_TRY(finder->next(word, at, match));
        if (match.begin > at) fine.push_back(static_cast<uint32_t>(begin + match.begin));
        if (match.end > match.begin) fine.push_back(static_cast<uint32_t>(begin + match.end));
        at = match.end;
      }
      begin = end;
    }
  }
  ends.insert(ends.end(), fine.begin(), fine.end());
  return {};
}

}  // namespace kaiju
