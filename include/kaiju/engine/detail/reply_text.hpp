// ReplyText: from the pieces of generated tokens to the text a host may show: whole UTF-8, without stop strings, and
// without circles where they are guarded against.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kaiju/sample/detail/loop_guard.hpp"
#include "kaiju/sample/detail/stop.hpp"
#include "kaiju/text/utf8_stream.hpp"

namespace kaiju {

// What ended a text, if its last token did not.
enum class TextEnd { kNone, kStopString, kLoop };

// One thread at a time.
class ReplyText {
 public:
  ReplyText() = default;
  ReplyText(std::vector<std::string> stop_strings, bool loop_guard) : stop_(std::move(stop_strings)) {
    if (loop_guard) guard_.emplace();
  }

  // Appends to `out` what may be shown now, and returns what has ended the text.
  TextEnd push(std::string_view piece, std::string& out) {
    whole_.clear();
    utf8_.push(piece, whole_);
    return show(out);
  }
  // The reply is over: appends what was held back, unless a stop string or the guard ended it.
  void finish(std::string& out) {
    whole_.clear();
    utf8_.finish(whole_);
    if (show(out) == TextEnd::kNone && !stop_.stopped()) {
      checked_.clear();
      stop_.finish(checked_);
      pass(out);
    }
    if (guard_ && !guard_->stopped()) guard_->finish(out);
  }
  // As before the first piece.
  void begin_again() {
    utf8_ = Utf8Stream();
    stop_.begin_again();
    if (guard_) guard_->begin_again();
  }
  // Whether there is anything that may end the text.
  bool may_stop() const { return guard_ || stop_.any(); }
  // Whether a stop string or the guard has ended the text.
  bool stopped() const { return stop_.stopped() || (guard_ && guard_->stopped()); }
  // Index of the stop string that was complete; -1: none was.
  int32_t stop_index() const { return stop_.index(); }

 private:
  // From whole_ to `out`.
  TextEnd show(std::string& out) {
    checked_.clear();
    const bool stopped = stop_.push(whole_, checked_);
    if (pass(out)) return TextEnd::kLoop;
    return stopped ? TextEnd::kStopString : TextEnd::kNone;
  }
  bool pass(std::string& out) {
    if (guard_) return guard_->push(checked_, out);
    out += checked_;
    return false;
  }

  Utf8Stream utf8_;
  StopMatcher stop_;
  std::optional<LoopGuard> guard_;
  std::string whole_, checked_;
};

}  // namespace kaiju
