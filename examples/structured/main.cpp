// kaiju-structured: a reply that follows a JSON schema or a regular expression, over kaiju's C++ interface and
// xgrammar. build.sh builds it.
#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../tools/name_from.hpp"
#include "../tools/number_from.hpp"
#include "../tools/program.hpp"
#include "../tools/text_input.hpp"
#include "kaiju/kaiju.hpp"
#include "vocabulary.hpp"

namespace {

using kaiju::Result, kaiju::Status, kaiju::tools::number_from, kaiju::tools::whole_number;

constexpr size_t kMostSchemaBytes = 1 << 20;

struct Args {
  std::string model, schema_file, regex, message, prompt, backend = "auto";
  int64_t max_tokens = 400;
  double temperature = 0.7;
  uint64_t seed = 0;
};

std::optional<int> parse_args(int argc, char** argv, Args& args) {
  CLI::App app("Writes a reply that follows a JSON schema or a regular expression.", "kaiju-structured");
  app.add_option("--model", args.model, "model file")->type_name("FILE")->required();
  auto* grammar = app.add_option_group("grammar", "what the reply has to follow");
  grammar->add_option("--schema", args.schema_file, "file with a JSON schema")->type_name("FILE");
  grammar->add_option("--regex", args.regex, "regular expression, which the whole reply matches");
  grammar->require_option(1);
  auto* said = app.add_option_group("text", "what the reply answers");
  said->add_option("--message", args.message, "a message, put into the model's chat format");
  said->add_option("--prompt", args.prompt, "a text that the reply continues");
  said->require_option(1);
  app.add_option("--max-tokens", args.max_tokens, "most tokens of the reply")
      ->capture_default_str()
      ->check(whole_number(1, 1 << 20));
  app.add_option("--temperature", args.temperature, "0: the likeliest tokens")
      ->capture_default_str()
      ->check(number_from(0.001, 100, kaiju::tools::Zero::kToo));
  app.add_option("--seed", args.seed, "another seed draws another reply")->capture_default_str()->check(whole_number());
  app.add_option("--backend", args.backend, "auto or a backend's name")
      ->capture_default_str()
      ->check(kaiju::tools::backend_name());
  app.footer(
      "Examples:\n"
      "  kaiju-structured --model model.safetensors --message 'Describe a robot.' --schema robot.json\n"
      "  kaiju-structured --model model.safetensors --message 'Which day?' --regex '[0-9]{4}-[0-9]{2}-[0-9]{2}'\n"
      "A reply that --max-tokens cuts off is told on stderr and gives exit code 1.");
  return kaiju::tools::parse(app, argc, argv);
}

Result<std::vector<int32_t>> prompt_of(const Args& args, const kaiju::Model& model, const kaiju::Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  if (!args.prompt.empty()) return tokenizer.encode(args.prompt);
  auto chat = model.chat();
  if (!chat.ok()) return chat.status();
  (*chat)->append_begin(tokens);
  KAIJU_TRY((*chat)->append(kaiju::ChatRole::kUser, args.message, tokens));
  (*chat)->append_reply_start(tokens);
  return tokens;
}

// xgrammar throws where it cannot read a schema or an expression.
Result<xgrammar::CompiledGrammar> compile(const Args& args, const std::string& schema,
                                          const xgrammar::TokenizerInfo& vocabulary) {
  try {
    xgrammar::GrammarCompiler compiler(vocabulary, 1);
    return args.regex.empty() ? compiler.CompileJSONSchema(schema, false) : compiler.CompileRegex(args.regex);
  } catch (const std::exception& problem) {
    return kaiju::invalid_argument(kaiju::structured::what_of(problem));
  }
}

// The masks of one reply.
class Guide {
 public:
  Guide(const xgrammar::CompiledGrammar& grammar, int32_t vocab_size)
      : matcher_(grammar), mask_(static_cast<size_t>(kaiju::mask_words(vocab_size))) {}

