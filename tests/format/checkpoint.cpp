// Opening a checkpoint: what the reader gives, and what it does when the file is no file, changes, or the caller has
// had enough.
#include <sys/stat.h>
#include <sys/time.h>

#include <atomic>
#include <thread>

#include "catch.hpp"
#include "kaiju/kaiju.hpp"
#include "kaiju/run/executors.hpp"
#include "kaiju/step/executor.hpp"
#include "tiny.hpp"

using kaiju::Checkpoint;
using kaiju::DType;
using kaiju::StatusCode;
using kaiju::Verify;

TEST_CASE("a path with a zero byte is refused, although the system would open the part before it") {
  const tiny::Folder folder;
  const std::string whole = folder / "model", cut = whole + std::string("\0more", 5);
  tiny::write_file(whole, tiny::bytes());
  const auto refused = [&](const kaiju::Status& status) {
    INFO(status.message());
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(status.message().find(whole + ": a zero byte follows") != std::string::npos);
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

TEST_CASE("unaligned memory is kInvalidArgument, not kBadModel") {
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
  CHECK(status_of("").code() == StatusCode::kInvalidArgument);
  CHECK(status_of("").message() == "the path is empty: name the file");
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

namespace {

void cut(const std::string& path, off_t bytes) { REQUIRE(::truncate(path.c_str(), bytes) == 0); }
// Another time of change than any that the clock gives now.
void make_old(const std::string& path) {
  const struct timeval old[2] = {{1000, 0}, {1000, 0}};
  REQUIRE(::utimes(path.c_str(), old) == 0);
}

// Bytes enough for the loader to tell its progress on the way.
const std::string& large_file() {
  static const std::string made = [] {
    kaiju::ModelConfig config = tiny::config();
    config.d_ff = 16384;
    config.d_model = 512;
    return tiny::make(config);
  }();
  return made;
}

}  // namespace

TEST_CASE("a file that is cut short while its weights are read is refused, and the process survives") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  for (const off_t left : {off_t{0}, off_t{4096}, off_t{20} << 20}) {
    tiny::write_file(path, large_file());
    bool cut_once = false;
    const auto status = Checkpoint::open(path, Verify::kFull, [&](double done) {
                          if (!cut_once) {
                            CHECK(done < 0.9);  // so that some weights are still to be read
                            cut(path, left);
                          }
                          cut_once = true;
                          return 0;
                        }).status();
    INFO(status.message());
    CHECK(cut_once);
    CHECK(status.code() == StatusCode::kIo);
    CHECK(tiny::contains(status.message(), path));
    CHECK(tiny::contains(status.message(), "changed while it was being read"));
  }
}

TEST_CASE("loading while another program cuts, overwrites and replaces the file gives a valid model or an error") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  const std::string contents[] = {tiny::bytes(), tiny::make(tiny::config(3), 5)};
  tiny::write_file(path, contents[0]);
  std::atomic<bool> over = false;
  std::atomic<int> loads = 0;
  std::thread other([&] {
    // So that some loads find the file whole, some cut, and the others changing.
    const auto let_load = [&](int count) {
      for (const int before = loads; loads < before + count && !over;) std::this_thread::yield();
    };
    for (unsigned round = 0; !over; ++round) {
      const std::string& bytes = contents[round % 2];
      if (round % 3 == 0) {
        tiny::write_file(path, bytes);  // as cp does: cut to nothing, then written
        let_load(static_cast<int>(round % 4));
      } else if (round % 3 == 1) {
        (void)!::truncate(path.c_str(), static_cast<off_t>(round * 997 % bytes.size()));
        let_load(static_cast<int>(round % 2));
      } else {
        tiny::write_file(folder / "new", bytes);
        std::filesystem::rename(folder / "new", path);
        let_load(static_cast<int>(round % 4));
      }
    }
  });
  int sound = 0, refused = 0;
  for (int load = 0; load < 1000 || (load < 1000000 && (sound == 0 || refused == 0)); ++load, ++loads) {
    const auto opened = Checkpoint::open(path, load % 4 == 0 ? Verify::kNone : Verify::kFull);
    if (!opened.ok()) {
      const kaiju::Status status = opened.status();
      const bool named = (status.code() == StatusCode::kIo || status.code() == StatusCode::kBadModel) &&
                         tiny::contains(status.message(), path);
      if (!named) FAIL_CHECK(status.message());
      ++refused;
      continue;
    }
    // Whatever the file is now, what was checked is still there.
    for (const kaiju::TensorInfo& tensor : opened.value()->tensors())
      if (load % 4 != 0 && tensor.dtype != DType::kI8)
        if (tiny::xxh3({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}) != tensor.digest)
          FAIL_CHECK(tensor.name << " is not what was verified");
    ++sound;
  }
  over = true;
  other.join();
  INFO(sound << " sound, " << refused << " refused");
  CHECK(sound > 0);
  CHECK(refused > 0);
}

TEST_CASE("if a file is cut short after the load, everything but the weights stays valid") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  tiny::write_file(path, tiny::bytes());
  const auto opened = Checkpoint::open(path);
  REQUIRE(opened.ok());
  const Checkpoint& checkpoint = *opened.value();
  CHECK(checkpoint.check_unchanged().ok());
  cut(path, 0);
  CHECK(checkpoint.check_unchanged().code() == StatusCode::kIo);
  CHECK(tiny::contains(checkpoint.check_unchanged().message(), path));
  const tiny::Aligned aligned(tiny::bytes());
  const auto whole = Checkpoint::from_memory(aligned.bytes());
  REQUIRE(whole.ok());
  CHECK(whole.value()->check_unchanged().ok());
  for (const kaiju::TensorInfo& tensor : checkpoint.tensors()) {
    INFO(tensor.name);
    const auto wanted = whole.value()->find(tensor.name)->bytes;
    std::vector<std::byte> copy(tensor.bytes.size());
    if (tensor.dtype == DType::kI8) {  // in place: a read says what touching it would end the process for
      CHECK(checkpoint.read(tensor.bytes, copy.data()).code() == StatusCode::kIo);
    } else {
      CHECK(std::equal(wanted.begin(), wanted.end(), tensor.bytes.begin(), tensor.bytes.end()));
      CHECK(checkpoint.read(tensor.bytes, copy.data()).ok());
      CHECK(std::equal(wanted.begin(), wanted.end(), copy.begin(), copy.end()));
    }
  }
}

