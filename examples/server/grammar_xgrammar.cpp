#include "grammar.hpp"

#include <dlpack/dlpack.h>

#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <optional>
#include <utility>

#include "../structured/vocabulary.hpp"
#include "elsewhere.hpp"
#include "failure.hpp"

namespace kaiju::server {

namespace {

constexpr int64_t kMostCompiledBytes = 128 << 20;

class GrammarGuide : public Guide {
 public:
  GrammarGuide(const xgrammar::CompiledGrammar& grammar, const std::vector<int32_t>& stops, int32_t vocabulary,
               int32_t sequences)
      : mask_(static_cast<size_t>(mask_words(vocabulary))), only_stops_(mask_.size()) {
    for (int32_t i = 0; i < sequences; ++i) matchers_.emplace_back(grammar);
    for (const int32_t token : stops) only_stops_[static_cast<size_t>(token) / 32] |= 1u << token % 32;
  }

  kaiju::Guide next(int32_t sequence) override {
    xgrammar::GrammarMatcher& matcher = matchers_[static_cast<size_t>(sequence)];
    int64_t shape = static_cast<int64_t>(mask_.size());
    DLTensor tensor{mask_.data(), {kDLCPU, 0}, 1, xgrammar::GetBitmaskDLType(), &shape, nullptr, 0};
    try {
      if (matcher.IsTerminated()) return {only_stops_, {}};
      if (!matcher.FillNextTokenBitmask(&tensor)) return {};  // every token may follow
      return {mask_, {}};
    } catch (const std::exception&) {  // a fault of xgrammar ends the reply, and nobody else's
      return {only_stops_, {}};
    }
  }

  void take(int32_t sequence, int32_t token) override {
    xgrammar::GrammarMatcher& matcher = matchers_[static_cast<size_t>(sequence)];
    try {
      if (!matcher.IsTerminated()) (void)matcher.AcceptToken(token);  // its mask allowed the token
    } catch (const std::exception&) {                                 // likewise
    }
  }

 private:
  std::vector<xgrammar::GrammarMatcher> matchers_;
  std::vector<uint32_t> mask_, only_stops_;
};

}  // namespace

class Grammars::Impl {
 public:
  explicit Impl(std::shared_ptr<const Model> model) : model_(std::move(model)), thread_(1) {}
  void join() { thread_.join(); }

  boost::asio::awaitable<std::unique_ptr<Guide>> guide(const Grammar& grammar, int32_t sequences) {
    std::unique_ptr<Guide> made;
    const std::function<void()> make = [&] { made = compile(grammar, sequences); };
    co_await elsewhere(thread_, make);
    co_return made;
  }

 private:
  // On the thread.
  std::unique_ptr<Guide> compile(const Grammar& grammar, int32_t sequences) {
    auto tokenizer = model_->tokenizer();
    if (!tokenizer.ok()) throw of_status(tokenizer.status());
    if (model_->stop_tokens().empty())
      throw bad_request("the model has no stop token, so a reply could not end where its grammar ends",
                        grammar.field.c_str());
    try {
      if (!compiler_) compiler_.emplace(structured::vocabulary_of(*model_, **tokenizer), 1, true, kMostCompiledBytes);
      return std::make_unique<GrammarGuide>(compiled(grammar), model_->stop_tokens(), model_->config().vocab_size,
                                            sequences);
    } catch (const std::exception& problem) {
      throw bad_request(structured::what_of(problem), grammar.field.c_str());
    }
  }

  xgrammar::CompiledGrammar compiled(const Grammar& grammar) {
    switch (grammar.kind) {
      case Grammar::Kind::kSchema:
        return compiler_->CompileJSONSchema(grammar.text, false);
      case Grammar::Kind::kRegex:
        return compiler_->CompileRegex(grammar.text);
      case Grammar::Kind::kEbnf:
        return compiler_->CompileGrammar(grammar.text);
      default:
        return compiler_->CompileJSONSchema(R"({"type": "object"})", false, {}, {}, false);
    }
  }

  std::shared_ptr<const Model> model_;
  std::optional<xgrammar::GrammarCompiler> compiler_;
  boost::asio::thread_pool thread_;
};

Grammars::Grammars(std::shared_ptr<const Model> model) : impl_(std::make_unique<Impl>(std::move(model))) {}
Grammars::~Grammars() { join(); }
void Grammars::join() { impl_->join(); }

boost::asio::awaitable<std::unique_ptr<Guide>> Grammars::guide(const Grammar& grammar, int32_t sequences) {
  if (grammar.kind == Grammar::Kind::kNone) co_return nullptr;
  co_return co_await impl_->guide(grammar, sequences);
}

}  // namespace kaiju::server
