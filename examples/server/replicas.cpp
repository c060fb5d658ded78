// See replicas.hpp.
#include "replicas.hpp"

#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace kaiju::server {
namespace {

constexpr size_t kSpare = 4;  // requests that a replica may have beyond the mean and a quarter

bool works(const Driver& driver) { return driver.engine().status().ok(); }

}  // namespace

Replicas::Replicas(const std::vector<std::shared_ptr<Engine>>& engines, boost::asio::io_context& io,
                   const std::shared_ptr<StepTurns>& turns) {
  for (const std::shared_ptr<Engine>& engine : engines) drivers_.emplace_back(engine, io, turns);
}

// Rendezvous hashing: each name has an order of the replicas of its own.
Driver& Replicas::of(std::string_view name, bool with_room) {
  const size_t alive = std::max<size_t>(working(), 1), mean = unfinished() / alive;
  const size_t most = with_room ? mean + mean / 4 + kSpare : SIZE_MAX;
  Driver* best = &first();
  uint64_t best_digest = 0;
  for (size_t i = 0; i < size(); ++i) {
    Driver& driver = drivers_[i];
    if (!works(driver) || driver.unfinished() > most) continue;
    const uint64_t digest = XXH3_64bits_withSeed(name.data(), name.size(), i + 1);
    if (digest < best_digest) continue;
    best = &driver;
    best_digest = digest;
  }
  return *best;
}

Driver& Replicas::place(const std::string& character, const std::string& chat) {
  if (size() == 1) return first();
  Driver* known = nullptr;
  for (const auto* chats : {&newer_, &older_})
    if (const auto found = chats->find(chat); found != chats->end() && !known) known = found->second;
  Driver& place = known && works(*known) ? *known : of(character.empty() ? chat : character, true);
  if (chat.empty()) return place;
  newer_[chat] = &place;
  if (newer_.size() >= kMostChats) older_ = std::exchange(newer_, {});
  return place;
}

size_t Replicas::index_of(const Driver& driver) const {
  return static_cast<size_t>(std::find_if(begin(), end(), [&](const Driver& one) { return &one == &driver; }) -
                             begin());
}

size_t Replicas::working() const { return static_cast<size_t>(std::count_if(begin(), end(), works)); }

size_t Replicas::unfinished() const {
  size_t sum = 0;
  for (const Driver& driver : drivers_) sum += driver.unfinished();
  return sum;
}

Status Replicas::status() const {
  for (const Driver& driver : drivers_)
    if (Status status = driver.engine().status(); !status.ok()) return status;
  return {};
}

}  // namespace kaiju::server
