// CardFields: checked access to the JSON of a card. Every refusal names the field by its path: "data.tags[3]".
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text.hpp"

namespace kaiju::server {

// Parses JSON of at most kMaxCardJsonBytes, kMaxJsonDepth and kMaxJsonValues; `what` it is: "the card". The depth is
// checked without recursion, before anything is built. Throws Refusal.
nlohmann::json checked_json(std::string_view bytes, std::string_view what);

// One object. Refers to the JSON and to the notes, which live longer.
class CardFields {
 public:
  // `path` of the object, "" for the card itself. Throws Refusal where `object` is none.
  CardFields(const nlohmann::json& object, std::string path, std::vector<std::string>& notes);

  bool has(const char* key) const;  // a null is no value
  std::string path_of(const std::string& key) const;

  // All of these give what an absent field means where there is none, and throw Refusal where it has another type, a
  // number outside its bounds or more bytes than `most`. Texts are tidied and their macros settled, with notes.
  std::string text(const char* key, size_t most) const;
  std::string line(const char* key, size_t most) const;
  std::vector<std::string> lines(const char* key, size_t most_count, size_t most) const;  // without empty ones
  std::vector<std::string> texts(const char* key, size_t most_count, size_t most) const;
  bool flag(const char* key, bool absent) const;
  std::optional<int64_t> number(const char* key, int64_t least, int64_t most) const;
  std::optional<CardFields> object(const char* key) const;
  std::vector<CardFields> objects(const char* key, size_t most_count) const;

  const nlohmann::json& raw() const { return *object_; }
  void note(std::string sentence) const { notes_->push_back(std::move(sentence)); }

 private:
  const nlohmann::json* find(const char* key) const;
  const nlohmann::json* list(const char* key, size_t most_count) const;
  std::string settled(const nlohmann::json& value, const std::string& path, size_t most, bool one_line) const;
  std::vector<std::string> all(const char* key, size_t most_count, size_t most, bool one_line) const;

  const nlohmann::json* object_;
  std::string path_;
  std::vector<std::string>* notes_;
};

}  // namespace kaiju::server
