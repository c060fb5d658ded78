#include "openai.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "begun.hpp"
#include "failure.hpp"
#include "grammar.hpp"
#include "moves.hpp"
#include "recorder.hpp"

namespace kaiju::server {

const Tokenizer& Service::tokenizer() const {
  auto tokenizer = model().tokenizer();
  if (!tokenizer.ok()) throw of_status(tokenizer.status());
  return **tokenizer;
}

const ChatFormat& Service::chat() const {
  auto chat = model().chat();
  if (!chat.ok()) throw of_status(chat.status());
  return **chat;
}

void complete(Service& service, const Served& at, const Tenant& tenant, const Fields& fields, size_t prompt_tokens,
              Wanted& wanted) {
  RequestOptions& options = wanted.options;
  const size_t context = at.context();
  if (prompt_tokens >= context)
    throw Failure{400,
                  fmt::format("the prompt has {} tokens, and the model's context is {}: shorten the messages",
                              prompt_tokens, context),
                  "messages", "context_length_exceeded"};
  const auto room = static_cast<int32_t>(context - prompt_tokens);
  if (!wanted.max_tokens_given) options.max_tokens = std::min(options.max_tokens, room);
  if (options.max_tokens > room)
    throw Failure{
        400,
        fmt::format("the prompt has {} tokens and max_tokens is {}, together more than the model's context of {}",
                    prompt_tokens, options.max_tokens, context),
        "max_tokens", "context_length_exceeded"};
  if (wanted.min_tokens > options.max_tokens) throw bad_request("min_tokens must be at most max_tokens", "min_tokens");
  options.scope.salt = service.tenants.salt(tenant, fields.text("cache_salt"));
  options.scope.tenant = tenant.name;
  options.deadline = at.engine().now() + std::chrono::seconds(service.request_seconds);
}

namespace {

AnswerForm form_of(const Wanted& wanted) { return wanted.stream ? AnswerForm::kStream : AnswerForm::kWhole; }

// A request that never reaches the engine: all of its choices end refused.
Run blocked_run(Service& service, const Seat& at, const Tenant& tenant, const Wanted& wanted, size_t prompt_tokens,
                const Blocked& blocked) {
  Run run;
  run.at = at;
  run.choices.resize(static_cast<size_t>(wanted.best_of));
  for (Choice& choice : run.choices) choice.blocked = blocked;
  run.shown = true;  // its time is none of a reply's
  run.events = std::make_shared<ReplyEvents>(service.io, service.tenants.shares().ask(*tenant.account, 0));
  service.gate.refuse(run.events, wanted.options.sequence_count, static_cast<int32_t>(prompt_tokens), form_of(wanted));
  return run;
}

}  // namespace

Run start(Service& service, const Seat& at, const Tenant& tenant, const Wanted& wanted, const Asked& asked,
          std::unique_ptr<Guide> guide, Driver::Keep keep) {
  if (const auto blocked = service.gate.judge(asked.said, wanted.gate_limits)) {
    Run run = blocked_run(service, at, tenant, wanted, asked.tokens.size(), *blocked);
    if (wanted.token_ids) run.prompt = asked.tokens;
    return run;
  }
  Run run;
  run.at = at;
  run.choices.resize(static_cast<size_t>(wanted.best_of));
  RequestOptions options = wanted.options;
  if (wanted.min_tokens > 0) {
    const std::vector<int32_t> stops = options.stop_tokens ? *options.stop_tokens : at->model->stop_tokens();
    guide = at_least(wanted.min_tokens, stops, at->model->config().vocab_size, options.sequence_count);
  }
  options.guided = guide != nullptr;
  const std::vector<int32_t> tokens = begin_reply(asked, options, guide.get());
  if (!asked.begun.empty()) run.choices[0].tokens.assign(asked.begun.begin(), asked.begun.end() - 1);
  run.begun = asked.begun;
  if (wanted.token_ids) run.prompt = asked.tokens;
  const int64_t most = static_cast<int64_t>(tokens.size()) + int64_t{options.max_tokens} * options.sequence_count;
  auto share = service.tenants.shares().ask(*tenant.account, most);
  options.priority = share->priority();
  run.events = std::make_shared<ReplyEvents>(service.io, std::move(share));
  options.record = service.recorder.records();
  if (options.record)
    run.events->on_record = [&service, user = journal_user(tenant, wanted.user)](const Event& event) {
      service.recorder.add(user, event.record);
    };
  auto request = at.driver().submit(tokens, options, run.events, std::move(guide), std::move(keep));
  if (!request.ok() && !asked.begun.empty() && request.status().code() == StatusCode::kUnsupported)
    throw Failure{400, request.status().message(), "reply_token_ids", "not_continuable"};
  if (!request.ok()) throw of_status(request.status());
  run.request = *request;
  return run;
}

void cancel(const Run& run) {
  if (!run.done && run.request != 0) run.at.driver().cancel(run.request);
}

namespace {

double seconds(int64_t ns) { return 1e-9 * static_cast<double>(ns); }

void measure_token(Metrics& metrics, CheckpointCounts& counts, Choice& choice, const RequestTiming& timing,
                   bool first) {
  if (first) {
    metrics.first_token.add(seconds(timing.wait_ns + timing.prefill_ns));
    counts.first_token.add(seconds(timing.wait_ns + timing.prefill_ns));
  } else {
    metrics.between_tokens.add(seconds(timing.decode_ns - choice.decode_ns));
  }
  choice.decode_ns = timing.decode_ns;
}

// Of a request that ended.
void measure(Metrics& metrics, const Event& event) {
  const RequestTiming& timing = event.timing;
  metrics.waited.add(seconds(timing.wait_ns));
  metrics.whole.add(seconds(timing.wait_ns + timing.prefill_ns + timing.decode_ns));
  if (event.counts.generated > 1) metrics.a_token.add(seconds(timing.decode_ns) / (event.counts.generated - 1));
}

}  // namespace

namespace {

// Tells the gate how long a client waited for what it sees first.
void measure_shown(Service& service, const Wanted& wanted, Run& run, const Event& event) {
  const bool text = event.kind == EventKind::kToken && !event.text.empty();
  const bool end = event.kind == EventKind::kDone;
  if (run.shown || !(end || (text && wanted.stream))) return;
  run.shown = true;
  if (event.reason == DoneReason::kRefused || event.reason == DoneReason::kCancelled) return;
  const auto waited = std::chrono::steady_clock::now() - run.started;
  service.gate.answered(form_of(wanted), std::chrono::duration<double>(waited).count());
}

// The limit that a verdict says was reached.
Blocked verdict_of(const Service& service, const Wanted& wanted, const Event& event) {
  const std::vector<std::string>& labels = service.model().config().labels;
  const auto index = static_cast<size_t>(event.label);
  const std::string label = index < labels.size() ? labels[index] : "";
  return {"head", label, static_cast<double>(event.probability), service.tiers.limit(wanted, label)};
}

}  // namespace

asio::awaitable<void> next(Service& service, const Wanted& wanted, Run& run, const UseEvent& use) {
  for (const Event& event : co_await run.events->take()) {
    if (event.kind == EventKind::kFailed) {
      run.done = true;
      throw of_status(event.status);
    }
    const auto index = static_cast<size_t>(event.sequence);
    if (index >= run.choices.size()) continue;
    Choice& choice = run.choices[index];
    measure_shown(service, wanted, run, event);
    const bool first = choice.tokens.size() + 1 == run.first_tokens();
    if (event.kind == EventKind::kToken) measure_token(service.metrics, run.at->counts, choice, event.timing, first);
    choice.add(event);
    check_begun(run);
    if (event.reason == DoneReason::kRefused && !choice.blocked) choice.blocked = verdict_of(service, wanted, event);
    use(index, event);
    if (event.kind != EventKind::kDone) continue;
    run.done = true;
    run.counts = event.counts;
    run.reuse = event.reuse;
    if (run.request != 0) measure(service.metrics, event);
  }
}

namespace {

// The n likeliest choices, by log-probability a token, as indices.
std::vector<size_t> best(const std::vector<Choice>& choices, int32_t n) {
  std::vector<size_t> order(choices.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](size_t i) {
    return choices[i].logprob / static_cast<double>(std::max<size_t>(choices[i].tokens.size(), 1));
  };
  if (order.size() > static_cast<size_t>(n))
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score(a) > score(b); });
  order.resize(static_cast<size_t>(n));
  return order;
}