  // Says what the request's next token may be.
  Status give(kaiju::Engine& engine, kaiju::RequestId request) {
    int64_t shape = static_cast<int64_t>(mask_.size());
    DLTensor tensor{mask_.data(), {kDLCPU, 0}, 1, xgrammar::GetBitmaskDLType(), &shape, nullptr, 0};
    if (!matcher_.FillNextTokenBitmask(&tensor)) return engine.guide(request, {});  // every token may follow
    return engine.guide(request, {mask_, {}});
  }
  bool take(int32_t token) { return matcher_.AcceptToken(token); }

 private:
  xgrammar::GrammarMatcher matcher_;
  std::vector<uint32_t> mask_;
};

// Steps the engine until the request is done, and prints its text.
Result<kaiju::DoneReason> follow(kaiju::Engine& engine, kaiju::RequestId request, Guide& guide) {
  KAIJU_TRY(guide.give(engine, request));
  while (true) {
    engine.wait(kaiju::Nanoseconds{1'000'000'000});
    KAIJU_TRY(engine.step());
    bool waits = false;
    for (kaiju::Event event; engine.poll(event);) {
      kaiju::tools::print("{}", event.text);
      std::fflush(stdout);
      if (event.kind == kaiju::EventKind::kFailed) return event.status;
      if (event.kind == kaiju::EventKind::kDone) return event.reason;
      if (event.kind != kaiju::EventKind::kToken) continue;
      if (!guide.take(event.token)) return kaiju::internal_error("xgrammar refuses a token that its mask allowed");
      waits = true;
    }
    if (waits) KAIJU_TRY(guide.give(engine, request));
  }
}

Status reply(const Args& args, const std::string& schema) {
  auto model = kaiju::Model::load(args.model);
  if (!model.ok()) return model.status();
  auto tokenizer = (*model)->tokenizer();
  if (!tokenizer.ok()) return tokenizer.status();
  auto prompt = prompt_of(args, **model, **tokenizer);
  if (!prompt.ok()) return prompt.status();
  if ((*model)->stop_tokens().empty())
    return {kaiju::StatusCode::kUnsupported, "the model has no stop token, so a reply could not end"};
  kaiju::RunOptions run;
  run.executor.backend = args.backend;
  run.executor.slot_count = 1;
  auto engine = (*model)->create_engine(run);
  if (!engine.ok()) return engine.status();
  auto session = kaiju::Session::create(*engine);
  if (!session.ok()) return session.status();

  auto grammar = compile(args, schema, kaiju::structured::vocabulary_of(**model, **tokenizer));
  if (!grammar.ok()) return grammar.status();
  Guide guide(*grammar, (*model)->config().vocab_size);
  kaiju::RequestOptions options;
  options.guided = true;
  options.max_tokens = static_cast<int32_t>(args.max_tokens);
  options.stop_tokens = (*model)->stop_tokens();
  options.sampling.temperature = args.temperature;
  options.sampling.seed = args.seed;
  auto request = session->submit(*prompt, options);
  if (!request.ok()) return request.status();
  auto reason = follow(**engine, *request, guide);
  kaiju::tools::print("\n");
  if (!reason.ok()) return reason.status();
  if (*reason == kaiju::DoneReason::kStopToken) return {};
  return {kaiju::StatusCode::kCancelled, "the reply was cut off: give it more --max-tokens"};
}

int run(int argc, char** argv) {
  Args args;
  if (const auto stop = parse_args(argc, argv, args)) return *stop;
  const CLI::App app("", "kaiju-structured");
  kaiju::tools::TextFile schema;
  if (!args.schema_file.empty()) schema = kaiju::tools::read_text_file(args.schema_file, kMostSchemaBytes);
  if (!schema.problem.empty()) return kaiju::tools::fail(app, 1, schema.problem);
  const Status status = reply(args, schema.text);
  return status.ok() ? 0 : kaiju::tools::fail(app, 1, status.message());
}

}  // namespace

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-structured", run, argc, argv); }
