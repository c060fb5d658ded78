// Generators of traces: a chat service, sessions one after another, and conversations in the middle of their hour.
#include "bench/replay/traffic.hpp"

#include <cmath>
#include <queue>
#include <string>

#include "bench/dice.hpp"

namespace kaiju::replay {
namespace {

constexpr double kHour = 3600;

struct Character {
  int32_t root = kNone;  // the text of the version that new sittings get
  double next_version = 0;
};

struct Conversation {
  int32_t character = 0;
  int32_t root = kNone;    // the version it was begun or resumed with
  int32_t prompt = kNone;  // of the last turn
  int32_t leaf = kNone;    // the last reply
  int32_t turns_left = 0;  // of this sitting
};

class Generator {
 public:
  explicit Generator(const TrafficOptions& options)
      : options_(options), popularity_(static_cast<size_t>(options.characters)) {}

  Trace make() {
    trace_.characters = true;
    trace_.conversation_count = options_.conversations;
    trace_.measured_from = options_.warm_up_hours * kHour;
    double sum = 0;
    for (size_t rank = 0; rank < popularity_.size(); ++rank)
      popularity_[rank] = sum += 1.0 / static_cast<double>(rank + 1);
    Dice dice(options_.seed, 0);
    characters_.resize(popularity_.size());
    for (Character& character : characters_) {
      write_version(character, dice);
      character.next_version = version_gap(dice);
    }
    for (int32_t c = 0; c < options_.conversations; ++c) {
      dice_.emplace_back(options_.seed, static_cast<uint32_t>(c) + 1);
      conversations_.emplace_back();
      begin(c);
    }
    std::stable_sort(trace_.requests.begin(), trace_.requests.end(), earlier);
    while (!due_.empty() && due_.top().seconds < end()) {
      const Due due = due_.top();
      due_.pop();
      turn(due.conversation, due.seconds);
    }
    std::stable_sort(trace_.requests.begin(), trace_.requests.end(),
                     earlier);  // a swipe was written before others' turns
    return std::move(trace_);
  }

 private:
  struct Due {
    double seconds;
    int32_t conversation;
    bool operator<(const Due& other) const {
      return seconds != other.seconds ? seconds > other.seconds : conversation > other.conversation;
    }
  };
  static bool earlier(const Request& a, const Request& b) { return a.seconds < b.seconds; }

  double end() const { return (options_.warm_up_hours + options_.hours) * kHour; }
  double think(Dice& dice) const {
    return options_.reply_seconds + dice.log_normal(options_.think_seconds, options_.think_sigma);
  }
  double version_gap(Dice& dice) const {
    return options_.versions_per_day > 0 ? -std::log(1 - dice.uniform()) * 24 * kHour / options_.versions_per_day
                                         : 1e300;
  }
  static int32_t length(Dice& dice, double mean, int32_t most) {
    constexpr double kSigma = 0.7;
    return std::clamp(static_cast<int32_t>(dice.log_normal(mean * std::exp(-kSigma * kSigma / 2), kSigma)), 2, most);
  }
  int32_t user_length(Dice& dice) const { return length(dice, options_.user_tokens, kUserTokensMost); }
  int32_t reply_length(Dice& dice) const { return length(dice, options_.reply_tokens, options_.reply_tokens_most); }
  int32_t most_before_reply() const { return options_.context - options_.reply_tokens_most; }

  void write_version(Character& character, Dice& dice) {
    character.root =
        trace_.add(kNone, dice.between(options_.prompt_tokens_least, options_.prompt_tokens_most), ++contents_);
  }
  int32_t choose_character(Dice& dice) const {
    const double point = dice.uniform() * popularity_.back();
    return static_cast<int32_t>(std::upper_bound(popularity_.begin(), popularity_.end() - 1, point) -
                                popularity_.begin());
  }
  int32_t add_user(int32_t before, Dice& dice) { return trace_.add(before, user_length(dice), ++contents_); }
  // A generated token is named by the position it was generated at, which is all that an executor knows.
  int32_t add_reply(int32_t before, Dice& dice) {
    return trace_.add(before, reply_length(dice), ++contents_, trace_.texts[static_cast<size_t>(before)].end);
  }

