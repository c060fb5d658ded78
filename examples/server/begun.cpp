#include "begun.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "failure.hpp"

namespace kaiju::server {

namespace {

constexpr const char* kField = "reply_token_ids";

Failure not_continuable(const std::string& what) {
  return {400, what + " cannot be continued from its tokens: leave reply_token_ids out, and the same reply comes again",
          kField, "not_continuable"};
}

// Tokens as bytes, with special tokens that no text can be taken for. White space is one space each, and none beside
// special tokens, as clients trim messages.
std::string spelled(const Tokenizer& tokenizer, std::span<const int32_t> tokens) {
  std::string bytes;
  bool space = false, beside = true;
  for (const int32_t token : tokens) {
    if (tokenizer.is_special(token)) {
      bytes += fmt::format("{}{}{}", '\0', token, '\0');
      space = false, beside = true;
      continue;
    }
    for (const char c : tokenizer.piece(token)) {
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        space = !beside;
        continue;
      }
      if (space) bytes += ' ';
      bytes += c;
      space = beside = false;
    }
  }
  return bytes;
}

}  // namespace

std::vector<int32_t> read_begun(const Fields& fields, const Wanted& wanted, int32_t vocabulary) {
  std::vector<int32_t> begun = fields.tokens(kField, vocabulary);
  if (begun.empty()) return begun;
  const RequestOptions& options = wanted.options;
  if (!fields.has("seed") && options.sampling.temperature != 0)
    throw bad_request("reply_token_ids needs the seed that the reply was begun with", "seed");
  if (wanted.best_of != 1) throw not_continuable("one of several replies");
  if (wanted.logprobs) throw not_continuable("a reply with logprobs");
  if (begun.size() > static_cast<size_t>(options.max_tokens))
    throw bad_request(fmt::format("reply_token_ids has {} tokens, more than max_tokens", begun.size()), kField);
  return begun;
}

std::vector<int32_t> read_prompt_tokens(const Fields& fields, const Service& service, std::vector<int32_t> own) {
  std::vector<int32_t> given = fields.tokens("prompt_token_ids", service.model().config().vocab_size);
  if (given.empty() || given == own) return own;
  if (spelled(service.tokenizer(), given) != spelled(service.tokenizer(), own))
    throw bad_request("prompt_token_ids are not tokens of these messages: leave them out", "prompt_token_ids");
  return given;
}

std::vector<int32_t> begin_reply(const Asked& asked, RequestOptions& options, Guide* guide) {
  std::vector<int32_t> tokens = asked.tokens;
  if (asked.begun.empty()) return tokens;
  const std::span<const int32_t> taken(asked.begun.data(), asked.begun.size() - 1);
  tokens.insert(tokens.end(), taken.begin(), taken.end());
  options.begun_tokens = static_cast<int32_t>(taken.size());
  options.max_tokens -= options.begun_tokens;
  for (const int32_t token : taken)
    if (guide) guide->take(0, token);
  return tokens;
}

void check_begun(const Run& run) {
  if (run.begun.empty()) return;
  const std::vector<int32_t>& tokens = run.choices[0].tokens;
  if (tokens.size() != run.begun.size() || tokens.back() == run.begun.back()) return;
  throw Failure{
      409,
      fmt::format("token {} of reply_token_ids is {}, and this request draws {} there: prompt, seed, samplers "
                  "or checkpoint are not those that began the reply",
                  tokens.size() - 1, run.begun.back(), tokens.back()),
      kField, "other_reply"};
}

}  // namespace kaiju::server
