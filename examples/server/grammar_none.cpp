// A server that was built without a grammar engine.
#include <fmt/format.h>

#include "failure.hpp"
#include "grammar.hpp"

namespace kaiju::server {

class Grammars::Impl {};

Grammars::Grammars(std::shared_ptr<const Model>) {}
Grammars::~Grammars() = default;
void Grammars::join() {}

boost::asio::awaitable<std::unique_ptr<Guide>> Grammars::guide(const Grammar& grammar, int32_t) {
  if (grammar.kind == Grammar::Kind::kNone) co_return nullptr;
  throw bad_request(fmt::format("{} is not supported: this server was built without a grammar engine (XGRAMMAR_SOURCE, "
                                "README.md)",
                                grammar.field),
                    grammar.field.c_str());
}

}  // namespace kaiju::server