  // A conversation as it stands when the trace begins: in the middle of a sitting, or between two.
  void begin(int32_t c) {
    Dice& dice = dice_[static_cast<size_t>(c)];
    Conversation& conversation = conversations_[static_cast<size_t>(c)];
    conversation.character = choose_character(dice);
    conversation.root = characters_[static_cast<size_t>(conversation.character)].root;
    conversation.leaf = conversation.root;
    for (int32_t turns = dice.between(options_.messages_least, options_.messages_most) / 2; turns > 0; --turns) {
      conversation.prompt = add_user(fit(conversation), dice);
      conversation.leaf = add_reply(conversation.prompt, dice);
    }
    const double sitting =
        options_.sitting_turns *
        (options_.reply_seconds + options_.think_seconds * std::exp(options_.think_sigma * options_.think_sigma / 2));
    const double gap = options_.gap_hours * kHour * std::exp(options_.gap_sigma * options_.gap_sigma / 2);
    double age, rest;
    if (dice.chance(sitting / (sitting + gap))) {
      const double pause = think(dice);
      age = pause * dice.uniform();
      rest = pause - age;
      conversation.turns_left = dice.geometric(options_.sitting_turns);
    } else {
      // The gap that a moment falls into is longer than the usual one: log-normal again, the median up by exp(sigma^2).
      const double pause = dice.log_normal(
          options_.gap_hours * kHour * std::exp(options_.gap_sigma * options_.gap_sigma), options_.gap_sigma);
      age = pause * dice.uniform();
      rest = pause - age;
    }
    trace_.requests.push_back({-age, conversation.leaf, kNone, c, RequestKind::kEarlier, conversation.turns_left == 0});
    due_.push({rest, c});
  }

  void turn(int32_t c, double now) {
    Dice& dice = dice_[static_cast<size_t>(c)];
    Conversation& conversation = conversations_[static_cast<size_t>(c)];
    if (conversation.turns_left == 0) sit_down(conversation, dice, now);
    RequestKind kind = RequestKind::kTurn;
    if (dice.chance(options_.edit) && go_back(conversation, dice)) kind = RequestKind::kEdit;
    conversation.prompt = add_user(fit(conversation), dice);
    conversation.leaf = add_reply(conversation.prompt, dice);
    trace_.requests.push_back({now, conversation.prompt, conversation.leaf, c, kind, false});
    while (dice.chance(options_.swipe)) {
      now += think(dice) / 2;  // read, not answered
      if (now >= end()) return;
      conversation.leaf = add_reply(conversation.prompt, dice);
      trace_.requests.push_back({now, conversation.prompt, conversation.leaf, c, RequestKind::kSwipe, false});
    }
    if (--conversation.turns_left == 0) {
      trace_.requests.back().leaves = true;
      now += dice.log_normal(options_.gap_hours * kHour, options_.gap_sigma);
    } else {
      now += think(dice);
    }
    due_.push({now, c});
  }

  // The user is back: perhaps to begin anew, perhaps to find the character changed, which changes all that is behind
  // it.
  void sit_down(Conversation& conversation, Dice& dice, double now) {
    conversation.turns_left = dice.geometric(options_.sitting_turns);
    const bool anew = dice.chance(options_.new_chat);
    if (anew) conversation.character = choose_character(dice);
    Character& character = characters_[static_cast<size_t>(conversation.character)];
    if (character.next_version <= now) {
      write_version(character, dice);
      character.next_version = now + version_gap(dice);
    }
    if (anew)
      conversation.leaf = character.root;
    else if (conversation.root != character.root)
      conversation.leaf = move(messages(conversation), character.root);
    conversation.root = character.root;
  }

