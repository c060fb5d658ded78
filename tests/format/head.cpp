// Heads: a model with another classifier, and the files that are refused.
#include "kaiju/format/head.hpp"

#include "catch.hpp"
#include "kaiju/kaiju.hpp"
#include "tiny.hpp"

using kaiju::Checkpoint;
using kaiju::StatusCode;

namespace {

kaiju::ModelConfig labelled() {
  kaiju::ModelConfig config = tiny::config();
  config.labels = {"rude", "sad"};
  return config;
}

std::shared_ptr<const Checkpoint> open(const std::string& path) {
  auto opened = Checkpoint::open(path);
  INFO(opened.status().message());
  REQUIRE(opened.ok());
  return std::move(opened).value();
}

// A folder with a model and the head that was taken out of it.
struct Files {
  explicit Files(const kaiju::ModelConfig& config = labelled()) {
    tiny::write_file(model, tiny::make(config));
    const kaiju::Status status = kaiju::write_head(*open(model), head);
    INFO(status.message());
    REQUIRE(status.ok());
  }
  // The head after a change, with true digests.
  void edit_head(const std::function<void(tiny::Parts&)>& edit) {
    tiny::Parts parts = tiny::take_apart(tiny::read_file(head));
    edit(parts);
    tiny::seal(parts);
    tiny::write_file(head, tiny::assemble(parts));
  }
  void refuses(StatusCode code, const std::string& words) const {
    auto headed = kaiju::with_head(open(model), head);
    INFO(headed.status().message());
    CHECK(headed.status().code() == code);
    CHECK(tiny::contains(headed.status().message(), words));
  }

  tiny::Folder folder;
  std::string model = folder / "model", head = folder / "head";
};

std::shared_ptr<kaiju::Engine> engine_of(const std::shared_ptr<const Checkpoint>& checkpoint,
                                         const std::string& backend = "auto") {
  auto model = kaiju::Model::create(checkpoint);
  REQUIRE(model.ok());
  kaiju::RunOptions options;
  options.executor.backend = backend;
  auto engine = (*model)->create_engine(options);
  INFO(engine.status().message());
  REQUIRE(engine.ok());
  return *engine;
}

std::vector<float> scores_of(const std::shared_ptr<kaiju::Engine>& engine) {
  auto session = kaiju::Session::create(engine);
  REQUIRE(session.ok());
  kaiju::RequestOptions options;
  options.scores = true;
  options.max_tokens = 0;
  auto done = session->generate(std::vector<int32_t>{1, 9, 4}, options);
  REQUIRE(done.ok());
  return done->scores;
}

std::vector<float> scores_of(const std::shared_ptr<const Checkpoint>& checkpoint) {
  return scores_of(engine_of(checkpoint));
}

void change_classifier(tiny::Parts& parts) {
  parts.put<float>("classifier.bias", 0, 0.75f);
  parts.put<float>("classifier.scalar", 0, 0.015625f);
}

}  // namespace

TEST_CASE("a model with the head that was taken out of it is the same model") {
  const Files files;
  const auto model = open(files.model);
  auto headed = kaiju::with_head(model, files.head);
  INFO(headed.status().message());
  REQUIRE(headed.ok());
  CHECK(kaiju::config_to_json((*headed)->config()) == kaiju::config_to_json(model->config()));
  CHECK((*headed)->digest() == model->digest());
  REQUIRE((*headed)->tensors().size() == model->tensors().size());
  for (const kaiju::TensorInfo& tensor : model->tensors()) {
    const kaiju::TensorInfo* other = (*headed)->find(tensor.name);
    REQUIRE(other != nullptr);
    CHECK(std::equal(tensor.bytes.begin(), tensor.bytes.end(), other->bytes.begin(), other->bytes.end()));
    std::vector<std::byte> read(tensor.bytes.size());
    REQUIRE((*headed)->read(other->bytes, read.data()).ok());
    CHECK(std::equal(tensor.bytes.begin(), tensor.bytes.end(), read.begin(), read.end()));
  }
}

TEST_CASE("a model with another head has the scores of a checkpoint with that classifier, and its own digest") {
  Files files;
  const std::vector<float> before = scores_of(open(files.model));
  files.edit_head(change_classifier);
  auto headed = kaiju::with_head(open(files.model), files.head);
  REQUIRE(headed.ok());
  CHECK((*headed)->digest() == open(files.model)->digest());

  tiny::Parts whole = tiny::take_apart(tiny::read_file(files.model));
  change_classifier(whole);
  tiny::seal(whole);
  tiny::write_file(files.folder / "whole", tiny::assemble(whole));
  CHECK(scores_of(*headed) == scores_of(open(files.folder / "whole")));
  CHECK(scores_of(*headed) != before);
}

TEST_CASE("an engine takes another head between replies, and the one before back, on every backend") {
  Files files;
  const auto model = open(files.model);
  files.edit_head(change_classifier);
  auto headed = kaiju::with_head(model, files.head);
  REQUIRE(headed.ok());
  for (const std::string& backend : kaiju::backend_names()) {
    INFO(backend);
    const auto engine = engine_of(model, backend), with_other = engine_of(*headed, backend);
    const std::vector<float> before = scores_of(engine), after = scores_of(with_other);
    CHECK(before != after);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(engine->set_head(*headed).ok());
      CHECK(scores_of(engine) == after);
      CHECK(engine->scrub(size_t{1} << 30).ok());
      REQUIRE(engine->set_head(model).ok());
      CHECK(scores_of(engine) == before);
      CHECK(engine->scrub(size_t{1} << 30).ok());
    }
  }
}

