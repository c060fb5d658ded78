// Implements drive(): sessions of conversations, virtual time, and the counts.
#include "bench/replay/drive.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <string>

namespace kaiju::replay {
namespace {

class Driver {
 public:
  Driver(const Trace& trace, Engine& engine, const DriveOptions& options)
      : trace_(trace),
        engine_(engine),
        options_(options),
        places_(static_cast<size_t>(trace.conversation_count)),
        running_(trace.requests.size()) {}

  Result<Driven> run() {
    size_t next = 0;
    now_ = trace_.requests.empty() ? 0 : trace_.requests.front().seconds;
    for (;;) {
      for (; next < trace_.requests.size() && trace_.requests[next].seconds <= now_; ++next)
        KAIJU_TRY(arrive(static_cast<int32_t>(next)));
      if (unfinished_ == 0) {
        if (next == trace_.requests.size()) break;
        now_ = trace_.requests[next].seconds;
        continue;
      }
      KAIJU_TRY(step());
      KAIJU_TRY(read_events());
      if (options_.on_step && !options_.on_step(now_, engine_.metrics())) break;
    }
    Figures& figures = driven_.figures;
    if (!measuring_) begin_measuring();
    const Metrics metrics = engine_.metrics();
    figures.cache = minus(metrics.cache, before_.cache);
    figures.decoded = metrics.tokens_decoded - before_.tokens_decoded;
    figures.prefilled = metrics.tokens_prefilled - before_.tokens_prefilled;
    figures.steps = metrics.steps - before_.steps;
    figures.host_seconds -= 1e-9 * static_cast<double>(metrics.step_ns - before_.step_ns);
    figures.seconds = now_ - trace_.measured_from;
    std::copy(metrics.blocks.begin(), metrics.blocks.end(), figures.blocks.begin());
    figures.host = metrics.host;
    for (const auto member :
         {&TierStats::blocks_in, &TierStats::blocks_out, &TierStats::bytes_in, &TierStats::bytes_out})
      figures.host.*member -= before_.host.*member;
    std::sort(figures.first_token_ms.begin(), figures.first_token_ms.end());
    return std::move(driven_);
  }

 private:
  // One conversation's session, while its user is here.
  struct Place {
    SessionId session = 0;
    bool busy = false;
    std::deque<int32_t> waiting;  // requests that came before the reply was there
  };
  struct Running {
    double arrived = 0;
    bool told = false;           // the first token has come
    std::vector<int32_t> reply;  // kept only where it is needed
    std::vector<int32_t> prompt;
  };

  static double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  static CacheStats minus(CacheStats a, const CacheStats& b) {
    for (const auto member :
         {&CacheStats::prompt_tokens, &CacheStats::hit_shared, &CacheStats::hit_own, &CacheStats::hit_other,
          &CacheStats::miss_new, &CacheStats::miss_evicted, &CacheStats::miss_window, &CacheStats::miss_last,
          &CacheStats::hit_host, &CacheStats::hit_file})
      a.*member -= b.*member;
    for (const BlockKind kind : kBothKinds) a.blocks_evicted[kind] -= b.blocks_evicted[kind];
    return a;
  }

  Status arrive(int32_t index) {
    if (!measuring_ && trace_.measured(trace_.requests[static_cast<size_t>(index)])) begin_measuring();
    ++unfinished_;
    Place& place = places_[static_cast<size_t>(trace_.requests[static_cast<size_t>(index)].conversation)];
    if (place.busy) {
      place.waiting.push_back(index);
      return {};
    }
    return submit(index, trace_.requests[static_cast<size_t>(index)].seconds);
  }

