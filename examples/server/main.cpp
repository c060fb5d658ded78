// kaiju-server: serves a model over HTTP. README.md says what it speaks.
//
// Threads: this one does all input and output, and each checkpoint has one that steps its engine (checkpoints.hpp).
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "../tools/standard_streams.hpp"
#include "access_log.hpp"
#include "assets.hpp"
#include "chats.hpp"
#include "checkpoints.hpp"
#include "failure.hpp"
#include "heads.hpp"
#include "moves.hpp"
#include "openai.hpp"
#include "options.hpp"
#include "origins.hpp"
#include "recorder.hpp"
#include "routers.hpp"
#include "routes.hpp"
#include "shutdown.hpp"
#include "tls.hpp"
#include "watch.hpp"

namespace kaiju::server {
namespace {

constexpr size_t kTranscriptTokens = 16 << 20;  // 64 MiB of histories

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

std::string random_secret() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// SIGUSR1: the logs were renamed, and go on in new files.
void reopen_at_signal(asio::signal_set& signal, AccessLog& log, BlockedLog& blocked, LogFile& swipes) {
  signal.async_wait([&](auto error, int) {
    if (error) return;
    log.reopen();
    blocked.reopen();
    swipes.reopen();
    reopen_at_signal(signal, log, blocked, swipes);
  });
}

// Null for none.
std::shared_ptr<const MessageGate> load_gate(const Options& options) {
  if (options.gate == "none") {
    if (options.gate_even_time) throw std::runtime_error("--gate-even-time needs a gate: name one with --gate");
    return nullptr;
  }
  auto gate = MessageGate::load(options.gate);
  if (!gate.ok()) throw std::runtime_error(gate.status().message());
  return std::move(gate).value();
}

// The checkpoint that current.json names.
std::shared_ptr<const Model> load_model(const Options& options, const std::string& name) {
  const bool is_own = name == kModel;
  ModelOptions loading;
  if (is_own) loading.head = options.head;
  auto model = Model::load(is_own ? options.model : file_in(options.checkpoints, name), loading);
  if (!model.ok()) throw std::runtime_error(model.status().message());
  if (!is_own)
    tools::print(stderr, "kaiju-server: serves the checkpoint {} and not {}, for so says {}/current.json\n", name,
                 options.model, options.checkpoints);
  return std::move(model).value();
}

// Equal parts of --devices in their order. Of none, a GPU for each replica, and the processor for all where there is no
// GPU. Throws std::runtime_error.
std::vector<std::vector<int32_t>> devices_of_replicas(const Options& options) {
  const auto replicas = static_cast<size_t>(options.replicas);
  std::vector<int32_t> all = options.devices;
  if (replicas == 1) return {1, all};
  if (all.empty()) {
    const bool may_be_gpus = options.backend == "auto" || options.backend == "cuda";
    const size_t gpus = may_be_gpus ? devices().size() - 1 : 0;
    if (gpus == 0) return {replicas, all};
    all.resize(std::min(gpus, replicas));
    std::iota(all.begin(), all.end(), 1);
  }
  const size_t each = all.size() / replicas;
  if (each == 0 || all.size() % replicas != 0)
    throw std::runtime_error(
        fmt::format("--replicas {}: {} {} cannot be divided by them: name as many for each replica with --devices",
                    replicas, all.size(), all.size() == 1 ? "device" : "devices"));
  std::vector<std::vector<int32_t>> parts;
  for (auto first = all.begin(); first != all.end(); first += static_cast<std::ptrdiff_t>(each))
    parts.emplace_back(first, first + static_cast<std::ptrdiff_t>(each));
  return parts;
}

Checkpoints::Options checkpoint_options(const Options& options) {
  Checkpoints::Options made;
  RunOptions run;
  made.model = options.model;
  made.head = options.head;
  made.folder = options.checkpoints;
  made.heads = options.heads;
  made.most_mib = options.candidate_mib;
  if (!options.kv_events.empty()) {
    run.engine.cache.event_capacity = KvEvents::kMostWaiting;
    run.engine.cache.event_tokens = true;
    run.engine.cache.publish_private = options.kv_private;
  }
  made.scales = {options.scales, options.scales_hours, {.window_blocks = options.scales_window}};
  run.executor.backend = options.backend;
  run.executor.threads = options.threads;
  run.executor.slot_count = options.max_running;
  run.executor.cache_bytes = options.cache_mib << 20;
  run.engine.cache.host_bytes = options.host_mib << 20;
  run.engine.max_waiting = 65536;
  run.engine.reserve_tokens = 64;
  for (const std::vector<int32_t>& devices : devices_of_replicas(options)) {
    run.executor.devices = devices;
    made.runs.push_back(run);
  }
  return made;
}

void set_tiers(const Options& options, Tiers& tiers) {
  for (const std::string& limit : options.label_limits) tiers.set(limit);
  if (!options.tier.empty()) tiers.set_default(options.tier);
  if (options.gate != "none" && tiers.all().empty())
    tools::print(stderr,
                 "kaiju-server: the gate blocks nothing yet: give its labels limits, such as --limit "
                 "adult:gate.violence=0.9 --tier adult\n");
}

// While the server drains, it answers only those who ask how it is.
void check_open(const Server& server, const Exchange& exchange) {
  const std::string& route = exchange.route;
  if (server.draining() && route != "/health" && route != "/version" && route != "/metrics" && route != "/peers/kv")
    throw Failure{503, "the server is shutting down", {}, "draining", 1};
}

std::vector<BundledCard> cards_in(const std::string& folder) {
  std::vector<std::string> files;
  std::vector<BundledCard> cards;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  if (missing) throw std::runtime_error(folder + ": " + missing.message());
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    cards.push_back({file, {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}});
  }
  return cards;
}

std::unique_ptr<Store> open_store(const std::string& where, const Model& model) {
  const StoreOptions options{.tokenizer = tokenizer_name(model)};
  auto store = where.starts_with("postgres") ? open_postgres_store(where, options) : open_sqlite_store(where, options);
  if (!store.ok()) throw std::runtime_error(store.status().message());
  return std::move(store).value();
}

// Beside a store that is a file.
std::string kv_folder(const Options& options) {
  if (!options.kv.empty()) return options.kv;
  return options.store == "none" || options.store.starts_with("postgres") ? "none" : options.store + "-kv";
}

void save(KeptKv& kv, const Served& current) {
  int64_t bytes = 0;
  if (const int chats = kv.save(current, bytes); chats > 0)
    tools::print(stderr, "kaiju-server: kept the KV of {} {}, {:.1f} MiB\n", chats, chats == 1 ? "chat" : "chats",
                 static_cast<double>(bytes) / (1 << 20));
}

// What the page wants is not there: says why.
void add_routes_without_store(Server& server, bool asked_for) {
  const std::string why = asked_for ? "this server was started with --store none: it has no chats, characters and page"
                                    : "the model has no chat format: this server has no chats, characters and page";
  for (const char* path : {"/", "/chats", "/characters"})
    server.route("GET", path, [why](Exchange&) -> asio::awaitable<void> {
      throw Failure{404, why, {}, "no_store"};
      co_return;
    });
}

asio::ip::tcp::endpoint listen(Server& server, const Options& options) {
  boost::system::error_code wrong;
  asio::ip::make_address(options.address, wrong);
  if (wrong)
    throw std::runtime_error(
        fmt::format("--address must be an IP address, such as 127.0.0.1, 0.0.0.0 or ::1, and not {}", options.address));
  try {
    return server.listen(options.address, static_cast<uint16_t>(options.port));
  } catch (const boost::system::system_error& error) {
    throw std::runtime_error(fmt::format("cannot listen on {}, port {}: {}: choose others with --address and --port",
                                         options.address, options.port, error.code().message()));
  }
}

// Null for none. `address`: where clients reach the server.
std::shared_ptr<Routers> tell_routers(const Options& options, const std::string& model, const std::string& address,
                                      Checkpoints& checkpoints) {
  if (options.kv_events.empty()) return nullptr;
  const bool array = options.kv_format == "array";
  const KvEventOptions told{.endpoint = options.kv_events,
                            .replay = options.kv_replay,
                            .topic = !options.kv_topic.empty() ? options.kv_topic
                                     : array                   ? fmt::format("kv@{}@{}", address, model)
                                                               : "",
                            .format = array ? KvFormat::kArray : KvFormat::kMap,
                            .of_private = options.kv_private};
  const auto routers = std::make_shared<Routers>(told, checkpoints.current()->replicas.first().engine());
  Routers::follow(routers, *checkpoints.current());
  return routers;
}

// Handlers that wait when the server ends refer to much that is destroyed before the io_context, so they end earlier.
class Io : public asio::io_context {
 public:
  Io() : asio::io_context(1) {}
  void end_handlers() { shutdown(); }
};

int serve(const Options& options) {
  if (options.kv_private && !options.keys.empty())
    throw std::runtime_error("--kv-private would tell the chats of all keys' users: leave it out, or --keys");
  if (!options.peer_key.empty() && !options.tls_certificate.empty())
    throw std::runtime_error("--peer-key: peers ask over HTTP: let a proxy speak TLS, and leave --tls-certificate out");
  if (options.replicas > 1 && !options.kv_events.empty())
    throw std::runtime_error(
        "--kv-events: routers would be told of one replica's cache alone: start a server for each engine instead of "
        "--replicas");
  raise_file_limit();
  const auto tls = options.tls_certificate.empty() ? nullptr : tls_context(options.tls_certificate, options.tls_key);
  Io io;
  Peers peers(io, options.peers, options.peer_key);
  const std::string secret = peers.any() ? peers.secret() : random_secret();
  Tenants tenants = options.keys.empty() ? Tenants(secret) : Tenants(secret, options.keys);
  const std::string name = read_current(options.checkpoints);
  const auto model = load_model(options, name);
  Checkpoints checkpoints(io, name, model, checkpoint_options(options));  // requests refer to their tenants
  for (Driver& driver : checkpoints.current()->replicas) tenants.set_shares(driver.engine());
  Server server(io, options.limits, tls);
  Metrics metrics;
  Transcripts transcripts(kTranscriptTokens);
  Grammars grammars(model);
  const auto gate_model = load_gate(options);
  Gate gate(io, metrics, gate_model, options.gate_even_time);
  Tiers tiers(checkpoints, gate_model ? gate_model->labels() : std::vector<std::string>());
  set_tiers(options, tiers);
  tenants.check_tiers(tiers.all());
  AccessLog log(options.log);
  BlockedLog blocked_log(options.blocked_log);
  LogFile swipe_log(options.swipe_log, 0600);
  Recorder recorder(options.journal, options.journal_key, options.journal_mib);
  Watch watch(io, checkpoints, {options.scrub_mib << 20, options.canaries, options.canary_seconds});
  const std::string own_name = model->config().name;
  Service service{.io = io,
                  .server = server,
                  .model_name = options.model_name.empty() ? own_name : options.model_name,
                  .checkpoints = checkpoints,
                  .tenants = tenants,
                  .metrics = metrics,
                  .transcripts = transcripts,
                  .grammars = grammars,
                  .tiers = tiers,
                  .gate = gate,
                  .blocked_log = blocked_log,
                  .swipe_log = swipe_log,
                  .recorder = recorder,
                  .watch = watch,
                  .defaults = options.defaults,
                  .created = unix_time(),
                  .request_seconds = options.request_seconds};
  Moves moves(service, peers, {static_cast<size_t>(options.warm), options.hot_share});
  service.moves = &moves;
  moves.add_routes(server);
  add_chat_completion_routes(server, service);
  add_completion_routes(server, service);
  add_meta_routes(server, service);
  add_tier_routes(server, service);
  add_journal_routes(server, service);
  add_head_routes(server, service);
  add_scale_routes(server, service);
  std::unique_ptr<Store> store;
  if (options.store != "none" && model->chat().ok()) {
    store = open_store(options.store, *model);
    add_bundled_characters(*store, service, cards_in(options.characters));
  }
  std::optional<KeptKv> kv;
  if (const std::string folder = kv_folder(options); folder != "none") kv.emplace(folder, options.kv_mib << 20);
  std::optional<StoredChats> chats;
  if (store) {
    chats.emplace(service, std::move(store), !options.keys.empty(), kv ? &*kv : nullptr);
    add_character_routes(*chats);
    add_chat_routes(*chats);
    add_reply_routes(*chats);
    add_report_routes(*chats);
    server.route("GET", "/", [](Exchange& exchange) -> asio::awaitable<void> {
      co_await exchange.answer(200, std::string(kPage), "text/html; charset=utf-8");
    });
  } else {
    add_routes_without_store(server, options.store == "none");
  }
  std::shared_ptr<Routers> routers;
  checkpoints.on_new = [&](Served& served) {
    try {
      for (Driver& driver : served.replicas) tenants.set_shares(driver.engine());
    } catch (const std::runtime_error& problem) {
      throw bad_request(problem.what(), "checkpoint");
    }
    for (Driver& driver : served.replicas) tiers.set_all(driver.engine());
    watch.begin(served);
    if (routers) Routers::follow(routers, served);
  };
  checkpoints.on_leave = [&](Served& served) {
    if (kv) kv->let_go(served);
  };
  add_checkpoint_routes(server, service, chats ? &*chats : nullptr);
  const Origins origins(options.origins, options.hosts, !options.keys.empty() || !is_loopback(options.address));
  server.before = [&](Exchange& exchange) {
    origins.check(exchange);
    check_open(server, exchange);
    if (const std::string trace = exchange.header("traceparent"); !trace.empty() && trace.size() < 128)
      exchange.answer_headers["traceparent"] = trace;
  };
  server.after = [&](const Exchange& exchange, double seconds) {
    if (exchange.status > 0)  // else the client left before
      ++metrics.answers[{exchange.route.empty() ? "other" : exchange.route, exchange.status}];
    std::string tenant = "-";
    try {
      tenant = tenants.of(exchange).name;
    } catch (const Failure&) {  // no key
    }
    log.write(exchange, tenant, seconds);
  };
  const auto endpoint = listen(server, options);
  const std::string address =
      endpoint.address().is_v6() ? "[" + endpoint.address().to_string() + "]" : endpoint.address().to_string();
  const std::string reached = fmt::format("{}:{}", address, endpoint.port());
  routers = tell_routers(options, service.model_name, reached, checkpoints);
  service.routers = routers.get();
  checkpoints.on_current = [&](Served& served) {
    if (routers) routers->set_current(served.replicas.first().engine());
  };
  tools::print("{} listens on {}://{}\n", service.model_name, server.encrypted() ? "https" : "http", reached);
  std::fflush(stdout);
  asio::signal_set renamed(io, SIGUSR1);
  reopen_at_signal(renamed, log, blocked_log, swipe_log);
  peers.set_port(endpoint.port());
  moves.join(chats ? store_regions(*chats) : Moves::StoreRegions());
  const Shutdown shutdown(io, server, checkpoints, options.drain_seconds,
                          [&moves](auto until) { return moves.leave(until); });
  io.run();
  checkpoints.stop();
  if (kv && !shutdown.hurried()) save(*kv, *checkpoints.current());
  grammars.join();
  if (chats) chats->join();
  io.end_handlers();
  return 0;
}

}  // namespace
}  // namespace kaiju::server

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  kaiju::server::Options options;
  if (const std::optional<int> code = kaiju::server::parse(argc, argv, options)) return *code;
  try {
    return kaiju::server::serve(options);
  } catch (const kaiju::server::Failure& failure) {
    kaiju::tools::print(stderr, "kaiju-server: {}\n", failure.message);
    return 1;
  } catch (const std::exception& problem) {
    kaiju::tools::print(stderr, "kaiju-server: {}\n", problem.what());
    return 1;
  }
}
