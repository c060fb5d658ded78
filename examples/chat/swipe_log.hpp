// Swipe log: which reply the user went on with and which were retried, as lines of JSON for training (--swipe-log).
// Nothing is written unless the user names a file.
#pragma once

#include <string>
#include <vector>

#include "conversation.hpp"

namespace chat {

// Appends the preference of the last of `turns`, whose reply the user went on with after `swiped`, the ones that came
// before it. A new file can be read by its owner alone. Throws Problem.
void log_swipes(const std::string& file, const Card& card, const std::vector<Turn>& turns,
                const std::vector<std::string>& swiped);

}  // namespace chat
