// Grammars: what a reply has to follow, a JSON schema say, as the masks of its next tokens.
//
// grammar_xgrammar.cpp makes them with xgrammar; grammar_none.cpp is for a server that was built without it.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "driver.hpp"
#include "parameters.hpp"

namespace kaiju::server {

struct Grammar {
  enum class Kind { kNone, kJson, kSchema, kRegex, kEbnf };
  Kind kind = Kind::kNone;
  std::string text;   // of a schema, an expression, or a grammar whose first rule is root
  std::string field;  // that asked for it
};

// What a body asks for: response_format, as OpenAI has it, or structured_outputs, as vLLM has it. `body` is its text:
// an object's properties come in the order in which its schema has them. Throws Failure.
Grammar read_grammar(const Fields& fields, std::string_view body, const Wanted& wanted);

class Grammars {
 public:
  explicit Grammars(std::shared_ptr<const Model> model);
  ~Grammars();

  // The guide of a request, nullptr for kNone. A grammar is compiled on a thread of its own; those used of late are
  // kept. Throws Failure where it cannot be read. The guide may outlive this object.
  boost::asio::awaitable<std::unique_ptr<Guide>> guide(const Grammar& grammar, int32_t sequences);
  // Waits until nothing is compiled. Nothing may be asked for after that.
  void join();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kaiju::server
