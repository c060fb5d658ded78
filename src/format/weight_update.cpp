// Reads, applies and writes weight updates: see weight_update.hpp.
#include "kaiju/format/weight_update.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "digest.hpp"
#include "header.hpp"
#include "json.hpp"
#include "kaiju/base/buffer.hpp"
#include "kaiju/base/float_state.hpp"
#include "ternary.hpp"
#include "values.hpp"

namespace kaiju {
namespace {

constexpr std::string_view kMagic = "KAIJUUPD", kWeight = ".weight", kRowSum = ".row_sum";
constexpr uint32_t kVersion = 1;
constexpr size_t kDigestBytes = 32;

// Little-endian, as every machine that kaiju runs on has it.
struct Head {
  char magic[8];
  uint32_t version, entries;
  uint64_t number, bytes;  // bytes: of the whole update
  char parent[kDigestBytes], after[kDigestBytes];
  char check[kDigestBytes];  // XXH3-128 of everything after the head
};
static_assert(sizeof(Head) == 128);

enum class Form : uint16_t { kTernary = 1, kWhole = 2, kScaled = 3 };

struct EntryHead {
  uint16_t form, name_bytes;
  uint32_t zero;
  uint64_t bytes;  // that follow the name
};
static_assert(sizeof(EntryHead) == 16);

struct Entry {
  Form form;
  std::string_view name;
  std::span<const std::byte> bytes;
};

std::string text_of(const char (&digest)[kDigestBytes]) { return {digest, kDigestBytes}; }

std::string digest_of(std::span<const std::byte> bytes) {
  format::Digest digest;
  digest.update(bytes);
  return digest.text();
}

Status damaged(const char* what) {
  return bad_model(fmt::format("the weight update is damaged: {}: send it again", what));
}

Result<Head> checked_head(std::span<const std::byte> update) {
  Head head;
  if (update.size() < sizeof head) return damaged("it is shorter than its head");
  std::memcpy(&head, update.data(), sizeof head);
  if (std::string_view(head.magic, sizeof head.magic) != kMagic) return bad_model("not a weight update");
  if (head.version != kVersion)
    return Status(StatusCode::kUnsupported,
                  fmt::format("a weight update of version {}; this build reads version {}", head.version, kVersion));
  if (head.bytes != update.size()) return damaged("its length is not the one in its head");
  if (digest_of(update.subspan(sizeof head)) != text_of(head.check)) return damaged("its digest does not match");
  return head;
}

// Takes the next entry from the front of `rest`.
Status take_entry(std::span<const std::byte>& rest, Entry& entry) {
  EntryHead head;
  if (rest.size() < sizeof head) return damaged("an entry is cut off");
  std::memcpy(&head, rest.data(), sizeof head);
  rest = rest.subspan(sizeof head);
  if (rest.size() < head.name_bytes || rest.size() - head.name_bytes < head.bytes)
    return damaged("an entry is cut off");
  entry.form = static_cast<Form>(head.form);
  entry.name = {reinterpret_cast<const char*>(rest.data()), head.name_bytes};
  entry.bytes = rest.subspan(head.name_bytes, head.bytes);
  if (entry.form < Form::kTernary || entry.form > Form::kScaled || head.zero != 0)
    return damaged("an entry has a form that this build does not know");
  rest = rest.subspan(head.name_bytes + head.bytes);
  return {};
}

// Row sums follow from the weights; the rest is what engines and tokenizers keep of their own.
bool may_change(const TensorInfo& tensor) { return tensor.dtype == DType::kI8 || tensor.dtype == DType::kF32; }

using Memory = std::shared_ptr<Buffer<std::byte>>;

// A checkpoint whose changed tensors lie in memory.
class UpdatedCheckpoint final : public Checkpoint {
 public:
  UpdatedCheckpoint(std::shared_ptr<const Checkpoint> checkpoint, const Head& head)
      : root_(std::move(checkpoint)), tensors_(root_->tensors()), memory_(tensors_.size()), number_(head.number) {
    if (const auto* before = dynamic_cast<const UpdatedCheckpoint*>(root_.get())) {
      memory_ = before->memory_;
      root_ = std::shared_ptr<const Checkpoint>(before->root_);
    }
  }

