// Fuzz: a host that calls kaiju.h in any order with any arguments, but for what C cannot check: dangling handles and
// lying sizes. The engine is the real one; its executor is the engine tests' scripted one, which sees every plan that
// breaks the bridge's rules.
#include <array>
#include <optional>

#include "capi/handles.hpp"
#include "capi/options.hpp"
#include "kaiju/text/utf8_stream.hpp"
#include "tests/capi/host.hpp"
#include "tests/engine/scripted_executor.hpp"
#include "tests/fuzz/fuzz.hpp"

using fuzz::promise;

namespace {

using kaiju::test::ScriptedExecutor;

kaiju_model* model() {
  static const struct Loaded {
    kaiju_model* handle = nullptr;
    Loaded() {
      promise(kaiju_model_load(nullptr, kaiju::tests::chat_model_file().c_str(), nullptr, nullptr, nullptr, &handle,
                               nullptr) == KAIJU_OK,
              "the model loads");
    }
    ~Loaded() { kaiju_model_destroy(handle); }
  } loaded;
  return loaded.handle;
}

constexpr int32_t kContext = 160;  // small numbers everywhere: a run is short, and whatever is scarce runs out

kaiju::ExecutorInfo info() {
  kaiju::ExecutorInfo info;
  info.vocab_size = kaiju::tests::kTinyVocabulary;
  info.context = kContext;
  info.window = 64;
  info.slot_count = 3;
  info.step_tokens = 48;
  info.block_count[0] = 5;
  info.block_count[1] = 7;
  info.block_bytes[0] = info.block_bytes[1] = kaiju::kBlockTokens * 8;
  return info;
}

// Reads every byte it is given, so that a sanitizer sees the ones that are not there.
template <class T>
void touch(const T* data, size_t count) {
  unsigned sum = 0;
  for (size_t i = 0; i < count * sizeof(T); ++i) sum += reinterpret_cast<const unsigned char*>(data)[i];
  volatile unsigned kept = sum;
  (void)kept;
}

class Host {
 public:
  explicit Host(fuzz::Input input) : input_(input) {}
  ~Host() {
    for (Engine& engine : engines_) drain(engine);
    if (input_.take() % 2) destroy_engines();
    for (auto& session : sessions_) kaiju_session_destroy(std::exchange(session, nullptr));
    destroy_engines();
    for (auto& options : options_) kaiju_options_destroy(options);
  }
  Host(const Host&) = delete;

  void play() {
    using Call = void (Host::*)();
    static constexpr Call kCalls[] = {&Host::create_options, &Host::destroy_options,
                                      &Host::set_int,        &Host::set_float,
                                      &Host::set_string,     &Host::set_bias,
                                      &Host::clear_options,  &Host::describe,
                                      &Host::create_engine,  &Host::destroy_engine,
                                      &Host::create_session, &Host::end_session,
                                      &Host::fork,           &Host::truncate,
                                      &Host::submit,         &Host::submit,
                                      &Host::step,           &Host::step,
                                      &Host::step,           &Host::poll,
                                      &Host::cancel,         &Host::look,
                                      &Host::tokens,         &Host::tokenize,
                                      &Host::detokenize,     &Host::format,
                                      &Host::drop_turns,     &Host::generate,
                                      &Host::ask_model};
    for (int calls = 0; calls < 32 && !input_.done(); ++calls) (this->*kCalls[input_.take() % std::size(kCalls)])();
  }

 private:
  struct Engine {
    kaiju_engine* handle = nullptr;
    ScriptedExecutor* executor = nullptr;
  };

  // Calls with an error to fill and checks that status and error agree.
  template <class Call>
  kaiju_status ask(const Call& call) {
    kaiju_error* error = nullptr;
    const kaiju_status status = call(&error);
    promise(status >= KAIJU_OK && status < KAIJU_INTERNAL, "no sequence of calls breaks an invariant");
    promise((error != nullptr) == (status != KAIJU_OK) && kaiju_error_status(error) == status,
            "an error comes with a failure and with nothing else");
    promise(!error || kaiju_error_message(error)[0] != '\0', "an error says why");
    kaiju_error_destroy(error);
    return status;
  }

