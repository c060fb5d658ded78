#include "gate.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <random>
#include <vector>

#include "openai.hpp"
#include "store/store.hpp"

namespace kaiju::server {

namespace {

uint64_t random_seed() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

// What the engine says of a request whose sequences all end before their first token.
std::vector<Event> refused_events(int32_t sequences, int32_t prompt_tokens) {
  std::vector<Event> events;
  for (int32_t sequence = 0; sequence < sequences; ++sequence) {
    Event event;
    event.kind = sequence + 1 < sequences ? EventKind::kSequenceDone : EventKind::kDone;
    event.sequence = sequence;
    event.reason = DoneReason::kRefused;
    event.counts.prompt_tokens = prompt_tokens;
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace

Gate::Gate(asio::io_context& io, Metrics& metrics, std::shared_ptr<const MessageGate> model, bool even_time)
    : io_(io), metrics_(metrics), model_(std::move(model)), even_time_(even_time), times_(random_seed()) {}

std::optional<Blocked> Gate::judge(std::string_view message, const LabelValues& limits) {
  if (!model_ || limits.empty()) return {};
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const std::vector<float> probabilities = model_->score(message);
  metrics_.gate_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  ++metrics_.gate_messages;
  const std::vector<std::string>& labels = model_->labels();
  for (size_t i = 0; i < labels.size(); ++i)
    for (const auto& [label, limit] : limits)
      if (label == labels[i] && static_cast<double>(probabilities[i]) >= limit)
        return Blocked{"gate", label, static_cast<double>(probabilities[i]), limit};
  return {};
}

void Gate::refuse(const std::shared_ptr<ReplyEvents>& events, int32_t sequences, int32_t prompt_tokens,
                  AnswerForm form) {
  const auto tell = [events, told = refused_events(sequences, prompt_tokens)] {
    for (const Event& event : told) events->on_event(event, ReplyEvents::Clock::now());
  };
  if (!even_time_) return tell();
  const auto wait = std::chrono::duration<double>(times_.draw(form));
  const auto timer = std::make_shared<asio::steady_timer>(io_);
  timer->expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(wait));
  timer->async_wait([timer, tell](auto) { tell(); });
}

void BlockedLog::write(const Exchange& exchange, const std::string& key, const std::string& tier,
                       const Blocked& blocked, const nlohmann::ordered_json& messages, const std::string& reply) {
  using std::chrono::duration_cast, std::chrono::milliseconds, std::chrono::system_clock;
  const auto now = duration_cast<milliseconds>(system_clock::now().time_since_epoch());
  nlohmann::ordered_json line = {{"time", time_text(now.count())},
                                 {"id", exchange.id},
                                 {"key", key},
                                 {"tier", tier},
                                 {"label", blocked.label},
                                 {"probability", blocked.probability},
                                 {"limit", blocked.limit},
                                 {"by", blocked.by},
                                 {"messages", messages}};
  if (!reply.empty()) line["reply"] = reply;
  file_.write(dump(line));
}

}  // namespace kaiju::server
