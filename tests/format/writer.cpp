// The writer: the file is there whole or not at all, and nothing it accepts is refused by the reader.
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "catch.hpp"
#include "tiny.hpp"

using kaiju::CheckpointWriter;
using kaiju::DType;
using kaiju::StatusCode;
using Declarations = std::vector<CheckpointWriter::Declaration>;

namespace {

// Writes the small model's own bytes in pieces of `piece` bytes, and a tokenizer if there is one.
kaiju::Status copy(const std::string& path, const Declarations& declarations, size_t piece,
                   const std::string& tokenizer = "") {
  auto writer = CheckpointWriter::create(path, tiny::config(), declarations);
  if (!writer.ok()) return writer.status();
  const tiny::Parts parts = tiny::take_apart(tiny::bytes());
  std::string all;
  for (const auto& tensor : declarations) {
    if (tensor.name == "tokenizer") continue;
    const auto [begin, end] = parts.place(tensor.name);
    all += parts.data.substr(begin, end - begin);
  }
  all += tokenizer;
  for (size_t at = 0; at < all.size(); at += piece) {
    const std::string part = all.substr(at, piece);
    if (kaiju::Status status = writer.value()->write(std::as_bytes(std::span(part))); !status.ok()) return status;
  }
  return writer.value()->finish();
}

Declarations required() { return kaiju::required_tensors(tiny::config()); }

}  // namespace

TEST_CASE("bytes may come in pieces of any size, across tensors") {
  for (const size_t piece : {1, 7, 64, 1000, 1 << 20}) {
    const tiny::Folder folder;
    const auto status = copy(folder / "model", required(), piece);
    INFO(status.message());
    REQUIRE(status.ok());
    CHECK(tiny::read_file(folder / "model") == tiny::bytes());
    CHECK(folder.file_count() == 1);
  }
}

TEST_CASE("a checkpoint may contain a tokenizer") {
  const tiny::Folder folder;
  for (const size_t size : {1, 63, 64, 100'000}) {
    Declarations declarations = required();
    declarations.push_back({"tokenizer", DType::kU8, {static_cast<int64_t>(size)}});
    const std::string tokenizer(size, 't');
    REQUIRE(copy(folder / "model", declarations, 4096, tokenizer).ok());
    const auto opened = kaiju::Checkpoint::open(folder / "model");
    INFO(opened.status().message());
    REQUIRE(opened.ok());
    const auto view = opened.value()->view<uint8_t>("tokenizer");
    CHECK(std::string(view.begin(), view.end()) == tokenizer);
  }
}

TEST_CASE("a writer that is destroyed before finish leaves no new file, and an old file unchanged") {
  const tiny::Folder folder;
  tiny::write_file(folder / "model", "the old file");
  {
    auto writer = CheckpointWriter::create(folder / "model", tiny::config(), required());
    REQUIRE(writer.ok());
    CHECK(folder.file_count() == 2);
    const std::string some(5000, 'x');
    CHECK(writer.value()->write(std::as_bytes(std::span(some))).ok());
    CHECK(tiny::read_file(folder / "model") == "the old file");
  }
  CHECK(folder.file_count() == 1);
  CHECK(tiny::read_file(folder / "model") == "the old file");
}

TEST_CASE("a finished file replaces the old one, whose readers keep what they opened") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  tiny::write_file(path, tiny::make(tiny::config(), 5));
  const auto old = kaiju::Checkpoint::open(path);
  REQUIRE(old.ok());
  const std::string old_weights(reinterpret_cast<const char*>(old.value()->find("embed.weight")->bytes.data()), 1024);
  REQUIRE(copy(path, required(), 4096).ok());
  CHECK(tiny::read_file(path) == tiny::bytes());
  CHECK(std::memcmp(old.value()->find("embed.weight")->bytes.data(), old_weights.data(), 1024) == 0);
}

TEST_CASE("finishing before all bytes are written is refused and leaves no file") {
  const tiny::Folder folder;
  {
    auto writer = CheckpointWriter::create(folder / "model", tiny::config(), required());
    REQUIRE(writer.ok());
    const std::string some(100, 'x');
    CHECK(writer.value()->write(std::as_bytes(std::span(some))).ok());
    const auto status = writer.value()->finish();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(tiny::contains(status.message(), "embed.weight has 100 of its 1024 bytes"));
    CHECK(writer.value()->finish().code() == StatusCode::kInvalidArgument);
  }
  CHECK(folder.file_count() == 0);
}

TEST_CASE("bytes past the last tensor, or after finish, are refused") {
  const tiny::Folder folder;
  const std::string data = tiny::take_apart(tiny::bytes()).data;
  const auto bytes = std::as_bytes(std::span(data));
  {
    auto writer = CheckpointWriter::create(folder / "over", tiny::config(), required());
    REQUIRE(writer.ok());
    CHECK(writer.value()->write(bytes).ok());
    CHECK(tiny::contains(writer.value()->write(bytes.first(1)).message(), "more bytes than"));
    CHECK_FALSE(writer.value()->finish().ok());  // a failed writer stays failed
  }
  CHECK(folder.file_count() == 0);
  auto writer = CheckpointWriter::create(folder / "model", tiny::config(), required());
  REQUIRE(writer.ok());
  CHECK(writer.value()->write(bytes).ok());
  CHECK(writer.value()->finish().ok());
  CHECK(writer.value()->write(bytes.first(1)).code() == StatusCode::kInvalidArgument);
  CHECK(writer.value()->finish().code() == StatusCode::kInvalidArgument);
  writer.value().reset();
  CHECK(tiny::read_file(folder / "model") == tiny::bytes());
}

