// The character book: its entries are read, written canonically, and looked up by their keys.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>

#include "draft.hpp"

namespace kaiju::server {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kLogicWords = {"any", "all", "not any", "not all"};  // by Secondary
constexpr Secondary kTavernLogic[] = {Secondary::kAny, Secondary::kNotAll, Secondary::kNotAny, Secondary::kAll};
constexpr int64_t kMaxOrder = 1'000'000'000;

// What was found and is not followed, counted over all entries of a book.
struct Seen {
  size_t constant = 0, keyed = 0, disabled = 0, empty = 0, keyless = 0, expressions = 0, elsewhere = 0, chances = 0,
         decorators = 0;
};

// "/wren|rook/i": SillyTavern reads such a key as a regular expression.
bool is_expression(const std::string& key) {
  const size_t last = key.rfind('/');
  return key.size() > 2 && key[0] == '/' && last > 1 &&
         key.find_first_not_of("dgimsuvy", last + 1) == std::string::npos;
}

void sort_and_dedupe(std::vector<std::string>& texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
}

// Lines "@@depth 4" that V3 allows before the content.
void take_decorators(BookEntry& entry, Seen& seen) {
  std::string& text = entry.content;
  while (text.starts_with("@@")) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string line = text.substr(0, end);
    text = tidied(text.substr(end));
    const std::string word = line.substr(0, line.find(' '));
    if (word == "@@constant" || word == "@@activate") {
      entry.constant = true;
    } else if (word == "@@dont_activate") {
      entry.enabled = false;
    } else if (int64_t depth = 0; word == "@@depth" && line.size() > word.size()) {
      std::from_chars(line.data() + word.size() + 1, line.data() + line.size(), depth);
      entry.depth = depth;
    } else {
      ++seen.decorators;
    }
  }
}

std::string position_of(const CardFields& entry) {
  constexpr std::string_view kPlaces[] = {
      "before_char", "after_char",          "before the author's note", "after the author's note",
      "at a depth",  "before the examples", "after the examples",       "outlet"};
  if (const auto extensions = entry.object("extensions"))
    if (const auto number = extensions->number("position", 0, 100))
      return std::string(*number < 8 ? kPlaces[*number] : "unknown");
  if (entry.has("position") && entry.raw()["position"].is_number())
    return std::string(kPlaces[entry.number("position", 0, 7).value_or(0)]);
  return entry.line("position", kMaxShortBytes);
}

void read_secondary(const CardFields& fields, BookEntry& entry) {
  const std::vector<std::string> keys = fields.lines("secondary_keys", kMaxKeys, kMaxShortBytes);
  if (!fields.flag("selective", false)) return;
  entry.secondary_keys = keys;
  if (fields.has("secondary_logic")) {
    const std::string word = fields.line("secondary_logic", kMaxShortBytes);
    const auto* found = std::find(kLogicWords.begin(), kLogicWords.end(), word);
    if (found == kLogicWords.end())
      throw Refusal(
          fmt::format("{} must be one of: {}", fields.path_of("secondary_logic"), fmt::join(kLogicWords, ", ")));
    entry.secondary = static_cast<Secondary>(found - kLogicWords.begin());
  } else if (const auto extensions = fields.object("extensions")) {
    entry.secondary = kTavernLogic[extensions->number("selectiveLogic", 0, 3).value_or(0)];
  }
}

void drop_expressions(std::vector<std::string>& keys, Seen& seen) {
  seen.expressions += std::erase_if(keys, is_expression);
}