  // `when` the user sent it.
  Status submit(int32_t index, double when) {
    const Request& request = trace_.requests[static_cast<size_t>(index)];
    Place& place = places_[static_cast<size_t>(request.conversation)];
    Running& running = running_[static_cast<size_t>(index)];
    running.arrived = when;
    write_prompt(request.prompt);
    RequestOptions options;
    options.max_tokens = trace_.reply_tokens(request);
    options.user_data = &running;
    options.sampling = sampling_of(request);
    if (trace_.characters) {
      const int32_t root = trace_.root(request.prompt);
      options.scope = {"character " + std::to_string(root), trace_.token_count(root),
                       "conversation " + std::to_string(request.conversation)};
    } else {
      options.scope.salt = "trace";
    }
    const auto start = std::chrono::steady_clock::now();
    if (place.session == 0) {
      Result<SessionId> session = engine_.create_session();
      if (!session.ok()) return session.status();
      place.session = *session;
    }
    const Result<RequestId> submitted = engine_.submit_history(place.session, tokens_, options);
    driven_.figures.host_seconds += seconds_since(start);
    if (!submitted.ok()) return submitted.status();
    place.busy = true;
    if (options_.sample_every > 0 && may_be_sampled(request)) running.prompt = tokens_;
    return {};
  }

  bool may_be_sampled(const Request& request) const { return request.conversation < options_.sample_below; }

  SamplingParams sampling_of(const Request& request) const {
    SamplingParams sampling = options_.sampling;
    if (request.reply != kNone)
      sampling.seed = static_cast<uint64_t>(trace_.texts[static_cast<size_t>(request.reply)].content);
    return sampling;
  }

  void write_prompt(int32_t prompt) {
    const auto& texts = trace_.texts;
    tokens_.resize(static_cast<size_t>(texts[static_cast<size_t>(prompt)].end));
    const int32_t vocab = engine_.info().vocab_size;
    for (int32_t index = prompt; index != kNone; index = texts[static_cast<size_t>(index)].before) {
      const Text& text = texts[static_cast<size_t>(index)];
      const int32_t count = trace_.token_count(index);
      int32_t* out = tokens_.data() + (text.end - count);
      if (const std::vector<int32_t>* reply = reply_of(text))
        std::copy_n(reply->begin() + (text.first - first_of_[static_cast<size_t>(text.content)]), count, out);
      else
        for (int32_t i = 0; i < count; ++i) out[i] = token_of(text.content, text.first + i, vocab);
    }
  }

  // What the engine said in place of the text's words; null: nothing.
  const std::vector<int32_t>* reply_of(const Text& text) const {
    const auto content = static_cast<size_t>(text.content);
    return content < replies_.size() && !replies_[content].empty() ? &replies_[content] : nullptr;
  }

  Status step() {
    const auto start = std::chrono::steady_clock::now();
    KAIJU_TRY(engine_.step());
    const double real = seconds_since(start), seconds = options_.step_seconds ? options_.step_seconds() : real;
    driven_.figures.host_seconds += real;
    now_ += seconds;
    driven_.figures.busy_seconds += seconds;
    if (measuring_) count_step(seconds);
    return {};
  }

  void count_step(double seconds) {
    const Metrics metrics = engine_.metrics();
    const uint64_t decoded = metrics.tokens_decoded - after_step_.tokens_decoded,
                   prefilled = metrics.tokens_prefilled - after_step_.tokens_prefilled;
    Steps& steps = prefilled > 0 ? driven_.figures.prompt_steps : driven_.figures.decode_steps;
    ++steps.count;
    steps.decoded += decoded;
    steps.prefilled += prefilled;
    steps.seconds += seconds;
    after_step_ = metrics;
  }

  Status read_events() {
    Event event;
    while (engine_.poll(event)) {
      const auto index = static_cast<int32_t>(static_cast<const Running*>(event.user_data) - running_.data());
      if (event.kind == EventKind::kFailed) return event.status;
      if (event.kind == EventKind::kToken) token(index, event.token);
      if (event.kind == EventKind::kDone) KAIJU_TRY(done(index, event.counts));
    }
    return {};
  }

  void token(int32_t index, int32_t token) {
    Running& running = running_[static_cast<size_t>(index)];
    if (!running.told && trace_.measured(trace_.requests[static_cast<size_t>(index)]))
      driven_.figures.first_token_ms.push_back(1e3 * (now_ - running.arrived));
    running.told = true;
    if (options_.on_token) options_.on_token(index, running.arrived, now_);
    if (options_.replies_from_engine || options_.sample_every > 0) running.reply.push_back(token);
  }