TEST_CASE("declarations the reader would refuse are refused at once, by name") {
  const tiny::Folder folder;
  const auto refused = [&](const char* part, const std::function<void(Declarations&)>& edit) {
    Declarations declarations = required();
    edit(declarations);
    const auto status = CheckpointWriter::create(folder / "model", tiny::config(), declarations).status();
    INFO(part << "\n  " << status.message());
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(tiny::contains(status.message(), part));
  };
  refused("final.in_clip is not declared", [](auto& d) { d.pop_back(); });
  refused("\"extra\" is not one", [](auto& d) { d.push_back({"extra", DType::kF32, {1}}); });
  refused("final.in_clip is declared twice", [](auto& d) { d.push_back(d.back()); });
  refused("embed.weight must be I8 [16, 64]", [](auto& d) { d[0].shape = {64, 16}; });
  refused("embed.weight must be I8 [16, 64]", [](auto& d) { d[0].dtype = DType::kU8; });
  refused("\"embed.weight\" is out of order", [](auto& d) { std::rotate(d.begin(), d.begin() + 1, d.end()); });
  refused("tokenizer must be U8", [](auto& d) { d.push_back({"tokenizer", DType::kI8, {5}}); });
  refused("tokenizer must be U8", [](auto& d) { d.push_back({"tokenizer", DType::kU8, {0}}); });
  refused("tokenizer must be U8", [](auto& d) { d.push_back({"tokenizer", DType::kU8, {int64_t{1} << 40}}); });
  refused("tokenizer is declared twice", [](auto& d) {
    d.push_back({"tokenizer", DType::kU8, {5}});
    d.push_back({"tokenizer", DType::kU8, {5}});
  });
  refused("is out of order", [](auto& d) { d.insert(d.begin(), {"tokenizer", DType::kU8, {5}}); });
  kaiju::ModelConfig bad = tiny::config();
  bad.d_ff = 65;
  const auto status = CheckpointWriter::create(folder / "model", bad, required()).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(tiny::contains(status.message(), "config.d_ff"));
  CHECK(folder.file_count() == 0);
}

TEST_CASE("a path that cannot be written is refused at once, and says why") {
  const tiny::Folder folder;
  const auto status_of = [](const std::string& path) {
    return CheckpointWriter::create(path, tiny::config(), required()).status();
  };
  CHECK(status_of(folder / "no/such/folder").code() == StatusCode::kIo);
  CHECK(tiny::contains(status_of(folder / "no/such/folder").message(), "No such file"));
  CHECK(status_of(folder / "").code() == StatusCode::kIo);
  CHECK(status_of("").code() == StatusCode::kInvalidArgument);
  CHECK(status_of("/dev/null").code() == StatusCode::kIo);
  tiny::write_file(folder / "file", "");
  CHECK(status_of(folder / "file/model").code() == StatusCode::kIo);
  CHECK(folder.file_count() == 1);
}

TEST_CASE("a path that becomes unwritable before finish is reported, and no file is left") {
  const tiny::Folder folder;
  const std::string data = tiny::take_apart(tiny::bytes()).data;
  {
    auto writer = CheckpointWriter::create(folder / "model", tiny::config(), required());
    REQUIRE(writer.ok());
    REQUIRE(writer.value()->write(std::as_bytes(std::span(data))).ok());
    std::filesystem::create_directory(folder / "model");
    CHECK(writer.value()->finish().code() == StatusCode::kIo);
  }
  CHECK(folder.file_count() == 1);
}

TEST_CASE("two writers of one name do not disturb each other: the last to finish wins") {
  const tiny::Folder folder;
  const std::string first = tiny::take_apart(tiny::make(tiny::config(), 21)).data;
  const std::string second = tiny::take_apart(tiny::bytes()).data;
  auto a = CheckpointWriter::create(folder / "model", tiny::config(), required());
  auto b = CheckpointWriter::create(folder / "model", tiny::config(), required());
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK(a.value()->write(std::as_bytes(std::span(first))).ok());
  CHECK(b.value()->write(std::as_bytes(std::span(second))).ok());
  CHECK(a.value()->finish().ok());
  CHECK(b.value()->finish().ok());
  CHECK(tiny::read_file(folder / "model") == tiny::bytes());
  CHECK(folder.file_count() == 1);
}

TEST_CASE("a process killed while it writes leaves the old checkpoint or the new one") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  kaiju::ModelConfig config = tiny::config();
  config.d_model = 256;
  config.d_ff = 2048;
  const std::string files[2] = {tiny::make(config, 0), tiny::make(config, 1)};
  tiny::write_file(path, files[0]);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(kaiju::write_random_checkpoint(path, config, 0).ok());
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  for (uint32_t round = 0; round < 50; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) ::_exit(kaiju::write_random_checkpoint(path, config, 1 - round % 2).ok() ? 0 : 1);
    std::this_thread::sleep_for(whole * ((round * 7) % 50) / 40);  // from at once to after the end
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    const std::string left = tiny::read_file(path);
    INFO("round " << round);
    CHECK((left == files[0] || left == files[1]));
    if (WIFEXITED(status)) CHECK(left == files[1 - round % 2]);
  }
}
