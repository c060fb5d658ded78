// kaiju-score: the logits of every position of a token sequence, and their digest. The tool that shows two machines
// compute the same bits.
#include <fmt/format.h>
#include <xxhash.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>

#include "format/new_file.hpp"
#include "interrupted.hpp"
#include "kaiju/base/random.hpp"
#include "program.hpp"
#include "scorer.hpp"

namespace {

using kaiju::Status;

kaiju::Result<std::vector<int32_t>> read_tokens(const std::string& path, int32_t vocab_size) {
  std::ifstream file;
  if (path != "-") {
    file.open(path);
    if (!file)
      return Status(
          kaiju::StatusCode::kIo,
          fmt::format("cannot read {}, the file of token ids: check the path, or use - for standard input", path));
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::vector<int32_t> tokens;
  for (std::string word; in >> word;) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size()) {
      word.resize(std::min<size_t>(word.size(), 40));
      std::replace_if(
          word.begin(), word.end(), [](unsigned char c) { return c < 32 || c > 126; },
          '?');  // a terminal would obey it
      return kaiju::invalid_argument(fmt::format(
          "token {} is \"{}\", not a number: give token ids separated by white space", tokens.size() + 1, word));
    }
    if (id < 0 || id >= vocab_size)
      return kaiju::invalid_argument(
          fmt::format("token {} is {}, outside the vocabulary of 0 to {}", tokens.size() + 1, id, vocab_size - 1));
    tokens.push_back(static_cast<int32_t>(id));
  }
  if (in.bad() || (path == "-" && std::ferror(stdin)))
    return Status(kaiju::StatusCode::kIo, path == "-" ? "cannot read the standard input: is it open?"
                                                      : fmt::format("cannot read {}, the file of token ids: {}", path,
                                                                    std::generic_category().message(errno)));
  if (tokens.empty())
    return kaiju::invalid_argument(
        fmt::format("no tokens in {}: give at least one id", path == "-" ? "standard input" : path));
  return tokens;
}

// A float32 matrix in NumPy's format 1.0, written row by row; without its name until it is whole.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path) : file_(path) {}
  Status open(size_t rows, size_t columns) {
    std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
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
    KAIJU_TRY(file_.reserve(sizeof lead + header.size() + 4 * rows * columns));
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

}  // namespace

static int run(int argc, char** argv) {
  CLI::App app("Prints a digest of the logits that a model gives to a token sequence, and can write them out.",
               "kaiju-score");
  std::string model, token_path, logits_path;
  kaiju::ExecutorOptions options;
  int32_t chunk = 0, batch = 1;
  app.add_option("FILE", model, "checkpoint")->required();
  app.add_option("--tokens", token_path, "file of token ids separated by white space; - reads standard input")
      ->required();
  const CLI::Option* logits_option = app.add_option("--logits", logits_path,
                                                    "write the logits here, float32 [tokens, vocabulary] in NumPy's "
                                                    "format; an existing file is replaced once the new one is whole");
  app.add_option("--backend", options.backend, "backend to compute with")->capture_default_str();
  app.add_option("--chunk", chunk, "tokens per step; 0: all at once")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "threads; 0: one per core")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app.add_option("--batch", batch, "sequences per step: 1, or more to compute beside random strangers")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.footer(
      "Examples:\n  echo 1 3 17 42 | kaiju-score model.safetensors --tokens -\n  kaiju-score model.safetensors "
      "--tokens ids.txt --backend reference --chunk 7 --logits out.npy");
  if (const auto stop = kaiju::tools::parse(app, argc, argv)) return *stop;
  const auto fail = [&app](const kaiju::Status& status) { return kaiju::tools::fail(app, 1, status.message()); };

  auto checkpoint = kaiju::Checkpoint::open(model);
  if (!checkpoint.ok()) return fail(checkpoint.status());
  const kaiju::ModelConfig& config = (*checkpoint)->config();
  auto tokens = read_tokens(token_path, config.vocab_size);
  if (!tokens.ok()) return fail(tokens.status());
  const size_t count = tokens->size();
  if (count > static_cast<size_t>(config.context))
    return fail(kaiju::invalid_argument(
        fmt::format("{} tokens do not fit the model's context of {}: give fewer", count, config.context)));
  if (chunk == 0) chunk = static_cast<int32_t>(count);
  if (int64_t{chunk} * batch > 65536)
    return fail(kaiju::invalid_argument("chunk times batch exceeds 65536 tokens a step: choose a smaller --chunk"));
  options.step_tokens = chunk * batch;
  options.slot_count = batch;

  auto executor = kaiju::make_executor(*checkpoint, options);
  if (!executor.ok()) return fail(executor.status());
  std::optional<NpyFile> file;
  if (logits_option->count() > 0) {
    kaiju::tools::give_up_on_signals();
    if (const Status opened = file.emplace(logits_path).open(count, static_cast<size_t>(config.vocab_size));
        !opened.ok())
      return fail(opened);
  }

  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(hash.get());
  kaiju::tools::Scorer scorer(std::move(executor).value());
  const Status scored =
      scorer.score(with_strangers(std::move(tokens).value(), batch, config.vocab_size), chunk,
                   [&](std::span<const float> rows, int64_t) -> Status {
                     XXH3_128bits_update(hash.get(), rows.data(), rows.size_bytes());
                     if (kaiju::tools::interrupted)
                       return {kaiju::StatusCode::kCancelled, logits_path + ": given up, and nothing of it is left"};
                     return file ? file->write(rows) : Status();
                   });
  if (!scored.ok()) return fail(scored);
  if (file)
    if (const Status written = file->commit(); !written.ok()) return fail(written);

  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(hash.get()));
  fmt::print("model: {} {}\ntokens: {}\nbits: ", config.name, (*checkpoint)->digest(), count);
  for (const unsigned char byte : digest.digest) fmt::print("{:02x}", byte);
  fmt::print("\n");
  return kaiju::tools::finish(app);
}

int main(int argc, char** argv) { return kaiju::tools::run_main("kaiju-score", run, argc, argv); }
