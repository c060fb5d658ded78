#include "transcripts.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
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
  if (messages.empty()) return;
  const std::vector<Name> all = names(whose, messages);
  int later = 0;
  for (size_t i = all.size() - 1; i-- > 0 && later < 2;) {
    if (messages[i].role != ChatRole::kCharacter) continue;
    ++later;
    if (const auto before = by_name_.find(all[i]); before != by_name_.end())
      before->second->kept.later = std::max(before->second->kept.later, later);
  }
  keep(all.back(), std::move(kept));
}

void Transcripts::keep(const Name& name, Kept kept) {
  if (cost_of(kept) > most_tokens_) return;
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

std::string Transcripts::hex(const Name& name) { return fmt::format("{:016x}{:016x}", name.high, name.low); }

// Of what hex has not made: some name, under which nothing is kept.
Transcripts::Name Transcripts::named(const std::string& hex) {
  const auto half = [&](size_t from) {
    return std::strtoull(hex.substr(std::min(from, hex.size()), 16).c_str(), nullptr, 16);
  };
  return {half(16), half(0)};
}

std::vector<std::string> Transcripts::names_in_hex(const std::string& whose, std::span<const Message> messages) {
  const std::vector<Name> all = names(whose, messages);
  std::vector<std::string> hexes;
  for (size_t i = all.size(); i-- > 0;)
    if (messages[i].role == ChatRole::kCharacter) hexes.push_back(hex(all[i]));
  return hexes;
}

const Transcripts::Kept* Transcripts::find_named(const std::string& name) {
  const auto found = by_name_.find(named(name));
  return found == by_name_.end() ? nullptr : &found->second->kept;
}

void Transcripts::keep_named(const std::string& name, Kept kept) { keep(named(name), std::move(kept)); }

std::vector<std::pair<std::string, const Transcripts::Kept*>> Transcripts::newest(size_t most) const {
  std::vector<std::pair<std::string, const Kept*>> list;
  for (const Entry& entry : entries_) {
    if (list.size() == most) break;
    if (entry.kept.later < 2) list.emplace_back(hex(entry.name), &entry.kept);
  }
  return list;
}

}  // namespace kaiju::server
