// GateWords: the words of a text as a MessageGate counts them: without case and marks, letters for the signs and
// numbers that look like them, words that are spelled letter by letter in one. docs/gate.md has the rules;
// examples/train/message_gate.py states them in Python.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kaiju {

// Reads a text once from its beginning to its end, in buffers of its own: it allocates nothing.
class GateWords {
 public:
  static constexpr size_t kMostLetters = 64;                  // of a word; a longer one is several words
  static constexpr size_t kMostWordBytes = 4 * kMostLetters;  // in UTF-8

  void read(std::string_view text);

 protected:
  ~GateWords() = default;
  // Is told each word, in UTF-8.
  virtual void take(std::string_view word) = 0;

 private:
  enum class Kind : uint8_t { kSpace, kLetter, kNumber, kSign, kApostrophe };
  static Kind kind_of(char32_t code);
  static char32_t plain(char32_t code);

  void fold(char32_t code);
  void push(char32_t code);
  void step(Kind next);
  void end_run();
  void end_spelled();
  void tell(const char32_t* letters, size_t size);

  char32_t held_ = ' ';  // a character that waits for the kind of the next one
  Kind held_kind_ = Kind::kSpace;
  std::array<char32_t, kMostLetters> run_{};  // of letters, numbers and signs, as far as it has come
  size_t run_size_ = 0;
  size_t gap_ = 0;                                // characters between it and the run before
  std::array<char32_t, kMostLetters> spelled_{};  // runs of one letter that may make one word
  size_t spelled_size_ = 0;
};

}  // namespace kaiju
