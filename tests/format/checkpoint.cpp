// Opening a checkpoint: what the reader gives, and what it does when the file is no file, changes, or the caller has
// had enough.
#include <sys/stat.h>
#include <sys/time.h>

#include "catch.hpp"
#include "kaiju/kaiju.hpp"
#include "tiny.hpp"

using kaiju::Checkpoint;
using kaiju::DType;
using kaiju::StatusCode;
using kaiju::Verify;

TEST_CASE("a path with a zero byte is refused, though the system would open what is before it") {
  const tiny::Folder folder;
  const std::string whole = folder / "model", cut = whole + std::string("\0more", 5);
  tiny::write_file(whole, tiny::bytes());
  const auto refused = [](const kaiju::Status& status) {
    INFO(status.message());
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(status.message().find("is zero") != std::string::npos);
  };
  refused(Checkpoint::open(cut).status());
  const auto tensors = kaiju::required_tensors(tiny::config());
  refused(kaiju::CheckpointWriter::create(cut, tiny::config(), tensors).status());
  refused(kaiju::open_block_file(cut, 4096).status());
  CHECK(folder.file_count() == 1);
}

TEST_CASE("a written checkpoint reads back: config, names, types, shapes, bytes") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  tiny::write_file(path, tiny::bytes());
  const auto opened = Checkpoint::open(path);
  INFO(opened.status().message());
  REQUIRE(opened.ok());
  const Checkpoint& checkpoint = *opened.value();
  CHECK(kaiju::config_to_json(checkpoint.config()) == kaiju::config_to_json(tiny::config()));
  CHECK(checkpoint.digest().size() == 32);

  const auto wanted = kaiju::required_tensors(tiny::config());
  REQUIRE(checkpoint.tensors().size() == wanted.size());
  const tiny::Parts parts = tiny::take_apart(tiny::bytes());
  for (const auto& declared : wanted) {
    const kaiju::TensorInfo* tensor = checkpoint.find(declared.name);
    INFO(declared.name);
    REQUIRE(tensor != nullptr);
    CHECK(tensor->dtype == declared.dtype);
    CHECK(tensor->shape == declared.shape);
    const auto [begin, end] = parts.place(declared.name);
    const std::string bytes(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
    CHECK(bytes == parts.data.substr(begin, end - begin));
    CHECK(tensor->digest == tiny::xxh3(bytes));
  }
  CHECK(std::is_sorted(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                       [](const auto& a, const auto& b) { return a.name < b.name; }));
}

TEST_CASE("weights lie at multiples of 64 bytes, in a file and in memory") {
  const tiny::Aligned aligned(tiny::bytes());
  const auto loaded = Checkpoint::from_memory(aligned.bytes());
  REQUIRE(loaded.ok());
  for (const auto& tensor : loaded.value()->tensors())
    if (tensor.bytes.size() % 64 == 0) CHECK(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % 64 == 0);
}

TEST_CASE("a file and its bytes in memory are the same model, and the memory is used in place") {
  const tiny::Folder folder;
  tiny::write_file(folder / "model", tiny::bytes());
  const tiny::Aligned aligned(tiny::bytes());
  const auto file = Checkpoint::open(folder / "model");
  const auto memory = Checkpoint::from_memory(aligned.bytes());
  REQUIRE(file.ok());
  REQUIRE(memory.ok());
  CHECK(file.value()->digest() == memory.value()->digest());
  const std::byte* weight = memory.value()->find("embed.weight")->bytes.data();
  CHECK(weight >= aligned.bytes().data());
  CHECK(weight < aligned.bytes().data() + aligned.bytes().size());
}

TEST_CASE("memory that is not aligned is the caller's mistake, not the model's") {
  const tiny::Aligned aligned(std::string(4, ' ') + tiny::bytes());
  const auto status = Checkpoint::from_memory(aligned.bytes().subspan(4)).status();
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(tiny::contains(status.message(), "multiple of 64"));
  CHECK(Checkpoint::from_memory({}).status().code() == StatusCode::kBadModel);
}

TEST_CASE("a view has its tensor's type or is empty") {
  const tiny::Aligned aligned(tiny::bytes());
  const auto loaded = Checkpoint::from_memory(aligned.bytes());
  REQUIRE(loaded.ok());
  const Checkpoint& c = *loaded.value();
  CHECK(c.view<int8_t>("embed.weight").size() == 16 * 64);
  CHECK(c.view<float>("embed.scale").size() == 16);
  CHECK(c.view<int32_t>("embed.row_sum").size() == 16);
  CHECK(c.view<uint64_t>("rope.1").size() == 32);
  CHECK(c.view<float>("final.in_clip").size() == 1);
  CHECK(c.view<float>("embed.row_sum").empty());
  CHECK(c.view<int32_t>("embed.scale").empty());
  CHECK(c.view<uint8_t>("embed.weight").empty());
  CHECK(c.view<float>("nowhere").empty());
  CHECK(c.find("") == nullptr);
  CHECK(c.find("zzz") == nullptr);
  CHECK(c.find("embed.weigh") == nullptr);
}

