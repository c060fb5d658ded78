// kaiju-load streams: the conversations of `kaiju-bench serve --turns 1`, with the same tokens and seeds, asked of a
// server. Each conversation is a stream of /v1/completions, and all begin at once.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <chrono>
#include <memory>
#include <vector>

#include "bench/replay/trace.hpp"
#include "commands.hpp"
#include "examples/tools/standard_streams.hpp"

namespace kaiju::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int port = 8080, pid = 0;
  int32_t conversations = 64, characters = 4, prompt_tokens = 512, user_tokens = 30, reply_tokens = 100;
  int32_t vocabulary = 8192;
};

class Streams {
 public:
  explicit Streams(const Options& options) : options_(options) {}

  int run() {
    std::vector<std::string> bodies;
    for (int32_t c = 0; c < options_.conversations; ++c) bodies.push_back(body(c));
    const double server_before = cpu_seconds(options_.pid), own_before = own_cpu_seconds();
    const auto begin = Clock::now();
    for (const std::string& body : bodies) asio::co_spawn(io_, stream(body), asio::detached);
    io_.run();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::sort(between_ms_.begin(), between_ms_.end());
    const auto at = [&](double q) {
      return between_ms_.empty() ? 0
                                 : between_ms_[static_cast<size_t>(q * static_cast<double>(between_ms_.size() - 1))];
    };
    tools::print(
        "{} tokens in {:.2f} s, {:.1f} a second; {} events, between them {:.1f} / {:.1f} ms (p50, p99); processor: "
        "server "
        "{:.2f} s, client {:.2f} s; {} streams failed\n",
        tokens_, seconds, static_cast<double>(tokens_) / seconds, events_, at(0.5), at(0.99),
        cpu_seconds(options_.pid) - server_before, own_cpu_seconds() - own_before, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  // As make_trace of bench/serve.cpp numbers the contents of one turn.
  std::string body(int32_t c) const {
    std::string prompt;
    const auto add = [&](int32_t content, int32_t count) {
      for (int32_t i = 0; i < count; ++i)
        prompt += fmt::format("{}{}", prompt.empty() ? "" : ",", replay::token_of(content, i, options_.vocabulary));
    };
    add(1 + c % options_.characters, options_.prompt_tokens);
    const int32_t user = options_.characters + 1 + 2 * c;
    add(user, options_.user_tokens);
    return fmt::format(R"({{"prompt":[{}],"stream":true,"ignore_eos":true,"temperature":0,"seed":{},)"
                       R"("max_tokens":{},"stream_options":{{"include_usage":true}}}})",
                       prompt, user + 1, options_.reply_tokens);
  }

  asio::awaitable<void> stream(std::string text) {
    Client client(io_, endpoint_of(options_.port));
    try {
      co_await client.connect();
      co_await client.send(request_text("POST", "/v1/completions", text));
      if (co_await client.head() != 200) {
        tools::print("refused: {}\n", co_await client.body());
        ++failed_;
        co_return;
      }
      Clock::time_point last{};
      while (const auto data = co_await client.event()) {
        const auto now = Clock::now();
        if (last != Clock::time_point()) between_ms_.push_back(std::chrono::duration<double>(now - last).count() * 1e3);
        last = now;
        ++events_;
        if (const size_t at = data->find("\"completion_tokens\":"); at != std::string::npos)
          tokens_ += std::atoll(data->c_str() + at + 20);
      }
    } catch (const std::exception& problem) {
      tools::print("failed: {}\n", problem.what());
      ++failed_;
    }
  }

  Options options_;
  asio::io_context io_{1};
  std::vector<double> between_ms_;
  int64_t tokens_ = 0, events_ = 0;
  int failed_ = 0;
};

}  // namespace

void add_streams(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("streams", "the conversations of kaiju-bench serve --turns 1 over HTTP");
  auto options = std::make_shared<Options>();
  command->add_option("--port", options->port, "the server's")->capture_default_str();
  command->add_option("--pid", options->pid, "the server's")->required();
  command->add_option("--conversations", options->conversations, "streams at once")->capture_default_str();
  command->add_option("--characters", options->characters, "prompts that conversations share")->capture_default_str();
  command->add_option("--prompt-tokens", options->prompt_tokens, "length of these")->capture_default_str();
  command->add_option("--user-tokens", options->user_tokens, "length of a message")->capture_default_str();
  command->add_option("--reply-tokens", options->reply_tokens, "length of a reply")->capture_default_str();
  command->add_option("--vocabulary", options->vocabulary, "the model's")->capture_default_str();
  command->callback([options, &status] { status = Streams(*options).run(); });
}

}  // namespace kaiju::bench
