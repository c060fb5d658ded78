// See labels.hpp.
#include "labels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kaiju/format/config.hpp"
#include "reader.hpp"

namespace kaiju::format {
namespace {

constexpr size_t kMostNameBytes = 128;

}  // namespace

Status read_classifier(const Json& value, std::vector<std::string>& labels) {
  if (!value.object()) return bad_model("config.classifier must be an object");
  Reader reader(*value.object(), "config.classifier");
  const Json* found = nullptr;
  KAIJU_TRY(reader.find("labels", &found));
  if (!found->array() || found->array()->empty())
    return bad_model("config.classifier.labels must be a list of strings, and not empty");
  for (const Json& label : *found->array()) {
    if (!label.text()) return bad_model(fmt::format("config.classifier.labels[{}] must be a string", labels.size()));
    labels.push_back(*label.text());
  }
  return reader.end();
}

Status check_labels(const std::vector<std::string>& labels) {
  if (labels.size() > kMostLabels)
    return bad_model(
        fmt::format("config.classifier.labels has {} entries: 1 to {} allowed", labels.size(), kMostLabels));
  for (size_t i = 0; i < labels.size(); ++i) {
    const std::string field = fmt::format("config.classifier.labels[{}]", i);
    KAIJU_TRY(check_name(field, labels[i]));
    if (labels[i].empty()) return bad_model(fmt::format("{} is empty", field));
    if (std::count(labels.begin(), labels.end(), labels[i]) > 1)
      return bad_model(fmt::format("{} is {}, as another one is", field, in_quotes(labels[i])));
  }
  return {};
}

Status check_name(const std::string& field, const std::string& name) {
  if (name.size() > kMostNameBytes) return bad_model(fmt::format("{} is longer than {} bytes", field, kMostNameBytes));
  if (!is_utf8(name)) return bad_model(fmt::format("{} is not UTF-8", field));
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    const bool is_c1 = byte == 0xC2 && static_cast<unsigned char>(name[i + 1]) < 0xA0;  // U+0080 to U+009F
    if (byte < 0x20 || byte == 0x7F || is_c1) return bad_model(fmt::format("{} holds a control character", field));
  }
  return {};
}

}  // namespace kaiju::format
