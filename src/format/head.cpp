// Heads: see head.hpp. A head is a file like a checkpoint whose config says what it fits, with the classifier's tensors
// alone.
#include "kaiju/format/head.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "json.hpp"
#include "loaded_checkpoint.hpp"
#include "overlay.hpp"
#include "reader.hpp"
#include "values.hpp"
#include "writer.hpp"

namespace kaiju {
namespace {

using Declarations = std::vector<CheckpointWriter::Declaration>;

constexpr std::string_view kClassifier = "classifier.";

Declarations head_tensors(const ModelConfig& config) {
  Declarations tensors = required_tensors(config);
  std::erase_if(tensors, [](const auto& tensor) { return !tensor.name.starts_with(kClassifier); });
  return tensors;
}

// The file of a head. Its config is that of the model with the head.
class HeadFile final : public format::LoadedCheckpoint {
 public:
  HeadFile(std::string name, format::Source source, const Checkpoint& model)
      : LoadedCheckpoint(std::move(name), std::move(source)), model_(model) {}

 private:
  Status read_config(const format::Metadata& metadata, ModelConfig& config) const override {
    if (!format::is_head(metadata))
      return invalid_argument("a checkpoint, not a head: kaiju-head takes the head out of one");
    constexpr format::JsonLimits kLimits = {2, kMostLabels + 4, 4096};
    format::JsonObject object;
    KAIJU_TRY(format::parse_json(metadata.config, "config", kLimits, object));
    format::Reader reader(object, "config");
    std::string model;
    int32_t d_model = 0;
    KAIJU_TRY(reader.string("head_of", model));
    KAIJU_TRY(reader.number("d_model", d_model));
    config = model_.config();
    const format::Json* labels = nullptr;
    KAIJU_TRY(reader.find("labels", &labels));
    if (!labels->array() || labels->array()->empty())
      return bad_model("config.labels must be a list of strings, and not empty");
    config.labels.clear();
    for (const format::Json& label : *labels->array()) {
      if (!label.text()) return bad_model(fmt::format("config.labels[{}] must be a string", config.labels.size()));
      config.labels.push_back(*label.text());
    }
    KAIJU_TRY(reader.end());
    KAIJU_TRY(check_config(config));
    if (model != model_.digest())
      return invalid_argument(fmt::format("a head of the model {}; this one is {}: give the head that was made for it",
                                          format::in_quotes(model), model_.digest()));
    if (metadata.arithmetic != config.arithmetic() || d_model != config.d_model)
      return bad_model(fmt::format("a head of arithmetic {} and width {}; the model has {} and {}", metadata.arithmetic,
                                   d_model, config.arithmetic(), config.d_model));
    return {};
  }
  Declarations wanted_tensors() const override { return head_tensors(config()); }
  Status check_values() const override { return {}; }  // they are checked with the model's

  const Checkpoint& model_;
};

// A model whose classifier is that of a head.
class HeadedCheckpoint final : public format::Overlay {
 public:
  using Overlay::Overlay;
  const ModelConfig& config() const override { return over().config(); }
};

}  // namespace

Result<std::shared_ptr<const Checkpoint>> with_head(std::shared_ptr<const Checkpoint> checkpoint,
                                                    const std::string& path, Verify verify) {
  if (!checkpoint) return invalid_argument("no checkpoint");
  auto head = format::open_file(path, verify, {}, [&](const std::string& name, format::Source source) {
    return std::make_shared<HeadFile>(name, std::move(source), *checkpoint);
  });
  if (!head.ok()) return head.status();
  return format::guarded(path, [&]() -> format::Loaded {
    auto headed = std::make_shared<HeadedCheckpoint>(checkpoint, std::move(head).value());
    KAIJU_TRY(format::check_scales(*headed));
    return std::shared_ptr<const Checkpoint>(std::move(headed));
  });
}

Status write_head(const Checkpoint& checkpoint, const std::string& path) {
  return guarded<Status>([&]() -> Status {
    const ModelConfig& config = checkpoint.config();
    if (config.labels.empty()) return invalid_argument("the model has no classifier: there is no head to take out");
    std::string labels;
    for (const std::string& label : config.labels) labels += (labels.empty() ? "" : ",") + format::json_string(label);
    auto writer = format::create_writer(
        path, config.arithmetic(),
        fmt::format(R"({{"head_of":"{}","d_model":{},"labels":[{}]}})", checkpoint.digest(), config.d_model, labels),
        head_tensors(config));
    if (!writer.ok()) return writer.status();
    for (const auto& tensor : head_tensors(config)) KAIJU_TRY((*writer)->write(checkpoint.find(tensor.name)->bytes));
    return (*writer)->finish();
  });
}

}  // namespace kaiju
