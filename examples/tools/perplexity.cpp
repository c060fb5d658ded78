// kaiju-perplexity: measures how well a model predicts a text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "kaiju/text/tokenizer.hpp"
#include "name_from.hpp"
#include "number_from.hpp"
#include "program.hpp"
#include "scorer.hpp"
#include "text_input.hpp"

namespace {

constexpr size_t kMostTextBytes = size_t{64} << 20;

struct Encoded {
  std::vector<int32_t> ids;
  std::vector<size_t> parts;  // indices of the tokens with which a part of the text begins

  // Of the text that token `index` spells, without the space that encoding may add before a part.
  size_t bytes_of(size_t index, const kaiju::Tokenizer& tokenizer) const {
    const std::string_view piece = tokenizer.piece(ids[index]);
    const bool added_space =
        tokenizer.adds_space() && piece.starts_with(' ') && std::binary_search(parts.begin(), parts.end(), index);
    return piece.size() - (added_space ? 1 : 0);
  }
};

// A text longer than one call takes comes in parts, each of which ends after a line, where there are lines, or between
// two characters.
kaiju::Result<Encoded> encode(const kaiju::Tokenizer& tokenizer, std::string_view text) {
  if (const size_t good = kaiju::utf8_valid_prefix(text); good != text.size())
    return kaiju::invalid_argument(fmt::format("text is not UTF-8 at byte {}", good + 1));
  Encoded encoded;
  while (!text.empty()) {
    size_t size = std::min(text.size(), kaiju::Tokenizer::kMaxTextBytes);
    if (size < text.size()) {
      const size_t line = text.rfind('\n', size - 1);
      if (line != std::string_view::npos) size = line + 1;
      while ((static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
    }
    auto part = tokenizer.encode(text.substr(0, size));
    if (!part.ok()) return part.status();
    encoded.parts.push_back(encoded.ids.size());
    encoded.ids.insert(encoded.ids.end(), part->begin(), part->end());
    text.remove_prefix(size);
  }
  return encoded;
}

// Negative log-likelihood of `next` under one row of logits, in double.
double surprise(std::span<const float> row, int32_t next) {
  const double maximum = *std::max_element(row.begin(), row.end());
  double total = 0.0;
  for (const float logit : row) total += std::exp(static_cast<double>(logit) - maximum);
  return std::log(total) - (static_cast<double>(row[static_cast<size_t>(next)]) - maximum);
}

// What a text told a model, in nats, and of how many tokens.
struct Surprise {
  double total = 0.0;
  size_t tokens = 0;
  size_t bytes_left_out = 0;  // of tokens that nothing predicts
};

// Adds up the text, in windows of the model's context that each begin with `prefix`.
kaiju::Status score(kaiju::tools::Scorer& scorer, const kaiju::ModelConfig& config, const std::vector<int32_t>& prefix,
                    const Encoded& encoded, const kaiju::Tokenizer& tokenizer, int32_t step_tokens, Surprise& sum) {
  const std::vector<int32_t>& ids = encoded.ids;
  const auto vocab = static_cast<size_t>(config.vocab_size);
  const size_t window = static_cast<size_t>(config.context) - prefix.size();
  for (size_t start = 0; start < ids.size(); start += window) {
    std::vector<int32_t> sequence = prefix;
    sequence.insert(sequence.end(), ids.begin() + static_cast<std::ptrdiff_t>(start),
                    ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), start + window)));
    KAIJU_TRY(
        scorer.score({sequence}, step_tokens, [&](std::span<const float> rows, int64_t position) -> kaiju::Status {
          for (size_t r = 0; r * vocab < rows.size(); ++r) {
            const size_t next = static_cast<size_t>(position) + r + 1;
            if (next < std::max<size_t>(prefix.size(), 1) || next >= sequence.size()) continue;
            sum.total += surprise(rows.subspan(r * vocab, vocab), sequence[next]);
            ++sum.tokens;
          }
          return {};
        }));
    // Without a prefix nothing predicts a window's first token.
    if (prefix.empty()) sum.bytes_left_out += encoded.bytes_of(start, tokenizer);
  }
  return {};
}

}  // namespace

