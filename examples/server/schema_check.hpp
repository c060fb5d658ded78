// What of a JSON schema xgrammar follows. It ignores the rest without a word, so the server refuses it by name.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace kaiju::server {

// Why replies could break the schema: where, and what is not followed. Empty: they follow it.
std::string not_followed_in(const nlohmann::ordered_json& schema);

}  // namespace kaiju::server