BookEntry read_entry(const CardFields& fields, Seen& seen) {
  BookEntry entry;
  entry.keys = fields.lines("keys", kMaxKeys, kMaxShortBytes);
  entry.content = fields.text("content", kMaxEntryBytes);
  entry.name = fields.line("name", kMaxShortBytes);
  if (entry.name.empty()) entry.name = fields.line("comment", kMaxShortBytes);
  entry.constant = fields.flag("constant", false);
  entry.enabled = fields.flag("enabled", true);
  entry.insertion_order = fields.number("insertion_order", -kMaxOrder, kMaxOrder).value_or(100);
  entry.position = position_of(fields);
  entry.depth = fields.number("depth", 0, kMaxOrder);
  read_secondary(fields, entry);
  entry.case_sensitive = fields.flag("case_sensitive", false);
  entry.whole_words = fields.flag("whole_words", true);
  if (const auto extensions = fields.object("extensions")) {
    if (entry.position == "at a depth") entry.depth = extensions->number("depth", 0, kMaxOrder);
    if (!fields.has("case_sensitive")) entry.case_sensitive = extensions->flag("case_sensitive", false);
    entry.whole_words = extensions->flag("match_whole_words", entry.whole_words);
    const bool chance =
        extensions->flag("useProbability", true) && extensions->number("probability", 0, 100).value_or(100) < 100;
    const bool timed = extensions->number("sticky", 0, kMaxOrder).value_or(0) > 0 ||
                       extensions->number("cooldown", 0, kMaxOrder).value_or(0) > 0 ||
                       extensions->number("delay", 0, kMaxOrder).value_or(0) > 0;
    seen.chances += chance || timed;
  }
  take_decorators(entry, seen);
  if (fields.flag("use_regex", false)) {
    seen.expressions += entry.keys.size();
    entry.keys.clear();
  }
  drop_expressions(entry.keys, seen);
  drop_expressions(entry.secondary_keys, seen);
  if (entry.constant) {
    entry.keys.clear();
    entry.secondary_keys.clear();
  }
  sort_and_dedupe(entry.keys);
  sort_and_dedupe(entry.secondary_keys);
  if (entry.secondary_keys.empty()) entry.secondary = Secondary::kAny;
  return entry;
}

void count_entry(const BookEntry& entry, Seen& seen) {
  if (!entry.enabled) {
    ++seen.disabled;
  } else if (entry.constant) {
    ++seen.constant;
  } else if (entry.keys.empty()) {
    ++seen.keyless;
  } else {
    ++seen.keyed;
  }
  seen.elsewhere += entry.enabled && !entry.position.empty() && entry.position != "before_char";
}

std::string entries(size_t count) {
  return fmt::format("{} {} of the character book", count, count == 1 ? "entry" : "entries");
}

void add_notes(const Seen& seen, const CardFields& book) {
  if (seen.constant > 0)
    book.note(fmt::format("Constant: {} placed at the description's end, shared by all chats and cached.",
                          entries(seen.constant)));
  if (seen.keyed > 0)
    book.note(
        fmt::format("With keys: {} placed before the newest message while the recent text names a key, so that "
                    "the history before it stays cached.",
                    entries(seen.keyed)));
  if (seen.elsewhere > 0)
    book.note(
        fmt::format("Other positions or depths: {} asked for one, which would break the cache; they are placed "
                    "as said above.",
                    entries(seen.elsewhere)));
  if (seen.disabled > 0) book.note(fmt::format("Disabled: {} kept and never used.", entries(seen.disabled)));
  if (seen.keyless > 0) book.note(fmt::format("Without a usable key: {} kept and never used.", entries(seen.keyless)));
  if (seen.empty > 0) book.note(fmt::format("Without content: {} left out.", entries(seen.empty)));
  if (seen.expressions > 0)
    book.note(fmt::format("{} keys that are regular expressions were left out; write the words.", seen.expressions));
  if (seen.chances > 0)
    book.note(fmt::format("Probability, sticky, cooldown, delay: {} asked for one; it is not followed.",
                          entries(seen.chances)));
  if (seen.decorators > 0)
    book.note(
        fmt::format("{} decorators (@@...) of the character book are not known and were left out.", seen.decorators));
}

// The pairs of bytes that a text has. A key with another pair is not in the text: most keys need no search.
class Pairs {
 public:
  explicit Pairs(std::string_view text) {
    for (size_t i = 1; i < text.size(); ++i) has_.set(index(text, i));
  }
  bool allow(std::string_view key) const {
    for (size_t i = 1; i < key.size(); ++i)
      if (!has_.test(index(key, i))) return false;
    return true;
  }