TEST_CASE("a path that is no checkpoint is refused, and says why") {
  const tiny::Folder folder;
  const auto status_of = [](const std::string& path) { return Checkpoint::open(path).status(); };
  CHECK(status_of(folder / "nothing").code() == StatusCode::kIo);
  CHECK(tiny::contains(status_of(folder / "nothing").message(), "No such file"));
  CHECK(status_of(folder / "").code() == StatusCode::kIo);
  CHECK(status_of("").code() == StatusCode::kIo);
  CHECK(status_of("/dev/null").code() == StatusCode::kIo);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK(status_of(folder / "pipe").code() == StatusCode::kIo);  // and does not wait for a writer
  tiny::write_file(folder / "empty", "");
  CHECK(status_of(folder / "empty").code() == StatusCode::kBadModel);
  tiny::write_file(folder / "text", "This is no model, however long one reads in it.");
  CHECK(status_of(folder / "text").code() == StatusCode::kBadModel);
  CHECK(tiny::contains(status_of(folder / "text").message(), folder / "text"));
}

TEST_CASE("a file that shrinks or changes while it is being verified is refused") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  for (const bool shrink : {true, false}) {
    tiny::write_file(path, tiny::bytes());
    // The last call of the progress callback comes when everything has been read.
    const auto status = Checkpoint::open(path, Verify::kFull, [&](double) {
                          if (shrink)
                            REQUIRE(::truncate(path.c_str(), 4096) == 0);
                          else
                            tiny::write_file(path, tiny::make(tiny::config(), 9));
                          const struct timeval old[2] = {{1000, 0}, {1000, 0}};
                          if (!shrink) REQUIRE(::utimes(path.c_str(), old) == 0);
                          return 0;
                        }).status();
    INFO(status.message());
    CHECK(status.code() == StatusCode::kIo);
    CHECK(tiny::contains(status.message(), "changed while it was being read"));
  }
}

TEST_CASE("a checkpoint outlives its file's name") {
  const tiny::Folder folder;
  tiny::write_file(folder / "model", tiny::bytes());
  const auto opened = Checkpoint::open(folder / "model");
  REQUIRE(opened.ok());
  std::filesystem::remove(folder / "model");
  CHECK(opened.value()->view<float>("final.in_clip")[0] > 0);
}

TEST_CASE("progress ends at 1, and a callback can stop the load") {
  const tiny::Folder folder;
  kaiju::ModelConfig large = tiny::config();
  large.d_ff = 65536;
  large.d_model = 512;
  REQUIRE(kaiju::write_random_checkpoint(folder / "model", large, 1).ok());
  double last = 0;
  int calls = 0;
  const auto opened = Checkpoint::open(folder / "model", Verify::kFull, [&](double done) {
    CHECK(done >= last);
    last = done;
    ++calls;
    return 0;
  });
  REQUIRE(opened.ok());
  CHECK(last == 1.0);
  CHECK(calls > 5);
  const auto stopped = Checkpoint::open(folder / "model", Verify::kFull, [](double) { return 1; });
  CHECK(stopped.status().code() == StatusCode::kCancelled);
  const auto thrown =
      Checkpoint::open(folder / "model", Verify::kFull, [](double) -> int { throw std::runtime_error("enough"); });
  CHECK(thrown.status().code() == StatusCode::kInternal);
  CHECK(tiny::contains(thrown.status().message(), "enough"));
}

TEST_CASE("the root digest is the documented one") {
  tiny::Parts parts = tiny::take_apart(tiny::bytes());
  const std::string stored = parts.metadata()["digest"];
  tiny::seal(parts);  // spells the definition out again
  CHECK(parts.metadata()["digest"] == stored);
  CHECK(tiny::xxh3("") == "99aa06d3014798d86001c324468d497f");  // XXH3-128 of nothing, as published
}

TEST_CASE("a checkpoint may list its tensors in any order in the header, and its groups in any order within") {
  tiny::Parts parts = tiny::take_apart(tiny::bytes());
  tiny::ordered_json reversed;
  for (auto it = parts.header.rbegin(); it != parts.header.rend(); ++it) reversed[it.key()] = it.value();
  parts.header = reversed;
  CHECK(tiny::load(tiny::assemble(parts)).ok());
  // Two weights of one size trade places.
  auto& a = parts.header["layers.0.ffn.up.weight"]["data_offsets"];
  auto& b = parts.header["layers.1.ffn.up.weight"]["data_offsets"];
  std::swap_ranges(parts.data.begin() + a[0].get<long>(), parts.data.begin() + a[1].get<long>(),
                   parts.data.begin() + b[0].get<long>());
  std::swap(a, b);
  CHECK(tiny::load(tiny::assemble(parts)).ok());
}