TEST_CASE("reading a tensor, whole or in part, gives the bytes of its view") {
  const tiny::Folder folder;
  tiny::write_file(folder / "model", tiny::bytes());
  const tiny::Aligned aligned(tiny::bytes());
  for (const auto& opened : {Checkpoint::open(folder / "model"), Checkpoint::from_memory(aligned.bytes())}) {
    REQUIRE(opened.ok());
    for (const kaiju::TensorInfo& tensor : opened.value()->tensors())
      for (const size_t from : {size_t{0}, tensor.bytes.size() / 2}) {
        const auto bytes = tensor.bytes.subspan(from);
        std::vector<std::byte> copy(bytes.size());
        REQUIRE(opened.value()->read(bytes, copy.data()).ok());
        CHECK(std::equal(bytes.begin(), bytes.end(), copy.begin(), copy.end()));
        CHECK(std::equal(bytes.begin(), bytes.end(), aligned.bytes().begin() + tensor.offset + from));
      }
  }
}

TEST_CASE("an executor is refused by name if the checkpoint's file has changed; a replaced file does no harm") {
  const tiny::Folder folder;
  const std::string path = folder / "model";
  tiny::write_file(path, tiny::bytes());
  const auto opened = Checkpoint::open(path);
  REQUIRE(opened.ok());
  kaiju::ExecutorOptions options;
  options.backend = "reference";
  tiny::write_file(folder / "new", tiny::make(tiny::config(), 9));
  std::filesystem::rename(folder / "new", path);
  CHECK(kaiju::make_executor(opened.value(), options).status().message().empty());
  const auto again = Checkpoint::open(path);
  REQUIRE(again.ok());
  tiny::write_file(path, tiny::bytes());
  make_old(path);
  const auto status = kaiju::make_executor(again.value(), options).status();
  CHECK(status.code() == StatusCode::kIo);
  CHECK(tiny::contains(status.message(), path));
  CHECK(tiny::contains(status.message(), "the file changed after it was loaded: load it again"));
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

TEST_CASE("threads that share the verification find what one finds, and tell the host on its own thread") {
  const tiny::Folder folder;
  kaiju::ModelConfig large = tiny::config();
  large.d_ff = 65536;
  large.d_model = 512;
  REQUIRE(kaiju::write_random_checkpoint(folder / "model", large, 1).ok());
  const auto host = std::this_thread::get_id();
  double last = 0;
  const auto watch = [&](double done) {
    CHECK(std::this_thread::get_id() == host);
    CHECK(done >= last);
    last = done;
    return 0;
  };
  const auto opened = Checkpoint::open(folder / "model", Verify::kFull, watch, 4);
  REQUIRE(opened.ok());
  CHECK(last == 1.0);
  const auto thrown =
      Checkpoint::open(folder / "model", Verify::kFull, [](double) -> int { throw std::runtime_error("enough"); }, 4);
  CHECK(tiny::contains(thrown.status().message(), "enough"));
  CHECK(Checkpoint::open(folder / "model", Verify::kFull, {}, 0).status().code() == StatusCode::kInvalidArgument);

  std::vector<uint64_t> places;
  for (const kaiju::TensorInfo& tensor : opened.value()->tensors())
    if (tensor.dtype == kaiju::DType::kI8) places.push_back(tensor.offset + tensor.bytes.size() / 2);
  std::string bytes = tiny::read_file(folder / "model");
  for (const uint64_t place : places) bytes[place] = static_cast<char>(bytes[place] ^ 1);
  tiny::write_file(folder / "damaged", bytes);
  const auto one = Checkpoint::open(folder / "damaged");
  CHECK(tiny::contains(one.status().message(), "do not match its digest"));
  for (int round = 0; round < 5; ++round)
    CHECK(Checkpoint::open(folder / "damaged", Verify::kFull, {}, 4).status().message() == one.status().message());
}

TEST_CASE("the root digest is the documented one") {
  tiny::Parts parts = tiny::take_apart(tiny::bytes());
  const std::string stored = parts.metadata()["digest"];
  tiny::seal(parts);  // spells the definition out again
  CHECK(parts.metadata()["digest"] == stored);
  CHECK(tiny::xxh3("") == "99aa06d3014798d86001c324468d497f");  // XXH3-128 of nothing, as published
}

TEST_CASE("the header may list tensors in any order, and tensors of one group may be in any order in the file") {
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

TEST_CASE("the groups of a file are the documented ones, whatever the number of labels") {
  for (const int labels : {0, 1, 15, 16, 17, 31, 32, 33, 48, 63, 64}) {
    INFO(labels << " labels");
    kaiju::ModelConfig config = tiny::config();
    for (int i = 0; i < labels; ++i) config.labels.push_back("label " + std::to_string(i));
    tiny::Parts parts = tiny::take_apart(tiny::make(config));
    parts.data += "no tokenizer, but here it would be";
    const auto end = parts.data.size();
    parts.header["tokenizer"] = {{"dtype", "U8"}, {"shape", {34}}, {"data_offsets", {end - 34, end}}};
    tiny::seal(parts);
    const tiny::Aligned aligned(tiny::assemble(parts));
    const auto loaded = Checkpoint::from_memory(aligned.bytes());
    INFO(loaded.status().message());
    REQUIRE(loaded.ok());
    std::vector<const kaiju::TensorInfo*> in_file;
    for (const kaiju::TensorInfo& tensor : loaded.value()->tensors()) in_file.push_back(&tensor);
    std::sort(in_file.begin(), in_file.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    // docs/checkpoint.md, "Layout": the classifier's three with one number a label are of the first group where there
    // are 16, 32, 48 or 64 labels, else of the second.
    int last = 1;
    for (const kaiju::TensorInfo* tensor : in_file) {
      INFO(tensor->name);
      const bool per_label = tensor->name == "classifier.scale" || tensor->name == "classifier.row_sum" ||
                             tensor->name == "classifier.bias";
      const bool single = tensor->dtype == DType::kF32 && tensor->shape == std::vector<int64_t>{1};
      const int group = tensor->name == "tokenizer" ? 3 : (per_label ? labels % 16 != 0 : single) ? 2 : 1;
      CHECK(group >= last);
      CHECK((group == 1) == (tensor->bytes.size() % 64 == 0 && tensor->name != "tokenizer"));
      if (group == 1) CHECK(tensor->offset % 64 == 0);
      last = group;
    }
  }
}
