// Places text that changes with every turn in a prompt: see volatile_text.hpp.
#include "kaiju/text/volatile_text.hpp"

#include <algorithm>
#include <string>

namespace kaiju {
namespace {

bool may_join(const ChatMessage& message) { return message.role == ChatRole::kUser; }

// Messages with the text among them; `joined` keeps the text of the message that it became a part of.
std::vector<ChatMessage> with_text(std::span<const ChatMessage> messages, std::string_view text, int32_t depth,
                                   bool open, std::string& joined) {
  std::vector<ChatMessage> list(messages.begin(), messages.end());
  if (text.empty()) return list;
  const auto count = std::ssize(list);
  const bool has_head = count > 0 && (list[0].role == ChatRole::kCard || list[0].role == ChatRole::kSystem);
  const std::ptrdiff_t wanted = count - std::max(depth, open ? 1 : 0);
  const auto place = static_cast<size_t>(std::max<std::ptrdiff_t>(wanted, has_head ? 1 : 0));
  if (place < list.size() && may_join(list[place]) && list[place].name.empty()) {
    joined = std::string(text) + "\n\n" + std::string(list[place].text);
    list[place].text = joined;
  } else if (place > 0 && may_join(list[place - 1])) {
    joined = std::string(list[place - 1].text) + "\n\n" + std::string(text);
    list[place - 1].text = joined;
  } else {
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(place), {ChatRole::kUser, text, {}});
  }
  return list;
}

int32_t same_tokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<int32_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

}  // namespace

Result<VolatileCost> format_volatile(const ChatFormat& chat, std::span<const ChatMessage> messages,
                                     const VolatileText& text, const ChatParts& parts, std::vector<int32_t>& tokens) {
  if (text.depth < 0)
    return invalid_argument("depth is " + std::to_string(text.depth) +
                            "; it is how many messages follow the text, 0 or more");
  // Another text, from the first character on.
  const std::string_view other = text.text.empty() ? "" : text.text.front() == 'x' ? "y" : "x";
  const auto format = [&](int32_t depth, std::string_view what, std::vector<int32_t>& to) {
    std::string joined;
    return chat.format(with_text(messages, what, depth, parts.open, joined), parts, to);
  };
  std::vector<int32_t> placed, placed_other;
  KAIJU_TRY(format(text.depth, text.text, placed));
  KAIJU_TRY(format(text.depth, other, placed_other));
  VolatileCost cost;
  cost.prompt_tokens = static_cast<int32_t>(placed.size());
  cost.stable_tokens = cost.stable_behind_history = same_tokens(placed, placed_other);
  if (text.depth != 1) {
    std::vector<int32_t> behind, behind_other;
    KAIJU_TRY(format(1, text.text, behind));
    KAIJU_TRY(format(1, other, behind_other));
    cost.stable_behind_history = same_tokens(behind, behind_other);
  }
  tokens.insert(tokens.end(), placed.begin(), placed.end());
  return cost;
}

}  // namespace kaiju