  // Back before the last message of the user, or one before it, or before that. False when the history is too short.
  bool go_back(Conversation& conversation, Dice& dice) {
    int32_t leaf = conversation.leaf;
    for (int32_t turns = dice.geometric(1.4); turns > 0; --turns)
      for (int32_t message = 0; message < 2; ++message) {
        if (leaf == conversation.root) return false;
        leaf = trace_.texts[static_cast<size_t>(leaf)].before;
      }
    conversation.leaf = leaf;
    return true;
  }

  // Its messages, oldest first.
  std::vector<int32_t> messages(const Conversation& conversation) const {
    std::vector<int32_t> found;
    for (int32_t text = conversation.leaf; text != conversation.root;
         text = trace_.texts[static_cast<size_t>(text)].before)
      found.push_back(text);
    std::reverse(found.begin(), found.end());
    return found;
  }
  // The same messages behind another text: to a cache they are other texts.
  int32_t move(const std::vector<int32_t>& messages, int32_t behind) {
    for (const int32_t message : messages) {
      const Text text = trace_.texts[static_cast<size_t>(message)];
      behind = trace_.add(behind, trace_.token_count(message), text.content, text.first);
    }
    return behind;
  }
  // The end of the history, shortened at its beginning if the next turn might not fit.
  int32_t fit(const Conversation& conversation) {
    const int32_t most = most_before_reply() - kUserTokensMost;
    if (trace_.texts[static_cast<size_t>(conversation.leaf)].end <= most) return conversation.leaf;
    std::vector<int32_t> kept = messages(conversation);
    int32_t tokens = trace_.texts[static_cast<size_t>(conversation.leaf)].end;
    size_t first = 0;
    while (first < kept.size() && tokens > most - options_.truncation_step) tokens -= trace_.token_count(kept[first++]);
    kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(first));
    return move(kept, conversation.root);
  }

  TrafficOptions options_;
  Trace trace_;
  std::vector<double> popularity_;  // cumulative
  std::vector<Character> characters_;
  std::vector<Conversation> conversations_;
  std::vector<Dice> dice_;  // one stream a conversation
  std::priority_queue<Due> due_;
  int32_t contents_ = 0;
};

}  // namespace

Status check_traffic(const TrafficOptions& options) {
  if (options.conversations < 1 || options.characters < 1)
    return invalid_argument("traffic needs at least one conversation and one character");
  if (options.prompt_tokens_least < 1 || options.prompt_tokens_least > options.prompt_tokens_most)
    return invalid_argument("prompt tokens: give the least and the most, in this order");
  if (options.messages_least < 0 || options.messages_least > options.messages_most)
    return invalid_argument("messages: give the least and the most, in this order");
  const int32_t least_context =
      options.prompt_tokens_most + options.truncation_step + options.reply_tokens_most + 2 * kUserTokensMost;
  if (options.context < least_context)
    return invalid_argument(
        "a context of " + std::to_string(options.context) +
        " tokens has no room for the longest character prompt, one truncation step and a turn: give at least " +
        std::to_string(least_context));
  return {};
}

Result<Trace> make_traffic(const TrafficOptions& options) {
  KAIJU_TRY(check_traffic(options));
  return Generator(options).make();
}

Trace make_in_turn(int32_t sessions, int32_t rounds, int32_t history_tokens) {
  constexpr double kTurnSeconds = 3;  // each is done before the next comes
  Trace trace;
  trace.conversation_count = sessions;
  trace.measured_from = sessions * kTurnSeconds;
  int32_t contents = 0;
  std::vector<int32_t> leaves;
  leaves.reserve(static_cast<size_t>(sessions));
  for (int32_t session = 0; session < sessions; ++session)
    leaves.push_back(trace.add(kNone, history_tokens, ++contents));
  for (int32_t round = 0; round < rounds; ++round)
    for (int32_t session = 0; session < sessions; ++session) {
      int32_t& leaf = leaves[static_cast<size_t>(session)];
      Request request;
      request.seconds = (round * sessions + session) * kTurnSeconds;
      request.prompt = trace.add(leaf, 30, ++contents);
      request.reply = leaf =
          trace.add(request.prompt, 100, ++contents, trace.texts[static_cast<size_t>(request.prompt)].end);
      request.conversation = session;
      trace.requests.push_back(request);
    }
  return trace;
}

