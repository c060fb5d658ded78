// Implements Conversation with kaiju_conversation, and converts between text and tokens. A greeting is a turn without
// input.
#include "conversation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "utf8.hpp"

namespace chat {
namespace {

const char* finish_name(int32_t reason) {
  return reason == KAIJU_DONE_STOP_TOKEN || reason == KAIJU_DONE_STOP_STRING ? "stop"
         : reason == KAIJU_DONE_LENGTH                                       ? "length"
         : reason == KAIJU_DONE_LOOP                                         ? "circle"
         : reason == KAIJU_DONE_REFUSED                                      ? "refused"
                                                                             : "cancelled";
}

// What two texts have in common if they differ only in spaces at the beginning, which a reply is shown without, and in
// bytes that are not UTF-8, which are shown as U+FFFD.
std::string without_bad_bytes(std::string_view text) {
  constexpr uint32_t kReplacement = 0xFFFD;
  std::string good;
  uint32_t code = 0;
  for (size_t size = 0; !text.empty(); text.remove_prefix(size)) {
    size = utf8_next(text, code);
    if (size > 0 && code != kReplacement) good += text.substr(0, size);
    size = std::max<size_t>(size, 1);
  }
  return good.erase(0, std::min(good.find_first_not_of(' '), good.size()));
}

// Where the text ends without U+FFFD at its end: half a character, of which the rest may never come.
size_t whole_end(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  while (text.ends_with(kReplacement)) text.remove_suffix(kReplacement.size());
  return text.size();
}

size_t context_of(kaiju_model* model) {
  int64_t context = 0;
  must([&](kaiju_error**) { return kaiju_model_number(model, KAIJU_MODEL_CONTEXT, &context); });
  return static_cast<size_t>(context);
}

kaiju_message message(int32_t role, const std::string& text) {
  kaiju_message made{};
  made.role = role;
  made.content = text.data();
  made.content_size = text.size();
  return made;
}

// A bag whose setters throw Problem.
struct Bag {
  OptionsHandle handle =
      make<OptionsHandle>([](kaiju_options** out, kaiju_error**) { return kaiju_options_create(out); });

