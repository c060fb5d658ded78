// In a build without ZeroMQ.
#include <stdexcept>

#include "kv_events.hpp"

namespace kaiju::server {

class KvEvents::Sockets {};

KvEvents::KvEvents(const KvEventOptions& options, Source source)
    : of_private_(options.of_private), source_(std::move(source)) {
  throw std::runtime_error(
      "--kv-events: this kaiju-server was built without ZeroMQ: install libzmq3-dev, cppzmq-dev and "
      "libmsgpack-cxx-dev, "
      "and build it again");
}
KvEvents::~KvEvents() = default;
void KvEvents::take() {}
KvEventCounts KvEvents::counts() const { return {}; }

}  // namespace kaiju::server
