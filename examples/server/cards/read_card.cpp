// Tells the forms of cards apart, reads our own, and makes of a draft the card, its canonical bytes and its digest.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "../../chat/card.hpp"
#include "../../chat/owned.hpp"
#include "../../tools/nearest.hpp"
#include "draft.hpp"
#include "png.hpp"

namespace kaiju::server {
namespace {

using nlohmann::json;

const std::vector<std::string>& own_fields() {
  static const std::vector<std::string> all = {"name",
                                               "nickname",
                                               "description",
                                               "greeting",
                                               "alternate_greetings",
                                               "suggestions",
                                               "first_question",
                                               "author_note",
                                               "post_history_instructions",
                                               "character_book",
                                               "creator",
                                               "creator_notes",
                                               "tags",
                                               "character_version"};
  return all;
}

std::string digest_of(std::string_view bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  std::string text;
  for (const unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
  return text;
}

void put(json& object, const char* key, const auto& value) {
  if (!value.empty()) object[key] = value;
}

std::string canonical_of(const Draft& draft) {
  const Card& card = draft.card;
  json all = {{"name", card.name}, {"description", card.description}};
  put(all, "nickname", draft.nickname);
  put(all, "greeting", card.greeting);
  put(all, "alternate_greetings", card.alternate_greetings);
  put(all, "suggestions", card.suggestions);
  put(all, "author_note", card.author_note);
  put(all, "post_history_instructions", card.post_history_instructions);
  put(all, "creator", card.creator);
  put(all, "creator_notes", card.creator_notes);
  put(all, "character_version", card.character_version);
  put(all, "tags", card.tags);
  if (!card.book.empty() || card.scan_depth || card.token_budget) all["character_book"] = book_json(card);
  std::string canonical = all.dump();  // keys are sorted: json keeps a std::map
  if (canonical.size() > kMaxCardJsonBytes)
    throw Refusal(
        fmt::format("the card has {} bytes in its canonical form; at most {}", canonical.size(), kMaxCardJsonBytes));
  return canonical;
}

void check_draft(const Draft& draft) {
  const Card& card = draft.card;
  if (card.name.empty()) throw Refusal("name is missing: the card must say what its character is called");
  if (card.name.size() > kMaxNameBytes)
    throw Refusal(fmt::format("name has {} bytes; at most {}", card.name.size(), kMaxNameBytes));
  const bool is_described =
      !card.description.empty() || std::any_of(card.book.begin(), card.book.end(),
                                               [](const auto& entry) { return entry.enabled && entry.constant; });
  if (!is_described) throw Refusal("description is missing: the card must say who its character is");
}

// Puts names for the macros, and the constant entries at the description's end.
void finish(Draft& draft, const CardOptions& options) {
  Card& card = draft.card;
  const std::string called = draft.nickname.empty() ? card.name : draft.nickname;
  const auto name_all = [&](std::string& text) { text = with_names(text, called, options.user); };
  std::vector<std::string> parts = {std::move(card.description)};
  for (const BookEntry& entry : card.book)
    if (entry.enabled && entry.constant) parts.push_back(entry.content);
  card.description = joined(parts, "\n\n");
  if (card.description.find("{{user}}") != std::string::npos)
    card.notes.push_back(
        fmt::format("In the description {{{{user}}}} is read as \"{}\".", options.user_in_description));
  if (card.description.size() > kMaxDescriptionBytes)
    throw Refusal(
        fmt::format("the whole description has {} bytes; at most {}", card.description.size(), kMaxDescriptionBytes));
  card.description = with_names(card.description, called, options.user_in_description);
  if (card.description.size() > kMaxDescriptionBytes)
    throw Refusal(fmt::format("the whole description has {} bytes with names in it; at most {}",
                              card.description.size(), kMaxDescriptionBytes));
  for (std::string* text : {&card.greeting, &card.author_note, &card.post_history_instructions}) name_all(*text);
  for (auto* texts : {&card.alternate_greetings, &card.suggestions})
    for (std::string& text : *texts) name_all(text);
  for (BookEntry& entry : card.book) {
    name_all(entry.content);
    for (auto* keys : {&entry.keys, &entry.secondary_keys})
      for (std::string& key : *keys) name_all(key);
  }
}

Draft text_draft(std::string_view bytes, std::vector<std::string>& notes) {
  if (bytes.size() > kMaxCardTextBytes)
    throw Refusal(fmt::format("the card has {} bytes; in its text form at most {}", bytes.size(), kMaxCardTextBytes));
  try {
    chat::Card parsed = chat::parse_card(std::string(bytes), "card");
    const json all = {{"name", parsed.name},
                      {"greeting", parsed.greeting},
                      {"suggestions", parsed.asks},
                      {"description", parsed.description}};
    return own_draft(CardFields(all, "", notes));
  } catch (const chat::Problem& problem) {
    throw Refusal(problem.what());
  }
}

Draft json_draft(std::string_view bytes, std::string_view what, std::vector<std::string>& notes) {
  const json parsed = checked_json(bytes, what);
  const CardFields card(parsed, "", notes);
  return is_tavern(parsed) ? tavern_draft(card) : own_draft(card);
}

std::string_view without_mark(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  return bytes;
}

Draft png_draft(std::string_view file, std::vector<std::string>& notes, std::string& picture) {
  PngText found = png_text(file, "ccv3", "chara", kMaxCardJsonBytes / 3 * 4 + 4);
  const std::optional<std::string> card = from_base64(found.text);
  if (!card) throw Refusal(fmt::format("the card in the PNG (text '{}') is no base64", found.keyword));
  picture = std::move(found.picture);
  return json_draft(without_mark(*card), fmt::format("the card in the PNG (text '{}')", found.keyword), notes);
}

Draft draft_of(std::string_view bytes, std::vector<std::string>& notes, std::string& picture) {
  if (is_png(bytes)) return png_draft(bytes, notes, picture);
  if (bytes.starts_with("\xFF\xD8\xFF") || bytes.starts_with("RIFF") || bytes.starts_with("GIF8"))
    throw Refusal("the card is a picture that is no PNG; export it as PNG or JSON");
  if (bytes.starts_with("PK\x03\x04")) throw Refusal("the card is a ZIP file (.charx); export it as PNG or JSON");
  bytes = without_mark(bytes);
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) throw Refusal("the card is empty");
  return bytes[first] == '{' || bytes[first] == '[' ? json_draft(bytes, "the card", notes) : text_draft(bytes, notes);
}

}  // namespace

void read_common(const CardFields& data, Draft& draft) {
  Card& card = draft.card;
  draft.nickname = data.line("nickname", kMaxNameBytes);
  card.alternate_greetings = data.texts("alternate_greetings", kMaxGreetings, kMaxFieldBytes);
  card.author_note = data.text("author_note", kMaxFieldBytes);
  card.post_history_instructions = data.text("post_history_instructions", kMaxFieldBytes);
  for (const auto& [name, text] : {std::pair("author_note", &card.author_note),
                                   std::pair("post_history_instructions", &card.post_history_instructions)})
    if (!text->empty()) data.note(fmt::format("{} is placed before the newest message.", data.path_of(name)));
  card.creator = data.line("creator", kMaxShortBytes);
  card.creator_notes = data.text("creator_notes", kMaxFieldBytes);
  card.character_version = data.line("character_version", kMaxShortBytes);
  card.tags = data.lines("tags", kMaxTags, kMaxShortBytes);
  std::sort(card.tags.begin(), card.tags.end());
  card.tags.erase(std::unique(card.tags.begin(), card.tags.end()), card.tags.end());
  if (const auto book = data.object("character_book")) read_book(*book, card);
}

Draft own_draft(const CardFields& card) {
  for (const auto& [key, value] : card.raw().items())
    if (std::find(own_fields().begin(), own_fields().end(), key) == own_fields().end())
      throw Refusal(
          fmt::format("'{}' is no field of a card{} The fields are {}", tidied_line(key.substr(0, 40)),
                      tools::did_you_mean(key, own_fields()).empty() ? "." : tools::did_you_mean(key, own_fields()),
                      fmt::join(own_fields(), ", ")));
  Draft draft;
  draft.card.name = card.line("name", kMaxFieldBytes);
  draft.card.description = card.text("description", kMaxDescriptionBytes);
  draft.card.greeting = card.text("greeting", kMaxFieldBytes);
  draft.card.suggestions = card.lines("suggestions", kMaxSuggestions, kMaxShortBytes);
  const std::string first = card.line("first_question", kMaxShortBytes);
  if (!first.empty()) draft.card.suggestions.insert(draft.card.suggestions.begin(), first);
  if (draft.card.suggestions.size() > kMaxSuggestions)
    throw Refusal(fmt::format("suggestions has more than {} values, first_question among them", kMaxSuggestions));
  read_common(card, draft);
  return draft;
}

Result<Card> read_card(std::string_view bytes, const CardOptions& options) {
  return guarded<Result<Card>>([&]() -> Result<Card> {
    try {
      for (const std::string* user : {&options.user, &options.user_in_description})
        if (user->empty() || user->size() > kMaxNameBytes)
          return invalid_argument(fmt::format("the user's name must have from 1 to {} bytes", kMaxNameBytes));
      std::vector<std::string> notes;
      std::string picture;
      Draft draft = draft_of(bytes, notes, picture);
      check_draft(draft);
      draft.card.canonical = canonical_of(draft);
      draft.card.digest = digest_of(draft.card.canonical);
      draft.card.notes = std::move(notes);
      draft.card.picture = std::move(picture);
      finish(draft, options);
      return std::move(draft.card);
    } catch (const Refusal& refusal) {
      return invalid_argument(refusal.what());
    }
  });
}

std::string slug_of(std::string_view name) {
  constexpr size_t kMost = 40;
  std::string slug;
  for (const char c : folded(name)) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (kept && slug.size() < kMost) slug += c;
    if (!kept && c != '\'' && !slug.empty() && slug.back() != '-' && slug.size() < kMost) slug += '-';
  }
  while (slug.ends_with('-')) slug.pop_back();
  return slug.empty() ? "character" : slug;
}

}  // namespace kaiju::server