  void set(kaiju_option option, int64_t value) {
    must([&](kaiju_error** error) { return kaiju_options_set_int(handle.get(), option, value, error); });
  }
  void set_float(kaiju_option option, double value) {
    must([&](kaiju_error** error) { return kaiju_options_set_float(handle.get(), option, value, error); });
  }
  void set_text(kaiju_option option, std::string_view text) {
    must([&](kaiju_error** error) {
      return kaiju_options_set_string(handle.get(), option, text.data(), text.size(), error);
    });
  }
};

void set_search(Bag& bag, double guidance, const std::vector<std::string>& labels) {
  bag.set(KAIJU_GENERATE_BEAMS, kBeams);
  bag.set_float(KAIJU_GENERATE_GUIDANCE, guidance);
  // Somebody who is in pain has not said anything wrong.
  if (std::ranges::find(labels, "distress") != labels.end()) bag.set_text(KAIJU_GENERATE_LABEL_WEIGHT, "distress=0");
}

void set_sampling(Bag& bag, const Sampling& sampling) {
  bag.set_float(KAIJU_GENERATE_TEMPERATURE, sampling.temperature);
  bag.set_float(KAIJU_GENERATE_TOP_P, sampling.top_p);
  bag.set_float(KAIJU_GENERATE_MIN_P, sampling.min_p);
  bag.set(KAIJU_GENERATE_TOP_K, sampling.top_k);
  bag.set_float(KAIJU_GENERATE_REPETITION_PENALTY, sampling.repetition_penalty);
  bag.set(KAIJU_GENERATE_SEED, static_cast<int64_t>(sampling.seed));
}

// `card` names what every conversation with this character begins with.
OptionsHandle reply_options(const Sampling& sampling, const std::string& card, const std::vector<std::string>& labels) {
  constexpr int64_t kHoldBack = 4;  // texts that are judged before a word is shown
  Bag bag;
  if (sampling.guidance)
    set_search(bag, *sampling.guidance, labels);
  else
    set_sampling(bag, sampling);
  if (!sampling.tier.empty()) bag.set_text(KAIJU_GENERATE_TIER, sampling.tier);
  if (!sampling.tier.empty() && !sampling.guidance) bag.set(KAIJU_GENERATE_HOLD_BACK, kHoldBack);
  if (!labels.empty() && !sampling.guidance) bag.set(KAIJU_GENERATE_SCORES, 1);
  bag.set(KAIJU_GENERATE_LOOP_GUARD, sampling.circles ? 0 : 1);
  bag.set(KAIJU_GENERATE_MAX_TOKENS, std::max<int64_t>(sampling.max_tokens, 1));
  bag.set_text(KAIJU_SESSION_CHARACTER, card);
  return std::move(bag.handle);
}

}  // namespace

Conversation::Conversation(kaiju_model* model, kaiju_engine* engine, Card card, const Sampling& sampling,
                           const std::string& card_file)
    : model_(model),
      engine_(engine),
      card_(std::move(card)),
      seed_(sampling.seed),
      one_reply_(sampling.guidance || sampling.temperature == 0),
      labels_(labels_of(model)),
      context_(context_of(model)) {
  const std::string text = card_.name + "\n" + card_.description;
  options_ = reply_options(sampling, text, labels_);
  const std::vector<int32_t> head = format({message(KAIJU_ROLE_CARD, text)});
  std::vector<int32_t> with_greeting = head;
  if (!card_.greeting.empty())
    with_greeting = format({message(KAIJU_ROLE_CARD, text), message(KAIJU_ROLE_CHARACTER, card_.greeting)});
  if (with_greeting.size() > context_ / 2)
    throw Problem(fmt::format("{}:1: the card and its greeting are {} tokens long; this model has room for {}",
                              card_file, with_greeting.size(), context_ / 2));
  talk_ = make<ConversationHandle>([&](kaiju_conversation** out, kaiju_error** error) {
    return kaiju_conversation_create(engine_, head.data(), head.size(), out, error);
  });
  if (card_.greeting.empty()) return;
  // The turn is what the greeting adds, without the close, which the conversation adds to every turn.
  const auto end = with_greeting.end() - static_cast<std::ptrdiff_t>(format({}, KAIJU_CHAT_CLOSE).size());
  append({}, {with_greeting.begin() + static_cast<std::ptrdiff_t>(head.size()), end});
}

kaiju_conversation_info Conversation::describe(const ConversationHandle& talk) {
  kaiju_conversation_info info{};
  info.struct_size = sizeof info;
  kaiju_conversation_describe(talk.get(), &info);
  return info;
}

std::vector<int32_t> Conversation::format(const std::vector<kaiju_message>& messages, int32_t flags) const {
  std::vector<int32_t> tokens;
  size_t count = 0;
  const auto call = [&](kaiju_error** error) {
    return kaiju_chat_format(model_, messages.data(), sizeof(kaiju_message), messages.size(), flags, tokens.data(),
                             tokens.size(), &count, error);
  };
  must(call);
  tokens.resize(count);
  must(call);
  return tokens;
}

std::vector<int32_t> Conversation::asked(const std::string& text) const {
  return format({message(KAIJU_ROLE_USER, text)}, KAIJU_CHAT_REPLY);
}

std::vector<int32_t> Conversation::said_by_character(const std::string& text) const {
  std::vector<int32_t> tokens;
  size_t count = 0;
  const auto call = [&](kaiju_error** error) {
    return kaiju_tokenize(model_, text.data(), text.size(), tokens.data(), tokens.size(), &count, error);
  };
  must(call);
  tokens.resize(count);
  must(call);
  return tokens;
}

void Conversation::need_turn() const {
  if (turns_.empty()) throw Problem("there is no turn yet: say something first");
}

const std::string& Conversation::last_said() const {
  need_turn();
  return turns_.back().said;
}

Reply Conversation::say(const std::string& text, const OnText& on_text) {
  Reply reply = say_in(talk_, text, on_text);
  turns_.push_back({text, reply.text, 0});
  return reply;
}

Reply Conversation::retry(const OnText& on_text) {
  need_turn();
  if (one_reply_)
    throw Problem("at temperature 0 and with --guidance there is only one reply; start with a higher --temperature");
  // The conversation counts the streams of the replies it was asked for; those of a chat that was loaded come on top.
  const uint32_t retries = turns_.back().retries + 1;
  Reply reply = answer(talk_, retries - describe(talk_).replies, on_text,
                       [&](auto... arguments) { return kaiju_conversation_swipe(talk_.get(), arguments...); });
  turns_.back().reply = reply.text;
  turns_.back().retries = retries;
  return reply;
}

Reply Conversation::edit(const std::string& text, const OnText& on_text) {
  need_turn();
  ConversationHandle before = make<ConversationHandle>([&](kaiju_conversation** out, kaiju_error** error) {
    return kaiju_conversation_fork(talk_.get(), describe(talk_).turns - 1, out, error);
  });
  Reply reply = say_in(before, text, on_text);
  talk_ = std::move(before);
  turns_.back() = {text, reply.text, 0};
  return reply;
}

std::string Conversation::undo() {
  need_turn();
  must([&](kaiju_error** error) { return kaiju_conversation_undo(talk_.get(), error); });
  std::string said = turns_.back().said;
  turns_.pop_back();
  return said;
}

size_t Conversation::restore(const std::vector<Turn>& turns) {
  size_t misspelt = 0;
  for (const Turn& each : turns) {
    const bool use = each.reply_tokens && spells(*each.reply_tokens, each.reply);
    misspelt += each.reply_tokens && !use;
    append(asked(each.said), use ? *each.reply_tokens : said_by_character(each.reply));
  }
  turns_ = turns;
  return misspelt;
}

std::vector<Turn> Conversation::turns_with_tokens() const {
  std::vector<Turn> all = turns_;
  const size_t first = card_.greeting.empty() ? 0 : 1;  // the greeting is a turn of its own
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<int32_t> tokens;
    size_t count = 0;
    const auto call = [&](kaiju_error** error) {
      return kaiju_conversation_turn(talk_.get(), first + i, KAIJU_TURN_REPLY, tokens.data(), tokens.size(), &count,
                                     error);
    };
    must(call);
    tokens.resize(count);
    must(call);
    // Others are those of the text, which a restore makes again.
    if (spells(tokens, all[i].reply))
      all[i].reply_tokens = std::move(tokens);
    else
      all[i].reply_tokens.reset();
  }
  return all;
}

