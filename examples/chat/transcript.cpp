// Reads and writes transcripts as JSON:
//   {"kaiju_chat": 1, "character": {"name", "greeting", "description"}, "seed", "exchanges": [{"user", "reply",
//   "retries", "reply_tokens"}, ...]}
// "exchanges" are the turns. reply_tokens is text, "5 17 3", and may be missing: then the reply is tokenised anew.
#include "transcript.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

#include "owned.hpp"
#include "regular_file.hpp"

namespace chat {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;
constexpr size_t kMaxBytes = size_t{64} << 20;

std::string why() { return std::error_code(errno, std::generic_category()).message(); }

Json to_json(const Transcript& transcript) {
  const Card& card = transcript.card;
  Json json = {{"kaiju_chat", kFormat},
               {"character", {{"name", card.name}, {"greeting", card.greeting}, {"description", card.description}}},
               {"seed", transcript.seed},
               {"exchanges", Json::array()}};
  for (const Turn& each : transcript.turns) {
    json["exchanges"].push_back({{"user", each.said}, {"reply", each.reply}, {"retries", each.retries}});
    if (each.reply_tokens)
      json["exchanges"].back()["reply_tokens"] = fmt::format("{}", fmt::join(*each.reply_tokens, " "));
  }
  return json;
}

// Not what a conversion would make of a negative number.
uint64_t whole_number(const Json& json, uint64_t most) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > most)
    throw Problem("has a seed or retries that are no whole number");
  return json.get<uint64_t>();
}

std::vector<int32_t> tokens_of(const std::string& text) {
  std::vector<int32_t> tokens;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int32_t token = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size() || token < 0)
      throw Problem("has tokens of a reply that are no numbers");
    tokens.push_back(token);
  }
  return tokens;
}

Transcript from_json(const Json& json) {
  if (const Json& format = json.at("kaiju_chat"); !format.is_number_integer() || format != kFormat)
    throw Problem("was saved by another version of kaiju-chat");
  const Json& character = json.at("character");
  Transcript transcript;
  transcript.card = {character.at("name"), character.at("greeting"), character.at("description"), {}};
  check_card(transcript.card);
  transcript.seed = whole_number(json.at("seed"), UINT64_MAX);
  if (!json.at("exchanges").is_array()) throw Problem("has exchanges (its turns) that are no list");
  for (const Json& each : json.at("exchanges")) {
    transcript.turns.push_back(
        {each.at("user"), each.at("reply"), static_cast<uint32_t>(whole_number(each.at("retries"), UINT32_MAX - 1))});
    if (transcript.turns.back().said.empty()) throw Problem("has a turn in which nothing was said");
    if (each.contains("reply_tokens"))
      transcript.turns.back().reply_tokens = tokens_of(each.at("reply_tokens").get<std::string>());
  }
  return transcript;
}

// On the disk, not only on its way there. Empty, or why there is no file.
std::string write_whole(const std::string& file, const std::string& text) {
  std::FILE* stream = std::fopen(file.c_str(), "wbx");  // x: never a file that is there
  if (!stream) return why();
  bool good = std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0 &&
              fsync(fileno(stream)) == 0;
  std::string reason = why();
  good = std::fclose(stream) == 0 && good;
  if (good) return "";
  std::remove(file.c_str());
  return reason;
}

}  // namespace

void save_transcript(const Transcript& transcript, const std::string& file) {
  std::error_code error;
  if (fs::exists(file, error)) {
    try {
      load_transcript(file);
    } catch (const Problem&) {
      throw Problem(fmt::format("{}: exists and is no saved chat; choose another name", file));
    }
  }
  // Short, for `file` may have the longest name that there can be.
  const std::string fresh = (fs::path(file).parent_path() / fmt::format(".kaiju-chat.{}.new", getpid())).string();
  std::string problem = write_whole(fresh, to_json(transcript).dump(2) + "\n");
  if (problem.empty() && std::rename(fresh.c_str(), file.c_str()) != 0) {
    problem = why();
    std::remove(fresh.c_str());
  }
  if (!problem.empty()) throw Problem(fmt::format("{}: cannot write it: {}", file, problem));
}

Transcript load_transcript(const std::string& file) {
  const std::string text = read_regular_file(file, "a saved chat", kMaxBytes);
  try {
    return from_json(Json::parse(text));
  } catch (const Problem& problem) {
    throw Problem(fmt::format("{}: {}", file, problem.what()));
  } catch (const Json::exception&) {  // its own words name its own insides
    throw Problem(fmt::format("{}: not a chat that /save wrote, or damaged since", file));
  }
}

}  // namespace chat