struct Sums {
  int64_t prompt = 0, cached = 0, generated = 0;  // generated: here
  int64_t begun = 0;                              // of the prompts, what other servers generated
};
Sums sums_of(const std::vector<Run>& runs) {
  Sums sums;
  for (const Run& run : runs) {
    sums.prompt += run.counts.prompt_tokens;
    sums.cached += run.counts.cached_tokens;
    for (const Choice& choice : run.choices) sums.generated += static_cast<int64_t>(choice.tokens.size());
    if (run.begun.empty()) continue;
    sums.begun += std::ssize(run.begun) - 1;
    sums.generated -= std::ssize(run.begun) - 1;
  }
  return sums;
}

// One choice's reason, or the list of several's.
nlohmann::ordered_json reasons_of(const std::vector<Run>& runs) {
  nlohmann::ordered_json reasons = nlohmann::ordered_json::array();
  for (const Run& run : runs)
    for (const Choice& choice : run.choices) reasons.push_back(text_or_null(finish_reason(choice.reason)));
  return reasons.size() == 1 ? reasons[0] : reasons;
}

nlohmann::ordered_json usage_of(const std::vector<Run>& runs) {
  const Sums sums = sums_of(runs);
  const int64_t prompt = sums.prompt - sums.begun;
  nlohmann::ordered_json details{{"cached_tokens", std::min(sums.cached, prompt)}};
  if (runs.size() == 1) add_reuse(details, runs[0].reuse);
  return {{"prompt_tokens", prompt},
          {"completion_tokens", sums.generated + sums.begun},
          {"total_tokens", sums.prompt + sums.generated},
          {"prompt_tokens_details", std::move(details)}};
}

}  // namespace

