// Replies computed again from their records. See records.hpp.
#include <algorithm>

#include "kaiju/cache/prefix_tree.hpp"
#include "kaiju/records.hpp"

namespace kaiju {
namespace {

// The reply went on until something other than the tokens ended it.
bool was_cut_off(const ReplyRecord& record) {
  return record.reason == DoneReason::kCancelled || record.reason == DoneReason::kDeadline ||
         record.reason == DoneReason::kRefused;
}

// Limits of labels that this engine's model has not are left out. But for beams, verdicts end nothing.
RequestOptions options_again(const ReplyRecord& record, const std::vector<std::string>& labels) {
  RequestOptions options = record.options;
  options.scope = {};
  options.priority = 0;
  options.record = false;
  options.scores = !labels.empty();
  options.safety.tier.clear();
  std::erase_if(options.safety.limits, [&](const auto& limit) {
    return std::find(labels.begin(), labels.end(), limit.first) == labels.end();
  });
  options.safety.hold_back = 0;
  options.safety.reports = options.safety.active() && options.beams.width == 0;
  if (!options.safety.active()) options.safety = {};
  return options;
}

// A text that is scored one token after the last makes the verdict on the last one.
size_t tokens_to_hear(const ReplyRecord& record) {
  const size_t recorded = record.tokens->size() - static_cast<size_t>(record.prompt_tokens);
  if (!was_cut_off(record)) return recorded + 1;
  return record.reason == DoneReason::kRefused ? recorded + 1 : std::max<size_t>(1, recorded);
}

// What has come of the reply that is compared.
struct Hearing {
  std::vector<int32_t> reply;
  bool ended = false;
  Event end;

  void hear(const Event& event, int32_t sequence) {
    if (event.sequence != sequence && event.kind != EventKind::kFailed) return;
    if (event.kind == EventKind::kToken) {
      reply.resize(static_cast<size_t>(event.counts.generated) - 1);
      reply.push_back(event.token);
      return;
    }
    ended =
        event.kind == EventKind::kDone || event.kind == EventKind::kSequenceDone || event.kind == EventKind::kFailed;
    if (ended) end = event;
  }
};

Status hear_out(Engine& engine, RequestId request, int32_t sequence, size_t enough, Hearing& hearing) {
  bool cancelled = false;
  while (engine.pending() > 0) {
    KAIJU_TRY(engine.step());
    for (Event event; engine.poll(event);)
      if (event.request == request && !hearing.ended) hearing.hear(event, sequence);
    if (cancelled || (!hearing.ended && hearing.reply.size() < enough)) continue;
    cancelled = true;
    KAIJU_TRY(engine.cancel(request));
  }
  return hearing.end.kind == EventKind::kFailed ? hearing.end.status : Status();
}

Result<Replayed> compare(const ReplyRecord& record, Hearing hearing) {
  const std::span<const int32_t> recorded =
      std::span(*record.tokens).subspan(static_cast<size_t>(record.prompt_tokens));
  Replayed replayed;
  replayed.reply = std::move(hearing.reply);
  if (was_cut_off(record) && replayed.reply.size() > recorded.size()) replayed.reply.resize(recorded.size());
  const auto [now, then] =
      std::mismatch(replayed.reply.begin(), replayed.reply.end(), recorded.begin(), recorded.end());
  if (now != replayed.reply.end() || then != recorded.end()) {
    replayed.differs_at = static_cast<int32_t>(then - recorded.begin());
    if (now != replayed.reply.end()) replayed.reply.erase(now + 1, replayed.reply.end());
  }
  replayed.reason = hearing.end.reason;
  replayed.statistics = hearing.end.statistics;
  for (const LabelStatistics& label : replayed.statistics)
    replayed.refused |= label.longest_run >= static_cast<float>(record.options.safety.run);
  replayed.refused |= replayed.reason == DoneReason::kRefused;
  return replayed;
}

}  // namespace

Result<Replayed> replay(Engine& engine, const ReplyRecord& record) {
  if (record.options.guided || record.hooked)
    return Status(StatusCode::kUnsupported,
                  record.hooked ? "the reply had a logits hook, which its record does not have"
                                : "the reply was guided, and its record does not have what the host allowed");
  if (!record.tokens || record.prompt_tokens < 1 || static_cast<size_t>(record.prompt_tokens) > record.tokens->size())
    return invalid_argument("the record has no prompt");
  if (engine.pending() > 0) return Status(StatusCode::kBusy, "the engine has requests: replay with one that has none");
  Result<SessionId> session = engine.create_session();
  if (!session.ok()) return session.status();
  const std::span<const int32_t> tokens = *record.tokens;
  const auto prompt = static_cast<size_t>(record.prompt_tokens);
  Result<RequestId> request =
      engine.submit(*session, tokens.first(prompt), options_again(record, engine.info().labels));
  Status status = request.status();
  Hearing hearing;
  const int32_t sequence = record.options.beams.width > 0 ? record.sequence : 0;
  if (status.ok()) status = hear_out(engine, *request, sequence, tokens_to_hear(record), hearing);
  (void)engine.destroy_session(*session);
  if (!status.ok()) return status;
  Result<Replayed> replayed = compare(record, std::move(hearing));
  replayed->same_model = engine.cache().identity() == record.identity && engine.cache().epoch() == record.epoch;
  return replayed;
}

}  // namespace kaiju
