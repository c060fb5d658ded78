// Generates the traces of regimes.hpp: a conversation is a list of pieces, from which each turn composes its prompt.
#include "bench/replay/regimes.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/dice.hpp"

namespace kaiju::replay {
namespace {

constexpr double kHour = 3600;
constexpr int32_t kSpeakers = 4;                       // of a group
constexpr int32_t kNoteDepth = 4;                      // messages behind a lorebook's entries
constexpr int32_t kTailMost = 24;                      // tokens of a reply that come back otherwise
constexpr int32_t kEditDepth = 40;                     // messages
constexpr int32_t kLongLeast = 500, kLongMost = 6000;  // tokens of a tool's output, or of a visitor's message
constexpr double kVisitors = 3;                        // for each turn of a conversation

// Words that stay together: a message, or a part of one.
struct Piece {
  int32_t content = 0, first = 0, count = 0;
};

struct Conversation {
  int32_t character = 0;
  std::vector<Piece> messages;
  Piece entries, note;     // of the lorebook
  int32_t turns_left = 0;  // of this sitting
};

class Generator {
 public:
  Generator(Regime regime, const TrafficOptions& options) : regime_(regime), options_(options) {}

  Trace make() {
    trace_.characters = true;
    trace_.measured_from = options_.warm_up_hours * kHour;
    trace_.conversation_count = options_.conversations;
    make_characters();
    for (int32_t c = 0; c < options_.conversations; ++c) {
      dice_.emplace_back(options_.seed, static_cast<uint32_t>(c) + 1);
      Conversation& conversation = conversations_.emplace_back();
      begin(conversation, dice_.back());
      due_.push({sitting_gap(dice_.back()) * dice_.back().uniform(), c});
    }
    while (!due_.empty() && due_.top().first < end()) {
      const auto [seconds, c] = due_.top();
      due_.pop();
      turn(c, seconds);
    }
    std::stable_sort(trace_.requests.begin(), trace_.requests.end(),
                     [](const Request& a, const Request& b) { return a.seconds < b.seconds; });
    return std::move(trace_);
  }

 private:
  using Due = std::pair<double, int32_t>;  // seconds, conversation

  double end() const { return (options_.warm_up_hours + options_.hours) * kHour; }
  bool agents() const { return regime_ == Regime::kAgents; }
  double think(Dice& dice) const {
    const double median = agents() ? options_.think_seconds / 10 : options_.think_seconds;
    return options_.reply_seconds + dice.log_normal(median, options_.think_sigma);
  }
  double sitting_gap(Dice& dice) const { return dice.log_normal(options_.gap_hours * kHour, options_.gap_sigma); }
  static int32_t length(Dice& dice, double mean, int32_t most) {
    constexpr double kSigma = 0.7;
    return std::clamp(static_cast<int32_t>(dice.log_normal(mean * std::exp(-kSigma * kSigma / 2), kSigma)), 2, most);
  }
  Piece new_piece(int32_t count) { return {++contents_, 0, count}; }
  // A tool's output, or what a visitor pastes; at most a sixteenth of the context.
  Piece long_piece(Dice& dice) {
    const int32_t most = std::min(kLongMost, options_.context / 16);
    return new_piece(dice.between(std::min(kLongLeast, most), most));
  }

  void make_characters() {
    Dice dice(options_.seed, 0);
    double sum = 0;
    for (int32_t rank = 1; rank <= options_.characters; ++rank) {
      popularity_.push_back(sum += 1.0 / rank);
      cards_.push_back(new_piece(dice.between(options_.prompt_tokens_least, options_.prompt_tokens_most)));
    }
  }
  int32_t choose_character(Dice& dice) const {
    const double point = dice.uniform() * popularity_.back();
    return static_cast<int32_t>(std::upper_bound(popularity_.begin(), popularity_.end() - 1, point) -
                                popularity_.begin());
  }

  void begin(Conversation& conversation, Dice& dice) {
    conversation.character = choose_character(dice);
    conversation.messages.clear();
    conversation.entries = new_piece(dice.between(100, 600));
    conversation.note = new_piece(40);
  }

  void turn(int32_t c, double now) {
    Dice& dice = dice_[static_cast<size_t>(c)];
    Conversation& conversation = conversations_[static_cast<size_t>(c)];
    if (conversation.turns_left == 0) {
      conversation.turns_left = dice.geometric(options_.sitting_turns);
      if (agents() || dice.chance(options_.new_chat)) begin(conversation, dice);  // an agent's next task
    }
    change_history(conversation, dice);
    say(conversation, dice);
    const int32_t answers = regime_ == Regime::kGroup ? dice.between(1, 2) : 1;
    for (int32_t i = 0; i < answers; ++i) answer(c, now + i * options_.reply_seconds, dice);
    if (regime_ == Regime::kVisitors) visitors(now, dice);
    const bool leaves = --conversation.turns_left == 0;
    due_.push({now + (leaves ? sitting_gap(dice) : think(dice)), c});
  }