void count_disconnect(Service& service, Exchange& exchange, const Tenant& tenant) {
  exchange.log["client_left"] = true;
  ++service.metrics.disconnects;
  ++tenant.account->disconnects;
}

void count_finished(Service& service, Exchange& exchange, const std::vector<Run>& runs, const std::string& character) {
  const Sums sums = sums_of(runs);
  std::map<std::string, Surprise>& all = service.metrics.surprise;
  const bool named = all.contains(character) || all.size() < Metrics::kMostCharacters;
  Surprise& surprise = all[named ? character : "others"];
  for (const Run& run : runs) {
    CheckpointCounts& counts = run.at->counts;
    for (const Choice& choice : run.choices) {
      if (const char* reason = finish_reason(choice.reason))
        ++service.metrics.finished[reason], ++counts.finished[reason];
      for (Surprise* const sum : {&surprise, &counts.surprise}) {
        sum->nats -= choice.logprob;
        sum->tokens += choice.tokens.size() - (run.first_tokens() - 1);
      }
    }
  }
  exchange.log["finish_reason"] = reasons_of(runs);
  exchange.log["prompt_tokens"] = sums.prompt;
  exchange.log["cached_tokens"] = sums.cached;
  if (runs.size() == 1) add_reuse(exchange.log, runs[0].reuse);
  exchange.log["generated_tokens"] = sums.generated;
}

