#include "reply.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "kaiju/sample/params.hpp"
#include "kaiju/text/utf8_stream.hpp"

namespace kaiju::server {

boost::asio::awaitable<std::deque<Event>> ReplyEvents::take() {
  while (events_.empty()) {
    boost::system::error_code ignored;  // cancelled: there is an event
    co_await signal_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
  }
  taken_ = oldest_;
  co_return std::exchange(events_, {});
}

void ReplyEvents::settle(const Event& event) {
  if (!share_) return;
  const bool first = event.kind == EventKind::kToken && !begun_;
  // Without a token, a request that was cancelled may have had its prompt computed, if it did not wait for a slot
  // still.
  const bool cut_off = event.kind == EventKind::kDone && !begun_ && event.timing.wait_ns > 0;
  if (first || cut_off) share_->take_prompt(event.counts.prompt_tokens, event.counts.cached_tokens);
  if (first) share_->begin();
  begun_ |= first;
  if (event.kind == EventKind::kToken) share_->take_generated(1);
  if (event.kind == EventKind::kDone || event.kind == EventKind::kFailed) share_.reset();
}

namespace {

// A circle may be cut inside a character, whose first bytes nothing can be made of.
void drop_broken_end(std::string& text) {
  while (text.ends_with(kReplacementCharacter)) text.resize(text.size() - kReplacementCharacter.size());
}

}  // namespace

void Choice::add(const Event& event) {
  text += event.text;
  if (event.kind == EventKind::kToken) {
    tokens.push_back(event.token);
    logprob += event.logprob;
  } else if (event.kind == EventKind::kDone || event.kind == EventKind::kSequenceDone) {
    reason = event.reason;
    stop = event.stop;
    if (reason == DoneReason::kLoop) drop_broken_end(text);
  }
}

const char* finish_reason(DoneReason reason) {
  switch (reason) {
    case DoneReason::kNone:
      return nullptr;
    case DoneReason::kLength:
      return "length";
    case DoneReason::kCancelled:
    case DoneReason::kDeadline:
      return "abort";
    case DoneReason::kRefused:
      return "content_filter";
    default:
      return "stop";
  }
}

namespace {

class AtLeast : public Guide {
 public:
  AtLeast(int32_t least, const std::vector<int32_t>& stops, int32_t vocabulary, int32_t sequences)
      : least_(least), taken_(static_cast<size_t>(sequences)), mask_(static_cast<size_t>(mask_words(vocabulary)), ~0u) {
    for (const int32_t token : stops) mask_[static_cast<size_t>(token) / 32] &= ~(1u << token % 32);
  }
  kaiju::Guide next(int32_t sequence) override {
    return taken_[static_cast<size_t>(sequence)] < least_ ? kaiju::Guide{mask_, {}} : kaiju::Guide{};
  }
  void take(int32_t sequence, int32_t) override { ++taken_[static_cast<size_t>(sequence)]; }

 private:
  int32_t least_;
  std::vector<int32_t> taken_;
  std::vector<uint32_t> mask_;
};

}  // namespace

void add_reuse(nlohmann::ordered_json& to, const ReuseReport& reuse) {
  const auto word = [](ReuseEnd end) {
    constexpr const char* kWords[] = {"none",    "whole",     "different",   "new",
                                      "evicted", "no_window", "other_scope", "no_room"};
    return kWords[static_cast<size_t>(end)];
  };
  to["reuse_end"] = word(reuse.end);
  to["known_tokens"] = reuse.known_tokens;
  to["known_end"] = word(reuse.known_end);
}

std::unique_ptr<Guide> at_least(int32_t least, std::vector<int32_t> stop_tokens, int32_t vocabulary,
                                int32_t sequences) {
  return std::make_unique<AtLeast>(least, stop_tokens, vocabulary, sequences);
}

}  // namespace kaiju::server
