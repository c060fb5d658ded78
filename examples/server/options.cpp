#include "options.hpp"

#include <CLI/CLI.hpp>

#include "../tools/bundled_file.hpp"
#include "../tools/name_from.hpp"
#include "../tools/number_from.hpp"
#include "../tools/program.hpp"

namespace kaiju::server {

std::optional<int> parse(int argc, char** argv, Options& options) {
  using tools::number_from, tools::whole_number;
  CLI::App app("Serves a model over HTTP: OpenAI's API.", "kaiju-server");
  const auto option = [&](const char* name, auto& value, const char* type, const char* help) {
    return app.add_option(name, value, help)->type_name(type)->capture_default_str();
  };
  options.model = tools::bundled_file("model/kaiju-nano.safetensors", KAIJU_CHAT_FOLDER);
  options.characters = tools::bundled_file("characters", KAIJU_CHAT_FOLDER);

  app.option_defaults()->group("Model");
  option("--model", options.model, "FILE", "checkpoint to serve")->default_str("the bundled kaiju-nano");
  option("--head", options.head, "FILE", "classifier in place of the model's own (kaiju-head makes such a file)");
  option("--name", options.model_name, "NAME", "what clients call the model (default: the model's own name)");
  option("--checkpoints", options.checkpoints, "FOLDER",
         "other checkpoints, to change to while it serves (POST /checkpoints); its file current.json says which one is "
         "served, in place of that of --model")
      ->check(CLI::ExistingDirectory);
  option("--candidate-mib", options.candidate_mib, "N",
         "most memory of a checkpoint that is loaded beside the current one; 0: what is free")
      ->check(whole_number(0, 1 << 24));
  option("--heads", options.heads, "FOLDER",
         "other classifiers of this model, to change to while it serves (POST /heads)")
      ->check(CLI::ExistingDirectory);

  app.option_defaults()->group("Engine");
  option("--backend", options.backend, "NAME",
         "auto, cuda, amx, avx512, avxvnni, avx2, i8mm, neon, portable or reference")
      ->check(tools::backend_name());
  option("--devices", options.devices, "N",
         "devices to compute on: 0 is the processor, 1 the first GPU; several GPUs share the model")
      ->check(whole_number(0, 1024))
      ->delimiter(',');
  option(
      "--replicas", options.replicas, "N",
      "engines that serve the model beside each other, each with a cache of its own and, of --devices, the next part")
      ->check(whole_number(1, 64));
  option("--threads", options.threads, "N", "threads that compute; 0: one for each physical core")
      ->check(whole_number(0, 256));
  option("--max-running", options.max_running, "N", "most requests that are computed at once; 0: the library chooses")
      ->check(whole_number(0, 65536));

  app.option_defaults()->group("Cache");
  option("--cache-mib", options.cache_mib, "N", "memory for KV; 0: room for 8 contexts")
      ->check(whole_number(0, 1 << 24));
  option("--host-mib", options.host_mib, "N", "more memory for KV that was evicted")->check(whole_number(0, 1 << 24));
  option(
      "--scales", options.scales, "FOLDER",
      "where sets of scales of keys and values are kept, to change to while it serves (POST /scales); keys and values "
      "are then watched")
      ->check(CLI::ExistingDirectory);
  option("--scales-hours", options.scales_hours, "N",
         "from one set that is made of what was watched to the next; 0: only when asked")
      ->check(whole_number(0, 8760));
  option("--scales-window", options.scales_window, "N",
         "blocks of 64 tokens of KV after which what was watched is compared with what the scales were made from")
      ->check(whole_number(1, 1 << 20));

  app.option_defaults()->group("Listening");
  option("--address", options.address, "IP", "address to listen on; 0.0.0.0 is every one of IPv4");
  option("--port", options.port, "N", "port to listen on; 0 chooses a free one")->check(whole_number(0, 65535));
  CLI::Option* const certificate = option("--tls-certificate", options.tls_certificate, "FILE",
                                          "speak HTTPS with this certificate (PEM), its chain behind it");
  CLI::Option* const key =
      option("--tls-key", options.tls_key, "FILE", "the certificate's key (PEM, without a passphrase)");
  certificate->needs(key);
  key->needs(certificate);
  option("--drain-seconds", options.drain_seconds, "N", "how long SIGTERM waits for replies to finish")
      ->check(whole_number(0, 86400));

  app.option_defaults()->group("Keys and limits");
  option("--keys", options.keys, "FILE",
         "API keys, their names, limits and rights (examples/server/README.md); without, everybody may ask");
  app.add_option("--allow-origin", options.origins,
                 "pages of browsers that may ask, beside the server's own: https://chat.example; may be given again")
      ->type_name("ORIGIN");
  app.add_option("--allow-host", options.hosts,
                 "names to answer to, beside this machine's own, without keys at an address of this machine alone; may "
                 "be given again")
      ->type_name("NAME");
  option("--body-bytes", options.limits.body_bytes, "N", "largest body of a request")
      ->check(whole_number(1024, 1 << 30));
  option("--connections", options.limits.connections, "N", "most open connections")->check(whole_number(1, 1 << 20));
  option("--write-seconds", options.limits.write_seconds, "N",
         "a client that reads nothing for so long is disconnected")
      ->check(whole_number(1, 3600));
  option("--request-seconds", options.request_seconds, "N", "a request that takes longer is ended")
      ->check(whole_number(1, 86400));
  option("--temperature", options.defaults.temperature, "X", "temperature of requests that name none")
      ->check(number_from(0.001, 100, tools::Zero::kToo));
  option("--max-tokens", options.defaults.max_tokens, "N", "longest reply of requests that do not say")
      ->check(whole_number(1, 1 << 20));

  app.option_defaults()->group("Chats and store");
  option("--store", options.store, "FILE",
         "where characters and chats are kept: a file of SQLite, or postgresql://...; none: they are not served");
  option("--characters", options.characters, "FOLDER", "cards for a store that is new")
      ->default_str("the bundled ones");
  option(
      "--kv", options.kv, "FOLDER",
      "where the KV of chats is kept while the server does not run (default: STORE-kv beside a file of SQLite); none: "
      "it is computed again");
  option("--kv-mib", options.kv_mib, "N", "most bytes of that folder")->check(whole_number(0, 1 << 24));

  app.option_defaults()->group("Safety");
  option("--tier", options.tier, "NAME", "tier of requests whose key has none and that name none");
  app.add_option(
         "--limit", options.label_limits,
         "probability of a label of the model's classifier, or of the gate, that ends a reply in a tier, such as "
         "adult:violence=0.5 or adult:gate.violence=0.9; may be given again")
      ->type_name("TIER:LABEL=LIMIT");
  option(
      "--gate", options.gate, "FILE",
      "a gate's file, whose labels have limits such as adult:gate.violence=0.9: a message that reaches one is refused "
      "before the model reads it; bundled: that of the bundled model, for English; none: no gate");
  app.add_flag("--gate-even-time", options.gate_even_time,
               "a message that the gate blocks is answered after as long as recent replies took");

  app.option_defaults()->group("Logs");
  option("--log", options.log, "FILE", "access log in JSON lines; - is standard error; none: no log");
  option("--blocked-log", options.blocked_log, "FILE",
         "log of blocked messages and ended replies in JSON lines, with what was said; none: no log");
  option(
      "--swipe-log", options.swipe_log, "FILE",
      "log of which reply to a chat's turn was kept and which were swiped away in JSON lines, with what was said, for "
      "training; only of users whose client says \"log_swipes\": true; none: no log");
  CLI::Option* const journal_key = option("--journal-key", options.journal_key, "FILE",
                                          "key of the journal: head -c 48 /dev/urandom | base64 -w 0 makes one");
  option("--journal", options.journal, "FOLDER",
         "encrypted records of all replies, which kaiju-replay computes again; none: no journal")
      ->needs(journal_key);
  option("--journal-mib", options.journal_mib, "N", "most bytes of the journal; the oldest records go")
      ->check(whole_number(16, 1 << 24));

  app.option_defaults()->group("Checks of the machine");
  option(
      "--scrub-mib", options.scrub_mib, "N",
      "weights in memory that are looked at each second while nothing is computed, and a tenth of that otherwise, to "
      "find flipped bits; 0: none")
      ->check(whole_number(0, 1 << 24));
  option("--canaries", options.canaries, "FILE",
         "prompts with known replies (kaiju-canary), to find out when this machine computes anything else");
  option("--canary-seconds", options.canary_seconds, "N", "from one canary to the next")->check(whole_number(1, 86400));

  app.option_defaults()->group("Fleet");
  CLI::Option* const peer_key =
      option("--peer-key", options.peer_key, "FILE",
             "secret of all servers of a fleet, which may ask each other for KV: head -c 32 /dev/urandom makes one");
  app.add_option(
         "--peer", options.peers,
         "another server of the fleet, such as http://10.0.0.8:8080, from which KV of chats and characters that "
         "are new here is brought, and which takes the chats when this one ends; may be given again")
      ->type_name("ADDRESS")
      ->needs(peer_key);
  option("--warm", options.warm, "N",
         "characters that are in the cache before /health says ok: those that peers are asked for most, or else the "
         "store's")
      ->check(whole_number(0, 10000));
  option(
      "--hot-share", options.hot_share, "X",
      "share of this server's requests beyond which a character is hot: peers then bring its KV before they are asked")
      ->check(number_from(0.01, 1));
  const auto kv_events =
      option("--kv-events", options.kv_events, "ENDPOINT",
             "tells routers over ZeroMQ which KV is cached, such as tcp://127.0.0.1:5557 (default: nobody is told)");
  option("--kv-replay", options.kv_replay, "ENDPOINT", "where routers ask for what they have missed of that")
      ->needs(kv_events);
  option("--kv-format", options.kv_format, "FORM", "map, which vllm-router reads, or array, which llm-d reads")
      ->check(tools::name_from({"map", "array"}));
  option("--kv-topic", options.kv_topic, "TOPIC",
         "topic of these messages (default: none for map; kv@ADDRESS:PORT@MODEL for array)")
      ->needs(kv_events);
  app.add_flag("--kv-private", options.kv_private,
               "tell of the KV of chats, too, and not of characters alone: only without --keys")
      ->needs(kv_events);

  app.footer(
      "Examples:\n"
      "  kaiju-server --model model.safetensors --port 8080\n"
      "  curl localhost:8080/v1/chat/completions -H 'content-type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'");
  const std::optional<int> code = tools::parse(app, argc, argv);
  if (options.gate == "bundled") options.gate = tools::bundled_file("model/kaiju-gate.safetensors", KAIJU_CHAT_FOLDER);
  return code;
}

}  // namespace kaiju::server
