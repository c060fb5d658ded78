// Lists the backends of this build and creates executors with them.
#include "kaiju/run/executors.hpp"

#include <algorithm>
#include <optional>

#include "kaiju/backend/cpu.hpp"
#include "kaiju/backend/reference.hpp"
#include "kaiju/backend/self_check.hpp"
#include "kaiju/base/detail/core_count.hpp"
#include "kaiju/base/detail/owner_process.hpp"
#include "kaiju/base/float_state.hpp"
#include "kaiju/run/devices.hpp"
#include "kaiju/run/executor_for.hpp"
#include "kaiju/run/memory_need.hpp"
#include "kaiju/run/shared_model.hpp"
#include "kaiju/step/executor.hpp"
#if KAIJU_CUDA
#include "cuda.hpp"
#endif

namespace kaiju {
namespace {

constexpr int32_t kMostThreads = 256;

// An executor's threads, and CUDA, serve the process that made it: in a child of fork() it refuses every step, and
// destroying it leaves everything as it is.
class ProcessExecutor final : public Executor {
 public:
  ProcessExecutor(std::unique_ptr<Executor> executor, const Checkpoint& checkpoint)
      : executor_(std::move(executor)), form_(form_of(checkpoint)) {}
  ~ProcessExecutor() override {
    if (!process_.is_this()) (void)executor_.release();
  }

  const ExecutorInfo& info() const override { return executor_->info(); }
  Status run(const StepPlan& plan, StepResult& result) override {
    KAIJU_TRY(check_process());
    return executor_->run(plan, result);
  }
  Status start(const StepPlan& plan) override {
    KAIJU_TRY(check_process());
    return executor_->start(plan);
  }
  Status finish(const StepPlan& plan, StepResult& result) override {
    KAIJU_TRY(check_process());
    return executor_->finish(plan, result);
  }
  bool runs_beside_host() const override { return executor_->runs_beside_host(); }
  Status set_head(const std::shared_ptr<const Checkpoint>& checkpoint) override {
    KAIJU_TRY(check_process());
    return executor_->set_head(checkpoint);
  }
  Status set_scales(const std::shared_ptr<const Checkpoint>& checkpoint) override {
    KAIJU_TRY(check_process());
    return executor_->set_scales(checkpoint);
  }
  Status set_weights(const std::shared_ptr<const Checkpoint>& checkpoint) override {
    KAIJU_TRY(check_process());
    if (form_of(*checkpoint) != form_)
      return invalid_argument(
          "the weights are of a model with another config, rotary frequencies or tokenizer: make a new engine");
    return executor_->set_weights(checkpoint);
  }
  Status count_kv(BlockKind kind, BlockId block, KvCounts& counts) override {
    KAIJU_TRY(check_process());
    return executor_->count_kv(kind, block, counts);
  }
  Result<Scrubbed> scrub(size_t most_bytes) override {
    KAIJU_TRY(check_process());
    return executor_->scrub(most_bytes);
  }
  Result<HostMemory> host_memory(size_t bytes, const char* what) override {
    KAIJU_TRY(check_process());
    return executor_->host_memory(bytes, what);
  }

 private:
  Status check_process() const { return process_.check("the executor"); }
  // What other weights must have in common with those that the executor was made with.
  static std::string form_of(const Checkpoint& checkpoint) {
    std::string form = config_to_json(checkpoint.config());
    for (const TensorInfo& tensor : checkpoint.tensors())
      if (tensor.name.starts_with("rope.") || tensor.name == "tokenizer") form += tensor.digest;
    return form;
  }