namespace {

Trace with_characters(const ChatsOptions& options) {
  Trace trace;
  trace.characters = true;
  const int32_t before = options.cast * options.characters;
  for (int32_t i = 0; i < options.characters; ++i) trace.add(kNone, options.prompt_tokens, before + i + 1);
  return trace;
}

// The last content that is a character's.
int32_t last_character(const ChatsOptions& options) { return (options.cast + 1) * options.characters; }

// Cumulative, by rank.
std::vector<double> popularity_of(const ChatsOptions& options) {
  std::vector<double> popularity;
  double sum = 0;
  for (int32_t rank = 1; rank <= options.characters; ++rank) popularity.push_back(sum += std::pow(rank, -options.zipf));
  return popularity;
}

struct Chat {
  int32_t character = 0;
  double first_seconds = 0;  // when its first message comes
  int32_t history_tokens = 0;
};

Chat chat_of(const ChatsOptions& options, const std::vector<double>& popularity, int32_t conversation) {
  Dice dice(options.seed, static_cast<uint32_t>(conversation));
  const auto character = std::upper_bound(popularity.begin(), popularity.end() - 1, dice.uniform() * popularity.back());
  Chat chat;
  chat.character = static_cast<int32_t>(character - popularity.begin());
  chat.first_seconds = options.every_seconds * dice.uniform();
  const int32_t turn = options.user_tokens + options.reply_tokens;
  chat.history_tokens = static_cast<int32_t>(dice.uniform() * (2.0 * options.history_tokens / turn + 1)) * turn;
  return chat;
}

// The last text of what it said before the trace begins.
int32_t add_history(Trace& trace, const ChatsOptions& options, const Chat& chat, int32_t conversation) {
  if (chat.history_tokens == 0) return chat.character;
  return trace.add(chat.character, chat.history_tokens, last_character(options) + 1 + conversation);
}

}  // namespace

Trace make_chats(const ChatsOptions& options) {
  Trace trace = with_characters(options);
  const std::vector<double> popularity = popularity_of(options);
  trace.conversation_count = options.first_conversation + options.conversations;
  trace.measured_from = options.measured_from;
  int32_t contents = last_character(options) + trace.conversation_count;
  for (int32_t c = options.first_conversation; c < trace.conversation_count; ++c) {
    const Chat chat = chat_of(options, popularity, c);
    int32_t leaf = add_history(trace, options, chat, c);
    for (double seconds = chat.first_seconds; seconds < options.seconds; seconds += options.every_seconds) {
      const int32_t prompt = trace.add(leaf, options.user_tokens, ++contents);
      leaf = trace.add(prompt, options.reply_tokens, ++contents, trace.texts[static_cast<size_t>(prompt)].end);
      trace.requests.push_back(
          {seconds, prompt, leaf, c, RequestKind::kTurn, seconds + options.every_seconds >= options.seconds});
    }
  }
  std::stable_sort(trace.requests.begin(), trace.requests.end(),
                   [](const Request& a, const Request& b) { return a.seconds < b.seconds; });
  return trace;
}

Trace make_prompts(const ChatsOptions& options, int32_t first, int32_t count) {
  Trace trace = with_characters(options);
  trace.conversation_count = count;
  for (int32_t i = 0; i < count; ++i) trace.requests.push_back({0, first + i, kNone, i, RequestKind::kEarlier, true});
  return trace;
}

Trace make_histories(const ChatsOptions& options, int32_t first, int32_t count) {
  Trace trace = with_characters(options);
  const std::vector<double> popularity = popularity_of(options);
  trace.conversation_count = first + count;
  for (int32_t c = first; c < first + count; ++c)
    trace.requests.push_back(
        {0, add_history(trace, options, chat_of(options, popularity, c), c), kNone, c, RequestKind::kEarlier, true});
  return trace;
}

}  // namespace kaiju::replay
