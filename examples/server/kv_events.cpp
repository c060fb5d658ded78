#include "kv_events.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "kaiju/step/executor_info.hpp"

namespace kaiju::server {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBatchEvents = 4096;    // most events of a message
constexpr size_t kRingBatches = 10000;   // that are kept to be sent again, ...
constexpr size_t kRingBytes = 64 << 20;  // ... and most of their bytes
constexpr int kMostUnsent = 100000;      // messages to a subscriber that does not read; then it loses some
constexpr auto kBetweenSnapshots = std::chrono::seconds(1);
// A message costs as much as dozens of events, so the events of steps that follow one another quickly share one.
constexpr auto kBetweenMessages = std::chrono::milliseconds(50);

using Number = std::array<unsigned char, 8>;

Number big_endian(uint64_t number) {
  Number bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(number >> (56 - 8 * i));
  return bytes;
}

uint64_t from_big_endian(const zmq::message_t& frame) {
  uint64_t number = 0;
  for (size_t i = 0; i < frame.size(); ++i) number = number << 8 | frame.data<unsigned char>()[i];
  return number;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

namespace kv_sockets {

// Wakes a poll of sockets from another thread.
class Bell {
 public:
  Bell() : file_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (file_ < 0) throw std::runtime_error("--kv-events: the system gives no more eventfds");
  }
  ~Bell() { close(file_); }
  Bell(const Bell&) = delete;
  int file() const { return file_; }
  void ring() const { (void)eventfd_write(file_, 1); }
  void silence() const {
    eventfd_t count = 0;
    (void)eventfd_read(file_, &count);
  }

 private:
  int file_;
};

// The newest batches, which are sent again to whoever has missed them.
class Ring {
 public:
  struct Batch {
    uint64_t number;
    std::string bytes;
  };

  uint64_t next_number() const { return next_; }
  void add(std::string bytes) {
    held_ += bytes.size();
    batches_.push_back({next_++, std::move(bytes)});
    while (batches_.size() > kRingBatches || (held_ > kRingBytes && batches_.size() > 1)) {
      held_ -= batches_.front().bytes.size();
      batches_.pop_front();
    }
  }
  bool has(uint64_t number) const {
    return number >= next_ || (!batches_.empty() && number >= batches_.front().number);
  }
  template <class Use>
  void from(uint64_t number, const Use& use) const {
    for (const Batch& batch : batches_)
      if (batch.number >= number) use(batch);
  }

 private:
  std::deque<Batch> batches_;
  uint64_t next_ = 0;
  size_t held_ = 0;
};

}  // namespace kv_sockets

namespace {

void bind(zmq::socket_t& socket, const char* option, const std::string& endpoint) {
  try {
    socket.bind(endpoint);
  } catch (const zmq::error_t& error) {
    throw std::runtime_error(std::string(option) + ": cannot bind " + endpoint + ": " + error.what() +
                             "; name an endpoint of ZeroMQ, such as tcp://127.0.0.1:5557");
  }
}

}  // namespace

// The sockets, and the thread that alone uses them.
class KvEvents::Sockets {
 public:
  Sockets(const KvEventOptions& options, std::function<void()> tell_anew)
      : topic_(options.topic), format_(options.format), tell_anew_(std::move(tell_anew)) {
    publisher_.set(zmq::sockopt::xpub_verbose, 1);  // the second subscriber of a topic is heard of, too
    publisher_.set(zmq::sockopt::sndhwm, kMostUnsent);
    publisher_.set(zmq::sockopt::linger, 0);
    bind(publisher_, "--kv-events", options.endpoint);
    if (!options.replay.empty()) {
      replay_.emplace(context_, zmq::socket_type::router);
      replay_->set(zmq::sockopt::sndhwm, static_cast<int>(kRingBatches) + 1);
      replay_->set(zmq::sockopt::linger, 0);
      bind(*replay_, "--kv-replay", options.replay);
    }
    thread_ = std::thread([this] { run(); });
  }
  ~Sockets() {
    stopping_ = true;
    bell_.ring();
    thread_.join();
  }

  bool full() {
    const std::lock_guard lock(mutex_);
    return waiting_.size() >= kMostWaiting;
  }
  void add(std::vector<CacheEvent> events) {
    {
      const std::lock_guard lock(mutex_);
      std::move(events.begin(), events.end(), std::back_inserter(waiting_));
    }
    bell_.ring();
  }

  std::atomic<uint64_t> batches = 0, events = 0, replays = 0;

 private:
  void run() {
    std::vector<zmq::pollitem_t> items = {{nullptr, bell_.file(), ZMQ_POLLIN, 0},
                                          {publisher_.handle(), 0, ZMQ_POLLIN, 0}};
    if (replay_) items.push_back({replay_->handle(), 0, ZMQ_POLLIN, 0});
    while (!stopping_) {
      items[0].events = send_at_ ? 0 : ZMQ_POLLIN;
      zmq::poll(items, std::min(until(send_at_), until(snapshot_at_)));
      if (items[0].revents) send_at_ = last_sent_ + kBetweenMessages;
      if (send_at_ && *send_at_ <= Clock::now()) send_waiting();
      if (items[1].revents) read_subscriptions();
      if (items.size() > 2 && items[2].revents) answer_replays();
      if (snapshot_at_ && *snapshot_at_ <= Clock::now()) {
        snapshot_at_.reset();
        last_snapshot_ = Clock::now();
        tell_anew_();
      }
    }
  }