void count_blocked(Service& service, Exchange& exchange, const Tenant& tenant, const Wanted& wanted, const Run& run,
                   const std::function<nlohmann::ordered_json()>& messages) {
  for (const Choice& choice : run.choices) {
    if (!choice.blocked) continue;
    const Blocked& blocked = *choice.blocked;
    ++service.metrics.blocked[{blocked.by, wanted.tier, blocked.label}];
    exchange.log["blocked"] = {{"by", blocked.by}, {"label", blocked.label}};
    if (service.blocked_log.writes())
      service.blocked_log.write(exchange, tenant.name, wanted.tier, blocked, messages(), choice.text);
    if (run.request == 0) return;  // one message, whatever the number of choices
  }
}

std::string token_text(const Service& service, int32_t token) { return std::string(service.tokenizer().piece(token)); }

nlohmann::ordered_json text_or_null(const char* text) {
  return text ? nlohmann::ordered_json(text) : nlohmann::ordered_json();
}

std::string dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Completion::Completion(Service& service, Exchange& exchange, const Form& form)
    : service_(service),
      exchange_(exchange),
      body_(exchange.json()),
      fields_(body_),
      tenant_(service.tenants.of(exchange)),
      form_(form) {}

asio::awaitable<void> Completion::answer() {
  service_.tenants.admit(tenant_);
  const AtOnce counted(tenant_);
  wanted_ = read_wanted(fields_, form_.chat, service_.defaults, service_.model());
  wanted_.user = fields_.text("user");
  wanted_.token_ids = fields_.flag("return_token_ids", false);
  service_.tiers.apply(tenant_, wanted_);
  exchange_.on_gone = [this] {
    gone_ = true;
    count_disconnect(service_, exchange_, tenant_);
    cancel();
  };
  std::exception_ptr failed;
  try {
    co_await submit();
    if (wanted_.stream)
      co_await stream();
    else
      co_await whole();
  } catch (...) {
    failed = std::current_exception();
  }
  if (!failed) co_return;
  cancel();  // nobody reads it
  if (gone_ && !exchange_.log.contains("finish_reason")) exchange_.log["finish_reason"] = "abort";
  std::rethrow_exception(failed);
}

asio::awaitable<void> Completion::submit() {
  const Grammar grammar = read_grammar(fields_, exchange_.body(), wanted_);
  co_await prepare();
  std::vector<Asked> prompts = read_prompts();
  prompts[0].begun = read_begun(fields_, wanted_, service_.model().config().vocab_size);
  if (prompts.size() > 1 && !prompts[0].begun.empty())
    throw bad_request("reply_token_ids needs a single prompt", "reply_token_ids");
  const std::string chat = tenant_.name + "/" + chat_name();
  const std::string key = wanted_.user.empty() ? chat : tenant_.name + "/" + wanted_.user;
  at_ = Seat(service_.checkpoints.place(key, began()), prompts[0].character, chat);
  exchange_.log["checkpoint"] = at_->name;
  for (const Asked& prompt : prompts) {
    Wanted wanted = wanted_;
    complete(service_, *at_, tenant_, fields_, prompt.tokens.size(), wanted);
    wanted.options.scope.character = prompt.character;
    wanted.options.scope.shared_tokens = prompt.shared_tokens;
    co_await service_.moves->bring(at_, wanted.options.scope, prompt.tokens, std::string(), 0);
    std::unique_ptr<Guide> guide = co_await service_.grammars.guide(grammar, wanted.best_of);
    if (gone_) throw bad_request("the client left");
    runs_.push_back(start(service_, at_, tenant_, wanted, prompt, std::move(guide)));
  }
}

void Completion::cancel() {
  for (const Run& run : runs_) server::cancel(run);
}

void Completion::finish() {
  finished();
  count_finished(service_, exchange_, runs_, "-");
  for (size_t r = 0; r < runs_.size(); ++r)
    count_blocked(service_, exchange_, tenant_, wanted_, runs_[r], [&] { return messages(r); });
}

