// POST /v1/completions: a text is continued as it is, without the chat format.
#include <fmt/format.h>

#include "failure.hpp"
#include "openai.hpp"

namespace server {

using kaiju::Event, kaiju::EventKind;
using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kMostPrompts = 64;

struct TextPrompt {
  std::vector<int32_t> tokens;
  std::string text;  // for echo
};

TextPrompt text_prompt(const Service& service, const std::string& text, bool begin) {
  TextPrompt prompt{{}, text};
  const kaiju::Tokenizer& tokenizer = service.tokenizer();
  if (auto chat = service.model->chat(); begin && chat.ok()) (*chat)->append_begin(prompt.tokens);
  auto tokens = tokenizer.encode(text);
  if (!tokens.ok()) throw of_status(tokens.status(), "prompt");
  prompt.tokens.insert(prompt.tokens.end(), tokens->begin(), tokens->end());
  return prompt;
}

TextPrompt token_prompt(const Service& service, const nlohmann::json& list) {
  TextPrompt prompt;
  const nlohmann::json object{{"prompt", list}};
  prompt.tokens = Fields(object).tokens("prompt", service.model->config().vocab_size);
  auto text = service.tokenizer().decode(prompt.tokens);
  if (text.ok()) prompt.text = *text;
  return prompt;
}

// A text, a list of texts, a list of token ids, or a list of such lists.
std::vector<TextPrompt> read_prompts(const Service& service, const Fields& fields) {
  if (!fields.has("prompt")) throw bad_request("prompt is missing: a text, a list of texts, or token ids", "prompt");
  const nlohmann::json& given = fields.at("prompt");
  const bool begin = fields.flag("add_special_tokens", true);
  std::vector<TextPrompt> prompts;
  if (given.is_string()) {
    prompts.push_back(text_prompt(service, given.get<std::string>(), begin));
  } else if (given.is_array() && !given.empty() && given[0].is_number()) {
    prompts.push_back(token_prompt(service, given));
  } else if (given.is_array() && !given.empty()) {
    if (given.size() > kMostPrompts)
      throw bad_request(fmt::format("prompt has {} texts; at most {} are taken at once", given.size(), kMostPrompts),
                        "prompt");
    for (const nlohmann::json& one : given)
      prompts.push_back(one.is_string() ? text_prompt(service, one.get<std::string>(), begin)
                                        : token_prompt(service, one));
  } else {
    throw bad_request("prompt must be a text, a list of texts, or token ids", "prompt");
  }
  for (TextPrompt& prompt : prompts)
    if (prompt.tokens.empty()) throw bad_request("prompt has no token", "prompt");
  return prompts;
}

// OpenAI's older form of log-probabilities.
struct Logprobs {
  Json tokens = Json::array(), values = Json::array(), top = Json::array(), offsets = Json::array();
  size_t offset = 0;

  void add(const Service& service, const Event& event) {
    const std::string text = token_text(service, event.token);
    tokens.push_back(text);
    values.push_back(event.logprob);
    Json best = Json::object();
    for (const kaiju::TokenLogprob& one : event.top) best[token_text(service, one.token)] = one.logprob;
    top.push_back(best);
    offsets.push_back(offset);
    offset += text.size();
  }
  Json json() const {
    return {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", top}, {"text_offset", offsets}};
  }
};

class Completion {
 public:
  Completion(Service& service, Exchange& exchange)
      : service_(service),
        exchange_(exchange),
        body_(exchange.json()),
        fields_(body_),
        tenant_(service.tenants.of(exchange)) {}

  asio::awaitable<void> answer() {
    service_.tenants.admit(tenant_);
    const AtOnce counted(tenant_);
    wanted_ = read_wanted(fields_, false, service_.defaults, *service_.model);
    if (fields_.has("response_format"))
      throw bad_request("response_format is not supported: this server has no grammar engine", "response_format");
    prompts_ = read_prompts(service_, fields_);
    std::exception_ptr failed;
    try {
      for (const TextPrompt& prompt : prompts_) {
        Wanted wanted = wanted_;
        complete(service_, tenant_, fields_, prompt.tokens.size(), wanted);
        runs_.push_back(start(service_, wanted, prompt.tokens));
        logprobs_.emplace_back(runs_.back().choices.size());
      }
      exchange_.on_gone = [this] {
        ++service_.metrics.disconnects;
        cancel();
      };
      if (wanted_.stream)
        co_await stream();
      else
        co_await whole();
    } catch (...) {
      failed = std::current_exception();
    }
    if (!failed) co_return;
    cancel();
    std::rethrow_exception(failed);
  }