  // What a client does to a history before it sends it again.
  void change_history(Conversation& conversation, Dice& dice) {
    std::vector<Piece>& messages = conversation.messages;
    if (messages.empty()) return;
    if (regime_ == Regime::kRetokenised && dice.chance(0.5)) messages.back() = new_piece(messages.back().count);
    if (regime_ == Regime::kEdits && dice.chance(0.25)) {
      const auto depth = std::min<ptrdiff_t>(dice.between(1, kEditDepth), std::ssize(messages));
      const auto edited = messages.end() - depth;
      *edited = new_piece(edited->count);
      if (dice.chance(0.5)) messages.erase(edited + 1, messages.end());
    }
    if (regime_ == Regime::kLorebook && dice.chance(0.3)) conversation.entries = new_piece(dice.between(100, 600));
  }
  void say(Conversation& conversation, Dice& dice) {
    conversation.messages.push_back(agents() ? long_piece(dice)
                                             : new_piece(length(dice, options_.user_tokens, kUserTokensMost)));
  }

  void answer(int32_t c, double now, Dice& dice) {
    Conversation& conversation = conversations_[static_cast<size_t>(c)];
    fit(conversation);
    Request request;
    request.seconds = now;
    request.conversation = c;
    request.prompt = compose(conversation, dice);
    const int32_t count = length(dice, options_.reply_tokens, options_.reply_tokens_most);
    // The end of a reply is a text of its own, so that it may come back otherwise.
    const int32_t tail = regime_ == Regime::kRetokenised ? std::min(dice.between(1, kTailMost), count - 1) : 0;
    Piece reply{++contents_, trace_.texts[static_cast<size_t>(request.prompt)].end, count - tail};
    conversation.messages.push_back(reply);
    request.reply = text_behind(request.prompt, reply);
    if (tail > 0) {
      reply.first += reply.count, reply.count = tail;
      conversation.messages.push_back(reply);
      request.reply = text_behind(request.reply, reply);
    }
    trace_.requests.push_back(request);
  }

  // The end of the prompt: the head, the history, and between its messages what the regime puts there.
  int32_t compose(const Conversation& conversation, Dice& dice) {
    const auto& messages = conversation.messages;
    int32_t speaker = conversation.character;
    if (regime_ == Regime::kGroup) speaker = (speaker + dice.between(0, kSpeakers - 1)) % options_.characters;
    int32_t text = text_behind(kNone, cards_[static_cast<size_t>(speaker)]);
    const size_t note_at = messages.size() - std::min<size_t>(messages.size(), kNoteDepth);
    for (size_t i = 0; i < messages.size(); ++i) {
      if (regime_ == Regime::kLorebook && i == note_at)
        for (const Piece& piece : {conversation.entries, conversation.note}) text = text_behind(text, piece);
      text = text_behind(text, messages[i]);
    }
    return text;
  }
  // The text of these words behind these texts: the same one whenever a prompt has them there.
  int32_t text_behind(int32_t before, const Piece& piece) {
    const auto [place, added] = texts_.try_emplace({before, piece.content, piece.first, piece.count}, kNone);
    if (added) place->second = trace_.add(before, piece.count, piece.content, piece.first);
    return place->second;
  }
  // Drops the oldest messages when the next reply might not fit.
  void fit(Conversation& conversation) {
    constexpr int32_t kNotes = 640;
    const int32_t most = options_.context - options_.reply_tokens_most - kNotes - options_.prompt_tokens_most;
    auto& messages = conversation.messages;
    int32_t tokens = 0;
    for (const Piece& piece : messages) tokens += piece.count;
    if (tokens <= most) return;
    size_t first = 0;
    for (; first + 1 < messages.size() && tokens > most - options_.truncation_step; ++first)
      tokens -= messages[first].count;
    messages.erase(messages.begin(), messages.begin() + static_cast<ptrdiff_t>(first));
  }

  void visitors(double now, Dice& dice) {
    for (int32_t count = dice.geometric(kVisitors); count > 0; --count) {
      Request request;
      request.seconds = now + think(dice) * dice.uniform();
      request.conversation = trace_.conversation_count++;
      request.leaves = true;
      request.prompt =
          text_behind(text_behind(kNone, cards_[static_cast<size_t>(choose_character(dice))]), long_piece(dice));
      const Piece reply{++contents_, trace_.texts[static_cast<size_t>(request.prompt)].end,
                        length(dice, options_.reply_tokens, options_.reply_tokens_most)};
      request.reply = text_behind(request.prompt, reply);
      trace_.requests.push_back(request);
    }
  }

  Regime regime_;
  TrafficOptions options_;
  Trace trace_;
  std::vector<double> popularity_;  // cumulative
  std::vector<Piece> cards_;        // one a character
  std::vector<Conversation> conversations_;
  std::vector<Dice> dice_;  // one stream a conversation
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::map<std::tuple<int32_t, int32_t, int32_t, int32_t>, int32_t> texts_;
  int32_t contents_ = 0;
};

}  // namespace

std::optional<Regime> regime_called(std::string_view name) {
  const auto found = std::find(std::begin(kRegimeNames), std::end(kRegimeNames), name);
  if (found == std::end(kRegimeNames)) return std::nullopt;
  return static_cast<Regime>(found - std::begin(kRegimeNames));
}

Result<Trace> make_regime(Regime regime, const TrafficOptions& options) {
  KAIJU_TRY(check_traffic(options));
  return Generator(regime, options).make();
}

}  // namespace kaiju::replay
