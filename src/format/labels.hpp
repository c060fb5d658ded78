// The labels of a classifier: reads them from a config's JSON and checks their names. Checkpoints and gates have them.
#pragma once

#include <string>
#include <vector>

#include "json.hpp"
#include "kaiju/base/status.hpp"

namespace kaiju::format {

// The value of a config's field "classifier", {"labels": ["violence", ...]}.
Status read_classifier(const Json& value, std::vector<std::string>& labels);
// Refuses labels that are too many, empty, alike, or no names.
Status check_labels(const std::vector<std::string>& labels);
// Refuses what is too long, no UTF-8, or has a control character. `field` names it in the message.
Status check_name(const std::string& field, const std::string& name);

}  // namespace kaiju::format
