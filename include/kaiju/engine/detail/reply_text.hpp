// ReplyText: from the pieces of generated tokens to the text a host may show: whole UTF-8, without stop strings.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kaiju/sample/detail/stop.hpp"
#include "kaiju/text/utf8_stream.hpp"

namespace kaiju {

// One thread at a time.
class ReplyText {
 public:
  ReplyText() = default;
  explicit ReplyText(std::vector<std::string> stop_strings) : stop_(std::move(stop_strings)) {}

  // Appends to `out` what may be shown now. True once a stop string is complete.
  bool push(std::string_view piece, std::string& out) {
    whole_.clear();
    utf8_.push(piece, whole_);
    return stop_.push(whole_, out);
  }
  // The reply is over: appends what was held back, unless a stop string ended it.
  void finish(std::string& out) {
    whole_.clear();
    utf8_.finish(whole_);
    stop_.push(whole_, out);
    if (!stop_.stopped()) stop_.finish(out);
  }
  // As before the first piece.
  void begin_again() {
    utf8_ = Utf8Stream();
    stop_.begin_again();
  }
  // A stop string was complete.
  bool stopped() const { return stop_.stopped(); }

 private:
  Utf8Stream utf8_;
  StopMatcher stop_;
  std::string whole_;
};

}  // namespace kaiju
