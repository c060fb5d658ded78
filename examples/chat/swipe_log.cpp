// Writes lines {"card", "turns": [["user", text], ["char", text], ..., ["user", text]], "kept", "swiped": [texts]},
// which examples/train/dpo.py reads.
#include "swipe_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

namespace chat {

void log_swipes(const std::string& file, const Card& card, const std::vector<Turn>& turns,
                const std::vector<std::string>& swiped) {
  nlohmann::ordered_json line = {{"card", card.name + "\n" + card.description},
                                 {"turns", nlohmann::ordered_json::array()}};
  if (!card.greeting.empty()) line["turns"].push_back({"char", card.greeting});
  for (const Turn& each : turns) {
    line["turns"].push_back({"user", each.said});
    if (&each != &turns.back()) line["turns"].push_back({"char", each.reply});
  }
  line["kept"] = turns.back().reply;
  line["swiped"] = swiped;
  const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  const int to = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const bool written = to >= 0 && write(to, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int why = errno;
  if (to >= 0) close(to);
  if (!written)
    throw Problem(file +
                  ": the swipe log cannot be written: " + std::error_code(why, std::generic_category()).message());
}

}  // namespace chat