  const ModelConfig& config() const override { return root_->config(); }
  std::string_view config_text() const override { return root_->config_text(); }
  const std::string& digest() const override { return digest_; }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override {
    const size_t at = place_of(name);
    return at < tensors_.size() ? &tensors_[at] : nullptr;
  }
  Status check_unchanged() const override { return root_->check_unchanged(); }
  Status read(std::span<const std::byte> bytes, std::byte* to) const override {
    for (const Memory& memory : memory_) {
      if (!memory) continue;
      const std::less_equal<const std::byte*> up_to;  // of any two pointers
      if (up_to(memory->data(), bytes.data()) && up_to(bytes.data() + bytes.size(), memory->data() + memory->bytes()))
        return Checkpoint::read(bytes, to);
    }
    return root_->read(bytes, to);
  }

  uint64_t number() const { return number_; }

  Status apply(const Entry& entry) {
    const size_t at = place_of(entry.name);
    if (at == tensors_.size() || !may_change(tensors_[at]))
      return bad_model(
          fmt::format("the weight update has a tensor {}, which no update may change", format::in_quotes(entry.name)));
    const Status done = tensors_[at].dtype == DType::kI8 ? change_matrix(at, entry) : change_floats(at, entry);
    if (done.ok()) return done;
    return Status(done.code(), fmt::format("weight update, tensor {}: {}", entry.name, done.message()));
  }

  // The digest after all entries; the values of scales and clips.
  Status seal() {
    digest_ = format::root_digest(fmt::to_string(config().arithmetic()), config_text(), tensors_);
    return format::check_scales(*this);
  }

 private:
  size_t place_of(std::string_view name) const {
    const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                     [](const TensorInfo& tensor, std::string_view n) { return tensor.name < n; });
    return at != tensors_.end() && at->name == name ? static_cast<size_t>(at - tensors_.begin()) : tensors_.size();
  }

  // Fresh memory for a tensor, which is the checkpoint's from now on.
  Result<std::byte*> renew(size_t at) {
    TensorInfo& tensor = tensors_[at];
    Result<Buffer<std::byte>> made = Buffer<std::byte>::make(tensor.bytes.size(), "the updated weights");
    if (!made.ok()) return made.status();
    memory_[at] = std::make_shared<Buffer<std::byte>>(std::move(made).value());
    tensor.bytes = {memory_[at]->data(), tensor.bytes.size()};
    return memory_[at]->data();
  }

  // As renew, with the tensor's bytes as they are.
  Result<std::byte*> renew_with_bytes(size_t at) {
    const std::span<const std::byte> before = tensors_[at].bytes;
    const Memory kept = memory_[at];  // until it has been read
    const Result<std::byte*> to = renew(at);
    if (!to.ok()) return to;
    KAIJU_TRY(kept ? Checkpoint::read(before, *to) : root_->read(before, *to));
    return to;
  }

  Status change_floats(size_t at, const Entry& entry) {
    if (entry.form == Form::kTernary) return bad_model("only weights have ternary steps");
    if (entry.form == Form::kWhole) return replace(at, entry);
    const size_t count = tensors_[at].bytes.size() / sizeof(float);
    if (entry.bytes.size() != format::ternary_bytes(count))
      return bad_model("its ternary steps are not those of so many values");
    const Result<std::byte*> to = renew_with_bytes(at);
    if (!to.ok()) return to.status();
    KAIJU_TRY(format::scale_ternary(entry.bytes, {reinterpret_cast<float*>(*to), count}));
    tensors_[at].digest = digest_of(tensors_[at].bytes);
    return {};
  }

  Status replace(size_t at, const Entry& entry) {
    if (entry.bytes.size() != tensors_[at].bytes.size()) return bad_model("it has another size than the tensor");
    const Result<std::byte*> to = renew(at);
    if (!to.ok()) return to.status();
    std::copy(entry.bytes.begin(), entry.bytes.end(), *to);
    tensors_[at].digest = digest_of(tensors_[at].bytes);
    return {};
  }

