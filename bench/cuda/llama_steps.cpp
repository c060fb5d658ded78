// Steps of llama.cpp on a GPU at the shapes of open models, which those of kaiju-bench step are compared with. Not part
// of the build: it is compiled against llama.cpp's own library.
//
//   g++ -std=c++20 -O2 llama_steps.cpp -I LLAMA/include -I LLAMA/ggml/include -lllama -lggml -lggml-base
//   llama_steps MODEL.gguf [CONTEXTS] [STREAMS] [PROMPT] [STEPS]       as 1024,4096 1,16,64 8192 40
//
// As llama-batched-bench does it: every stream has KV memory of its own, f16, FlashAttention is on, a step ends with
// the logits in the host's memory. The streams' histories are copies of one prompt. A prompt is computed in
// micro-batches of 512 tokens, llama.cpp's choice, and of 2,048; only its last token has logits.
#include <llama.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

std::vector<int32_t> numbers(const std::string& text) {
  std::vector<int32_t> out;
  for (size_t at = 0; at < text.size(); at = std::min(text.find(',', at), text.size() - 1) + 1)
    out.push_back(std::atoi(text.c_str() + at));
  return out;
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "llama_steps: %s\n", what);
  std::exit(1);
}

// One context of a model.
class Session {
 public:
  Session(llama_model* model, int32_t streams, int32_t keys, int32_t micro_batch)
      : vocab_(llama_vocab_n_tokens(llama_model_get_vocab(model))) {
    llama_context_params params = llama_context_default_params();
    params.n_seq_max = static_cast<uint32_t>(streams);
    params.n_ctx = static_cast<uint32_t>(streams * keys);
    params.n_batch = static_cast<uint32_t>(keys);
    params.n_ubatch = static_cast<uint32_t>(micro_batch);
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.kv_unified = false;
    params.swa_full = false;  // windows keep what they need, as in llama.cpp's own programs
    params.n_threads = params.n_threads_batch = 8;
    context_ = llama_init_from_model(model, params);
    if (!context_) fail("no context");
    batch_ = llama_batch_init(keys, 0, 1);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {
    llama_batch_free(batch_);
    llama_free(context_);
  }

  void forget() { llama_memory_clear(llama_get_memory(context_), false); }
  // Milliseconds of a prompt of stream 0.
  double prompt(int32_t count) {
    batch_.n_tokens = 0;
    for (int32_t i = 0; i < count; ++i) add(0, i, i + 1 == count);
    return run();
  }
  void copy_to(int32_t streams) {
    for (int32_t s = 1; s < streams; ++s) llama_memory_seq_cp(llama_get_memory(context_), 0, s, -1, -1);
  }
  // Milliseconds of a step in which each stream has one token.
  double step(int32_t streams, int32_t position) {
    batch_.n_tokens = 0;
    for (int32_t s = 0; s < streams; ++s) add(s, position, true);
    return run();
  }

 private:
  void add(int32_t stream, int32_t position, bool logits) {
    const int32_t i = batch_.n_tokens++;
    batch_.token[i] = static_cast<int32_t>((static_cast<uint32_t>(position) * 2654435761u + 97u * stream) % vocab_);
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = stream;
    batch_.logits[i] = logits;
  }
  double run() {
    const auto start = std::chrono::steady_clock::now();
    if (llama_decode(context_, batch_) != 0) fail("llama_decode failed");
    llama_synchronize(context_);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

  uint32_t vocab_;
  llama_context* context_ = nullptr;
  llama_batch batch_{};
};

void print(const char* what, int32_t tokens, const std::vector<double>& ms) {
  std::vector<double> sorted = ms;
  std::sort(sorted.begin(), sorted.end());
  std::printf("%-36s %9.3f ms %10.1f tokens/s  median %.3f ms\n", what, sorted[0], 1e3 * tokens / sorted[0],
              sorted[sorted.size() / 2]);
  std::fflush(stdout);
}

void time_prompts(llama_model* model, int32_t prompt, int32_t micro_batch) {
  Session session(model, 1, prompt, micro_batch);
  std::vector<double> ms;
  for (int i = 0; i < 3; ++i) {
    session.forget();
    ms.push_back(session.prompt(prompt));
  }
  char what[64];
  std::snprintf(what, sizeof what, "prefill, %d tokens by %d", prompt, micro_batch);
  print(what, prompt, ms);
}

}  // namespace

int main(int argc, char** argv) {
  const auto given = [&](int i, const char* otherwise) { return argc > i ? argv[i] : otherwise; };
  if (argc < 2) fail("MODEL.gguf [CONTEXTS] [STREAMS] [PROMPT] [STEPS]");
  const std::vector<int32_t> contexts = numbers(given(2, "1024,4096")), streams = numbers(given(3, "1,16,64"));
  const int32_t prompt = std::atoi(given(4, "8192")), steps = std::atoi(given(5, "40"));
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_WARN && level != GGML_LOG_LEVEL_CONT) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 999;
  llama_model* const model = llama_model_load_from_file(argv[1], params);
  if (!model) fail("the model was not read");
  {
    constexpr int32_t kWarm = 4;
    const int32_t most = *std::max_element(streams.begin(), streams.end());
    const int32_t keys = (*std::max_element(contexts.begin(), contexts.end()) + kWarm + steps + 255) / 256 * 256;
    Session session(model, most, keys, 512);
    for (const int32_t context : contexts)
      for (const int32_t count : streams) {
        session.forget();
        session.prompt(context);
        session.copy_to(count);
        std::vector<double> ms;
        for (int32_t i = 0; i < kWarm + steps; ++i)
          if (const double one = session.step(count, context + i); i >= kWarm) ms.push_back(one);
        char what[64];
        std::snprintf(what, sizeof what, "decode, %d streams, context %d", count, context);
        print(what, count, ms);
      }
  }
  for (const int32_t micro_batch : {512, 2048}) time_prompts(model, prompt, micro_batch);
  llama_model_free(model);
}
