// kaiju-load mixed: requests of all kinds, right, wrong and rude, until so many were made. Replies must equal those
// that the library computes here before; errors must have the status that the kind of mistake has; at the end nothing
// may be left in the server. Reports its memory on the way.
#include <fmt/format.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "commands.hpp"
#include "examples/tools/standard_streams.hpp"
#include "kaiju/kaiju.hpp"

namespace kaiju::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Options {
  int port = 8080, pid = 0, clients = 64, questions = 200;
  int64_t requests = 1000000, every = 50000;
  uint64_t seed = 1;
  std::string model, only;
};

// A question, how it is sampled, and what the library answers.
struct Question {
  std::string text;
  double temperature = 0;
  uint64_t seed = 0;
  int32_t max_tokens = 0;
  std::vector<int32_t> prompt;
  std::array<std::string, 2> replies;  // of variants 0 and 1
};

template <class T>
T value_of(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

std::vector<Question> ask_library(const Options& options, std::mt19937_64& random) {
  const auto model = value_of(Model::load(options.model));
  const ChatFormat& chat = *value_of(model->chat());
  RunOptions run;
  run.executor.threads = 1;
  const auto engine = value_of(model->create_engine(run));
  std::vector<Question> questions(static_cast<size_t>(options.questions));
  for (size_t i = 0; i < questions.size(); ++i) {
    Question& question = questions[i];
    question.text = fmt::format("Question {}: what is {} and {}? Ünïcode, too.", i, random() % 1000, random() % 1000);
    question.temperature = i % 3 == 0 ? 0 : 1;
    question.seed = random() % 1000000;
    question.max_tokens = static_cast<int32_t>(1 + random() % 24);
    const ChatMessage message{ChatRole::kUser, question.text, {}};
    const Status made = chat.format({&message, 1}, {.begin = true, .reply = true}, question.prompt);
    if (!made.ok()) throw std::runtime_error(made.message());
    for (uint32_t variant = 0; variant < 2; ++variant) {
      RequestOptions wanted;
      wanted.sampling.temperature = question.temperature;
      wanted.sampling.seed = question.seed;
      wanted.sampling.variant = variant;
      wanted.max_tokens = question.max_tokens;
      auto session = value_of(Session::create(engine));
      value_of(session.generate(question.prompt, wanted, [&](std::string_view text) {
        question.replies[variant] += text;
        return true;
      }));
    }
  }
  return questions;
}

class Mixed {
 public:
  explicit Mixed(const Options& options)
      : options_(options), random_(options.seed), questions_(ask_library(options, random_)) {}

  int run() {
    tools::print("seed {}; {} questions were answered by the library\n", options_.seed, questions_.size());
    begin_ = Clock::now();
    report();
    asio::co_spawn(io_, make_character(), asio::detached);
    io_.run();
    io_.restart();
    for (int i = 0; i < options_.clients; ++i) asio::co_spawn(io_, client(), asio::detached);
    io_.run();
    io_.restart();
    report();
    asio::co_spawn(io_, settle(), asio::detached);
    io_.run();
    for (const auto& [kind, count] : counts_) tools::print("  {:<24} {}\n", kind, count);
    tools::print("{} replies compared with the library's; {} wrong answers\n", compared_, wrong_);
    return wrong_ == 0 && settled_ ? 0 : 1;
  }

 private:
  uint64_t draw(uint64_t below) { return random_() % below; }
  const Question& question() { return questions_[draw(questions_.size())]; }

  void report() {
    tools::print("{:8} requests, {:6.0f} s, resident {:7.1f} MiB, {} compared, {} wrong\n", made_,
                 std::chrono::duration<double>(Clock::now() - begin_).count(), memory_mib(options_.pid), compared_,
                 wrong_);
    std::fflush(stdout);
  }
  void wrong(const std::string& what) {
    if (++wrong_ <= 20) tools::print(stderr, "wrong: {}\n", what.substr(0, 600));
  }
  void expect(const Answer& answer, int status, const char* what) {
    if (answer.status != status)
      wrong(fmt::format("{}: {} instead of {}: {}", what, answer.status, status, answer.body));
  }
  void compare(const std::string& text, const std::string& wanted, const char* what) {
    ++compared_;
    if (text != wanted) wrong(fmt::format("{}: {:?} instead of {:?}", what, text, wanted));
  }

  asio::awaitable<void> pause(int ms) {
    asio::steady_timer timer(io_, std::chrono::milliseconds(ms));
    co_await timer.async_wait(asio::use_awaitable);
  }

  asio::awaitable<Answer> ask(Client& client, std::string text) {
    if (!client.connected()) co_await client.connect();
    co_await client.send(std::move(text));
    co_return co_await client.receive();
  }

  static json body_of(const Question& question) {
    json body;
    body["temperature"] = question.temperature;
    body["seed"] = question.seed;
    body["max_tokens"] = question.max_tokens;
    return body;
  }
  static json chat_body(const Question& question) {
    json body = body_of(question), message;
    message["role"] = "user";
    message["content"] = question.text;
    body["messages"].push_back(message);
    return body;
  }

  asio::awaitable<void> chat_whole(Client& client) {
    const Question& asked = question();
    json body = chat_body(asked);
    const bool two = draw(8) == 0;
    if (two) body["n"] = 2;
    const Answer answer = co_await ask(client, request_text("POST", "/v1/chat/completions", body.dump()));
    expect(answer, 200, "chat");
    if (answer.status != 200) co_return;
    const json got = json::parse(answer.body);
    for (size_t i = 0; i < (two ? 2 : 1); ++i)
      compare(got["choices"][i]["message"]["content"], asked.replies[i], two ? "chat, n 2" : "chat");
  }

  asio::awaitable<void> chat_stream(Client& client) {
    const Question& asked = question();
    json body = chat_body(asked);
    body["stream"] = true;
    std::string text = request_text("POST", "/v1/chat/completions", body.dump());
    if (!client.connected()) co_await client.connect();
    co_await client.send(std::move(text));
    if (const int status = co_await client.head(); status != 200) {
      wrong(fmt::format("stream: {}: {}", status, co_await client.body()));
      co_return;
    }
    std::string reply;
    bool done = false;
    while (auto data = co_await client.event()) {
      done = *data == "[DONE]";
      if (done) continue;
      const json chunk = json::parse(*data);
      if (chunk.contains("error")) {
        wrong("stream: " + *data);
      } else {
        reply += chunk["choices"][0]["delta"].value("content", "");
      }
    }
    if (!done) wrong("a stream has no [DONE]");
    compare(reply, asked.replies[0], "stream");
  }

  asio::awaitable<void> completion(Client& client) {
    const Question& asked = question();
    json body = body_of(asked);
    body["prompt"] = asked.prompt;
    const Answer answer = co_await ask(client, request_text("POST", "/v1/completions", body.dump()));
    expect(answer, 200, "completion");
    if (answer.status == 200) compare(json::parse(answer.body)["choices"][0]["text"], asked.replies[0], "completion");
  }

  // A text that nobody asked before: caches and kept histories turn over. The first 200,000 requests
  // fill both.
  asio::awaitable<void> new_text(Client& client) {
    Question asked;
    asked.max_tokens = 4;
    for (uint64_t i = 0, words = 1 + draw(made_ < 200000 && options_.only.empty() ? 430 : 60); i < words; ++i)
      asked.text += fmt::format("{:x} ", draw(1 << 30));
    const Answer answer = co_await ask(client, request_text("POST", "/v1/chat/completions", chat_body(asked).dump()));
    expect(answer, 200, "a new text");
  }

  std::string long_request() {
    Question asked = question();
    asked.max_tokens = 400;
    json body = chat_body(asked);
    body["stream"] = true;
    body["ignore_eos"] = true;
    return request_text("POST", "/v1/chat/completions", body.dump());
  }
  asio::awaitable<void> leave(bool at_once) {
    Client client(io_, endpoint_of(options_.port));
    co_await client.connect();
    co_await client.send(long_request());
    if (!at_once) {
      (void)co_await client.head();
      for (uint64_t i = 0, events = draw(6); i < events; ++i) (void)co_await client.event();
    } else if (draw(2) == 0) {
      co_await pause(static_cast<int>(draw(5)));
    }
    client.close();
  }

  asio::awaitable<void> read_slowly(Client&) {
    Client client(io_, endpoint_of(options_.port));
    co_await client.connect();
    client.socket().set_option(asio::socket_base::receive_buffer_size(2048));
    co_await client.send(long_request());
    client.read_bytes = 512;
    (void)co_await client.head();
    int events = 0;
    while (co_await client.event())
      if (++events % 20 == 0) co_await pause(20);
    if (events < 3) wrong("a slow reader got too little");
  }

  asio::awaitable<void> mistake(Client& client) {
    struct Bad {
      const char *method, *path, *body;
      int status;
    };
    static constexpr std::array<Bad, 22> kBad = {
        {{"POST", "/v1/chat/completions", "no json", 400},
         {"POST", "/v1/chat/completions", "", 400},
         {"POST", "/v1/chat/completions", "[]", 400},
         {"POST", "/v1/chat/completions", "{}", 400},
         {"POST", "/v1/chat/completions", R"({"messages":[]})", 400},
         {"POST", "/v1/chat/completions", R"({"messages":"hello"})", 400},
         {"POST", "/v1/chat/completions", R"({"messages":[{"role":"judge","content":"x"}]})", 400},
         {"POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"temperature":-1})", 400},
         {"POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"tools":[{}]})", 400},
         {"POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"n":0})", 400},
         {"POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"max_tokens":100000})", 400},
         {"POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}],"stop":[""]})", 400},
         {"POST", "/v1/completions", R"({"prompt":[]})", 400},
         {"POST", "/v1/completions", R"({"prompt":[999999]})", 400},
         {"POST", "/v1/completions", R"({"prompt":{}})", 400},
         {"POST", "/v1/completions", R"({"prompt":"x","logit_bias":{"a":1}})", 400},
         {"POST", "/v1/embeddings", R"({"input":"x"})", 404},
         {"GET", "/v1/chat/completions", "", 405},
         {"DELETE", "/health", "", 405},
         {"GET", "/nothing/here", "", 404},
         {"BREW", "/health", "", 405},
         {"POST", "/tokenize", R"({"prompt":5})", 400}}};
    const Bad& bad = kBad[draw(kBad.size())];
    const Answer answer = co_await ask(client, request_text(bad.method, bad.path, bad.body));
    expect(answer, bad.status, fmt::format("{} {} {}", bad.method, bad.path, bad.body).c_str());
  }

  // What is no HTTP, or ends in its middle.
  asio::awaitable<void> noise(Client&) {
    Client client(io_, endpoint_of(options_.port));
    co_await client.connect();
    switch (draw(5)) {
      case 0:
        co_await client.send("hello\r\n\r\n");
        break;
      case 1:
        co_await client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n");
        break;
      case 2:
        co_await client.send("GET /health HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n");
        break;
      case 3:  // a body that never comes
        co_await client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{");
        client.close();
        co_return;
      default:
        co_await client.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n");
    }
    const int status = (co_await client.receive()).status;
    if (status != 400 && status != 413 && status != 431) wrong(fmt::format("noise was answered with {}", status));
  }

  asio::awaitable<void> small(Client& client) {
    static constexpr std::array<const char*, 4> kPaths = {"/health", "/version", "/v1/models", "/metrics"};
    std::string text;
    if (draw(2) == 0)
      text = request_text("POST", "/tokenize", R"({"prompt":"How many tokens are these?"})");
    else if (draw(4) == 0)
      text = request_text("POST", "/v1/chat/completions/render", chat_body(question()).dump());
    else
      text = request_text("GET", kPaths[draw(16) == 0 ? 3 : draw(3)]);
    expect(co_await ask(client, std::move(text)), 200, "a small request");
  }

  asio::awaitable<void> make_character() {
    Client client(io_, endpoint_of(options_.port));
    const Answer answer =
        co_await ask(client, request_text("POST", "/characters", R"({"name":"Pip","description":"Pip is a robot."})"));
    expect(answer, 201, "a character");
    if (answer.status == 201) character_ = json::parse(answer.body)["id"];
  }
  asio::awaitable<void> talk(Client& client) {
    Answer answer = co_await ask(client, request_text("POST", "/chats", R"({"character":")" + character_ + "\"}"));
    expect(answer, 201, "a chat");
    if (answer.status != 201) co_return;
    const std::string path = "/chats/" + std::string(json::parse(answer.body)["id"]);
    answer = co_await ask(client,
                          request_text("POST", path + "/say", R"({"text":"Hello!","temperature":0,"max_tokens":6})"));
    expect(answer, 200, "say");
    const std::string first = answer.status == 200 ? std::string(json::parse(answer.body)["reply"]) : "";
    if (answer.status == 200 && draw(2) == 0) {
      answer = co_await ask(client, request_text("POST", path + "/swipe", R"({"temperature":0,"max_tokens":6})"));
      expect(answer, 200, "swipe");
      if (answer.status == 200) compare(json::parse(answer.body)["reply"], first, "a greedy swipe");
    }
    if (draw(2) == 0) {
      answer = co_await ask(client, request_text("GET", path));
      expect(answer, 200, "show");
    }
    answer = co_await ask(client, request_text("DELETE", path));
    expect(answer, 200, "delete");
  }

  struct Kind {
    const char* name;
    uint64_t share;  // of 1000
    asio::awaitable<void> (Mixed::*run)(Client&);
  };
  asio::awaitable<void> leave_in_stream(Client&) { return leave(false); }
  asio::awaitable<void> leave_at_once(Client&) { return leave(true); }

  asio::awaitable<void> one(Client& client) {
    static constexpr std::array<Kind, 11> kKinds = {{{"chat", 330, &Mixed::chat_whole},
                                                     {"chat-stream", 230, &Mixed::chat_stream},
                                                     {"completion", 200, &Mixed::completion},
                                                     {"new-text", 45, &Mixed::new_text},
                                                     {"left-in-stream", 25, &Mixed::leave_in_stream},
                                                     {"left-at-once", 10, &Mixed::leave_at_once},
                                                     {"slow-reader", 2, &Mixed::read_slowly},
                                                     {"mistake", 63, &Mixed::mistake},
                                                     {"noise", 10, &Mixed::noise},
                                                     {"stored-chat", 3, &Mixed::talk},
                                                     {"small", 82, &Mixed::small}}};
    const Kind* kind = kKinds.data();
    if (options_.only.empty())
      for (uint64_t place = draw(1000); place >= kind->share; ++kind) place -= kind->share;
    else
      while (kind->name != options_.only) ++kind;
    ++counts_[kind->name];
    co_await (this->*kind->run)(client);
  }

  asio::awaitable<void> client() {
    auto client = std::make_unique<Client>(io_, endpoint_of(options_.port));
    while (made_ < options_.requests) {
      if (++made_ % options_.every == 0) report();
      std::string problem;
      try {
        co_await one(*client);
      } catch (const std::exception& thrown) {
        problem = thrown.what();
      }
      if (!problem.empty()) {
        wrong("a connection: " + problem);
        client->close();
        co_await pause(10);
      }
      if (draw(200) == 0) client->close();  // between two requests
    }
  }

  // Waits until the server has nothing left of us, and says what it counts.
  asio::awaitable<void> settle() {
    std::string text;
    for (int tries = 0; tries < 100 && !settled_; ++tries) {
      co_await pause(100);
      Client client(io_, endpoint_of(options_.port));
      text = (co_await ask(client, request_text("GET", "/metrics"))).body;
      settled_ = metric(text, "vllm:num_requests_running") == 0 && metric(text, "vllm:num_requests_waiting") == 0 &&
                 metric(text, "kaiju_requests_unfinished") == 0 && metric(text, "vllm:kv_cache_usage_perc") == 0 &&
                 metric(text, "kaiju_connections") == 1;
    }
    tools::print("{}\n", settled_ ? "the ledger is empty:" : "WRONG: the ledger is not empty:");
    for (const char* name : {"vllm:num_requests_running", "vllm:num_requests_waiting", "kaiju_requests_unfinished",
                             "vllm:kv_cache_usage_perc", "kaiju_connections", "kaiju_requests_failed_total",
                             "kaiju_disconnects_total", "vllm:request_success_total", "kaiju_http_answers_total"})
      tools::print("  {} {}\n", name, metric(text, name));
  }

  Options options_;
  std::mt19937_64 random_;
  std::vector<Question> questions_;
  asio::io_context io_{1};
  Clock::time_point begin_;
  int64_t made_ = 0, compared_ = 0, wrong_ = 0;
  std::map<std::string, int64_t> counts_;
  std::string character_;
  bool settled_ = false;
};

}  // namespace

void add_mixed(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("mixed", "requests of all kinds, with replies compared with the library's");
  auto options = std::make_shared<Options>();
  command->add_option("MODEL", options->model, "the checkpoint that the server has")->required();
  command->add_option("--port", options->port, "the server's")->capture_default_str();
  command->add_option("--pid", options->pid, "the server's")->required();
  command->add_option("--clients", options->clients, "requests at once")->capture_default_str();
  command->add_option("--questions", options->questions, "different questions with known replies")
      ->capture_default_str();
  command->add_option("--requests", options->requests, "requests in all")->capture_default_str();
  command->add_option("--every", options->every, "requests between two lines of the report")->capture_default_str();
  command->add_option("--seed", options->seed, "of the random choices")->capture_default_str();
  command->add_option("--only", options->only, "one kind of request alone")
      ->check(CLI::IsMember({"chat", "chat-stream", "completion", "new-text", "left-in-stream", "left-at-once",
                             "slow-reader", "mistake", "noise", "stored-chat", "small"}));
  command->callback([options, &status] { status = Mixed(*options).run(); });
}

}  // namespace kaiju::bench