bool Conversation::spells(const std::vector<int32_t>& tokens, const std::string& reply) const {
  std::string text;
  size_t size = 0;
  const auto call = [&] {
    return kaiju_detokenize(model_, tokens.data(), tokens.size(), text.data(), text.size(), &size, nullptr);
  };
  if (call() != KAIJU_OK) return false;  // another model's
  text.resize(size);
  return call() == KAIJU_OK && without_bad_bytes(text) == without_bad_bytes(reply);
}

void Conversation::append(const std::vector<int32_t>& input, const std::vector<int32_t>& reply) {
  must([&](kaiju_error** error) {
    return kaiju_conversation_append(talk_.get(), input.data(), input.size(), reply.data(), reply.size(), error);
  });
}

Reply Conversation::say_in(const ConversationHandle& talk, const std::string& text, const OnText& on_text) {
  if (const std::string problem = not_utf8(text); !problem.empty()) throw Problem(problem);
  const std::vector<int32_t> input = asked(text);
  return answer(talk, 0, on_text, [&](auto... arguments) {
    return kaiju_conversation_say(talk.get(), input.data(), input.size(), arguments...);
  });
}

template <class Submit>
Reply Conversation::answer(const ConversationHandle& talk, size_t stream, const OnText& on_text, const Submit& submit) {
  const size_t dropped = without_greeting(describe(talk).turns_dropped);
  if (!one_reply_)
    must([&](kaiju_error** error) {
      return kaiju_options_set_int(options_.get(), KAIJU_GENERATE_VARIANT, static_cast<int64_t>(stream), error);
    });
  kaiju_request request = 0;
  must([&](kaiju_error** error) { return submit(options_.get(), nullptr, &request, error); });
  Reply reply = collect(request, on_text);
  const kaiju_conversation_info info = describe(talk);
  const size_t dropped_now = without_greeting(info.turns_dropped);
  reply.turns_dropped = dropped_now - std::min(dropped, dropped_now);
  return reply;
}

Reply Conversation::collect(kaiju_request request, const OnText& on_text) {
  Reply reply;
  size_t told = 0;
  bool stopped = false;
  const auto stop = [&] {
    stopped = true;
    kaiju_engine_cancel(engine_, request);
  };
  const auto tell = [&](size_t end) {
    const std::string_view text = std::string_view(reply.text).substr(told, end - std::min(told, end));
    told += text.size();
    if (!on_text(text) && !stopped) stop();
  };
  const auto hear = [&](std::string_view text) {
    if (reply.text.empty())
      text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));  // a word's own space
    reply.text += text;
    if (text.empty() || stopped) return;
    tell(std::max(whole_end(reply.text), told));
  };
  while (true) {
    must([&](kaiju_error** error) { return kaiju_engine_step(engine_, error); });
    kaiju_event events[16];
    size_t count = 0;
    must([&](kaiju_error** error) {
      return kaiju_engine_poll(engine_, events, sizeof events[0], std::size(events), &count, error);
    });
    for (const kaiju_event& event : std::span(events, count)) {
      if (event.request != request) continue;
      const std::string_view text(event.text, event.text_size);
      if (event.kind == KAIJU_EVENT_FAILED) throw Problem(std::string(text));
      hear(text);
      if (event.kind != KAIJU_EVENT_DONE) continue;
      reply.finish = finish_name(event.reason);
      reply.scores = scores_of(event, labels_);
      if (event.reason == KAIJU_DONE_REFUSED && static_cast<size_t>(event.label) < labels_.size())
        reply.refused_label = labels_[static_cast<size_t>(event.label)];
      if (reply.finish != "stop") reply.text.resize(std::max(whole_end(reply.text), told));
      tell(reply.text.size());
      reply.prompt_tokens = event.prompt_tokens;
      reply.cached_tokens = event.cached_tokens;
      reply.generated_tokens = event.generated_tokens;
      reply.prefill_seconds = static_cast<double>(event.prefill_nanoseconds) * 1e-9;
      reply.decode_seconds = static_cast<double>(event.decode_nanoseconds) * 1e-9;
      return reply;
    }
    tell(told);
  }
}

}  // namespace chat
