// See routers.hpp.
#include "routers.hpp"

#include <iterator>
#include <utility>
#include <vector>

namespace kaiju::server {

Routers::Routers(const KvEventOptions& options, Engine& first) : current_(&first) {
  const auto cached = [this](std::vector<CacheEvent>& events) {
    if (auto all = polled_->cached_blocks(); all.ok()) std::move(all->begin(), all->end(), std::back_inserter(events));
  };
  const auto wake = [this] {
    const std::lock_guard lock(waking_);
    current_.load()->wake();
  };
  events_ = std::make_unique<KvEvents>(
      options, KvEvents::Source{[this](auto& events) { (void)polled_->poll_cache(events, SIZE_MAX); }, cached, wake});
}

void Routers::follow(const std::shared_ptr<Routers>& routers, Served& served) {
  Driver& driver = served.replicas.first();
  driver.after_steps([routers, engine = &driver.engine()] { routers->take(*engine); });
}

void Routers::set_current(Engine& engine) {
  {
    const std::lock_guard lock(waking_);
    current_ = &engine;
  }
  events_->tell_anew();
  engine.wake();
}

void Routers::take(Engine& engine) {
  if (current_ != &engine) return;
  const std::lock_guard lock(taking_);
  polled_ = &engine;
  events_->take();
}

}  // namespace kaiju::server
