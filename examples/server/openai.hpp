// What the completion routes share: the prompts of a request, run in the engine, and their choices.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reply.hpp"
#include "service.hpp"

namespace kaiju::server {

// What is computed, and what of it the gate judges: what the user said last.
struct Asked {
  std::vector<int32_t> tokens;
  std::string said = {};
  std::string character = {};       // of the shared region that the prompt begins with; empty: none
  int32_t shared_tokens = 0;        // the length of that
  std::vector<int32_t> begun = {};  // the reply's tokens so far, from another server (begun.hpp)
};

// A prompt in the engine. Its choices fill while its events are taken.
struct Run {
  Seat at;
  std::shared_ptr<ReplyEvents> events;
  RequestId request = 0;
  std::vector<int32_t> prompt;  // with Wanted::token_ids
  std::vector<int32_t> begun;   // Asked::begun
  std::vector<Choice> choices;  // best_of
  RequestCounts counts;
  ReuseReport reuse;
  // Tokens of a choice once its first event has come.
  size_t first_tokens() const { return std::max<size_t>(begun.size(), 1); }

  bool done = false;
  bool shown = false;  // a client could see something of it
  std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
};

// Submits a prompt, as the tenant's next request, unless the gate blocks it. Throws Failure where the engine refuses
// it.
Run start(Service& service, const Seat& at, const Tenant& tenant, const Wanted& wanted, const Asked& asked,
          std::unique_ptr<Guide> guide = nullptr, Driver::Keep keep = {});
// Cancels a run, where it has not ended.
void cancel(const Run& run);

// Takes the next events of a run, and hands each to `use` with the index of its choice. Throws Failure where the
// request failed. In a coroutine that has a name outside its file, make `use` before co_await: GCC warns of a closure
// that lies in such a coroutine's frame (-Wsubobject-linkage).
using UseEvent = std::function<void(size_t choice, const Event& event)>;
asio::awaitable<void> next(Service& service, const Wanted& wanted, Run& run, const UseEvent& use);

// The request's options with what the server adds: salt, deadline. Refuses a prompt that leaves no room, and
// cuts max_tokens that nobody gave to the room that there is.
void complete(Service& service, const Served& at, const Tenant& tenant, const Fields& fields, size_t prompt_tokens,
              Wanted& wanted);

// Counts a client that left before its answer, and says so in the exchange's log.
void count_disconnect(Service& service, Exchange& exchange, const Tenant& tenant);
// Counts finished runs in the metrics, for this character, and in the exchange's log.
void count_finished(Service& service, Exchange& exchange, const std::vector<Run>& runs, const std::string& character);
// Counts what a limit ended in a run, and writes it to the log of these. `messages`: those of the request.
void count_blocked(Service& service, Exchange& exchange, const Tenant& tenant, const Wanted& wanted, const Run& run,
                   const std::function<nlohmann::ordered_json()>& messages);

// The bytes of a token's text.
std::string token_text(const Service& service, int32_t token);
nlohmann::ordered_json text_or_null(const char* text);
std::string dump(const nlohmann::ordered_json& json);
int64_t unix_time();

// One request of a completion route, from its body to its last byte. The routes say what their prompts are, and what a
// choice looks like.
class Completion {
 public:
  // What differs between the routes in all answers.
  struct Form {
    bool chat;
    const char *id, *whole, *chunk;  // the beginning of its id; names of objects
  };
  Completion(Service& service, Exchange& exchange, const Form& form);
  virtual ~Completion() = default;
  asio::awaitable<void> answer();

 protected:
  using Json = nlohmann::ordered_json;

  // Brings what peers know of the request's chat.
  virtual asio::awaitable<void> prepare() { co_return; }
  // Of the reply, the tokens that the event's chunk tells: those that were begun come with the first one.
  std::vector<int32_t> tokens_of(size_t run, size_t choice, const Event& event) const;

  // Reads what the route alone knows.
  virtual std::vector<Asked> read_prompts() = 0;
  // What names the request's chat in all of its turns, and where that began; after read_prompts.
  virtual std::string chat_name() const = 0;
  virtual Checkpoints::Began began() const { return Checkpoints::Began::kNot; }
  // Is told every event before anything of it is answered.
  virtual void take(size_t run, size_t choice, const Event& event) = 0;
  // All replies have ended, and the end is not yet answered.
  virtual void finished() {}
  // What a prompt was made of, as messages with roles.
  virtual Json messages(size_t run) const = 0;
  // A choice of an answer that is no stream, without its index.
  virtual Json whole_choice(size_t run, size_t choice) const = 0;
  // The chunks with which a prompt's choices begin, and those of an event.
  virtual void add_first_chunks(size_t run, std::vector<std::string>& chunks) const = 0;
  virtual void add_chunks(size_t run, size_t choice, const Event& event, std::vector<std::string>& chunks) const = 0;

  // A chunk with one choice; `fields` follow its index. `prompt`: with the field prompt_token_ids.
  std::string chunk(size_t run, size_t choice, const Json& fields, bool prompt = false) const;

  Service& service_;
  Exchange& exchange_;
  const nlohmann::json body_;
  const Fields fields_;
  Tenant& tenant_;
  Wanted wanted_;
  Seat at_;
  std::vector<Run> runs_;  // one for each prompt

 private:
  asio::awaitable<void> submit();
  asio::awaitable<void> whole();
  asio::awaitable<void> stream();
  void finish();
  void cancel();
  Json head(const char* object) const;
  Json whole_answer() const;
  std::string usage_chunk() const;

  const Form form_;
  const int64_t created_ = unix_time();
  mutable std::string chunk_head_;  // what every chunk begins with, made once
  bool gone_ = false;               // the client
};

}  // namespace kaiju::server