TEST_CASE("an engine refuses the head of another model, and one with other labels") {
  Files files;
  const auto engine = engine_of(open(files.model));
  const std::vector<float> before = scores_of(engine);
  files.edit_head([](tiny::Parts& parts) {
    parts.edit_config([](auto& config) { config["labels"] = std::vector<std::string>{"sad", "rude"}; });
  });
  auto headed = kaiju::with_head(open(files.model), files.head);
  REQUIRE(headed.ok());
  CHECK(tiny::contains(engine->set_head(*headed).message(), "other labels"));
  kaiju::ModelConfig config = labelled();
  config.name = "another";
  const Files others(config);
  CHECK(engine->set_head(open(others.model)).code() == StatusCode::kInvalidArgument);
  CHECK(engine->set_head(nullptr).code() == StatusCode::kInvalidArgument);
  CHECK(scores_of(engine) == before);
}

TEST_CASE("a model without a classifier can be given one") {
  Files files;
  tiny::write_file(files.model, tiny::make(tiny::config()));
  const auto bare = open(files.model);
  files.edit_head(
      [&](tiny::Parts& parts) { parts.edit_config([&](auto& config) { config["head_of"] = bare->digest(); }); });
  auto headed = kaiju::with_head(bare, files.head);
  INFO(headed.status().message());
  REQUIRE(headed.ok());
  CHECK((*headed)->config().labels == std::vector<std::string>{"rude", "sad"});
  CHECK(scores_of(*headed).size() == 2);
}

TEST_CASE("a head of a model of version 2 of the arithmetic fits that") {
  kaiju::ModelConfig config = tiny::scaled_config();
  config.labels = {"rude"};
  const Files files(config);
  CHECK(kaiju::with_head(open(files.model), files.head).ok());
}

TEST_CASE("heads that do not fit, or are damaged, are refused", "[malformed]") {
  Files files;
  const auto edit = [&](const char* field, const tiny::ordered_json& value) {
    files.edit_head([&](tiny::Parts& parts) { parts.edit_config([&](auto& config) { config[field] = value; }); });
  };
  SECTION("of another model") {
    edit("head_of", std::string(32, '0'));
    files.refuses(StatusCode::kInvalidArgument, "give the head that was made for it");
  }
  SECTION("of another width") {
    edit("d_model", 128);
    files.refuses(StatusCode::kBadModel, "a head of arithmetic 1 and width 128; the model has 1 and 64");
  }
  SECTION("labels that are no names") {
    edit("labels", {"rude", ""});
    files.refuses(StatusCode::kBadModel, "labels[1] is empty");
  }
  SECTION("fewer rows than labels") {
    edit("labels", {"rude", "sad", "new"});
    files.refuses(StatusCode::kBadModel, "the config asks for");
  }
  SECTION("a field that nobody knows") {
    edit("more", 1);
    files.refuses(StatusCode::kBadModel, "is not a field this build knows");
  }
  SECTION("a weight that was changed") {
    tiny::Parts parts = tiny::take_apart(tiny::read_file(files.head));
    parts.put<int8_t>("classifier.weight", 3, static_cast<int8_t>(parts.get<int8_t>("classifier.weight", 3) ^ 1));
    tiny::write_file(files.head, tiny::assemble(parts));
    files.refuses(StatusCode::kBadModel, "its bytes do not match its digest");
  }
  SECTION("a row sum that is wrong") {
    files.edit_head([](tiny::Parts& parts) { parts.put<int32_t>("classifier.row_sum", 0, 123456); });
    files.refuses(StatusCode::kBadModel, "row");
  }
  SECTION("a bias that is no number") {
    files.edit_head([](tiny::Parts& parts) { parts.put<float>("classifier.bias", 0, std::nanf("")); });
    files.refuses(StatusCode::kBadModel, "classifier.bias");
  }
  SECTION("a file cut short") {
    tiny::write_file(files.head, tiny::read_file(files.head).substr(0, 500));
    files.refuses(StatusCode::kBadModel, files.head);
  }
  SECTION("no file") {
    files.head += ".none";
    files.refuses(StatusCode::kIo, files.head);
  }
  SECTION("a checkpoint in place of a head") {
    files.head = files.model;
    files.refuses(StatusCode::kInvalidArgument, "a checkpoint, not a head");
  }
  SECTION("a head in place of a checkpoint") {
    const auto opened = Checkpoint::open(files.head);
    CHECK(opened.status().code() == StatusCode::kInvalidArgument);
    CHECK(tiny::contains(opened.status().message(), "the head of a model, not a model"));
  }
}

TEST_CASE("no head can be taken out of a model without a classifier", "[malformed]") {
  const tiny::Folder folder;
  tiny::write_file(folder / "model", tiny::bytes());
  const kaiju::Status status = kaiju::write_head(*open(folder / "model"), folder / "head");
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(tiny::contains(status.message(), "no classifier"));
  CHECK(folder.file_count() == 1);
}
