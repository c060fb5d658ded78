#include "metrics.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kaiju/step/kinds.hpp"

namespace kaiju::server {

void Histogram::add(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<size_t>(bound - kBounds.begin())];
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name, const std::string& help, const std::string& labels) const {
  return fmt::format("# HELP {} {}\n# TYPE {} histogram\n", name, help, name) + samples(name, labels);
}

std::string Histogram::samples(const std::string& name, const std::string& labels) const {
  std::string out;
  uint64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    out += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels,
                       i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf", count);
  }
  return out + fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, count);
}

namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c == '\n')
      out += "\\n";
    else
      out += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return out;
}

// Writes families of samples.
class Page {
 public:
  explicit Page(const std::string& model) : labels_(fmt::format("model_name=\"{}\"", escaped(model))) {}

  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  // A sample of the family that was begun; `labels` of its own.
  void sample(double number, const std::string& labels = {}) {
    text_ += fmt::format("{}{{{}{}{}}} {}\n", name_, labels_, labels.empty() ? "" : ",", labels, number);
  }
  void value(const char* name, const char* type, const char* help, double number) {
    begin(name, type, help);
    sample(number);
  }
  void histogram(const char* name, const char* help, const Histogram& histogram) {
    text_ += histogram.text(name, help, labels_);
  }
  void histogram_sample(const std::string& labels, const Histogram& histogram) {
    text_ += histogram.samples(name_, labels_ + "," + labels);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string labels_, name_, text_;
};

double number(auto count) { return static_cast<double>(count); }

void add_requests(Page& page, const Metrics& metrics, const Shown& shown) {
  const kaiju::Metrics& engine = shown.engine;
  page.value("vllm:num_requests_running", "gauge", "Requests that are computed.", number(engine.requests_running));
  page.value("vllm:num_requests_waiting", "gauge", "Requests that wait.",
             number(engine.requests_waiting + engine.requests_suspended));
  page.begin("vllm:request_success_total", "counter", "Finished requests.");
  for (const auto& [reason, count] : metrics.finished)
    page.sample(number(count), fmt::format("finished_reason=\"{}\"", reason));
  page.begin("kaiju_blocked_total", "counter", "Messages that the gate blocked, and replies that a verdict ended.");
  for (const auto& [key, count] : metrics.blocked)
    page.sample(number(count),
                fmt::format("by=\"{}\",tier=\"{}\",label=\"{}\"", key[0], escaped(key[1]), escaped(key[2])));
  page.value("kaiju_gate_messages_total", "counter", "Messages that the gate judged.", number(metrics.gate_messages));
  page.value("kaiju_gate_seconds_total", "counter", "Time that the gate took.", metrics.gate_seconds);
  page.histogram("vllm:request_queue_time_seconds", "Seconds until a request is computed.", metrics.waited);
  page.histogram("vllm:time_to_first_token_seconds", "Seconds to the first token.", metrics.first_token);
  page.histogram("vllm:inter_token_latency_seconds", "Seconds between two tokens.", metrics.between_tokens);
  page.histogram("vllm:request_time_per_output_token_seconds", "Seconds between two tokens, mean of a request.",
                 metrics.a_token);
  page.histogram("vllm:e2e_request_latency_seconds", "Seconds of a whole request.", metrics.whole);
  page.histogram("kaiju_server_event_to_socket_seconds",
                 "Seconds from an event of the engine until its text was written to the socket.",
                 metrics.event_to_socket);
  page.value("kaiju_requests_unfinished", "gauge", "Requests whose last event did not come yet.",
             number(shown.unfinished));
  page.value("kaiju_requests_failed_total", "counter", "Requests that failed.", number(engine.requests_failed));
  page.value("kaiju_disconnects_total", "counter", "Clients that left before their answer.",
             number(metrics.disconnects));
  page.value("kaiju_connections", "gauge", "Open connections.", number(shown.connections));
  page.begin("kaiju_http_answers_total", "counter", "Answers by path and status.");
  for (const auto& [key, count] : metrics.answers)
    page.sample(number(count), fmt::format("path=\"{}\",status=\"{}\"", key.first, key.second));
}

void add_surprise(Page& page, const Metrics& metrics) {
  page.begin("kaiju_reply_surprise_nats_total", "counter",
             "Surprise of the replies' tokens under the model, by character; over kaiju_reply_tokens_total it is the "
             "logarithm of their perplexity.");
  for (const auto& [character, sum] : metrics.surprise)
    page.sample(sum.nats, fmt::format("character=\"{}\"", escaped(character)));
  page.begin("kaiju_reply_tokens_total", "counter", "These tokens.");
  for (const auto& [character, sum] : metrics.surprise)
    page.sample(number(sum.tokens), fmt::format("character=\"{}\"", escaped(character)));
}

void add_watch(Page& page, const JournalCounts& journal, const WatchCounts& watch) {
  page.value("kaiju_journal_replies_total", "counter", "Replies written to the journal.", number(journal.replies));
  page.value("kaiju_journal_bytes_total", "counter", "Bytes written to the journal.", number(journal.bytes));
  page.value("kaiju_journal_lost_total", "counter", "Replies that the journal lost, for want of disk.",
             number(journal.lost));
  page.value("kaiju_scrubbed_bytes_total", "counter", "Bytes of weights in memory that were looked at.",
             number(watch.scrubbed_bytes));
  page.value("kaiju_scrub_passes_total", "counter", "How often all weights were looked at.",
             number(watch.scrub_passes));
  page.value("kaiju_scrub_last_pass_seconds", "gauge", "Unix time of the last such pass; 0: none yet.",
             number(watch.last_pass));
  page.value("kaiju_canaries_total", "counter", "Canaries that were replied to.", number(watch.canaries));
  page.value("kaiju_canaries_wrong_total", "counter", "Canaries whose reply was not the known one.",
             number(watch.canaries_wrong));
  page.value("kaiju_machine_damaged", "gauge", "1: weights in memory or a canary were wrong.", watch.damaged ? 1 : 0);
}

void add_calibration(Page& page, const CalibrationFigures& figures) {
  page.value("kaiju_calibration_blocks_total", "counter", "KV blocks that the calibration counted.",
             number(figures.blocks));
  page.value("kaiju_calibration_left_out_total", "counter", "Of these, blocks of characters suddenly everybody's.",
             number(figures.left_out));
  page.value("kaiju_calibration_frozen", "gauge", "1: the collection is frozen.", figures.frozen ? 1 : 0);
  const auto each = [&](const char* name, const char* help, double CalibrationDistance::* value) {
    page.begin(name, "gauge", help);
    page.sample(figures.tokens.*value, "of=\"tokens\"");
    page.sample(figures.scales.*value, "of=\"magnitudes\"");
  };
  each("kaiju_calibration_distance_nats", "Divergence of the newest window from what the scales were made from.",
       &CalibrationDistance::newest);
  each("kaiju_calibration_distance_mean_nats", "Mean of the accepted windows.", &CalibrationDistance::mean);
  each("kaiju_calibration_distance_deviation_nats", "Their standard deviation.", &CalibrationDistance::deviation);
  const auto by_slot = [&](const char* name, const char* help, auto keys, auto values) {
    page.begin(name, "counter", help);
    for (size_t slot = 0; slot < figures.slots.size(); ++slot) {
      page.sample(number(figures.slots[slot].*keys), fmt::format("slot=\"{}\",of=\"keys\"", slot));
      page.sample(number(figures.slots[slot].*values), fmt::format("slot=\"{}\",of=\"values\"", slot));
    }
  };
  using Slot = CalibrationFigures::Slot;
  by_slot("kaiju_kv_counted_total", "Bytes of KV that the calibration counted, by KV slot.", &Slot::keys,
          &Slot::values);
  by_slot("kaiju_kv_saturated_total", "Of these, saturated bytes.", &Slot::saturated_keys, &Slot::saturated_values);
}

void add_kv_events(Page& page, const KvEventCounts& told) {
  page.value("kaiju_kv_events_total", "counter", "Events about cached blocks that routers were told.",
             number(told.events));
  page.value("kaiju_kv_event_batches_total", "counter", "Messages that had them.", number(told.batches));
  page.value("kaiju_kv_event_replays_total", "counter", "Routers' questions for messages that they had missed.",
             number(told.replays));
  page.value("kaiju_kv_event_snapshots_total", "counter", "How often routers were told of all cached blocks anew.",
             number(told.snapshots));
}

void add_cache(Page& page, const kaiju::Metrics& engine) {
  const auto& global = engine.blocks[static_cast<int32_t>(BlockKind::kGlobal)];
  const auto& window = engine.blocks[static_cast<int32_t>(BlockKind::kWindow)];
  const int32_t total = global.total + window.total, idle = global.free + global.cached + window.free + window.cached;
  const double used = total > 0 ? 1.0 - static_cast<double>(idle) / total : 0;
  page.value("vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1.", used);
  page.value("vllm:gpu_cache_usage_perc", "gauge", "The same under its older name.", used);
  page.value("vllm:prefix_cache_queries_total", "counter", "Prompt tokens.", number(engine.cache.prompt_tokens));
  page.value("vllm:prefix_cache_hits_total", "counter", "Prompt tokens whose KV was cached.",
             number(engine.tokens_from_cache));
  page.begin("vllm:cache_config_info", "gauge", "The KV cache.");
  page.sample(1, fmt::format("block_size=\"{}\",num_gpu_blocks=\"{}\",enable_prefix_caching=\"True\"", kBlockTokens,
                             global.total));
  page.value("kaiju_cache_miss_new_total", "counter", "Prompt tokens that were never seen.",
             number(engine.cache.miss_new));
  page.value("kaiju_cache_miss_evicted_total", "counter", "Prompt tokens whose KV was evicted.",
             number(engine.cache.miss_evicted));
  page.value("kaiju_cache_miss_window_total", "counter", "Prompt tokens without KV of a window near.",
             number(engine.cache.miss_window));
}

void add_moves(Page& page, const MoveCounts& moves) {
  page.begin("kaiju_moves_total", "counter",
             "KV of characters and histories that was fetched from a peer or refused, was here, or was computed before "
             "it was asked for.");
  for (const auto& [name, count] : moves.moves)
    page.sample(number(count), fmt::format("what=\"{}\",outcome=\"{}\"", name.first, name.second));
  page.value("kaiju_moved_in_bytes_total", "counter", "Bytes of KV that came from peers.", number(moves.bytes_in));
  page.value("kaiju_moved_out_bytes_total", "counter", "Bytes of KV that went to peers.", number(moves.bytes_out));
  page.value("kaiju_warming_characters", "gauge", "Characters that are missing in the cache until /health says ok.",
             number(moves.warm_left));
  page.value("kaiju_hot_characters", "gauge", "Characters with more than --hot-share of the requests.",
             number(moves.hot));
}

void add_checkpoints(Page& page, const std::vector<ShownCheckpoint>& checkpoints) {
  const auto family = [&](const char* name, const char* type, const char* help, auto number_of) {
    page.begin(name, type, help);
    for (const ShownCheckpoint& one : checkpoints)
      page.sample(number_of(one), fmt::format("checkpoint=\"{}\"", escaped(one.name)));
  };
  page.begin("kaiju_checkpoint_info", "gauge", "Checkpoints that are served.");
  for (const ShownCheckpoint& one : checkpoints)
    page.sample(1,
                fmt::format("checkpoint=\"{}\",digest=\"{}\",state=\"{}\"", escaped(one.name), one.digest, one.state));
  family("kaiju_checkpoint_share", "gauge", "Share of new chats that a checkpoint gets, 0 to 1.",
         [](const ShownCheckpoint& one) { return one.share; });
  family("kaiju_checkpoint_requests_unfinished", "gauge", "Requests of a checkpoint whose last event did not come yet.",
         [](const ShownCheckpoint& one) { return number(one.unfinished); });
  page.begin("kaiju_checkpoint_requests_total", "counter", "Finished requests of a checkpoint.");
  for (const ShownCheckpoint& one : checkpoints)
    for (const auto& [reason, count] : one.counts.finished)
      page.sample(number(count), fmt::format("checkpoint=\"{}\",finished_reason=\"{}\"", escaped(one.name), reason));
  family("kaiju_checkpoint_surprise_nats_total", "counter", "As kaiju_reply_surprise_nats_total, by checkpoint.",
         [](const ShownCheckpoint& one) { return one.counts.surprise.nats; });
  family("kaiju_checkpoint_reply_tokens_total", "counter", "These tokens.",
         [](const ShownCheckpoint& one) { return number(one.counts.surprise.tokens); });
  page.begin("kaiju_checkpoint_time_to_first_token_seconds", "histogram", "Seconds to the first token, by checkpoint.");
  for (const ShownCheckpoint& one : checkpoints)
    page.histogram_sample(fmt::format("checkpoint=\"{}\"", escaped(one.name)), one.counts.first_token);
}

// Where there are several.
void add_replicas(Page& page, const std::vector<ShownReplica>& replicas) {
  if (replicas.size() < 2) return;
  const auto family = [&](const char* name, const char* type, const char* help, auto number_of) {
    page.begin(name, type, help);
    for (size_t i = 0; i < replicas.size(); ++i) page.sample(number_of(replicas[i]), fmt::format("replica=\"{}\"", i));
  };
  family("kaiju_replica_requests_unfinished", "gauge", "Requests of a replica whose last event did not come yet.",
         [](const ShownReplica& one) { return number(one.unfinished); });
  family("kaiju_replica_requests_total", "counter", "Requests of a replica that ended.",
         [](const ShownReplica& one) { return number(one.requests); });
  family("kaiju_replica_works", "gauge", "1 while a replica computes, 0 once its engine has stopped.",
         [](const ShownReplica& one) { return one.works ? 1 : 0; });
}

void add_engine(Page& page, const Shown& shown) {
  const kaiju::Metrics& engine = shown.engine;
  page.value("kaiju_steps_total", "counter", "Steps of the engine.", number(engine.steps));
  page.value("kaiju_step_seconds_total", "counter", "Time inside steps.", 1e-9 * number(engine.step_ns));
  page.value("kaiju_tokens_prefilled_total", "counter", "Prompt tokens that were computed.",
             number(engine.tokens_prefilled));
  page.value("kaiju_tokens_decoded_total", "counter", "Tokens that were generated.", number(engine.tokens_decoded));
  page.value("kaiju_context_tokens", "gauge", "The model's context.", shown.info.context);
}

// Requests and tokens of all, and of each key.
void add_accounts(Page& page, const Shown& shown) {
  Account all;
  for (const auto& [name, account] : shown.accounts) {
    all.prompt_tokens += account.prompt_tokens;
    all.generated_tokens += account.generated_tokens;
  }
  page.value("vllm:prompt_tokens_total", "counter", "Prompt tokens.", number(all.prompt_tokens));
  page.value("vllm:generation_tokens_total", "counter", "Generated tokens.", number(all.generated_tokens));
  if (!shown.by_key) return;
  const auto family = [&](const char* name, const char* type, const char* help, auto Account::* field) {
    page.begin(name, type, help);
    for (const auto& [key, account] : shown.accounts)
      page.sample(number(account.*field), fmt::format("key=\"{}\"", escaped(key)));
  };
  family("kaiju_key_weight", "gauge", "A key's weight.", &Account::weight);
  family("kaiju_key_requests_total", "counter", "Requests that a key has sent.", &Account::requests);
  family("kaiju_key_requests_waiting", "gauge", "A key's requests without a first token.", &Account::waiting);
  family("kaiju_key_requests_running", "gauge", "A key's requests with a first token.", &Account::running);
  family("kaiju_key_disconnects_total", "counter", "Clients of a key that left before their answer.",
         &Account::disconnects);
  family("kaiju_key_prompt_tokens_total", "counter", "A key's prompt tokens.", &Account::prompt_tokens);
  family("kaiju_key_cached_tokens_total", "counter", "A key's prompt tokens whose KV was cached.",
         &Account::cached_tokens);
  family("kaiju_key_generated_tokens_total", "counter", "Tokens that were generated for a key.",
         &Account::generated_tokens);
  if (shown.shares.empty()) return;
  page.begin("kaiju_key_cache_bytes", "gauge", "Cache memory of a key that has a floor or a ceiling.");
  for (const auto& [key, usage] : shown.shares)
    page.sample(static_cast<double>(usage.cache_bytes), fmt::format("key=\"{}\"", escaped(key)));
}

}  // namespace

std::string text_of(const Metrics& metrics, const Shown& shown) {
  Page page(shown.model);
  add_requests(page, metrics, shown);
  add_watch(page, shown.journal, shown.watch);
  if (shown.scales.watched) add_calibration(page, shown.scales.figures);
  add_surprise(page, metrics);
  add_checkpoints(page, shown.checkpoints);
  add_replicas(page, shown.replicas);
  add_cache(page, shown.engine);
  add_kv_events(page, shown.kv_events);
  add_moves(page, shown.moves);
  add_accounts(page, shown);
  add_engine(page, shown);
  return page.take();
}

}  // namespace kaiju::server