  static std::chrono::milliseconds until(const std::optional<Clock::time_point>& then) {
    if (!then) return std::chrono::hours(1);
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(*then - Clock::now()), std::chrono::milliseconds(0));
  }
  // Everybody is told everything, though not more often than once a second.
  void want_snapshot() {
    if (!snapshot_at_) snapshot_at_ = last_snapshot_ ? *last_snapshot_ + kBetweenSnapshots : Clock::now();
  }

  void send_waiting() {
    bell_.silence();
    send_at_.reset();
    last_sent_ = Clock::now();
    std::vector<CacheEvent> taken;
    {
      const std::lock_guard lock(mutex_);
      taken.swap(waiting_);
    }
    for (size_t at = 0; at < taken.size(); at += kBatchEvents)
      send(std::span(taken).subspan(at, std::min(kBatchEvents, taken.size() - at)));
  }
  void send(std::span<const CacheEvent> told) {
    const Number number = big_endian(ring_.next_number());
    std::string bytes = kv_batch(format_, unix_seconds(), told);
    publisher_.send(zmq::buffer(topic_), zmq::send_flags::sndmore);
    publisher_.send(zmq::buffer(number), zmq::send_flags::sndmore);
    publisher_.send(zmq::buffer(bytes), zmq::send_flags::none);
    ring_.add(std::move(bytes));
    ++batches;
    events += told.size();
  }

  // A subscription is a 1 and the beginning of topics.
  void read_subscriptions() {
    for (zmq::message_t message; publisher_.recv(message, zmq::recv_flags::dontwait);)
      if (message.size() > 0 && *message.data<char>() == 1 && topic_.starts_with(message.to_string_view().substr(1)))
        want_snapshot();
  }

  void answer_replays() {
    for (std::vector<zmq::message_t> frames; receive_all(frames); frames.clear())
      if (frames.size() == 3 && frames[1].size() == 0 && frames[2].size() == sizeof(Number))
        send_again(frames[0].to_string_view(), from_big_endian(frames[2]));
  }
  bool receive_all(std::vector<zmq::message_t>& frames) {
    zmq::message_t frame;
    if (!replay_->recv(frame, zmq::recv_flags::dontwait)) return false;
    bool more = frame.more();
    frames.push_back(std::move(frame));
    while (more && replay_->recv(frame)) {
      more = frame.more();
      frames.push_back(std::move(frame));
    }
    return true;
  }
  void send_again(std::string_view to, uint64_t from) {
    const auto send = [&](uint64_t number, std::string_view bytes) {
      replay_->send(zmq::buffer(to), zmq::send_flags::sndmore);
      replay_->send(zmq::message_t(), zmq::send_flags::sndmore);
      replay_->send(zmq::buffer(big_endian(number)), zmq::send_flags::sndmore);
      replay_->send(zmq::buffer(bytes), zmq::send_flags::none);
    };
    ring_.from(from, [&](const kv_sockets::Ring::Batch& batch) { send(batch.number, batch.bytes); });
    send(UINT64_MAX, {});
    ++replays;
    if (!ring_.has(from)) want_snapshot();
  }

  const std::string topic_;
  const KvFormat format_;
  const std::function<void()> tell_anew_;
  zmq::context_t context_{1};
  zmq::socket_t publisher_{context_, zmq::socket_type::xpub};
  std::optional<zmq::socket_t> replay_;
  kv_sockets::Ring ring_;
  std::optional<Clock::time_point> snapshot_at_, last_snapshot_, send_at_;
  Clock::time_point last_sent_{};
  kv_sockets::Bell bell_;
  std::mutex mutex_;
  std::vector<CacheEvent> waiting_;  // of the mutex
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

KvEvents::KvEvents(const KvEventOptions& options, Source source)
    : of_private_(options.of_private), source_(std::move(source)), sockets_(std::make_unique<Sockets>(options, [this] {
        anew_ = true;
        source_.wake();
      })) {}

KvEvents::~KvEvents() = default;

void KvEvents::drop_untold(std::vector<CacheEvent>& events) const {
  std::erase_if(events, [&](const CacheEvent& event) {
    return event.kind != CacheEventKind::kCleared &&
           (event.token_count != kBlockTokens || (event.is_private && !of_private_));
  });
}

void KvEvents::take() {
  if (sockets_->full()) return;  // the engine's queue fills, and then says that all is to be forgotten
  std::vector<CacheEvent> events;
  source_.poll(events);
  const bool cleared = std::any_of(events.begin(), events.end(),
                                   [](const CacheEvent& event) { return event.kind == CacheEventKind::kCleared; });
  if (anew_.exchange(false) || cleared) {
    events.assign(1, CacheEvent());  // forget all
    source_.cached(events);
    ++snapshots_;
  }
  drop_untold(events);
  if (!events.empty()) sockets_->add(std::move(events));
}

KvEventCounts KvEvents::counts() const { return {sockets_->batches, sockets_->events, sockets_->replays, snapshots_}; }

}  // namespace kaiju::server
