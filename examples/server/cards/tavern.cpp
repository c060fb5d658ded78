// Tavern's cards: V1 is flat, V2 and V3 have "spec" and everything in "data".
#include <fmt/format.h>

#include <algorithm>

#include "draft.hpp"

namespace kaiju::server {
namespace {

using nlohmann::json;

// Example messages: "<START>" begins another example.
std::string examples_of(const std::string& written) {
  std::string out;
  for (size_t at = 0; at < written.size();) {
    const size_t end = std::min(written.find('\n', at), written.size());
    const std::string line = written.substr(at, end - at);
    out += folded(tidied_line(line)) == "<start>" ? "\n" : line + "\n";
    at = end + 1;
  }
  return tidied(out);
}

// The description that the model reads, of the parts in which Tavern keeps it.
std::string composed_description(const CardFields& data) {
  const std::string description = data.text("description", kMaxFieldBytes);
  const std::string personality = data.text("personality", kMaxFieldBytes);
  const std::string scenario = data.text("scenario", kMaxFieldBytes);
  const std::string examples = examples_of(data.text("mes_example", kMaxFieldBytes));
  const std::string system = data.text("system_prompt", kMaxFieldBytes);
  std::vector<std::string> added;
  if (!personality.empty()) added.push_back("personality");
  if (!scenario.empty()) added.push_back("scenario");
  if (!examples.empty()) added.push_back("mes_example");
  if (!added.empty()) data.note(fmt::format("Added to the end of the description: {}.", fmt::join(added, ", ")));
  if (!system.empty()) data.note("system_prompt is placed at the beginning of the description.");
  const std::string whole =
      joined({system, description, personality.empty() ? "" : "{{char}}'s personality: " + personality,
              scenario.empty() ? "" : "Scenario: " + scenario,
              examples.empty() ? "" : "Examples of how {{char}} speaks:\n" + examples},
             "\n\n");
  return settle_macros(whole).text;  // one may begin in one part and end in another
}

void read_extensions(const CardFields& extensions, Draft& draft) {
  if (const auto note = extensions.object("depth_prompt")) {
    const std::string text = note->text("prompt", kMaxFieldBytes);
    if (!text.empty()) draft.card.author_note = joined({draft.card.author_note, text}, "\n\n");
    if (!text.empty() && note->number("depth", 0, 1'000'000).value_or(4) != 0)
      extensions.note(
          fmt::format("The author's note ({}) asks for depth {}; it is placed before the newest message, so "
                      "that the history before it stays cached.",
                      extensions.path_of("depth_prompt"), note->number("depth", 0, 1'000'000).value_or(4)));
  }
  if (extensions.has("world") && !extensions.line("world", kMaxFieldBytes).empty())
    extensions.note(
        fmt::format("{} names a world book outside the card; it was left out.", extensions.path_of("world")));
  if (extensions.has("regex_scripts"))
    extensions.note(fmt::format("{} were left out.", extensions.path_of("regex_scripts")));
}

// What a card may have, has no meaning here, and is worth a sentence.
void note_left_out(const CardFields& data) {
  std::vector<std::string> left_out;
  for (const char* key : {"group_only_greetings", "assets", "creator_notes_multilingual"})
    if (data.has(key) && !data.raw()[key].empty()) left_out.push_back(data.path_of(key));
  if (!left_out.empty()) data.note(fmt::format("Left out: {}.", fmt::join(left_out, ", ")));
}

}  // namespace

bool is_tavern(const json& card) {
  if (!card.is_object()) return false;
  for (const char* key : {"spec", "first_mes", "personality", "scenario", "mes_example"})
    if (card.contains(key)) return true;
  return false;
}

Draft tavern_draft(const CardFields& card) {
  std::optional<CardFields> data = card;
  if (card.has("spec")) {
    const std::string spec = card.line("spec", kMaxShortBytes);
    if (spec != "chara_card_v2" && spec != "chara_card_v3")
      throw Refusal("spec must be chara_card_v2 or chara_card_v3 (or left out, for a card of version 1)");
    data = card.object("data");
    if (!data) throw Refusal(fmt::format("data is missing: a card with the spec {} has its fields there", spec));
  }
  Draft draft;
  draft.card.name = data->line("name", kMaxFieldBytes);
  draft.card.description = composed_description(*data);
  draft.card.greeting = data->text("first_mes", kMaxFieldBytes);
  read_common(*data, draft);
  if (const auto extensions = data->object("extensions")) read_extensions(*extensions, draft);
  note_left_out(*data);
  return draft;
}

}  // namespace kaiju::server
