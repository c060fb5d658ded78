// The engine over an executor of the host's own, one that counts: nothing of kaiju is linked.
#include <cstdio>
#include <kaiju/core.hpp>
#include <memory>

namespace {

struct Counting : kaiju::Executor {
  kaiju::ExecutorInfo info_;
  Counting() {
    info_.vocab_size = 100;
    info_.context = info_.step_tokens = kaiju::kBlockTokens;
    info_.slot_count = info_.block_count[0] = 1;
  }
  const kaiju::ExecutorInfo& info() const override { return info_; }
  kaiju::Status run(const kaiju::StepPlan& plan, kaiju::StepResult& result) override {
    result.clear();
    for (const kaiju::Segment& segment : plan.segments)
      if (segment.sample_count > 0)
        result.sampled.push_back(
            {segment.slot, plan.tokens[segment.first_token + segment.token_count - 1] + 1, 0.0f, {}});
    return {};
  }
};

}  // namespace

int main() {
  auto engine = kaiju::Engine::create(std::make_unique<Counting>(), nullptr, {});
  if (!engine.ok()) return std::printf("%s\n", engine.status().message().c_str()), 1;
  auto session = engine.value()->create_session();
  kaiju::RequestOptions options;
  options.max_tokens = 3;
  const int32_t prompt[] = {40, 41};
  if (!session.ok() || !engine.value()->submit(session.value(), prompt, options).ok()) return 1;
  int32_t sum = 0;
  while (engine.value()->pending() > 0) {
    if (!engine.value()->step().ok()) return 1;
    for (kaiju::Event event; engine.value()->poll(event);)
      if (event.kind == kaiju::EventKind::kToken) sum += event.token;
  }
  std::printf("42 + 43 + 44 = %d\n", sum);
  return sum == 42 + 43 + 44 ? 0 : 1;
}