 private:
  void cancel() {
    for (const Run& run : runs_)
      if (!run.done) service_.driver.cancel(run.request);
  }

  Json head() const {
    return {{"id", "cmpl-" + exchange_.id},
            {"object", "text_completion"},
            {"created", created_},
            {"model", service_.model_name},
            {"system_fingerprint", service_.model->checkpoint()->digest().substr(0, 16)}};
  }

  // GCC 12 does not compile lists in braces inside a coroutine: what is answered is made by the functions below.
  Json whole_answer() const {
    Json answer = head();
    answer["choices"] = Json::array();
    for (size_t r = 0; r < runs_.size(); ++r)
      for (const size_t i : best(runs_[r].choices, wanted_.n)) {
        const Choice& choice = runs_[r].choices[i];
        answer["choices"].push_back({{"index", answer["choices"].size()},
                                     {"text", (wanted_.echo ? prompts_[r].text : "") + choice.text},
                                     {"logprobs", wanted_.logprobs ? logprobs_[r][i].json() : Json()},
                                     {"finish_reason", text_or_null(finish_reason(choice.reason))}});
      }
    answer["usage"] = usage_of(runs_);
    return answer;
  }

  std::string chunk(size_t index, const std::string& text, Json logprobs = {}, const char* finish = nullptr) const {
    Json data = head();
    data["choices"] = Json::array();
    data["choices"].push_back(
        {{"index", index}, {"text", text}, {"logprobs", std::move(logprobs)}, {"finish_reason", text_or_null(finish)}});
    if (wanted_.usage_in_stream) data["usage"] = nullptr;
    return dump(data);
  }

  std::string usage_chunk() const {
    Json data = head();
    data["choices"] = Json::array();
    data["usage"] = usage_of(runs_);
    return dump(data);
  }

  // The chunk of an event, if it says something.
  void add_chunk(size_t r, size_t choice, const Event& event, std::vector<std::string>& chunks) {
    const bool token = event.kind == EventKind::kToken;
    const char* const finish = token ? nullptr : finish_reason(event.reason);
    Json logprobs;
    if (wanted_.logprobs && token) {
      Logprobs one;
      one.offset = logprobs_[r][choice].offset;
      one.add(service_, event);
      logprobs_[r][choice].offset = one.offset;
      logprobs = one.json();
    }
    if (!event.text.empty() || !logprobs.is_null() || finish)
      chunks.push_back(chunk(r * runs_[r].choices.size() + choice, event.text, std::move(logprobs), finish));
  }

  asio::awaitable<void> whole() {
    for (size_t r = 0; r < runs_.size(); ++r)
      while (!runs_[r].done)
        co_await next(service_, runs_[r], [&](size_t choice, const Event& event) {
          if (wanted_.logprobs && event.kind == EventKind::kToken) logprobs_[r][choice].add(service_, event);
        });
    count_finished(service_, exchange_, runs_);
    co_await exchange_.answer(whole_answer());
  }

  asio::awaitable<void> stream() {
    co_await exchange_.begin_events();
    for (size_t r = 0; r < runs_.size(); ++r) {  // one prompt after the other: the events of the others wait
      if (wanted_.echo)
        for (size_t i = 0; i < runs_[r].choices.size(); ++i)
          co_await exchange_.event(chunk(r * runs_[r].choices.size() + i, prompts_[r].text));
      while (!runs_[r].done) {
        std::vector<std::string> chunks;
        co_await next(service_, runs_[r],
                      [&](size_t choice, const Event& event) { add_chunk(r, choice, event, chunks); });
        for (std::string& one : chunks) co_await exchange_.event(std::move(one));
        // Events of a later prompt waited for the one before it.
        if (!chunks.empty() && r == 0) service_.metrics.event_to_socket.add(runs_[r].reply->seconds());
      }
    }
    count_finished(service_, exchange_, runs_);
    if (wanted_.usage_in_stream) co_await exchange_.event(usage_chunk());
    co_await exchange_.end_events();
  }

  Service& service_;
  Exchange& exchange_;
  const nlohmann::json body_;
  const Fields fields_;
  Tenant& tenant_;
  const int64_t created_ = unix_time();
  Wanted wanted_;
  std::vector<TextPrompt> prompts_;
  std::vector<Run> runs_;                        // one for each prompt
  std::vector<std::vector<Logprobs>> logprobs_;  // of each choice
};

}  // namespace

void add_completion_routes(Server& server, Service& service) {
  server.route("POST", "/v1/completions", [&service](Exchange& exchange) -> asio::awaitable<void> {
    Completion completion(service, exchange);
    co_await completion.answer();
  });
}

}  // namespace server
