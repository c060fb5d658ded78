// ReplyEvents: the events of one engine request, on their way to one HTTP answer.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "blocked.hpp"
#include "driver.hpp"
#include "shares.hpp"

namespace kaiju::server {

// Collects events until a coroutine takes them, and settles the request's share as they come.
class ReplyEvents : public Sink {
 public:
  using Clock = std::chrono::steady_clock;

  ReplyEvents(boost::asio::io_context& io, std::unique_ptr<Shares::Share> share)
      : signal_(io, boost::asio::steady_timer::time_point::max()), share_(std::move(share)) {}

  void on_event(const Event& event, Clock::time_point polled) override {
    settle(event);
    if (event.record && on_record) on_record(event);
    if (events_.empty()) oldest_ = polled;
    events_.push_back(event);
    signal_.cancel();
  }
  std::function<void(const Event&)> on_record;  // of events with a record of a reply
  // Waits until there are events, and takes them.
  boost::asio::awaitable<std::deque<Event>> take();
  // Since the oldest event that was taken last left the engine.
  double seconds() const { return std::chrono::duration<double>(Clock::now() - taken_).count(); }

 private:
  void settle(const Event& event);

  std::deque<Event> events_;
  Clock::time_point oldest_, taken_;  // of the events that wait; of those that were taken
  boost::asio::steady_timer signal_;
  std::unique_ptr<Shares::Share> share_;  // until the request has ended
  bool begun_ = false;                    // a token has come
};

// One choice of an answer, as far as it has come.
struct Choice {
  std::string text;
  std::vector<int32_t> tokens;            // a stop token included
  double logprob = 0;                     // sum over the tokens
  DoneReason reason = DoneReason::kNone;  // kNone: it goes on
  int32_t stop = -1;                      // Event::stop
  int64_t decode_ns = 0;                  // from the first token to the newest
  std::optional<Blocked> blocked;         // the limit that ended it

  // Takes in an event of its sequence.
  void add(const Event& event);
  bool done() const { return reason != DoneReason::kNone; }
};

// OpenAI's finish_reason; null while the reply goes on.
const char* finish_reason(DoneReason reason);

// Adds why no more of a prompt was found in the cache: reuse_end, known_tokens, known_end.
void add_reuse(nlohmann::ordered_json& to, const ReuseReport& reuse);

// Does not let a reply end before `least` tokens: until then its stop tokens cannot be sampled.
std::unique_ptr<Guide> at_least(int32_t least, std::vector<int32_t> stop_tokens, int32_t vocabulary, int32_t sequences);

}  // namespace kaiju::server
