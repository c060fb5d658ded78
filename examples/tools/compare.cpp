// kaiju-compare: measures how far a checkpoint is from the float model that it was imported from.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string>

#include "layer_errors.hpp"
#include "name_from.hpp"
#include "number_from.hpp"
#include "program.hpp"
#include "reference_file.hpp"
#include "scorer.hpp"

namespace {

using kaiju::tools::print;

// Over all tokens that have been compared.
struct Divergence {
  double kl = 0.0;                    // nats, sum over tokens
  double nll = 0.0, float_nll = 0.0;  // of the text's next tokens, in nats, sum
  int64_t tokens = 0, predicted = 0, same_top = 0;
};

// One row of logits against the float model's log-probabilities. `next` is the text's next token, or -1.
void add_row(std::span<const float> logits, const std::vector<float>& expected, int32_t next, Divergence& sum) {
  const std::span<const float> row = logits.first(expected.size());
  const double maximum = *std::max_element(row.begin(), row.end());
  double total = 0.0;
  for (const float logit : row) total += std::exp(logit - maximum);
  const double log_total = maximum + std::log(total);
  double kl = 0.0;
  for (size_t i = 0; i < row.size(); ++i)
    kl += std::exp(static_cast<double>(expected[i])) * (expected[i] - (row[i] - log_total));
  sum.kl += kl;
  sum.same_top += std::max_element(row.begin(), row.end()) - row.begin() ==
                  std::max_element(expected.begin(), expected.end()) - expected.begin();
  ++sum.tokens;
  if (next < 0) return;
  sum.nll += log_total - row[static_cast<size_t>(next)];
  sum.float_nll -= expected[static_cast<size_t>(next)];
  ++sum.predicted;
}

kaiju::Status compare(kaiju::tools::Scorer& scorer, kaiju::tools::ReferenceFile& reference, int32_t step_tokens,
                      Divergence& sum) {
  const auto vocab = static_cast<size_t>(scorer.vocab_size());
  std::vector<float> expected;
  int64_t first = 0;
  for (const std::vector<int32_t>& text : reference.texts()) {
    KAIJU_TRY(scorer.score({text}, step_tokens, [&](std::span<const float> rows, int64_t position) -> kaiju::Status {
      for (size_t r = 0; r * vocab < rows.size(); ++r) {
        const auto at = static_cast<size_t>(position) + r;
        KAIJU_TRY(reference.read_logprobs(first + static_cast<int64_t>(at), expected));
        add_row(rows.subspan(r * vocab, vocab), expected, at + 1 < text.size() ? text[at + 1] : -1, sum);
      }
      return {};
    }));
    first += static_cast<int64_t>(text.size());
  }
  return {};
}

kaiju::Status compare_layers(kaiju::tools::LayerErrors& errors, kaiju::tools::ReferenceFile& reference) {
  int64_t first = 0;
  std::vector<float> row;
  for (const std::vector<int32_t>& text : reference.texts()) {
    KAIJU_TRY(errors.add(text, [&](size_t layer, std::vector<float>& rows) -> kaiju::Status {
      for (size_t r = 0; r < text.size(); ++r) {
        KAIJU_TRY(reference.read_hidden(layer, first + static_cast<int64_t>(r), row));
        std::copy(row.begin(), row.end(), rows.begin() + static_cast<std::ptrdiff_t>(r * row.size()));
      }
      return {};
    }));
    first += static_cast<int64_t>(text.size());
  }
  return {};
}

kaiju::Status check(const kaiju::ModelConfig& config, const kaiju::tools::ReferenceFile& reference, bool layers) {
  if (reference.vocab_size() > config.vocab_size)
    return kaiju::invalid_argument(
        fmt::format("the reference has a vocabulary of {}, the checkpoint one of {}: they are "
                    "not of the same model",
                    reference.vocab_size(), config.vocab_size));
  for (const std::vector<int32_t>& text : reference.texts()) {
    if (text.size() > static_cast<size_t>(config.context))
      return kaiju::invalid_argument(
          fmt::format("a text of the reference has {} tokens; the model's context is {}", text.size(), config.context));
    for (const int32_t token : text)
      if (token < 0 || token >= reference.vocab_size())
        return kaiju::invalid_argument(
            fmt::format("the reference has token {}, which is outside its vocabulary", token));
  }
  if (!layers) return {};
  if (reference.layers() != config.layers.size() || reference.d_model() != config.d_model)
    return kaiju::invalid_argument(fmt::format(
        "the reference has hidden states of {} layers of width {}, the checkpoint has {} of width {}: write it "
        "with float_reference.py --hidden, from the same model",
        reference.layers(), reference.d_model(), config.layers.size(), config.d_model));
  return {};
}

}  // namespace

