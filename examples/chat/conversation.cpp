// A conversation over kaiju.h. The history is card + turns; before every reply the session is brought to it by cutting what differs and
// submitting the rest, so undo, retry and a cut in a long chat need nothing of their own.
#include "conversation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "utf8.hpp"

namespace chat {
namespace {

kaiju_message message(int32_t role, const std::string& text) { return {role, 0, text.data(), text.size()}; }

const char* finish_name(int32_t reason) {
  return reason == KAIJU_DONE_STOP ? "stop" : reason == KAIJU_DONE_LENGTH ? "length" : "cancelled";
}

OptionsHandle sampling_options(const Sampling& sampling) {
  OptionsHandle options = make<OptionsHandle>([](kaiju_options** out, kaiju_error**) { return kaiju_options_create(out); });
  const auto set_int = [&](kaiju_option option, int64_t value) {
    must([&](kaiju_error** error) { return kaiju_options_set_int(options.get(), option, value, error); });
  };
  const auto set_float = [&](kaiju_option option, double value) {
    must([&](kaiju_error** error) { return kaiju_options_set_float(options.get(), option, value, error); });
  };
  set_float(KAIJU_GENERATE_TEMPERATURE, sampling.temperature);
  set_float(KAIJU_GENERATE_TOP_P, sampling.top_p);
  set_float(KAIJU_GENERATE_MIN_P, sampling.min_p);
  set_int(KAIJU_GENERATE_TOP_K, sampling.top_k);
  set_float(KAIJU_GENERATE_REPETITION_PENALTY, sampling.repetition_penalty);
  set_int(KAIJU_GENERATE_SEED, static_cast<int64_t>(sampling.seed));
  return options;
}

}  // namespace

Conversation::Conversation(kaiju_model* model, kaiju_engine* engine, Card card, const Sampling& sampling, const std::string& card_file)
    : model_(model),
      engine_(engine),
      options_(sampling_options(sampling)),
      card_(std::move(card)),
      max_tokens_(sampling.max_tokens),
      seed_(sampling.seed),
      greedy_(sampling.temperature == 0),
      context_(static_cast<size_t>(kaiju_model_number(model, KAIJU_MODEL_CONTEXT))) {
  session_ = make<SessionHandle>([&](kaiju_session** out, kaiju_error** error) { return kaiju_session_create(engine_, out, error); });
  const std::string text = card_.name + "\n" + card_.description;
  card_tokens_ = format({message(KAIJU_ROLE_CARD, text)}, 0);
  if (!card_.greeting.empty()) {
    Turn greeting;
    greeting.tokens = format({message(KAIJU_ROLE_CHARACTER, card_.greeting)}, 0);
    turns_.push_back(std::move(greeting));
  }
  const size_t used = tokens_in_context();
  if (used > context_ / 2)
    throw Problem(
        fmt::format("{}:1: the card and its greeting are {} tokens long; this model has room for {}", card_file, used, context_ / 2));
}

size_t Conversation::tokens_in_context() const {
  size_t count = card_tokens_.size();
  for (size_t i = dropped_; i < turns_.size(); ++i) count += turns_[i].tokens.size();
  return count;
}

std::vector<int32_t> Conversation::format(const std::vector<kaiju_message>& messages, int32_t flags) const {
  std::vector<int32_t> tokens;
  size_t count = 0;
  const auto call = [&](kaiju_error** error) {
    return kaiju_chat_format(model_, messages.data(), sizeof(kaiju_message), messages.size(), flags, tokens.data(), tokens.size(), &count,
                             error);
  };
  must(call);
  tokens.resize(count);
  must(call);
  return tokens;
}

std::vector<Exchange> Conversation::exchanges() const {
  std::vector<Exchange> out;
  for (size_t i = first_exchange(); i < turns_.size(); ++i) out.push_back(turns_[i].said);
  return out;
}

void Conversation::need_exchange() const {
  if (turns_.size() == first_exchange()) throw Problem("nothing was said yet");
}

const std::string& Conversation::last_question() const {
  need_exchange();
  return turns_.back().said.question;
}

Conversation::Turn Conversation::ask(const std::string& text) const {
  if (const size_t bad = utf8_error(text); bad != std::string::npos)
    throw Problem(fmt::format("the message is not UTF-8 at byte {}", bad + 1));
  Turn turn;
  turn.said.question = text;
  turn.prompt = format({message(KAIJU_ROLE_USER, text)}, KAIJU_CHAT_REPLY);
  return turn;
}

Reply Conversation::say(const std::string& text, const OnText& on_text) { return answer(ask(text), on_text); }

Reply Conversation::retry(const OnText& on_text) {
  need_exchange();
  if (greedy_) throw Problem("at temperature 0 there is only one reply; start with a higher --temperature");
  Turn turn = turns_.back();
  ++turn.said.retries;
  return answer_instead(std::move(turn), on_text);
}

Reply Conversation::edit(const std::string& text, const OnText& on_text) {
  need_exchange();
  return answer_instead(ask(text), on_text);
}

Reply Conversation::answer_instead(Turn turn, const OnText& on_text) {
  Turn before = std::move(turns_.back());
  turns_.pop_back();
  try {
    return answer(std::move(turn), on_text);
  } catch (...) {
    turns_.push_back(std::move(before));
    throw;
  }
}

std::string Conversation::undo() {
  need_exchange();
  const std::string question = turns_.back().said.question;
  turns_.pop_back();
  dropped_ = std::min(dropped_, turns_.size());
  return question;
}

void Conversation::restore(const std::vector<Exchange>& exchanges) {
  for (const Exchange& each : exchanges) {
    Turn turn = ask(each.question);
    turn.said = each;
    turn.tokens = format({message(KAIJU_ROLE_USER, each.question), message(KAIJU_ROLE_CHARACTER, each.reply)}, 0);
    turns_.push_back(std::move(turn));
  }
}

Reply Conversation::answer(Turn turn, const OnText& on_text) {
  const auto max_tokens = static_cast<size_t>(std::max<int64_t>(max_tokens_, 1));
  const size_t reserved = std::clamp<size_t>(context_ / 4, 1, max_tokens);
  std::vector<size_t> sizes;
  for (const Turn& each : turns_) sizes.push_back(each.tokens.size());
  sizes.push_back(turn.prompt.size());
  const size_t drop = kaiju_chat_turns_to_drop(sizes.data(), sizes.size(), card_tokens_.size(), reserved, context_);

  std::vector<int32_t> history = card_tokens_;
  for (size_t i = drop; i < turns_.size(); ++i) history.insert(history.end(), turns_[i].tokens.begin(), turns_[i].tokens.end());
  const size_t start = history.size();
  history.insert(history.end(), turn.prompt.begin(), turn.prompt.end());
  if (history.size() + reserved > context_)
    throw Problem(
        fmt::format("the message is {} tokens long; this model has room for {}", turn.prompt.size(), context_ - reserved - start));

  const size_t room = std::min(max_tokens, context_ - history.size());
  if (drop > dropped_ && card_session_) fork(card_session_, session_);
  Reply reply = collect(submit(history, turn, static_cast<int64_t>(room)), on_text);
  reply.turns_dropped = drop > dropped_ ? drop - dropped_ : 0;
  dropped_ = drop;

  // What was said, closed as the format wants it: a reply may have ended for length or at another symbol.
  const std::vector<int32_t> now = session_tokens();
  turn.tokens.assign(now.begin() + static_cast<std::ptrdiff_t>(std::min(start, now.size())), now.end());
  if (turn.tokens.size() > turn.prompt.size() && is_symbol(turn.tokens.back())) turn.tokens.pop_back();
  const std::vector<int32_t> close = format({}, KAIJU_CHAT_CLOSE);
  turn.tokens.insert(turn.tokens.end(), close.begin(), close.end());
  turn.said.reply = reply.text;
  turns_.push_back(std::move(turn));
  reply.exchange = turns_.size() - first_exchange();
  reply.retries = turns_.back().said.retries;
  if (!card_session_) fork(session_, card_session_);
  return reply;
}

void Conversation::fork(const SessionHandle& from, SessionHandle& to) {
  to = make<SessionHandle>(
      [&](kaiju_session** out, kaiju_error** error) { return kaiju_session_fork(from.get(), card_tokens_.size(), out, error); });
}

kaiju_request Conversation::submit(const std::vector<int32_t>& history, const Turn& turn, int64_t max_tokens) {
  must([&](kaiju_error** error) { return kaiju_options_set_int(options_.get(), KAIJU_GENERATE_MAX_TOKENS, max_tokens, error); });
  must([&](kaiju_error** error) { return kaiju_options_set_int(options_.get(), KAIJU_GENERATE_STREAM, turn.said.retries, error); });

  const std::vector<int32_t> now = session_tokens();
  const auto same = static_cast<size_t>(std::mismatch(now.begin(), now.end(), history.begin(), history.end()).first - now.begin());
  if (same < now.size()) must([&](kaiju_error** error) { return kaiju_session_truncate(session_.get(), same, error); });
  kaiju_request request = 0;
  must([&](kaiju_error** error) {
    return kaiju_engine_submit(engine_, session_.get(), history.data() + same, history.size() - same, options_.get(), nullptr, &request,
                               error);
  });
  return request;
}

Reply Conversation::collect(kaiju_request request, const OnText& on_text) {
  Reply reply;
  bool stopped = false;
  const auto tell = [&](std::string_view text) {
    if (stopped || on_text(text)) return;
    stopped = true;
    kaiju_engine_cancel(engine_, request);
  };
  while (true) {
    must([&](kaiju_error** error) { return kaiju_engine_step(engine_, error); });
    kaiju_event events[16];
    const size_t count = kaiju_engine_poll(engine_, events, sizeof events[0], std::size(events));
    for (const kaiju_event& event : std::span(events, count)) {
      if (event.request != request) continue;
      std::string_view text(event.text, event.text_size);
      if (event.kind == KAIJU_EVENT_FAILED) throw Problem(std::string(text));
      if (reply.text.empty()) text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));  // a word's own space
      reply.text += text;
      if (!text.empty()) tell(text);
      if (event.kind != KAIJU_EVENT_DONE) continue;
      reply.finish = finish_name(event.reason);
      reply.prompt_tokens = event.prompt_tokens;
      reply.cached_tokens = event.cached_tokens;
      reply.generated_tokens = event.generated_tokens;
      reply.prefill_seconds = static_cast<double>(event.prefill_nanoseconds) * 1e-9;
      reply.decode_seconds = static_cast<double>(event.decode_nanoseconds) * 1e-9;
      return reply;
    }
    tell({});
  }
}

std::vector<int32_t> Conversation::session_tokens() const {
  std::vector<int32_t> tokens(kaiju_session_tokens(session_.get(), nullptr, 0));
  kaiju_session_tokens(session_.get(), tokens.data(), tokens.size());
  return tokens;
}

bool Conversation::is_symbol(int32_t token) const {
  for (int32_t property = KAIJU_MODEL_CHAT_BEGIN; property <= KAIJU_MODEL_CHAT_TEXT; ++property)
    if (kaiju_model_number(model_, property) == token) return true;
  return false;
}

}  // namespace chat
