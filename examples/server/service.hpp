// Service: what the handlers share. Everything here lives on the I/O thread.
#pragma once

#include <memory>
#include <string>

#include "blocked.hpp"
#include "driver.hpp"
#include "gate.hpp"
#include "grammar.hpp"
#include "http.hpp"
#include "metrics.hpp"
#include "parameters.hpp"
#include "tenants.hpp"
#include "tiers.hpp"
#include "transcripts.hpp"

namespace kaiju::server {

class Heads;
class KvEvents;
class Recorder;
class Watch;

struct Service {
  asio::io_context& io;
  Server& server;
  std::shared_ptr<const Model> model;
  std::string model_name;  // what clients call it
  Driver& driver;
  Tenants& tenants;
  Metrics& metrics;
  Transcripts& transcripts;
  Grammars& grammars;
  Tiers& tiers;
  Gate& gate;
  BlockedLog& blocked_log;
  Recorder& recorder;
  Heads& heads;
  Watch& watch;
  Defaults defaults;
  int64_t created;                      // Unix time
  int request_seconds = 600;            // a request that takes longer is ended
  const KvEvents* kv_events = nullptr;  // null: no routers are told

  const Tokenizer& tokenizer() const;  // throws Failure where the model has none
  const ChatFormat& chat() const;      // likewise
};

// The routes of OpenAI's API, and those of operation. Each file adds its own.
void add_chat_completion_routes(Server& server, Service& service);
void add_completion_routes(Server& server, Service& service);
void add_meta_routes(Server& server, Service& service);
void add_tier_routes(Server& server, Service& service);

}  // namespace kaiju::server
