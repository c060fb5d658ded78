// kaiju-score: computes the logits of every position of a token sequence, and their digest. Equal digests show that two
// machines compute the same bits.
#include <fmt/format.h>
#include <xxhash.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "format/new_file.hpp"
#include "interrupted.hpp"
#include "kaiju/arith/sampling.hpp"
#include "kaiju/base/random.hpp"
#include "name_from.hpp"
#include "number_from.hpp"
#include "output_files.hpp"
#include "program.hpp"
#include "scorer.hpp"

namespace {

using kaiju::Status;

constexpr int32_t kMostStepTokens = 65536;
constexpr size_t kMostWordBytes = 40;      // of one token id; longer is none
constexpr size_t kMostBytesPerToken = 64;  // of the text of ids, white space included

// The ids in a text, checked as they are read: what never ends is refused, not collected.
class TokenReader {
 public:
  explicit TokenReader(const kaiju::ModelConfig& config)
      : vocab_size_(config.vocab_size), most_tokens_(static_cast<size_t>(config.context)) {}

  Status read(std::istream& in) {
    const size_t most_bytes = most_tokens_ * kMostBytesPerToken;
    size_t bytes = 0;
    for (char c; in.get(c);) {
      if (++bytes > most_bytes)
        return kaiju::invalid_argument(
            fmt::format("more than {} bytes, {} for each token of the model's context of "
                        "{}: give fewer ids, and less white space between them",
                        most_bytes, kMostBytesPerToken, most_tokens_));
      if (std::string_view(" \t\n\v\f\r").find(c) == std::string_view::npos) {
        word_ += c;
        if (word_.size() > kMostWordBytes) return no_number();
      } else {
        KAIJU_TRY(end_word());
      }
    }
    return end_word();
  }

  std::vector<int32_t> take() { return std::move(tokens_); }

 private:
  Status end_word() {
    if (word_.empty()) return {};
    if (tokens_.size() == most_tokens_)
      return kaiju::invalid_argument(
          fmt::format("more than {0} tokens do not fit the model's context of {0}: give fewer", most_tokens_));
    int64_t id = -1;
    const auto [end, error] = std::from_chars(word_.data(), word_.data() + word_.size(), id);
    const bool too_large = error == std::errc::result_out_of_range;
    if ((error != std::errc() && !too_large) || end != word_.data() + word_.size()) return no_number();
    if (too_large || id < 0 || id >= vocab_size_)
      return kaiju::invalid_argument(
          fmt::format("token {} is {}, outside the vocabulary of 0 to {}", tokens_.size() + 1, word_, vocab_size_ - 1));
    tokens_.push_back(static_cast<int32_t>(id));
    word_.clear();
    return {};
  }
  Status no_number() {
    word_.resize(std::min(word_.size(), kMostWordBytes));
    std::replace_if(
        word_.begin(), word_.end(), [](unsigned char c) { return c < 32 || c > 126; },
        '?');  // a terminal would obey it
    return kaiju::invalid_argument(fmt::format(
        "token {} is \"{}\", not a number: give token ids separated by white space", tokens_.size() + 1, word_));
  }

  int32_t vocab_size_;
  size_t most_tokens_;
  std::string word_;
  std::vector<int32_t> tokens_;
};

kaiju::Result<std::vector<int32_t>> read_tokens(const std::string& path, const kaiju::ModelConfig& config) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file)
      return Status(
          kaiju::StatusCode::kIo,
          fmt::format("cannot read {}, the file of token ids: check the path, or use - for standard input", path));
  }
  std::istream& in = path == "-" ? std::cin : file;
  TokenReader reader(config);
  const Status read = reader.read(in);
  if (in.bad() || (path == "-" && std::ferror(stdin)))
    return Status(kaiju::StatusCode::kIo, path == "-" ? "cannot read the standard input: is it open?"
                                                      : fmt::format("cannot read {}, the file of token ids: {}", path,
                                                                    std::generic_category().message(errno)));
  if (!read.ok()) return read;
  std::vector<int32_t> tokens = reader.take();
  if (tokens.empty())
    return kaiju::invalid_argument(
        fmt::format("no tokens in {}: give at least one id", path == "-" ? "standard input" : path));
  return tokens;
}

// A float32 array in NumPy's format 1.0, written row by row; without its name until it is whole.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path) : file_(path) {}
  // Its shape, one or two numbers.
  Status open(const std::vector<size_t>& shape) {
    size_t values = 1;
    for (const size_t length : shape) values *= length;
    std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}{}), }}",
                                     fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
    header.append(63 - (10 + header.size()) % 64, ' ').push_back('\n');
    const unsigned char lead[10] = {0x93,
                                    'N',
                                    'U',
                                    'M',
                                    'P',
                                    'Y',
                                    1,
                                    0,
                                    static_cast<unsigned char>(header.size() & 255),
                                    static_cast<unsigned char>(header.size() >> 8)};
    KAIJU_TRY(file_.open());
    KAIJU_TRY(file_.reserve(sizeof lead + header.size() + 4 * values));
    KAIJU_TRY(put(std::as_bytes(std::span(lead))));
    return put(std::as_bytes(std::span(header)));
  }
  Status write(std::span<const float> values) { return put(std::as_bytes(values)); }
  Status commit() { return file_.commit(); }

 private:
  Status put(std::span<const std::byte> bytes) {
    KAIJU_TRY(file_.put(bytes, at_));
    at_ += bytes.size();
    return {};
  }

  kaiju::format::NewFile file_;
  uint64_t at_ = 0;
};

