#include "transcripts.hpp"

#include <xxhash.h>

#include <string_view>

namespace kaiju::server {

namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// What a history counts for: its tokens, and what keeping it takes besides, in tokens' places.
constexpr size_t kOverhead = 64;
size_t cost_of(const Transcripts::Kept& kept) { return kept.tokens.size() + kOverhead; }

}  // namespace

std::vector<Transcripts::Name> Transcripts::names(const std::string& whose, std::span<const Message> messages) {
  std::vector<Name> names;
  std::string bytes = whose;
  for (const Message& message : messages) {
    bytes += '\0';
    bytes += static_cast<char>('0' + static_cast<int>(message.role));
    for (const std::string_view part : {std::string_view(message.name), trimmed(message.text)}) {
      bytes += std::to_string(part.size());
      bytes += ':';
      bytes += part;
    }
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    names.push_back({hash.low64, hash.high64});
    bytes.assign(reinterpret_cast<const char*>(&hash), sizeof hash);  // a chain: each name is that of all before it
  }
  return names;
}

void Transcripts::keep(const std::string& whose, std::span<const Message> messages, Kept kept) {
  if (messages.empty() || cost_of(kept) > most_tokens_) return;
  const Name name = names(whose, messages).back();
  if (const auto found = by_name_.find(name); found != by_name_.end()) {
    held_ -= cost_of(found->second->kept);
    entries_.erase(found->second);
    by_name_.erase(found);
  }
  held_ += cost_of(kept);
  entries_.push_front({name, std::move(kept)});
  by_name_[name] = entries_.begin();
  while (held_ > most_tokens_) {
    held_ -= cost_of(entries_.back().kept);
    by_name_.erase(entries_.back().name);
    entries_.pop_back();
  }
}

const Transcripts::Kept* Transcripts::find(const std::string& whose, std::span<const Message> messages, size_t& count) {
  const std::vector<Name> all = names(whose, messages);
  for (size_t i = all.size(); i-- > 0;) {
    if (messages[i].role != ChatRole::kCharacter) continue;
    const auto found = by_name_.find(all[i]);
    if (found == by_name_.end()) continue;
    entries_.splice(entries_.begin(), entries_, found->second);
    count = i + 1;
    return &found->second->kept;
  }
  return nullptr;
}

}  // namespace kaiju::server