  template <class T, size_t N>
  T& pick(std::array<T, N>& from) {
    return from[input_.take() % N];
  }
  // Mostly small, sometimes any or at the edge.
  int64_t number() {
    const uint8_t kind = input_.take();
    if (kind < 200) return kind % 100;
    constexpr int64_t kEdges[] = {-1, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, kContext, kContext + 1, 65536};
    return kind < 240 ? kEdges[kind % std::size(kEdges)] : input_.take<int64_t>();
  }
  std::string_view text() { return input_.take_text(input_.take() % 32); }
  std::vector<int32_t> some_tokens() {
    std::vector<int32_t> tokens(input_.take() % 80);
    const uint8_t first = input_.take(), stride = input_.take();
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(first + i * stride) % kaiju::tests::kTinyVocabulary;
    if (!tokens.empty() && first == 255) tokens.back() = static_cast<int32_t>(number());
    return tokens;
  }
  kaiju_option option() {
    constexpr kaiju_option kScopes[] = {200, 300, 300, 300};  // a call refuses a bag with others than its own
    const uint8_t byte = input_.take();
    return kScopes[byte >> 6] + byte % 16;
  }

  void create_options() {
    kaiju_options*& slot = pick(options_);
    kaiju_options_destroy(slot);
    promise(kaiju_options_create(&slot) == KAIJU_OK, "options can be had");
    (void)kaiju_options_set_int(slot, KAIJU_GENERATE_MAX_TOKENS, input_.take() % 24,
                                nullptr);  // the default would not fit the small context
  }
  void destroy_options() { kaiju_options_destroy(std::exchange(pick(options_), nullptr)); }
  void set_int() {
    kaiju_options* options = pick(options_);
    const kaiju_option which = option();
    const int64_t value = number();
    ask([&](kaiju_error** e) { return kaiju_options_set_int(options, which, value, e); });
  }
  void set_float() {
    kaiju_options* options = pick(options_);
    const kaiju_option which = option();
    const double value = input_.take() % 2 ? input_.take<double>() : input_.take() / 64.0;
    ask([&](kaiju_error** e) { return kaiju_options_set_float(options, which, value, e); });
  }
  void set_string() {
    kaiju_options* options = pick(options_);
    const kaiju_option which = option();
    const std::string_view value = text();
    ask([&](kaiju_error** e) { return kaiju_options_set_string(options, which, value.data(), value.size(), e); });
  }
  void clear_options() {
    kaiju_options* options = pick(options_);
    (void)kaiju_options_clear(options, option());
  }
  void set_bias() {
    kaiju_options* options = pick(options_);
    const int32_t tokens[2] = {static_cast<int32_t>(number()), static_cast<int32_t>(number())};
    const float bias[2] = {input_.take<float>(), 1.0f};
    const size_t count = input_.take() % 3;
    ask([&](kaiju_error** e) { return kaiju_options_set_logit_bias(options, tokens, bias, count, e); });
  }
  void describe() {
    kaiju_option_info info{};
    info.struct_size = input_.take() % 2 ? sizeof info : static_cast<size_t>(number());
    if (info.struct_size <= sizeof info && kaiju_option_describe(option(), &info) == KAIJU_OK)
      touch(info.name, std::strlen(info.name));
  }