asio::awaitable<void> Completion::whole() {
  for (size_t r = 0; r < runs_.size(); ++r) {
    const UseEvent use = [&](size_t choice, const Event& event) { take(r, choice, event); };
    while (!runs_[r].done) co_await next(service_, wanted_, runs_[r], use);
  }
  finish();
  co_await exchange_.answer(whole_answer());
}

asio::awaitable<void> Completion::stream() {
  co_await exchange_.begin_events();
  for (size_t r = 0; r < runs_.size(); ++r) {  // one prompt after the other: the events of the others wait
    std::vector<std::string> chunks;
    add_first_chunks(r, chunks);
    for (std::string& one : chunks) co_await exchange_.event(std::move(one));
    const UseEvent use = [&](size_t choice, const Event& event) {
      add_chunks(r, choice, event, chunks);
      take(r, choice, event);
    };
    while (!runs_[r].done) {
      chunks.clear();
      co_await next(service_, wanted_, runs_[r], use);
      for (std::string& one : chunks) co_await exchange_.event(std::move(one));
      // Events of a later prompt waited for the one before it.
      if (!chunks.empty() && r == 0) service_.metrics.event_to_socket.add(runs_[r].events->seconds());
    }
  }
  finish();
  if (wanted_.usage_in_stream) co_await exchange_.event(usage_chunk());
  co_await exchange_.end_events();
}

// GCC 12 does not compile lists in braces inside a coroutine: what is answered is made by the functions below.
Completion::Json Completion::head(const char* object) const {
  return {{"id", form_.id + exchange_.id},
          {"object", object},
          {"created", created_},
          {"model", service_.model_name},
          {"system_fingerprint", at_->digest().substr(0, 16)}};
}

Completion::Json Completion::whole_answer() const {
  Json answer = head(form_.whole);
  answer["choices"] = Json::array();
  for (size_t r = 0; r < runs_.size(); ++r)
    for (const size_t i : best(runs_[r].choices, wanted_.n)) {
      Json choice = {{"index", answer["choices"].size()}};
      choice.update(whole_choice(r, i));
      choice["finish_reason"] = text_or_null(finish_reason(runs_[r].choices[i].reason));
      if (wanted_.token_ids) choice["token_ids"] = runs_[r].choices[i].tokens;
      if (wanted_.token_ids && !form_.chat) choice["prompt_token_ids"] = runs_[r].prompt;
      answer["choices"].push_back(std::move(choice));
    }
  if (wanted_.token_ids && form_.chat) answer["prompt_token_ids"] = runs_[0].prompt;
  answer["usage"] = usage_of(runs_);
  return answer;
}

std::string Completion::chunk(size_t run, size_t choice, const Json& fields, bool prompt) const {
  if (chunk_head_.empty()) {
    chunk_head_ = dump(head(form_.chunk));
    chunk_head_.pop_back();
  }
  return fmt::format(R"({}{},"choices":[{{"index":{},{}]{}}})", chunk_head_,
                     prompt ? R"(,"prompt_token_ids":)" + dump(runs_[run].prompt) : "",
                     run * runs_[run].choices.size() + choice, dump(fields).substr(1),
                     wanted_.usage_in_stream ? R"(,"usage":null)" : "");
}

std::vector<int32_t> Completion::tokens_of(size_t run, size_t choice, const Event& event) const {
  if (event.kind != EventKind::kToken) return {};
  const std::vector<int32_t>& all = runs_[run].choices[choice].tokens;
  return all.size() == runs_[run].first_tokens() ? all : std::vector<int32_t>{event.token};
}

std::string Completion::usage_chunk() const {
  Json data = head(form_.chunk);
  data["choices"] = Json::array();
  data["usage"] = usage_of(runs_);
  return dump(data);
}

}  // namespace kaiju::server