 private:
  static size_t index(std::string_view text, size_t i) {
    return static_cast<size_t>(static_cast<uint8_t>(text[i - 1])) << 8 | static_cast<uint8_t>(text[i]);
  }
  std::bitset<65536> has_;
};

bool any_of(const std::vector<std::string>& keys, const auto& found) {
  return std::any_of(keys.begin(), keys.end(), found);
}
bool all_of(const std::vector<std::string>& keys, const auto& found) {
  return std::all_of(keys.begin(), keys.end(), found);
}

}  // namespace

void read_book(const CardFields& book, Card& card) {
  Seen seen;
  for (const CardFields& fields : book.objects("entries", kMaxBookEntries)) {
    BookEntry entry = read_entry(fields, seen);
    if (entry.content.empty()) {
      ++seen.empty;
      continue;
    }
    count_entry(entry, seen);
    card.book.push_back(std::move(entry));
  }
  std::stable_sort(card.book.begin(), card.book.end(),
                   [](const BookEntry& a, const BookEntry& b) { return a.insertion_order < b.insertion_order; });
  card.scan_depth = book.number("scan_depth", 0, 1000);
  card.token_budget = book.number("token_budget", 0, kMaxOrder);
  add_notes(seen, book);
  if (book.flag("recursive_scanning", false))
    book.note("The character book asks for recursive scanning; entries do not trigger others here.");
}

json book_json(const Card& card) {
  json entries = json::array();
  for (const BookEntry& entry : card.book) {
    json one = {{"content", entry.content}, {"insertion_order", entry.insertion_order}};
    if (!entry.keys.empty()) one["keys"] = entry.keys;
    if (!entry.secondary_keys.empty()) {
      one["secondary_keys"] = entry.secondary_keys;
      one["selective"] = true;
      one["secondary_logic"] = kLogicWords[static_cast<size_t>(entry.secondary)];
    }
    if (!entry.name.empty()) one["name"] = entry.name;
    if (entry.constant) one["constant"] = true;
    if (!entry.enabled) one["enabled"] = false;
    if (entry.case_sensitive) one["case_sensitive"] = true;
    if (!entry.whole_words) one["whole_words"] = false;
    if (!entry.position.empty()) one["position"] = entry.position;
    if (entry.depth) one["depth"] = *entry.depth;
    entries.push_back(std::move(one));
  }
  json book = {{"entries", std::move(entries)}};
  if (card.scan_depth) book["scan_depth"] = *card.scan_depth;
  if (card.token_budget) book["token_budget"] = *card.token_budget;
  return book;
}

std::vector<const BookEntry*> triggered_entries(const Card& card, std::string_view recent) {
  const std::string small = folded(recent);
  const Pairs pairs(recent), small_pairs(small);
  std::vector<const BookEntry*> found;
  for (const BookEntry& entry : card.book) {
    if (!entry.enabled || entry.constant) continue;
    const auto is_named = [&](const std::string& key) {
      if (entry.case_sensitive) return pairs.allow(key) && contains(recent, key, entry.whole_words);
      const std::string small_key = folded(key);
      return small_pairs.allow(small_key) && contains(small, small_key, entry.whole_words);
    };
    if (!any_of(entry.keys, is_named)) continue;
    const std::vector<std::string>& secondary = entry.secondary_keys;
    const bool wanted = secondary.empty() || (entry.secondary == Secondary::kAny && any_of(secondary, is_named)) ||
                        (entry.secondary == Secondary::kAll && all_of(secondary, is_named)) ||
                        (entry.secondary == Secondary::kNotAny && !any_of(secondary, is_named)) ||
                        (entry.secondary == Secondary::kNotAll && !all_of(secondary, is_named));
    if (wanted) found.push_back(&entry);
  }
  return found;
}

std::string volatile_text(const Card& card, std::string_view recent) {
  std::vector<std::string> parts;
  for (const BookEntry* entry : triggered_entries(card, recent)) parts.push_back(entry->content);
  parts.push_back(card.author_note);
  parts.push_back(card.post_history_instructions);
  return joined(parts, "\n\n");
}

}  // namespace kaiju::server