  OwnerProcess process_;
  std::unique_ptr<Executor> executor_;
  std::string form_;
};

int64_t blocks_for(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

// Global blocks: whole contexts, or what cache_bytes buys: at least one context. Window blocks: for every live sequence
// its window, one block behind it for edits, and the chunk being computed. A kind that no layer has gets none.
// kInvalidArgument, with the numbers, for more than block numbers can tell apart.
Result<ExecutorSizes> sizes_of(const ModelConfig& config, const ExecutorOptions& options, bool on_gpu) {
  constexpr int64_t kMostBlocks = INT32_MAX / 2;
  constexpr int32_t kUsualContexts = 8, kUsualSlots = 64;
  constexpr int64_t kUsualWindowBytes = int64_t{1} << 30;
  PerKind<int64_t> block_bytes;
  int32_t window = 0;
  for (int32_t s = 0; s < config.kv_slot_count; ++s) {
    const int32_t layer = config.owner_of(s);
    const LayerConfig& owner = config.layers[layer];
    const bool global = owner.kind == LayerKind::kGlobal;
    block_bytes[global ? BlockKind::kGlobal : BlockKind::kWindow] +=
        config.kv_heads_of(layer) * KvSlot::head_bytes(config.head_dim_of(layer), config.arithmetic() == 2);
    if (!global) window = std::max(window, owner.window);
  }
  ExecutorSizes sizes;
  sizes.step_tokens = options.step_tokens > 0 ? options.step_tokens : on_gpu ? 2048 : 256;
  const int64_t context_blocks = blocks_for(config.context);
  const int64_t windows_of_one =
      window > 0 ? std::min(context_blocks, blocks_for(window) + 2 + blocks_for(sizes.step_tokens) + 1) : 0;
  sizes.slot_count = options.slot_count;
  int64_t contexts = sizes.slot_count;
  if (sizes.slot_count == 0) {
    contexts = kUsualContexts;
    const int64_t bytes_of_one = std::max<int64_t>(windows_of_one * block_bytes[BlockKind::kWindow], 1);
    sizes.slot_count = static_cast<int32_t>(std::clamp<int64_t>(kUsualWindowBytes / bytes_of_one, 8, kUsualSlots));
  }
  const int64_t global_block_bytes = block_bytes[BlockKind::kGlobal];
  int64_t global = global_block_bytes > 0 ? contexts * context_blocks : 0;
  if (options.cache_bytes > 0 && global_block_bytes > 0) {
    global = std::max(options.cache_bytes / global_block_bytes, context_blocks);
    if (global > kMostBlocks)
      return invalid_argument("cache bytes of " + std::to_string(options.cache_bytes) + " are " +
                              std::to_string(global) + " blocks of KV; there can be " + std::to_string(kMostBlocks) +
                              ": ask for at most " + std::to_string(kMostBlocks * global_block_bytes) + " bytes");
  }
  const int64_t windows = sizes.slot_count * windows_of_one;
  if (std::max(global, windows) > kMostBlocks)
    return invalid_argument(std::to_string(sizes.slot_count) + " live sequences of " + std::to_string(config.context) +
                            " tokens are " + std::to_string(std::max(global, windows)) +
                            " blocks of KV; there can be " + std::to_string(kMostBlocks) + ": ask for fewer sequences" +
                            (global > windows ? ", or set cache bytes" : ""));
  sizes.block_count[BlockKind::kGlobal] = static_cast<int32_t>(global);
  sizes.block_count[BlockKind::kWindow] = static_cast<int32_t>(windows);
  sizes.share_memory = options.share_memory;
  return sizes;
}

// Instruction sets that add products of matrices keep KV as those do that they add to, so saved sessions are of use to
// both.
std::string kv_layout_of(const std::string& backend) {
  if (backend == "amx") return "avx512";
  if (backend == "i8mm") return "neon";
  return backend;
}

template <class B>
Result<std::unique_ptr<Executor>> make(std::unique_ptr<B> backend, std::shared_ptr<const Checkpoint> checkpoint,
                                       const ExecutorOptions& options, std::string name, int32_t threads) {
  KAIJU_TRY(self_check(*backend, golden::Shapes::kPlain, checkpoint->config().arithmetic()));
  Result<Weights> weights = Weights::from(std::move(checkpoint));
  if (!weights.ok()) return weights.status();
  static_assert(ScaledBackend<B>, "every backend of the library computes both versions of the arithmetic");
  Result<ExecutorSizes> sizes = sizes_of(weights->config, options, false);
  if (!sizes.ok()) return sizes.status();
  sizes->interleave = options.interleave;
  sizes->large_pages = options.large_pages;
  sizes->skip_zeros = options.skip_zeros;
  sizes->kv_layout = kv_layout_of(name);
  sizes->backend = std::move(name);
  sizes->threads = threads;
  return ExecutorFor<B>::create(std::move(backend), std::move(weights).value(), *sizes);
}

int32_t threads_of(const ExecutorOptions& options) {
  if (options.threads > 0) return options.threads;
  return core_count();
}

std::optional<Products> products_called(const std::string& name) {
  if (name == "auto") return Products::kAuto;
  if (name == "own") return Products::kOwn;
  if (name == "cublaslt") return Products::kCublasLt;
  return std::nullopt;
}

#if KAIJU_CUDA
Result<std::unique_ptr<Executor>> make_cuda(std::shared_ptr<const Checkpoint> checkpoint,
                                            const ExecutorOptions& options, const std::vector<int32_t>& devices) {
  Result<Weights> weights = Weights::from(std::move(checkpoint));
  if (!weights.ok()) return weights.status();
  Result<ExecutorSizes> sizes = sizes_of(weights->config, options, true);
  if (!sizes.ok()) return sizes.status();
  sizes->graphs = options.graphs;
  sizes->products_file = options.products_file;
  sizes->products = *products_called(options.products);
  sizes->kv_layout = sizes->backend = "cuda";
  sizes->device = devices.front();
  sizes->draw_threads = threads_of(options);
  sizes->host_threads = options.host_threads;
  sizes->gpus.clear();
  for (const int32_t device : devices) sizes->gpus.push_back(device - 1);
  return cuda::make_executor(std::move(weights).value(), *sizes);
}
#endif

Status check(const ExecutorOptions& options) {
  if (options.threads < 0 || options.threads > kMostThreads)
    return invalid_argument("threads must be 0 (one per core) to 256, not " + std::to_string(options.threads));
  if (options.slot_count < 0 || options.slot_count > 65536)
    return invalid_argument("the number of live sequences must be 0 (as many as usual) to 65536, not " +
                            std::to_string(options.slot_count));
  if (options.step_tokens < 0 || options.step_tokens > 65536)
    return invalid_argument("tokens per step must be 0 (as many as usual) to 65536, not " +
                            std::to_string(options.step_tokens));
  if (options.cache_bytes < 0) return invalid_argument("cache bytes must not be negative");
  if (!products_called(options.products))
    return invalid_argument("products are computed by \"auto\", \"own\" or \"cublaslt\", not \"" + options.products +
                            "\"");
  return {};
}

}  // namespace

std::vector<std::string> backend_names() {
  std::vector<std::string> names = CpuBackend::isas();
#if KAIJU_CUDA
  if (cuda::present()) names.insert(names.begin(), "cuda");
#endif
  names.push_back("reference");
  return names;
}

// A device that the backend of the options must compute on.
static Status check_device(const ExecutorOptions& options, const std::vector<DeviceInfo>& found, int32_t index) {
  if (index < 0 || static_cast<size_t>(index) >= found.size())
    return invalid_argument("there is no device " + std::to_string(index) + "; devices are 0 to " +
                            std::to_string(found.size() - 1));
  const DeviceInfo& device = found[static_cast<size_t>(index)];
  if (device.backends.empty())
    return Status(StatusCode::kUnsupported, "device " + std::to_string(index) + " (" + device.name + ", " +
                                                device.description + ") is one that no backend computes on");
  if (options.backend != "auto" &&
      std::find(device.backends.begin(), device.backends.end(), options.backend) == device.backends.end())
    return invalid_argument("backend \"" + options.backend + "\" does not compute on device " + std::to_string(index) +
                            ", " + device.name);
  return {};
}

// The devices of the options, as indices in devices(); empty: none is named.
static Result<std::vector<int32_t>> devices_of(const ExecutorOptions& options) {
  const std::vector<int32_t>& named = options.devices;
  if (named.empty()) return named;
  if (named.size() > 1 && products_called(options.products) == Products::kCublasLt)
    return Status(StatusCode::kUnsupported,
                  "cuBLASLt does not compute the products of a model that several GPUs share: leave products \"auto\", "
                  "or name one device");
  const std::vector<DeviceInfo> found = devices();
  for (const int32_t index : named) KAIJU_TRY(check_device(options, found, index));
  for (size_t i = 0; i < named.size() && named.size() > 1; ++i) {
    if (named[i] == 0)
      return Status(
          StatusCode::kUnsupported,
          std::to_string(named.size()) + " devices are named, and 0 is the processor: only GPUs share a model");
    if (std::find(named.begin(), named.begin() + static_cast<std::ptrdiff_t>(i), named[i]) !=
        named.begin() + static_cast<std::ptrdiff_t>(i))
      return invalid_argument("device " + std::to_string(named[i]) + " is named twice");
  }
  return named;
}

// Whether options that name the device mean a GPU.
static bool is_on_gpu([[maybe_unused]] const ExecutorOptions& options,
                      [[maybe_unused]] const std::vector<int32_t>& devices) {
#if KAIJU_CUDA
  if (!devices.empty()) return devices.front() > 0;
  return options.backend == "cuda" || (options.backend == "auto" && cuda::present());
#else
  return false;
#endif
}

static Result<std::unique_ptr<Executor>> make_checked(std::shared_ptr<const Checkpoint> checkpoint,
                                                      const ExecutorOptions& options) {
  Result<std::vector<int32_t>> devices = devices_of(options);
  if (!devices.ok()) return devices.status();
#if KAIJU_CUDA
  if (is_on_gpu(options, *devices)) {
    if (options.interleave || options.large_pages || options.skip_zeros)
      return Status(StatusCode::kUnsupported,
                    "interleave, large_pages and skip_zeros are for processors: leave them out with a GPU");
    if (devices->empty()) devices->push_back(1);
    return make_cuda(std::move(checkpoint), options, *devices);
  }
#else
  if (options.backend == "cuda")
    return Status(StatusCode::kUnsupported, "this build has no CUDA backend: configure with -DKAIJU_CUDA=ON");
#endif
  if (products_called(options.products) == Products::kCublasLt)
    return Status(StatusCode::kUnsupported,
                  "cuBLASLt computes on GPUs alone: leave products \"auto\", or ask for backend \"cuda\"");
  if (options.backend == "reference")
    return make(std::make_unique<ReferenceBackend>(), std::move(checkpoint), options, "reference", 1);
  const int32_t threads = threads_of(options);
  Result<std::unique_ptr<CpuBackend>> backend = CpuBackend::create(options.backend, threads, options.host_threads);
  if (backend.status().code() == StatusCode::kInvalidArgument) {
    std::string known = "auto";
    for (const std::string& each : backend_names()) known += ", " + each;
    return invalid_argument("backend \"" + options.backend + "\" is unknown; choose one of: " + known);
  }
  if (!backend.ok()) return backend.status();
  std::string name = backend.value()->isa();
  return make(std::move(backend).value(), std::move(checkpoint), options, std::move(name), threads);
}

// A GPU's attention cuts long sequences into pieces and adds up what each found; the driver rounds allocations up.
static int64_t gpu_extra_bytes(const ModelConfig& config, int64_t slots, int64_t workspace) {
  constexpr int64_t kRounding = int64_t{64} << 20;
  const int64_t pieces = (config.context + arith::kChunkKeys - 1) / arith::kChunkKeys;
  const int64_t sums = slots * pieces * config.n_heads * (config.widest(Width::kHead) + 4) * int64_t{sizeof(float)};
  return sums + workspace / 8 + kRounding;
}

// Whether GPUs that share a model have a part each of this tensor.
static bool is_divided(const std::string& name) {
  for (const char* const matrix : {"attn.q", "attn.o", "ffn.gate", "ffn.up", "ffn.down"})
    if (name.find(std::string(matrix) + ".weight") != std::string::npos) return true;
  return false;
}

Result<MemoryNeed> memory_need(const Checkpoint& checkpoint, const ExecutorOptions& options) {
  using Answer = Result<MemoryNeed>;
  return guarded<Answer>([&]() -> Answer {
    KAIJU_TRY(check(options));
    const Result<std::vector<int32_t>> devices = devices_of(options);
    if (!devices.ok()) return devices.status();
    const bool on_gpu = is_on_gpu(options, *devices);
    const int64_t share = std::max<int64_t>(1, static_cast<int64_t>(devices->size()));  // GPUs that share the model
    Result<ExecutorSizes> sizes = sizes_of(checkpoint.config(), options, on_gpu);
    if (!sizes.ok()) return sizes.status();
    int64_t exchange = 0;
#if KAIJU_CUDA
    if (on_gpu) {
      const Result<int64_t> bytes =
          cuda::exchange_bytes(checkpoint.config(), static_cast<int32_t>(share), sizes->step_tokens, sizes->slot_count);
      if (!bytes.ok()) return bytes.status();
      exchange = *bytes;
    }
#endif
    const ModelConfig config = config_of_part(checkpoint.config(), static_cast<int32_t>(share));
    Slots slots;
    slots.create(config, *sizes);
    MemoryNeed need;
    need.device = !on_gpu ? 0 : devices->empty() ? 1 : devices->front();
    if (share > 1) need.others.assign(devices->begin() + 1, devices->end());
    need.kv = slots.info().cache_bytes();
    need.workspace =
        workspace_bytes(config, on_gpu || ProjectsPacked<CpuBackend>, sizes->step_tokens, sizes->slot_count);
    if (on_gpu) need.workspace += gpu_extra_bytes(config, sizes->slot_count, need.workspace);
    constexpr int64_t kCublasLtBytes = int64_t{240} << 20;
    if (products_called(options.products) == Products::kCublasLt) need.workspace += kCublasLtBytes;
    need.workspace += exchange;
    for (const TensorInfo& tensor : checkpoint.tensors()) {
      if (tensor.name == "tokenizer") continue;
      if (options.skip_zeros && tensor.name.ends_with("ffn.down.weight"))
        need.workspace += static_cast<int64_t>(tensor.bytes.size());
      auto bytes = static_cast<int64_t>(tensor.bytes.size());
      if (is_divided(tensor.name)) bytes = (bytes + share - 1) / share;
      need.weights += tensor.dtype == DType::kF32 ? 2 * bytes : bytes;  // the constants that are made of it
    }
    return need;
  });
}

static std::string mebibytes(int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

static Status too_much(const MemoryNeed& need, int64_t wanted, int64_t limit, const std::string& whose) {
  return {StatusCode::kOutOfMemory, "the engine would take " + mebibytes(wanted) + " (weights " +
                                        mebibytes(need.weights) + ", KV " + mebibytes(need.kv) + ", workspace " +
                                        mebibytes(need.workspace) + ", host tier " + mebibytes(need.host_tier) +
                                        "), and " + whose + " " + mebibytes(limit) +
                                        ": set smaller cache bytes, or end what else takes memory"};
}

Status check_memory(const MemoryNeed& need, int64_t limit) {
  return guarded<Status>(
      [&] { return check_memory(need, limit, limit == kFreeMemory ? devices() : std::vector<DeviceInfo>()); });
}

Status check_memory(const MemoryNeed& need, int64_t limit, std::span<const DeviceInfo> found) {
  if (limit == 0) return {};
  if (limit != kFreeMemory)
    return need.on_device() > limit ? too_much(need, need.on_device(), limit, "the limit is") : Status();
  const auto check_device = [&](int32_t index, int64_t wanted) -> Status {
    if (static_cast<size_t>(index) >= found.size()) return {};
    const DeviceInfo& device = found[static_cast<size_t>(index)];
    const auto free = static_cast<int64_t>(device.memory_free);
    return free > 0 && wanted > free ? too_much(need, wanted, free, device.name + " has free") : Status();
  };
  return guarded<Status>([&]() -> Status {
    KAIJU_TRY(check_device(need.device, need.on_device()));
    for (const int32_t device : need.others) KAIJU_TRY(check_device(device, need.on_device()));
    return check_device(0, need.on_host());
  });
}

Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Checkpoint> checkpoint,
                                                const ExecutorOptions& options) {
  using Answer = Result<std::unique_ptr<Executor>>;
  return guarded<Answer>([&]() -> Answer {
    const FloatState float_state;
    KAIJU_TRY(check(options));
    KAIJU_TRY(checkpoint->check_unchanged());
    Answer made = make_checked(checkpoint, options);
    if (made.ok()) {
      KAIJU_TRY(checkpoint->check_unchanged());  // a GPU's copy of the weights is of what was verified
      return std::unique_ptr<Executor>(std::make_unique<ProcessExecutor>(std::move(made).value(), *checkpoint));
    }
    if (made.status().code() != StatusCode::kOutOfMemory) return made;
    return Status(StatusCode::kOutOfMemory,
                  made.status().message() + ": ask for fewer live sequences or smaller steps, or " +
                      (options.cache_bytes > 0 ? "for fewer cache bytes" : "set cache bytes"));
  });
}

}  // namespace kaiju
