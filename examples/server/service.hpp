// Service: what the handlers share. Everything here lives on the I/O thread.
#pragma once

#include <memory>
#include <string>

#include "blocked.hpp"
#include "checkpoints.hpp"
#include "gate.hpp"
#include "grammar.hpp"
#include "http.hpp"
#include "metrics.hpp"
#include "parameters.hpp"
#include "tenants.hpp"
#include "tiers.hpp"
#include "transcripts.hpp"

namespace kaiju::server {

class Moves;
class Recorder;
class Routers;
class Watch;

struct Service {
  asio::io_context& io;
  Server& server;
  std::string model_name;  // what clients call it
  Checkpoints& checkpoints;
  Tenants& tenants;
  Metrics& metrics;
  Transcripts& transcripts;
  Grammars& grammars;
  Tiers& tiers;
  Gate& gate;
  BlockedLog& blocked_log;
  LogFile& swipe_log;  // of replies that users swiped away, for training
  Recorder& recorder;
  Watch& watch;
  Defaults defaults;
  int64_t created;                   // Unix time
  int request_seconds = 600;         // a request that takes longer is ended
  const Routers* routers = nullptr;  // null: no routers are told
  Moves* moves = nullptr;            // set before the first request

  // The current checkpoint's. Tokenizer, chat format, labels and vocabulary are those of every checkpoint that is
  // served.
  const Model& model() const { return *checkpoints.current()->model; }
  const Tokenizer& tokenizer() const;  // throws Failure where the model has none
  const ChatFormat& chat() const;      // likewise
};

// The routes of OpenAI's API, and those of operation. Each file adds its own.
void add_chat_completion_routes(Server& server, Service& service);
void add_completion_routes(Server& server, Service& service);
void add_meta_routes(Server& server, Service& service);
void add_tier_routes(Server& server, Service& service);

}  // namespace kaiju::server