  void create_engine() {
    Engine& slot = pick(engines_);
    destroy(slot);
    const auto options = kaiju::capi::run_options(pick(options_)).engine;
    auto executor = std::make_unique<ScriptedExecutor>(info());
    ScriptedExecutor* const scripted = executor.get();
    auto checked = options;
    checked.check_ledger = true;
    auto engine = kaiju::Engine::create(std::move(executor), model()->model->tokenizer().value(), checked);
    if (!engine.ok()) {
      const kaiju::Status& why = engine.status();
      // The scripted executor moves no blocks (no ExecutorInfo::kv_layout): host memory for them is refused whatever
      // its size.
      const bool host_memory = options.cache.host_bytes > 0 && why.code() == kaiju::StatusCode::kUnsupported &&
                               why.message().find("host_bytes") != std::string::npos;
      return promise(host_memory || why.code() == kaiju::StatusCode::kInvalidArgument,
                     "an engine is refused for its options alone");
    }
    slot.handle = new kaiju_engine{};
    slot.handle->engine = std::move(engine).value();
    slot.handle->model = model()->model;
    slot.executor = scripted;
  }
  void destroy_engine() { destroy(pick(engines_)); }
  void destroy(Engine& engine) {
    kaiju_engine_destroy(std::exchange(engine.handle, nullptr));  // sessions may keep the executor alive
    engine.executor = nullptr;
  }
  void destroy_engines() {
    for (Engine& engine : engines_) destroy(engine);
  }
  void create_session() {
    kaiju_session*& slot = pick(sessions_);
    kaiju_session_destroy(std::exchange(slot, nullptr));
    kaiju_engine* engine = pick(engines_).handle;
    ask([&](kaiju_error** e) { return kaiju_session_create(engine, &slot, e); });
  }
  void end_session() { kaiju_session_destroy(std::exchange(pick(sessions_), nullptr)); }
  void fork() {
    kaiju_session* parent = pick(sessions_);
    kaiju_session*& slot = pick(sessions_);
    const auto length = static_cast<size_t>(number());
    kaiju_session* child = nullptr;
    ask([&](kaiju_error** e) { return kaiju_session_fork(parent, length, &child, e); });
    kaiju_session_destroy(std::exchange(slot, child));
  }
  void truncate() {
    kaiju_session* session = pick(sessions_);
    const auto length = static_cast<size_t>(number());
    ask([&](kaiju_error** e) { return kaiju_session_truncate(session, length, e); });
  }
  void submit() {
    kaiju_engine* engine = pick(engines_).handle;
    kaiju_session* session = pick(sessions_);
    const kaiju_options* options = pick(options_);
    const std::vector<int32_t> tokens = some_tokens();
    ask([&](kaiju_error** e) {
      return kaiju_engine_submit(engine, session, tokens.data(), tokens.size(), options, this, &last_, e);
    });
  }
  void step() { step(pick(engines_)); }
  void step(Engine& engine) {
    ask([&](kaiju_error** e) { return kaiju_engine_step(engine.handle, e); });
    if (!engine.executor) return;
    for (const std::string& fault : engine.executor->faults) std::fprintf(stderr, "%s\n", fault.c_str());
    promise(engine.executor->faults.empty(), "no plan breaks the bridge's rules");
  }
  void poll() { poll(pick(engines_).handle, input_.take() % 5); }
  size_t poll(kaiju_engine* engine, size_t capacity) {
    kaiju_event events[4];
    size_t count = 0;
    (void)kaiju_engine_poll(engine, events, sizeof events[0], std::min(capacity, std::size(events)), &count, nullptr);
    for (size_t i = 0; i < count; ++i) {
      touch(events[i].tokens, events[i].token_count);
      touch(events[i].logprobs, events[i].logprob_count);
      touch(events[i].text, events[i].text_size);
      promise(kaiju::is_utf8({events[i].text ? events[i].text : "", events[i].text_size}),
              "a reply's text is whole UTF-8");
    }
    return count;
  }
  void drain(Engine& engine) {
    for (int steps = 0; kaiju_engine_pending(engine.handle) > 0; ++steps) {
      promise(steps < 10'000, "every request ends");
      step(engine);
      while (poll(engine.handle, 4) > 0) continue;
    }
  }
  void cancel() {
    kaiju_engine* engine = pick(engines_).handle;
    promise(kaiju_engine_cancel(engine, input_.take() % 4 ? last_ : static_cast<kaiju_request>(number())) ==
                (engine ? KAIJU_OK : KAIJU_INVALID_ARGUMENT),
            "cancel takes any id");
  }
  void look() {
    kaiju_engine* engine = pick(engines_).handle;
    kaiju_metrics metrics{};
    metrics.struct_size = sizeof metrics;
    if (kaiju_engine_metrics(engine, &metrics) == KAIJU_OK)
      promise(metrics.cache_global_blocks_free <= metrics.cache_global_blocks_total &&
                  metrics.cache_window_blocks_free <= metrics.cache_window_blocks_total,
              "no more blocks are free than there are");
    kaiju_engine_wake(engine);
    (void)kaiju_engine_wait(engine, 0);
  }
  void tokens() {
    int32_t buffer[16];
    const size_t capacity = input_.take() % 17;
    const size_t count = kaiju_session_tokens(pick(sessions_), buffer, capacity);
    promise(count <= kContext, "a history fits the context");
    touch(buffer, std::min(count, capacity));
  }

  void tokenize() {
    const std::string_view from = text();
    int32_t buffer[16];
    const size_t capacity = input_.take() % 17;
    size_t count = 0;
    const kaiju_status status = ask([&](kaiju_error** e) {
      return kaiju_tokenize(model(), from.data(), from.size(), buffer, capacity, &count, e);
    });
    if (status == KAIJU_OK) touch(buffer, std::min(count, capacity));
  }
  void detokenize() {
    const std::vector<int32_t> from = some_tokens();
    char buffer[16];
    const size_t capacity = input_.take() % 17;
    size_t size = 0;
    const kaiju_status status = ask([&](kaiju_error** e) {
      return kaiju_detokenize(model(), from.data(), from.size(), buffer, capacity, &size, e);
    });
    if (status == KAIJU_OK) touch(buffer, std::min(size, capacity));
  }
  void format() {
    kaiju_message messages[3] = {};
    const size_t count = input_.take() % 4;
    for (kaiju_message& message : messages) {
      const std::string_view content = text();
      const int role = input_.take();
      message = {role % 6, 0, content.data(), content.size(), content.data(), role < 128 ? 0 : content.size()};
    }
    int32_t buffer[16];
    const int32_t flags = input_.take() % 33;
    size_t filled = 0;
    ask([&](kaiju_error** e) {
      return kaiju_chat_format(model(), messages, sizeof messages[0], count, flags, buffer, std::size(buffer), &filled,
                               e);
    });
  }
  void drop_turns() {
    size_t turns[8];
    for (size_t& turn : turns) turn = static_cast<size_t>(number());
    const size_t count = input_.take() % 9;
    promise(kaiju_chat_turns_to_drop(turns, count, static_cast<size_t>(number()), static_cast<size_t>(number()),
                                     static_cast<size_t>(number())) <= count,
            "no more turns are dropped than there are");
  }
  void generate() {
    Engine& engine = pick(engines_);
    kaiju_session* session = pick(sessions_);
    const kaiju_options* options = pick(options_);
    const std::vector<int32_t> tokens = some_tokens();
    int32_t patience = input_.take() % 16;
    const auto on_text = [](const char* text, size_t size, void* user_data) -> int32_t {
      touch(text, size);
      return --*static_cast<int32_t*>(user_data) < 0;
    };
    kaiju_event done{};
    ask([&](kaiju_error** e) {
      return kaiju_generate(engine.handle, session, tokens.data(), tokens.size(), options, on_text, &patience, &done,
                            sizeof done, e);
    });
  }
  void ask_model() {
    int64_t value = 0;
    (void)kaiju_model_number(model(), static_cast<int32_t>(number()), &value);
    const char* text = nullptr;
    size_t size = 0;
    if (kaiju_model_text(model(), input_.take() % 6, &text, &size) == KAIJU_OK) touch(text, size + 1);
  }

  fuzz::Input input_;
  std::array<kaiju_options*, 3> options_{};  // the last stays NULL unless made
  std::array<Engine, 2> engines_{};
  std::array<kaiju_session*, 4> sessions_{};
  kaiju_request last_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)model();
  heap::reset();
  Host(fuzz::Input(data, size)).play();
  promise(heap::count().live_blocks == 0, "what was destroyed gave its memory back");
  return 0;
}