  Status change_matrix(size_t at, const Entry& entry) {
    if (entry.form == Form::kWhole) {
      KAIJU_TRY(replace(at, entry));
      return sum_rows(at);
    }
    if (entry.form == Form::kScaled) return bad_model("weights have no steps of scales");
    const size_t count = tensors_[at].bytes.size();
    if (entry.bytes.size() != format::ternary_bytes(count))
      return bad_model("its ternary steps are not those of so many weights");
    const Result<std::byte*> to = renew_with_bytes(at);
    if (!to.ok()) return to.status();
    KAIJU_TRY(format::add_ternary(entry.bytes, {reinterpret_cast<int8_t*>(*to), count}));
    tensors_[at].digest = digest_of(tensors_[at].bytes);
    return sum_rows(at);
  }

  // The row sums of a matrix that changed.
  Status sum_rows(size_t at) {
    const TensorInfo& weight = tensors_[at];
    const size_t sums = place_of(weight.name.substr(0, weight.name.size() - kWeight.size()) + std::string(kRowSum));
    const Result<std::byte*> to = renew(sums);
    if (!to.ok()) return to.status();
    const auto width = static_cast<size_t>(weight.shape[1]);
    const auto* row = reinterpret_cast<const int8_t*>(weight.bytes.data());
    for (int64_t n = 0; n < weight.shape[0]; ++n, row += width) {
      const format::RowScan scan = format::scan_row(row, width);
      if (scan.has_minus_128) return bad_model(fmt::format("row {} holds the weight -128", n));
      std::memcpy(*to + static_cast<size_t>(n) * sizeof scan.sum, &scan.sum, sizeof scan.sum);
    }
    tensors_[sums].digest = digest_of(tensors_[sums].bytes);
    return {};
  }

  std::shared_ptr<const Checkpoint> root_;  // of a file, or of the caller's memory
  std::vector<TensorInfo> tensors_;         // sorted by name
  std::vector<Memory> memory_;              // of each tensor; null: the root's
  uint64_t number_;
  std::string digest_;
};

Status check_parent(const std::shared_ptr<const Checkpoint>& checkpoint, const Head& head) {
  if (checkpoint->config_text().empty())
    return {StatusCode::kUnsupported,
            "the model has a head or scales of another file: update the model without them, and give them again"};
  const auto* before = dynamic_cast<const UpdatedCheckpoint*>(checkpoint.get());
  if (before && head.number != before->number() + 1)
    return invalid_argument(fmt::format("weight update {} comes after {}: send update {} first", head.number,
                                        before->number(), before->number() + 1));
  if (text_of(head.parent) != checkpoint->digest())
    return invalid_argument(
        fmt::format("weight update {} is for the weights {}; these are {}: load a checkpoint of the "
                    "training run, and send the updates that follow it",
                    head.number, format::in_quotes(text_of(head.parent)), checkpoint->digest()));
  return {};
}

class Writer {
 public:
  Writer() : bytes_(sizeof(Head)) {}

  // The entry of `to`, in steps where they lead from `from` to it.
  void add(const TensorInfo& from, const TensorInfo& to) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(EntryHead));
    append(std::as_bytes(std::span(to.name)));
    const size_t data = bytes_.size();
    const Form form = append_change(from, to);
    const EntryHead head{static_cast<uint16_t>(form), static_cast<uint16_t>(to.name.size()), 0, bytes_.size() - data};
    std::memcpy(bytes_.data() + at, &head, sizeof head);
    ++entries_;
  }

  std::vector<std::byte> finish(const std::string& parent, const std::string& after, uint64_t number) {
    Head head{};
    kMagic.copy(head.magic, sizeof head.magic);
    head.version = kVersion;
    head.entries = entries_;
    head.number = number;
    head.bytes = bytes_.size();
    parent.copy(head.parent, kDigestBytes);
    after.copy(head.after, kDigestBytes);
    digest_of(std::span(bytes_).subspan(sizeof head)).copy(head.check, kDigestBytes);
    std::memcpy(bytes_.data(), &head, sizeof head);
    return std::move(bytes_);
  }

 private:
  template <class T>
  static std::span<const T> values(const TensorInfo& tensor) {
    return {reinterpret_cast<const T*>(tensor.bytes.data()), tensor.bytes.size() / sizeof(T)};
  }

  Form append_change(const TensorInfo& from, const TensorInfo& to) {
    if (from.dtype == DType::kI8) {
      const auto before = values<int8_t>(from), after = values<int8_t>(to);
      if (format::is_ternary(before, after)) return format::append_ternary(before, after, bytes_), Form::kTernary;
    } else {
      const auto before = values<float>(from), after = values<float>(to);
      if (format::is_scaled(before, after)) return format::append_scaled(before, after, bytes_), Form::kScaled;
    }
    return append(to.bytes), Form::kWhole;
  }

  void append(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  std::vector<std::byte> bytes_;
  uint32_t entries_ = 0;
};

