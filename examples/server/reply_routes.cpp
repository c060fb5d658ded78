// /chats/{}/say, swipe and stop over HTTP: replies to a chat's turns are generated, sent and kept.
#include <algorithm>
#include <optional>

#include "failure.hpp"
#include "moves.hpp"
#include "openai.hpp"
#include "routes.hpp"

namespace kaiju::server {

using Json = nlohmann::ordered_json;

namespace {

// A turn that is to be answered.
struct AskedTurn {
  LoadedChat loaded;  // `chat.turns` are those before this one
  Turn turn;
  size_t index = 0;    // of the turn
  size_t earlier = 0;  // replies that it has already
};

const char* reason_of(DoneReason reason) {
  switch (reason) {
    case DoneReason::kLength:
      return "length";
    case DoneReason::kLoop:
      return "loop";
    case DoneReason::kCancelled:
    case DoneReason::kDeadline:
      return "cancelled";
    case DoneReason::kRefused:
      return "refused";
    default:
      return "stop";
  }
}

// A reply that goes on behind "NAME:" begins with a space, which is no part of what is shown.
std::string_view shown(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

Json done_json(size_t index, const Reply& kept, const ReuseReport& reuse) {
  Json done = {{"done", true},
               {"turn", index},
               {"reply", kept.text},
               {"reason", kept.reason},
               {"prompt_tokens", kept.prompt_tokens},
               {"cached_tokens", kept.cached_tokens},
               {"generated_tokens", kept.generated_tokens}};
  add_reuse(done, reuse);
  return done;
}

Scope scope_of(const Tenants& tenants, const Tenant& tenant, const std::string& cache_salt, const Cast& cast) {
  Scope scope;
  scope.salt = tenants.salt(tenant, cache_salt);
  scope.tenant = tenant.name;
  scope.character = cast.region;
  scope.shared_tokens = static_cast<int32_t>(cast.head.size());
  return scope;
}

// One reply to a turn, from what the request wants to its last byte.
class TurnReply {
 public:
  TurnReply(StoredChats& chats, Exchange& exchange, const Fields& fields, AskedTurn asked)
      : chats_(chats),
        service_(chats.service),
        exchange_(exchange),
        fields_(fields),
        tenant_(service_.tenants.of(exchange)),
        asked_(std::move(asked)),
        at_(chats.place(asked_.loaded)) {}

  // Generates the reply, sends it while it comes, and keeps it before its end is told.
  asio::awaitable<void> answer();

 private:
  const std::string& id() const { return asked_.loaded.id; }
  Scope scope() const;
  std::vector<int32_t> prompt() const;
  asio::awaitable<void> bring_kv();
  void start_run(std::unique_ptr<Guide> guide);
  void add_piece(const Event& event, std::vector<std::string>& pieces);
  asio::awaitable<void> send(std::vector<std::string>& pieces);
  Reply reply() const;
  WantedKv history(const Reply& kept) const;
  Json messages() const;
  asio::awaitable<void> keep(const Reply& kept);
  Status store_reply(Store& store, const Reply& kept) const;

  StoredChats& chats_;
  Service& service_;
  Exchange& exchange_;
  const Fields& fields_;
  Tenant& tenant_;
  const AskedTurn asked_;
  const Seat at_;
  Wanted wanted_;
  std::vector<int32_t> prompt_;
  Run run_;
  bool gone_ = false;   // the client left
  bool begun_ = false;  // some text was sent
};

asio::awaitable<void> TurnReply::answer() {
  wanted_ = read_wanted(fields_, true, service_.defaults, service_.model());
  service_.tiers.apply(tenant_, wanted_);
  if (wanted_.n != 1) throw bad_request("n must be 1: ask again with swipe", "n");
  const Grammar grammar = read_grammar(fields_, exchange_.body(), wanted_);
  (void)fields_.has("cache_salt");
  fields_.refuse_others();
  std::unique_ptr<Guide> guide = co_await service_.grammars.guide(grammar, 1);
  exchange_.log["checkpoint"] = at_->name;
  prompt_ = prompt();
  co_await bring_kv();
  chats_.busy.check_idle(id());  // another may have begun while the chat was loaded
  service_.tenants.admit(tenant_);
  const AtOnce counted(tenant_);
  start_run(std::move(guide));
  BusyChats::Mark mark(chats_.busy, id(), run_);
  exchange_.on_gone = [this] {
    count_disconnect(service_, exchange_, tenant_);
    gone_ = true;
    cancel(run_);
  };
  if (wanted_.stream) co_await exchange_.begin_events();
  while (!run_.done) {
    std::vector<std::string> pieces;
    co_await next(service_, wanted_, run_, [&](size_t, const Event& event) { add_piece(event, pieces); });
    if (wanted_.stream) co_await send(pieces);
  }
  const Reply kept = reply();
  co_await keep(kept);
  service_.moves->replied(id(), asked_.index + 1, history(kept));
  count_finished(service_, exchange_, std::vector<Run>(1, run_), asked_.turn.speaker);
  count_blocked(service_, exchange_, tenant_, wanted_, run_, [this] { return messages(); });
  mark.end();
  if (gone_) throw boost::system::system_error(asio::error::connection_reset);
  const Json done = done_json(asked_.index, kept, run_.reuse);
  if (wanted_.stream) {
    co_await exchange_.event(dump(done));
    co_await exchange_.end_events();
  } else {
    co_await exchange_.answer(done);
  }
}

std::vector<int32_t> TurnReply::prompt() const {
  const size_t context = at_->context();
  const size_t reserved = std::min<size_t>(context / 4, static_cast<size_t>(wanted_.options.max_tokens));
  const LoadedChat& loaded = asked_.loaded;
  return turn_prompt(chats_.format(), loaded.cast, loaded.chat.turns, asked_.turn.input_tokens, reserved, context);
}

// What the last run of this server or a peer has of the chat.
asio::awaitable<void> TurnReply::bring_kv() {
  if (chats_.kv) exchange_.log["restored"] = co_await chats_.kv->restore(id(), at_.driver(), scope());
  co_await service_.moves->bring(at_, scope(), prompt_, id(), asked_.index);
}

void TurnReply::start_run(std::unique_ptr<Guide> guide) {
  RequestOptions& options = wanted_.options;
  if (!fields_.has("loop_guard")) options.loop_guard = true;
  Asked asked;
  asked.tokens = std::move(prompt_);
  asked.said = asked_.turn.user.value_or("");
  wanted_.max_tokens_given = false;  // cut to the room that there is
  complete(service_, *at_, tenant_, fields_, asked.tokens.size(), wanted_);
  options.sampling.variant = static_cast<uint32_t>(asked_.earlier);
  options.scope = scope();
  Driver::Keep hold;
  if (chats_.kv)
    hold = [kv = chats_.kv, at = &*at_, driver = &at_.driver(), chat = id()](SessionId session) {
      kv->hold(chat, *at, *driver, session);
    };
  run_ = start(service_, at_, tenant_, wanted_, asked, std::move(guide), std::move(hold));
}

Scope TurnReply::scope() const {
  return scope_of(service_.tenants, tenant_, fields_.text("cache_salt"), asked_.loaded.cast);
}

void TurnReply::add_piece(const Event& event, std::vector<std::string>& pieces) {
  const std::string_view text = begun_ ? std::string_view(event.text) : shown(event.text);
  if (text.empty()) return;
  begun_ = true;
  pieces.push_back(dump(one_field("text", text)));
}

// A client that left does not take the reply with it: what was written until then is kept.
asio::awaitable<void> TurnReply::send(std::vector<std::string>& pieces) {
  try {
    for (std::string& piece : pieces)
      if (!gone_) co_await exchange_.event(std::move(piece));
    if (!pieces.empty() && !gone_) service_.metrics.event_to_socket.add(run_.events->seconds());
  } catch (const boost::system::system_error&) {
    gone_ = true;
    cancel(run_);
  }
}

Reply TurnReply::reply() const {
  const Choice& choice = run_.choices[0];
  Reply kept;
  kept.text = shown(choice.text);
  kept.tokens = choice.tokens;
  kept.reason = reason_of(choice.reason);
  if (choice.reason == DoneReason::kStopToken && !kept.tokens.empty()) kept.tokens.pop_back();
  // Where a stop string or a circle was cut off, the tokens are those of the text that was shown.
  if (choice.reason == DoneReason::kStopString || choice.reason == DoneReason::kLoop)
    if (auto tokens = service_.tokenizer().encode(choice.text); tokens.ok()) kept.tokens = *tokens;
  kept.prompt_tokens = run_.counts.prompt_tokens;
  kept.cached_tokens = run_.counts.cached_tokens;
  kept.generated_tokens = run_.counts.generated;
  return kept;
}

// The tokens that the next turn begins with.
WantedKv TurnReply::history(const Reply& kept) const {
  WantedKv history{prompt(), scope()};
  history.tokens.insert(history.tokens.end(), kept.tokens.begin(), kept.tokens.end());
  return history;
}

// The chat until now, as OpenAI has messages.
Json TurnReply::messages() const {
  Json list = Json::array();
  const auto add = [&](const char* role, const std::string& text) {
    list.push_back({{"role", role}, {"content", text}});
  };
  for (const Turn& turn : asked_.loaded.chat.turns) {
    if (turn.user) add("user", *turn.user);
    if (turn.chosen >= 0) add("assistant", turn.replies[static_cast<size_t>(turn.chosen)].text);
  }
  if (asked_.turn.user) add("user", *asked_.turn.user);
  return list;
}

asio::awaitable<void> TurnReply::keep(const Reply& kept) {
  try {
    co_await chats_.store.run([&](Store& store) { return store_reply(store, kept); });
  } catch (const Failure&) {
    if (chats_.kv) chats_.kv->forget(id());  // the chat may have been deleted meanwhile
    throw;
  }
}

Status TurnReply::store_reply(Store& store, const Reply& kept) const {
  const std::string& owner = asked_.loaded.owner;
  const std::vector<Turn>& before = asked_.loaded.chat.turns;
  const auto index = static_cast<int64_t>(asked_.index);
  Turn turn = asked_.turn;
  const bool first = asked_.earlier == 0 && turn.replies.empty();
  // A turn whose text was edited is there already, without replies.
  if (!first || index < asked_.loaded.chat.turn_count) {
    auto added = store.add_reply(owner, id(), index, kept);
    return added.ok() ? Status() : added.status();
  }
  turn.replies = {kept};
  turn.chosen = 0;
  KAIJU_TRY(store.append_turn(owner, id(), index, turn));
  const bool titled =
      turn.user && std::none_of(before.begin(), before.end(), [](const Turn& one) { return one.user.has_value(); });
  return titled ? store.set_title(owner, id(), title_of(*turn.user)) : Status();
}

// A line of the swipe log (examples/train/swipes.py) where the user goes on after other replies to the newest turn.
std::optional<std::string> swiped_line(const Cast& cast, const std::vector<Turn>& turns) {
  if (turns.empty() || !turns.back().user || turns.back().chosen < 0 || turns.back().replies.size() < 2) return {};
  Json line = {{"card", cast.cards[0].name + "\n" + cast.cards[0].description}, {"turns", Json::array()}};
  const auto chosen = [](const Turn& turn) { return static_cast<size_t>(turn.chosen); };
  for (const Turn& turn : turns) {
    if (turn.user) line["turns"].push_back({"user", *turn.user});
    if (&turn != &turns.back() && turn.chosen >= 0) line["turns"].push_back({"char", turn.replies[chosen(turn)].text});
  }
  const Turn& newest = turns.back();
  line["kept"] = newest.replies[chosen(newest)].text;
  line["swiped"] = Json::array();
  for (size_t i = 0; i < newest.replies.size(); ++i)
    if (i != chosen(newest)) line["swiped"].push_back(newest.replies[i].text);
  return dump(line);
}

asio::awaitable<void> say(StoredChats& chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json_or_nothing();
  const Fields fields(body);
  AskedTurn asked;
  asked.loaded = co_await chats.load_idle(exchange);
  const Cast& cast = asked.loaded.cast;
  const Chat& chat = asked.loaded.chat;
  Turn& turn = asked.turn;
  if (fields.has("text")) turn.user = fields.text("text");
  const size_t speaker = cast.index_of(fields.text("speaker", cast.ids[0].id));
  turn.speaker = cast.ids[speaker].id;
  if (!turn.user && cast.ids.size() == 1) throw bad_request("text is missing: what the user says", "text");
  turn.input_tokens = input_tokens(chats.format(), cast, speaker, chat.turns, turn.user, chat.user);
  asked.index = chat.turns.size();
  const bool logs = fields.flag("log_swipes", false) && chats.service.swipe_log.writes();
  const std::optional<std::string> swiped = logs ? swiped_line(cast, chat.turns) : std::nullopt;
  TurnReply reply(chats, exchange, fields, std::move(asked));
  co_await reply.answer();
  if (swiped) chats.service.swipe_log.write(*swiped);
}

asio::awaitable<void> swipe(StoredChats& chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json_or_nothing();
  const Fields fields(body);
  AskedTurn asked;
  asked.loaded = co_await chats.load_idle(exchange);
  std::vector<Turn>& turns = asked.loaded.chat.turns;
  if (turns.empty()) throw bad_request("there is no turn to answer again");
  asked.turn = turns.back();
  if (asked.turn.input_tokens.empty())
    throw bad_request("the newest turn is a greeting: there is nothing to answer again");
  turns.pop_back();
  asked.index = turns.size();
  asked.earlier = asked.turn.replies.size();
  TurnReply reply(chats, exchange, fields, std::move(asked));
  co_await reply.answer();
}

asio::awaitable<void> stop_reply(StoredChats& chats, Exchange& exchange) {
  refuse_fields(exchange);
  const LoadedChat loaded = co_await chats.load(exchange);  // its owner's only
  co_await exchange.answer(one_field("stopped", chats.busy.cancel(loaded.id)));
}

Json prefetched_json(const RequestCounts& counts) {
  return {{"tokens", counts.prompt_tokens}, {"cached_tokens", counts.cached_tokens}};
}

// The user of a chat has begun to type: its KV is brought up before the message comes.
asio::awaitable<void> typing(StoredChats& chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json_or_nothing();
  const Fields fields(body);
  Service& service = chats.service;
  const Tenant& tenant = service.tenants.of(exchange);
  const std::string cache_salt = fields.text("cache_salt");
  fields.refuse_others();
  const LoadedChat loaded = co_await chats.load_idle(exchange);
  const Scope scope = scope_of(service.tenants, tenant, cache_salt, loaded.cast);
  const Seat at = chats.place(loaded);
  exchange.log["checkpoint"] = at->name;
  if (chats.kv) exchange.log["restored"] = co_await chats.kv->restore(loaded.id, at.driver(), scope);
  const size_t context = at->context();
  const std::vector<int32_t> prompt =
      turn_prompt(chats.format(), loaded.cast, loaded.chat.turns, {}, context / 4, context);
  const auto events = std::make_shared<ReplyEvents>(service.io, nullptr);
  co_await service.moves->bring(at, scope, prompt, loaded.id, loaded.chat.turns.size());
  if (const auto begun = at.driver().prefetch(prompt, scope, events); !begun.ok()) throw of_status(begun.status());
  const std::deque<Event> ended = co_await events->take();
  const RequestCounts counts = ended.back().counts;
  co_await exchange.answer(prefetched_json(counts));
}

}  // namespace

void add_reply_routes(StoredChats& chats) {
  chats.route("POST", "/chats/{}/say", say);
  chats.route("POST", "/chats/{}/swipe", swipe);
  chats.route("POST", "/chats/{}/stop", stop_reply);
  chats.route("POST", "/chats/{}/typing", typing);
}

}  // namespace kaiju::server
