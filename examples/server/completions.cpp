// POST /v1/completions: a text is continued as it is, without the chat format.
#include <fmt/format.h>

#include "failure.hpp"
#include "openai.hpp"

namespace kaiju::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kMostPrompts = 64;

struct TextPrompt {
  std::vector<int32_t> tokens;
  std::string text;  // for echo
};

TextPrompt text_prompt(const Service& service, const std::string& text, bool begin) {
  TextPrompt prompt{{}, text};
  const Tokenizer& tokenizer = service.tokenizer();
  if (auto chat = service.model().chat(); begin && chat.ok()) (*chat)->append_begin(prompt.tokens);
  auto tokens = tokenizer.encode(text);
  if (!tokens.ok()) throw of_status(tokens.status(), "prompt");
  prompt.tokens.insert(prompt.tokens.end(), tokens->begin(), tokens->end());
  return prompt;
}

TextPrompt token_prompt(const Service& service, const nlohmann::json& list) {
  TextPrompt prompt;
  const nlohmann::json object{{"prompt", list}};
  prompt.tokens = Fields(object).tokens("prompt", service.model().config().vocab_size);
  auto text = service.tokenizer().decode(prompt.tokens);
  if (text.ok()) prompt.text = *text;
  return prompt;
}

// A text, a list of texts, a list of token ids, or a list of such lists.
std::vector<TextPrompt> prompts_of(const Service& service, const Fields& fields) {
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
    for (const TokenLogprob& one : event.top) best[token_text(service, one.token)] = one.logprob;
    top.push_back(best);
    offsets.push_back(offset);
    offset += text.size();
  }
  Json json() const {
    return {{"tokens", tokens}, {"token_logprobs", values}, {"top_logprobs", top}, {"text_offset", offsets}};
  }
};

class TextCompletion : public Completion {
 public:
  TextCompletion(Service& service, Exchange& exchange)
      : Completion(service, exchange, {false, "cmpl-", "text_completion", "text_completion"}) {}

 private:
  std::vector<Asked> read_prompts() override {
    prompts_ = prompts_of(service_, fields_);
    std::vector<Asked> asked;
    for (const TextPrompt& prompt : prompts_) asked.push_back({prompt.tokens, prompt.text});
    logprobs_.resize(prompts_.size(), std::vector<Logprobs>(static_cast<size_t>(wanted_.best_of)));
    return asked;
  }

  std::string chat_name() const override { return prompts_[0].text; }

  Json messages(size_t run) const override {
    return Json::array({{{"role", "user"}, {"content", prompts_[run].text}}});
  }

  void take(size_t run, size_t choice, const Event& event) override {
    if (!wanted_.logprobs || event.kind != EventKind::kToken) return;
    Logprobs& logprobs = logprobs_[run][choice];
    if (wanted_.stream)
      logprobs.offset += token_text(service_, event.token).size();
    else
      logprobs.add(service_, event);
  }

  Json whole_choice(size_t run, size_t choice) const override {
    return {{"text", (wanted_.echo ? prompts_[run].text : "") + runs_[run].choices[choice].text},
            {"logprobs", wanted_.logprobs ? logprobs_[run][choice].json() : Json()}};
  }

  Json piece(const std::string& text, Json logprobs = {}, const char* finish = nullptr) const {
    return {{"text", text}, {"logprobs", std::move(logprobs)}, {"finish_reason", text_or_null(finish)}};
  }

  void add_first_chunks(size_t run, std::vector<std::string>& chunks) const override {
    for (size_t i = 0; wanted_.echo && i < runs_[run].choices.size(); ++i)
      chunks.push_back(chunk(run, i, piece(prompts_[run].text)));
  }

  void add_chunks(size_t run, size_t choice, const Event& event, std::vector<std::string>& chunks) const override {
    const bool token = event.kind == EventKind::kToken;
    const char* const finish = token ? nullptr : finish_reason(event.reason);
    Json logprobs;
    if (wanted_.logprobs && token) {
      Logprobs one;
      one.offset = logprobs_[run][choice].offset;
      one.add(service_, event);
      logprobs = one.json();
    }
    const bool tokens = wanted_.token_ids && token;
    if (event.text.empty() && logprobs.is_null() && !finish && !tokens) return;
    Json fields = piece(event.text, std::move(logprobs), finish);
    if (tokens) {
      std::vector<int32_t> ids = tokens_of(run, choice, event);
      if (runs_[run].choices[choice].tokens.size() == ids.size()) fields["prompt_token_ids"] = runs_[run].prompt;
      fields["token_ids"] = std::move(ids);
    }
    chunks.push_back(chunk(run, choice, fields));
  }

  std::vector<TextPrompt> prompts_;
  std::vector<std::vector<Logprobs>> logprobs_;  // of each choice
};

}  // namespace

void add_completion_routes(Server& server, Service& service) {
  server.route("POST", "/v1/completions", [&service](Exchange& exchange) -> asio::awaitable<void> {
    TextCompletion completion(service, exchange);
    co_await completion.answer();
  });
}

}  // namespace kaiju::server
