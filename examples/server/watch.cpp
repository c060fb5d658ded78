// See watch.hpp.
#include "watch.hpp"

#include <algorithm>
#include <stdexcept>

#include "../tools/standard_streams.hpp"

namespace kaiju::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPartBytes = int64_t{16} << 20;  // a millisecond or two of a processor
constexpr int kBusyFactor = 10;

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

// The reply to a canary, on the I/O thread.
class Watch::Reply final : public Sink {
 public:
  Reply(Watch& watch, const tools::Canary& canary) : watch_(watch), canary_(canary) {}
  void on_event(const Event& event, Clock::time_point) override {
    digest_.take(event);
    if (event.kind == EventKind::kDone && event.reason == DoneReason::kLength) watch_.heard(canary_, digest_.text());
  }

 private:
  Watch& watch_;
  const tools::Canary& canary_;
  tools::CanaryDigest digest_;
};

Watch::Watch(boost::asio::io_context& io, Checkpoints& checkpoints, const Options& options)
    : checkpoints_(checkpoints),
      scrub_bytes_(options.scrub_bytes_a_second),
      between_canaries_(options.canary_seconds),
      timer_(io) {
  if (!options.canaries.empty()) {
    file_ = tools::read_canaries(options.canaries);
    if (file_.model != checkpoints.current()->digest())
      throw std::runtime_error(options.canaries + ": has the canaries of another model: kaiju-canary MODEL --out FILE");
    wait_for_canary();
  }
  begin(*checkpoints.current());
}

void Watch::begin(Served& served) {
  if (scrub_bytes_ == 0) return;
  for (Driver& driver : served.replicas)
    driver.beside_steps([this, next = Clock::time_point()](Engine& engine) mutable {
      scrub(engine, next);
      return false;
    });
}

void Watch::scrub(Engine& engine, Clock::time_point& next) {
  const Clock::time_point now = Clock::now();
  if (now < next) return;
  const Result<Scrubbed> looked = engine.scrub(static_cast<size_t>(std::min(kPartBytes, scrub_bytes_)));
  if (looked.status().code() == StatusCode::kBusy) return;
  if (!looked.ok()) {
    next = now + std::chrono::hours(1);
    return found(looked.status().message());
  }
  const double seconds = static_cast<double>(looked->bytes) / static_cast<double>(scrub_bytes_);
  const double wait = engine.pending() > 0 ? kBusyFactor * seconds : seconds;
  next = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait));
  scrubbed_bytes_ += looked->bytes;
  if (!looked->whole) return;
  ++scrub_passes_;
  last_pass_ = unix_seconds();
}

void Watch::wait_for_canary() {
  timer_.expires_after(between_canaries_);
  timer_.async_wait([this](auto error) {
    if (!error) ask_canary();
  });
}

void Watch::ask_canary() {
  wait_for_canary();
  Served& served = *checkpoints_.current();
  if (file_.model != served.digest() || served.scales.may_differ()) return;
  const tools::Canary& canary = file_.canaries[next_];
  next_ = (next_ + 1) % file_.canaries.size();
  const std::vector<int32_t> prompt = tools::prompt_of(canary, served.engine().info().vocab_size);
  for (Driver& driver : served.replicas)
    (void)driver.submit(prompt, tools::options_of(canary), std::make_shared<Reply>(*this, canary));
}

void Watch::heard(const tools::Canary& canary, const std::string& digest) {
  ++canaries_;
  if (digest == canary.digest || checkpoints_.current()->scales.may_differ()) return;
  ++canaries_wrong_;
  found(fmt::format("canary {} has the digest {} instead of {}: this machine does not compute what it should",
                    canary.number, digest, canary.digest));
}

void Watch::found(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (damage_.empty()) tools::print(stderr, "kaiju-server: {}\n", what);
  damage_ = what;
}

std::string Watch::damage() const {
  const std::lock_guard lock(mutex_);
  return damage_;
}

WatchCounts Watch::counts() const {
  return {scrubbed_bytes_, scrub_passes_, canaries_, canaries_wrong_, last_pass_, !damage().empty()};
}

}  // namespace kaiju::server