  Status done(int32_t index, const RequestCounts& counts) {
    const Request& request = trace_.requests[static_cast<size_t>(index)];
    Place& place = places_[static_cast<size_t>(request.conversation)];
    if (trace_.measured(request)) count(request, counts);
    keep_reply(index);
    --unfinished_;
    place.busy = false;
    if (request.leaves) {
      KAIJU_TRY(engine_.destroy_session(place.session));
      place.session = 0;
    }
    if (place.waiting.empty()) return {};
    const int32_t next = place.waiting.front();
    place.waiting.pop_front();
    return submit(next, now_);  // nobody answers what is not there yet
  }

  void count(const Request& request, const RequestCounts& counts) {
    Figures& figures = driven_.figures;
    ++figures.requests;
    figures.prompt_tokens += static_cast<uint64_t>(counts.prompt_tokens);
    figures.generated += static_cast<uint64_t>(counts.generated);
    const auto found = static_cast<uint64_t>(counts.cached_tokens);
    if (trace_.characters) {
      const uint64_t shared =
          std::min<uint64_t>(found, static_cast<uint64_t>(trace_.token_count(trace_.root(request.prompt))));
      figures.found_shared += shared;
      figures.found_own += found - shared;
    } else {
      figures.found_other += found;
    }
  }

  void keep_reply(int32_t index) {
    const Request& request = trace_.requests[static_cast<size_t>(index)];
    Running& running = running_[static_cast<size_t>(index)];
    if (options_.replies_from_engine && request.reply != kNone) {
      const auto content = static_cast<size_t>(trace_.texts[static_cast<size_t>(request.reply)].content);
      if (replies_.size() <= content) replies_.resize(content + 1), first_of_.resize(content + 1);
      replies_[content] = running.reply;
      first_of_[content] = trace_.prompt_tokens(request);
    }
    if (options_.sample_every > 0 && trace_.measured(request) && !running.reply.empty() && may_be_sampled(request) &&
        sampled_++ % options_.sample_every == 0)
      driven_.samples.push_back({std::move(running.prompt), std::move(running.reply), sampling_of(request)});
    running = {};
  }

  void begin_measuring() {
    measuring_ = true;
    before_ = after_step_ = engine_.metrics();
    driven_.figures.host_seconds = driven_.figures.busy_seconds = 0;
  }

  const Trace& trace_;
  Engine& engine_;
  const DriveOptions& options_;
  Driven driven_;
  std::vector<Place> places_;                  // one a conversation
  std::vector<Running> running_;               // one a request
  std::vector<std::vector<int32_t>> replies_;  // by content: what the engine said
  std::vector<int32_t> first_of_;              // by content: Text::first of the first word that it said
  std::vector<int32_t> tokens_;
  double now_ = 0;
  int32_t unfinished_ = 0, sampled_ = 0;
  bool measuring_ = false;
  Metrics before_, after_step_;
};

}  // namespace

double Figures::first_token_ms_at(double quantile) const {
  if (first_token_ms.empty()) return 0;
  return first_token_ms[std::min(first_token_ms.size() - 1,
                                 static_cast<size_t>(quantile * static_cast<double>(first_token_ms.size())))];
}

Result<Driven> drive(const Trace& trace, Engine& engine, const DriveOptions& options) {
  return Driver(trace, engine, options).run();
}

Result<int32_t> count_differing(const std::vector<Sample>& samples, Engine& engine) {
  int32_t differing = 0;
  for (const Sample& sample : samples) {
    Result<SessionId> session = engine.create_session();
    if (!session.ok()) return session.status();
    RequestOptions options;
    options.max_tokens = static_cast<int32_t>(sample.reply.size());
    options.sampling = sample.sampling;
    const Result<RequestId> submitted = engine.submit(*session, sample.prompt, options);
    if (!submitted.ok()) return submitted.status();
    std::vector<int32_t> reply;
    while (engine.pending() > 0) {
      KAIJU_TRY(engine.step());
      for (Event event; engine.poll(event);) {
        if (event.kind == EventKind::kFailed) return event.status;
        if (event.kind == EventKind::kToken) reply.push_back(event.token);
      }
    }
    KAIJU_TRY(engine.destroy_session(*session));
    differing += reply != sample.reply;
  }
  return differing;
}

}  // namespace kaiju::replay