static int run(int argc, char** argv) {
  CLI::App app("Measures how far a checkpoint is from the float model that it was imported from.", "kaiju-compare");
  std::string model, reference_path;
  kaiju::ExecutorOptions options;
  bool layers = false;
  app.add_option("FILE", model, "checkpoint")->required();
  app.add_option("--reference", reference_path, "file of examples/import/float_reference.py")
      ->type_name("FILE")
      ->required();
  app.add_flag("--layers", layers,
               "also compute each layer alone, from the float model's input (float_reference.py --hidden), on the CPU");
  app.add_option("--backend", options.backend, "backend to compute with")
      ->check(kaiju::tools::backend_name())
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads; 0: one per core")
      ->check(kaiju::tools::whole_number(0, 256))
      ->capture_default_str();
  app.footer(
      "KL is the mean divergence from the float model's distribution to the checkpoint's, in nats; same top, the share "
      "of "
      "tokens whose likeliest successor is the same.\n"
      "Example:\n"
      "  python3 examples/import/float_reference.py model.gguf --tokens ids.txt --out float.safetensors\n"
      "  kaiju-compare model.safetensors --reference float.safetensors");
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  const auto fail = [&app](const kaiju::Status& status) { return kaiju::tools::fail(app, 1, status.message()); };

  auto reference = kaiju::tools::ReferenceFile::open(reference_path);
  if (!reference.ok()) return fail(reference.status());
  auto checkpoint = kaiju::Checkpoint::open(model);
  if (!checkpoint.ok()) return fail(checkpoint.status());
  if (kaiju::Status status = check((*checkpoint)->config(), *reference, layers); !status.ok()) return fail(status);

  options.slot_count = 1;
  options.step_tokens = 64;
  auto executor = kaiju::make_executor(*checkpoint, options);
  if (!executor.ok()) return fail(executor.status());
  kaiju::tools::Scorer scorer(std::move(executor).value());
  Divergence sum;
  if (kaiju::Status status = compare(scorer, *reference, options.step_tokens, sum); !status.ok()) return fail(status);
  const auto tokens = static_cast<double>(sum.tokens),
             predicted = static_cast<double>(std::max<int64_t>(sum.predicted, 1));
  print("tokens             {}\n", sum.tokens);
  print("KL                 {:.3e} nats\n", sum.kl / tokens);
  print("same top           {:.2f}%\n", 100.0 * static_cast<double>(sum.same_top) / tokens);
  print("perplexity         {:.4f}\n", std::exp(sum.nll / predicted));
  print("float model's      {:.4f}  (ratio {:.4f})\n", std::exp(sum.float_nll / predicted),
        std::exp((sum.nll - sum.float_nll) / predicted));
  if (!layers) return 0;
  auto errors = kaiju::tools::LayerErrors::make(*checkpoint, options.threads > 0 ? options.threads : 2);
  if (!errors.ok()) return fail(errors.status());
  if (kaiju::Status status = compare_layers(*errors, *reference); !status.ok()) return fail(status);
  print("\nlayer  error of what the layer adds\n");
  for (size_t layer = 0; layer < errors->sums().size(); ++layer)
    print("{:>5}  {:.4f}\n", layer, errors->sums()[layer].relative());
  return 0;
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-compare", run, argc, argv); }
