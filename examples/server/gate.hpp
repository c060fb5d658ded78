// Gate: judges what a user says before it is submitted, and ends in the engine's place what it blocks: by the same
// events, at once or after as long as other replies take.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "blocked.hpp"
#include "even_time.hpp"
#include "kaiju/kaiju.hpp"
#include "metrics.hpp"
#include "reply.hpp"

namespace kaiju::server {

class Gate {
 public:
  // `model` may be null: nothing is blocked.
  Gate(asio::io_context& io, Metrics& metrics, std::shared_ptr<const MessageGate> model, bool even_time);

  // The first label that reaches its limit; `limits` are by label, each of the gate's.
  std::optional<Blocked> judge(std::string_view message, const LabelValues& limits);
  // Lets a request of so many sequences end refused, without a token.
  void refuse(const std::shared_ptr<ReplyEvents>& events, int32_t sequences, int32_t prompt_tokens, AnswerForm form);
  // A reply that was not blocked shows something after so long.
  void answered(AnswerForm form, double seconds) {
    if (even_time_) times_.add(form, seconds);
  }

 private:
  asio::io_context& io_;
  Metrics& metrics_;
  const std::shared_ptr<const MessageGate> model_;
  const bool even_time_;
  EvenTime times_;
};

}  // namespace kaiju::server