// What the rows of a step say of the tokens that follow them: the contract's log-probability (docs/arithmetic.md,
// section 6) of each next given token. The last token of all has none after it.
std::vector<float> logprobs_of(std::span<const float> rows, size_t vocab_size, size_t position,
                               std::span<const int32_t> tokens) {
  std::vector<float> out;
  for (size_t next = position + 1; !rows.empty() && next < tokens.size(); ++next, rows = rows.subspan(vocab_size)) {
    const std::span<const float> row = rows.first(vocab_size);
    const float maximum = *std::max_element(row.begin(), row.end());
    out.push_back(
        kaiju::arith::logprob(row[static_cast<size_t>(tokens[next])], maximum, kaiju::arith::log_total(row, maximum)));
  }
  return out;
}

std::vector<std::vector<int32_t>> with_strangers(std::vector<int32_t> tokens, int32_t batch, int32_t vocab_size) {
  std::vector<std::vector<int32_t>> sequences{std::move(tokens)};
  for (int32_t s = 1; s < batch; ++s) {
    std::vector<int32_t> stranger(sequences[0].size());
    for (size_t i = 0; i < stranger.size(); ++i)
      stranger[i] =
          static_cast<int32_t>(kaiju::random_bits(1, static_cast<uint32_t>(s), i) % static_cast<uint64_t>(vocab_size));
    sequences.push_back(std::move(stranger));
  }
  return sequences;
}

struct Options {
  std::string model, tokens, logits, scores, logprobs;  // paths; empty for an output that is not wanted
  kaiju::ExecutorOptions executor;
  int32_t chunk = 0, batch = 1;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("FILE", options.model, "checkpoint")->required();
  app.add_option("--tokens", options.tokens,
                 "file of token ids separated by white space, no more than the model's context; - reads standard input")
      ->type_name("FILE")
      ->required();
  app.add_option("--logits", options.logits,
                 "write the logits here, float32 [tokens, vocabulary] in NumPy's "
                 "format; an existing file is replaced once the new one is complete")
      ->type_name("FILE");
  app.add_option("--scores", options.scores,
                 "write the classifier's scores here, float32 [tokens, labels], in "
                 "the same way; the model must have a classifier")
      ->type_name("FILE");
  app.add_option("--logprobs", options.logprobs,
                 "write log-probabilities here, float32 [tokens - 1], in the same way: the natural logarithm of "
                 "the probability of each token after the first, given those before it")
      ->type_name("FILE");
  app.add_option("--devices", options.executor.devices,
                 "devices to compute on: 1 is the first GPU; several share the model")
      ->check(kaiju::tools::whole_number(0, 1024))
      ->delimiter(',');
  app.add_option("--backend", options.executor.backend, "backend to compute with")
      ->check(kaiju::tools::backend_name())
      ->capture_default_str();
  app.add_option("--chunk", options.chunk, "most tokens in a step; 0: all at once")
      ->check(kaiju::tools::whole_number(0, kMostStepTokens))
      ->capture_default_str();
  app.add_option("--threads", options.executor.threads, "threads; 0: one per core")
      ->check(kaiju::tools::whole_number(0, 256))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "sequences in a step: 1, or more to compute together with random sequences")
      ->check(kaiju::tools::whole_number(1, 64))
      ->capture_default_str();
  app.footer(
      "Examples:\n"
      "  echo 1 3 17 42 | kaiju-score model.safetensors --tokens -\n"
      "  kaiju-score model.safetensors --tokens ids.txt --backend reference --chunk 7 --logits out.npy\n"
      "  kaiju-score model.safetensors --tokens ids.txt --logprobs logprobs.npy\n"
      "  kaiju-score judge.safetensors --tokens ids.txt --scores scores.npy");
}

// Empty, or why a step of so many tokens of each sequence is too large.
std::string step_problem(const Options& options, int32_t chunk) {
  if (int64_t{chunk} * options.batch <= kMostStepTokens) return "";
  return fmt::format("--chunk {} times --batch {} exceeds {} tokens a step: choose a smaller --chunk", chunk,
                     options.batch, kMostStepTokens);
}