bool equal(const TensorInfo& a, const TensorInfo& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
}

// Whether one may become the other by updates.
Status check_shapes(const Checkpoint& before, const Checkpoint& after) {
  const Status other = invalid_argument("a weight update leads from one model to another of the same config");
  if (before.config_text().empty() || before.config_text() != after.config_text()) return other;
  if (before.tensors().size() != after.tensors().size()) return other;
  for (size_t i = 0; i < before.tensors().size(); ++i) {
    const TensorInfo &from = before.tensors()[i], &to = after.tensors()[i];
    if (!equal(from, to)) return other;
    if (!may_change(from) && !from.name.ends_with(kRowSum) && from.digest != to.digest)
      return invalid_argument(fmt::format("the two models differ in {}, which no weight update may change", from.name));
  }
  return {};
}

}  // namespace

Result<WeightUpdateHead> read_weight_update(std::span<const std::byte> update) {
  using Answer = Result<WeightUpdateHead>;
  return guarded<Answer>([&]() -> Answer {
    const Result<Head> head = checked_head(update);
    if (!head.ok()) return head.status();
    return WeightUpdateHead{head->number, text_of(head->parent), text_of(head->after)};
  });
}

Result<std::shared_ptr<const Checkpoint>> with_update(const std::shared_ptr<const Checkpoint>& checkpoint,
                                                      std::span<const std::byte> update) {
  using Answer = Result<std::shared_ptr<const Checkpoint>>;
  return guarded<Answer>([&]() -> Answer {
    const FloatState float_state;
    if (!checkpoint) return invalid_argument("no checkpoint");
    const Result<Head> head = checked_head(update);
    if (!head.ok()) return head.status();
    KAIJU_TRY(check_parent(checkpoint, *head));
    auto updated = std::make_shared<UpdatedCheckpoint>(checkpoint, *head);
    std::span<const std::byte> rest = update.subspan(sizeof(Head));
    for (uint32_t i = 0; i < head->entries; ++i) {
      Entry entry;
      KAIJU_TRY(take_entry(rest, entry));
      KAIJU_TRY(updated->apply(entry));
    }
    if (!rest.empty()) return damaged("it has bytes after its last entry");
    KAIJU_TRY(updated->seal());
    if (updated->digest() != text_of(head->after))
      return bad_model(fmt::format("weight update {} gives the weights {}, and not those that it names, {}",
                                   head->number, updated->digest(), format::in_quotes(text_of(head->after))));
    return std::shared_ptr<const Checkpoint>(std::move(updated));
  });
}

Result<std::vector<std::byte>> make_weight_update(const Checkpoint& before, const Checkpoint& after, uint64_t number) {
  using Answer = Result<std::vector<std::byte>>;
  return guarded<Answer>([&]() -> Answer {
    const FloatState float_state;
    KAIJU_TRY(check_shapes(before, after));
    Writer writer;
    for (size_t i = 0; i < before.tensors().size(); ++i) {
      const TensorInfo &from = before.tensors()[i], &to = after.tensors()[i];
      if (from.digest == to.digest || !may_change(from)) continue;
      writer.add(from, to);
    }
    return writer.finish(before.digest(), after.digest(), number);
  });
}

}  // namespace kaiju