static int run(int argc, char** argv) {
  CLI::App app("Computes the perplexity of a model on a text file, in windows of the model's context length.",
               "kaiju-perplexity");
  std::string model, text_path;
  kaiju::ExecutorOptions options;
  bool raw = false;
  app.add_option("FILE", model, "checkpoint with a tokenizer")->required();
  app.add_option(
         "--text", text_path,
         fmt::format("UTF-8 text, at most {} MiB; a byte-order mark at its beginning is skipped", kMostTextBytes >> 20))
      ->type_name("FILE")
      ->required();
  app.add_option("--backend", options.backend, "backend to compute with")
      ->check(kaiju::tools::backend_name())
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads; 0: one per core")
      ->check(kaiju::tools::whole_number(0, 256))
      ->capture_default_str();
  app.add_flag("--raw", raw, "do not begin each window with the model's symbols for begin and text");
  app.footer(
      "The program counts the tokens and bytes that it predicted. Without the symbols, it does not predict the first "
      "token of a window.\n"
      "Example:\n  kaiju-perplexity model.safetensors --text story.txt");
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  const auto fail = [&app](const kaiju::Status& status) { return kaiju::tools::fail(app, 1, status.message()); };

  auto checkpoint = kaiju::Checkpoint::open(model);
  if (!checkpoint.ok()) return fail(checkpoint.status());
  if (!(*checkpoint)->find("tokenizer"))
    return fail(kaiju::invalid_argument(
        fmt::format("{} has no tokenizer, so a text cannot be scored: use a trained checkpoint", model)));
  auto tokenizer = kaiju::Tokenizer::load(std::as_bytes((*checkpoint)->view<uint8_t>("tokenizer")),
                                          (*checkpoint)->config().vocab_size);
  if (!tokenizer.ok()) return fail(tokenizer.status());
  const kaiju::tools::TextFile read = kaiju::tools::read_text_file(text_path, kMostTextBytes);
  if (!read.problem.empty()) return fail({kaiju::StatusCode::kIo, read.problem});
  const std::string& text = read.text;
  auto encoded = encode(**tokenizer, text);
  if (!encoded.ok()) return fail({encoded.status().code(), text_path + ": " + encoded.status().message()});
  const std::vector<int32_t>& ids = encoded->ids;
  if (ids.size() < 2)
    return fail(
        kaiju::invalid_argument(fmt::format("{} holds {} tokens: at least two are needed", text_path, ids.size())));

  const kaiju::ModelConfig& config = (*checkpoint)->config();
  std::vector<int32_t> prefix;
  if (!raw)
    for (const int32_t symbol : {config.chat.begin, config.chat.text})
      if (symbol >= 0) prefix.push_back(symbol);
  if (static_cast<size_t>(config.context) <= prefix.size() + 1)
    return fail(kaiju::invalid_argument("the model's context is too short to predict anything"));

  options.slot_count = 1;
  options.step_tokens = std::min(256, config.context);
  auto executor = kaiju::make_executor(*checkpoint, options);
  if (!executor.ok()) return fail(executor.status());
  kaiju::tools::Scorer scorer(std::move(executor).value());

  Surprise sum;
  if (const kaiju::Status scored = score(scorer, config, prefix, *encoded, **tokenizer, options.step_tokens, sum);
      !scored.ok())
    return fail(scored);
  kaiju::tools::print("tokens: {}\nbytes: {}\nperplexity: {:.4f}\nbits per byte: {:.4f}\n", sum.tokens,
                      text.size() - sum.bytes_left_out, std::exp(sum.total / static_cast<double>(sum.tokens)),
                      sum.total / std::log(2.0) / static_cast<double>(text.size() - sum.bytes_left_out));
  return 0;
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-perplexity", run, argc, argv); }