// The files that the options ask for. Each is without its name until commit.
class Outputs {
 public:
  // Refuses names of files that the program reads, and of other outputs. Opens nothing.
  static Status check_names(const Options& options) {
    std::vector<kaiju::tools::NamedFile> files = {{"FILE " + options.model, options.model},
                                                  {"the standard output", "/dev/stdout"}};
    if (options.tokens == "-")
      files.push_back({"the standard input", "/dev/stdin"});
    else
      files.push_back({"--tokens " + options.tokens, options.tokens});
    for (const auto& [option, path] : {std::pair{"--logits", options.logits}, std::pair{"--scores", options.scores},
                                       std::pair{"--logprobs", options.logprobs}}) {
      if (path.empty()) continue;
      const std::string problem = kaiju::tools::output_problem(option, path, files);
      if (!problem.empty()) return kaiju::invalid_argument(problem);
      files.push_back({fmt::format("{} {}", option, path), path});
    }
    return {};
  }
  Status open(const Options& options, const kaiju::ModelConfig& config, size_t token_count) {
    vocab_size_ = static_cast<size_t>(config.vocab_size);
    KAIJU_TRY(open(logits_, options.logits, {token_count, vocab_size_}));
    KAIJU_TRY(open(scores_, options.scores, {token_count, config.labels.size()}));
    return open(logprobs_, options.logprobs, {token_count - 1});
  }
  // What a step gave: logits and, where asked for, scores of the tokens from `position` on.
  Status write(std::span<const float> rows, std::span<const float> scores, int64_t position,
               std::span<const int32_t> tokens) {
    if (logits_) KAIJU_TRY(logits_->write(rows));
    if (scores_) KAIJU_TRY(scores_->write(scores));
    if (!logprobs_) return {};
    return logprobs_->write(logprobs_of(rows, vocab_size_, static_cast<size_t>(position), tokens));
  }
  Status commit() {
    for (std::optional<NpyFile>* file : {&logits_, &scores_, &logprobs_})
      if (*file) KAIJU_TRY((*file)->commit());
    return {};
  }
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  Status open(std::optional<NpyFile>& file, const std::string& path, const std::vector<size_t>& shape) {
    if (path.empty()) return {};
    paths_.push_back(path);
    kaiju::tools::give_up_on_signals();
    return file.emplace(path).open(shape);
  }

  size_t vocab_size_ = 0;
  std::optional<NpyFile> logits_, scores_, logprobs_;
  std::vector<std::string> paths_;
};

// The digest of all logits, in hexadecimal digits.
class Digest {
 public:
  Digest() : state_(XXH3_createState(), &XXH3_freeState) { XXH3_128bits_reset(state_.get()); }
  void add(std::span<const float> rows) { XXH3_128bits_update(state_.get(), rows.data(), rows.size_bytes()); }
  std::string digits() const {
    XXH128_canonical_t digest;
    XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state_.get()));
    return fmt::format("{:02x}", fmt::join(digest.digest, ""));
  }

 private:
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state_;
};

// Scores the tokens, writes the outputs, and prints the digest.
Status score(Options options) {
  KAIJU_TRY(Outputs::check_names(options));
  auto checkpoint = kaiju::Checkpoint::open(options.model);
  if (!checkpoint.ok()) return checkpoint.status();
  const kaiju::ModelConfig& config = (*checkpoint)->config();
  if (!options.scores.empty() && config.labels.empty())
    return kaiju::invalid_argument(fmt::format(
        "--scores: {} has no classifier; kaiju-inspect shows the labels of a model that has one", options.model));
  auto read = read_tokens(options.tokens, config);
  if (!read.ok()) return read.status();
  const std::vector<int32_t> tokens = std::move(read).value();
  const int32_t chunk = options.chunk > 0 ? options.chunk : static_cast<int32_t>(tokens.size());
  if (const std::string problem = step_problem(options, chunk); !problem.empty())
    return kaiju::invalid_argument(problem);
  options.executor.step_tokens = chunk * options.batch;
  options.executor.slot_count = options.batch;
  auto executor = kaiju::make_executor(*checkpoint, options.executor);
  if (!executor.ok()) return executor.status();

  Outputs outputs;
  KAIJU_TRY(outputs.open(options, config, tokens.size()));
  Digest digest;
  kaiju::tools::Scorer scorer(std::move(executor).value());
  if (!options.scores.empty()) scorer.ask_for_scores();
  KAIJU_TRY(
      scorer.score(with_strangers(tokens, options.batch, config.vocab_size), chunk,
                   [&](std::span<const float> rows, int64_t position) -> Status {
                     digest.add(rows);
                     if (kaiju::tools::interrupted)
                       return {kaiju::StatusCode::kCancelled,
                               fmt::format("{}: interrupted; no part of it is left", fmt::join(outputs.paths(), ", "))};
                     return outputs.write(rows, scorer.scores(), position, tokens);
                   }));
  KAIJU_TRY(outputs.commit());

  kaiju::tools::print("model: {} {}\ntokens: {}\nbits: {}\n", config.name, (*checkpoint)->digest(), tokens.size(),
                      digest.digits());
  return {};
}

}  // namespace

static int run(int argc, char** argv) {
  CLI::App app("Computes the logits of a token sequence and prints their digest. Can also write them to a file.",
               "kaiju-score");
  Options options;
  add_options(app, options);
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  if (const std::string problem = step_problem(options, options.chunk); !problem.empty())
    return kaiju::tools::fail(app, 2, problem);
  const Status scored = score(std::move(options));
  return scored.ok() ? 0 : kaiju::tools::fail(app, 1, scored.message());
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-score", run, argc, argv); }
