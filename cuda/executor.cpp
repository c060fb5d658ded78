// The executor on a GPU: one copy in, the forward pass, draws on the device, written straight to the host; blocks
// travel to the host and back beside it.
//
// A step that only decodes starts a graph recorded at creation, one for each of a row of batch sizes, from behind the
// copy in to the draws; a batch in between is filled up by repeating one of its sequences, which computes the same bits
// and stores them in the same places once more. Where penalties or biases change logits, ordinary launches that draw
// follow.
//
// A step may be started behind the one under way: what that draws is then taken over on the GPU, and whatever the host
// writes or reads of a step is there twice.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "backend.hpp"
#include "cuda.hpp"
#include "graph.hpp"
#include "kaiju/arith/softmax.hpp"
#include "kaiju/backend/self_check.hpp"
#include "kaiju/model/forward.hpp"
#include "kernels/blocks.hpp"
#include "launch/tiles.hpp"
#include "memory.hpp"
#include "staged_backend.hpp"
#include "step_inputs.hpp"
#include "tiles/layout.cuh"
#include "transfers.hpp"
#include "weights.hpp"

namespace kaiju::cuda {
namespace {

constexpr int32_t kMostTileRows = 256;  // of a tile of a product, or of two that share their weights
constexpr int32_t kLogitRows = 64;      // of a piece, when the logits of every row are asked for
constexpr int32_t kGraphRows = 256;     // of the largest decode step that is recorded
constexpr size_t kBiasBytes = 1 << 20, kMostListBytes = 32 << 20;  // of a step's lists: biases; all of them

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(std::shared_ptr<Device> device, Weights weights)
      : device_(device), backend_(device), weights_(std::move(weights)), transfers_(std::move(device)) {}

  const Facts& facts() const override { return slots_.facts(); }

  Status take_memory(const ExecutorSizes& sizes) {
    const ModelConfig& config = weights_.config;
    const int32_t sequences = std::min(sizes.slot_count, sizes.step_tokens);
    const int64_t seen_blocks =
        int64_t{config.n_kv_heads} * ((config.context + kBlockTokens - 1) / kBlockTokens);  // of a sequence
    if (sequences * seen_blocks > kMostSeenBlocks)
      return invalid_argument("a step of " + std::to_string(sequences) + " sequences of " +
                              std::to_string(config.context) + " tokens and " + std::to_string(config.n_kv_heads) +
                              " KV heads is more than the CUDA backend serves: ask for at most " +
                              std::to_string(kMostSeenBlocks / seen_blocks) + " sequences");
    slots_.create(config, sizes);
    const Facts& facts = slots_.facts();
    KAIJU_TRY(upload(weights_, stream(), weight_memory_));
    KAIJU_TRY(take(cache_, static_cast<size_t>(facts.cache_bytes()), "the KV cache"));
    pool_[1] = cache_.data();
    pool_[0] = facts.shares_memory() ? pool_[1] : pool_[1] + facts.block_bytes[1] * facts.block_count[1];
    kv_slots_ = slots_.kv_slots();
    for (KvSlot& slot : kv_slots_) slot.pool = pool_[static_cast<int32_t>(slot.kind)];
    transfers_.create(facts, pool_);

    const auto rows = static_cast<size_t>(sizes.step_tokens), slots = static_cast<size_t>(sizes.slot_count);
    const auto width = static_cast<size_t>(std::max(config.d_model, config.query_width()));
    logit_rows_ = std::max(sizes.slot_count, std::min(sizes.step_tokens, kLogitRows));
    const auto logit_rows = static_cast<size_t>(logit_rows_);
    KAIJU_TRY(take(x_, rows * config.d_model, "the residual stream"));
    const size_t room =
        (std::max(rows, logit_rows) + kMostTileRows - 1) / kMostTileRows * kMostTileRows;  // whole tiles
    KAIJU_TRY(take(a_, room * width, "the activations"));
    KAIJU_TRY(take(q_, rows * (config.query_width() + 2 * config.kv_width()), "the queries, keys and values"));
    KAIJU_TRY(take(queries_, rows * config.query_width(), "the quantised queries"));
    KAIJU_TRY(take(h_, room * config.d_ff, "the feed-forward activations"));
    KAIJU_TRY(take(last_x_, slots * config.d_model, "the sampled rows"));
    KAIJU_TRY(take(logits_, logit_rows * config.vocab_size, "the logits"));
    KAIJU_TRY(take(adjusted_, slots * config.vocab_size, "the penalised logits"));
    KAIJU_TRY(take(seen_, slots * config.vocab_size, "the seen tokens"));

    const size_t half = static_cast<size_t>(config.head_dim) / 2;
    KAIJU_TRY(take(frequencies_, weights_.rope.size() * half, "the rotary frequencies"));
    angles_.resize(weights_.rope.size());
    for (size_t r = 0; r < angles_.size(); ++r) {
      KAIJU_TRY(take(angles_[r], rows * half, "the rotary angles"));
      check(cudaMemcpyAsync(frequencies_.data() + r * half, weights_.rope[r].data(), half * sizeof(uint64_t),
                            cudaMemcpyHostToDevice, stream()),
            "a copy to the GPU");
    }

    const int64_t chunks = (config.context + arith::kChunkKeys - 1) / arith::kChunkKeys,
                  heads = config.n_heads / config.n_kv_heads,
                  items = config.n_kv_heads * ((heads + kAttentionItemRows - 1) / kAttentionItemRows);
    KAIJU_TRY(backend_.take_memory(config.head_dim, sizes.slot_count * chunks * items));
    backend_.join_norms();
    backend_.have_room(static_cast<int32_t>(room));
    const size_t table_blocks =
        slots * kBlockKinds * static_cast<size_t>((config.context + kBlockTokens - 1) / kBlockTokens);
    KAIJU_TRY(take(tables_, table_blocks, "the block tables"));
    KAIJU_TRY(inputs_.take_memory(facts, tables_.data()));
    // Table edits, histories, biases, of a step and of the one before it: as long as a step's can be, up to 4 million
    // tokens of history. What finds no room waits until all that is there has been read.
    const size_t list_bytes =
        std::min(kMostListBytes, table_blocks * sizeof(TableWrite) +
                                     slots * static_cast<size_t>(config.context) * sizeof(TokenMark) + kBiasBytes);
    KAIJU_TRY(take(list_memory_, list_bytes, "a step's lists"));
    KAIJU_TRY(take(host_list_memory_, list_bytes, "a step's lists"));
    KAIJU_TRY(take(last_drawn_, slots, "the draws"));
    KAIJU_TRY(take(host_drawn_, 2 * slots * sizeof(Drawn), "the draws"));
    KAIJU_TRY(take(host_top_, 2 * slots * kMostTop * sizeof(Alternative), "the alternatives"));
    if (facts.label_count > 0) {
      KAIJU_TRY(take(products_, (slots + rows) * static_cast<size_t>(facts.label_count), "the scores"));
      KAIJU_TRY(take(host_products_, 2 * products_.bytes(), "the scores"));
    }
    for (UnderWay& step : under_way_)
      check(cudaEventCreateWithFlags(&step.over, cudaEventDisableTiming), "an event behind a step");
    KAIJU_TRY(device_->status());
    edits_.reserve(slots * kBlockKinds);

    workspace_ = {x_.data(), a_.data(), q_.data(), queries_.data(), nullptr, nullptr, h_.data(), {}};
    for (auto& angles : angles_) workspace_.angles.push_back(angles.data());
    KAIJU_TRY(take_row_step());
    KAIJU_TRY(backend_.choose_gemms(weights_, workspace_, sizes.step_tokens, logits_.data(), logit_rows_,
                                    sizes.products_file));
    load_kernels();
    if (sizes.graphs) record_graphs(std::min({sizes.slot_count, sizes.step_tokens, kGraphRows}));
    // Not the whole device: another thread may be recording steps of an engine of its own, which that would break off.
    check(cudaStreamSynchronize(stream()), "taking memory");
    device_->made();
    return device_->status();
  }

  ~CudaExecutor() override {
    leaving_.emplace(device_->index());
    check(cudaStreamSynchronize(stream()), "a step");  // it writes to memory of the host's, and so do copies beside it
    transfers_.wait();
    for (const UnderWay& step : under_way_)
      if (step.over) cudaEventDestroy(step.over);
  }

  Status run(const StepPlan& plan, StepResult& result) override {
    result.clear();
    KAIJU_TRY(start(plan));
    return finish(plan, result);
  }

  bool runs_beside_host() const override { return true; }

  Status start(const StepPlan& plan) override {
    if (!device_->ok()) return device_->status();
    const CurrentDevice current(device_->index());
    const FloatState float_state;
    KAIJU_TRY(check_order(plan));
    KAIJU_TRY(check_lists(plan));
    KAIJU_TRY(slots_.apply(plan, true));
    const int32_t turn = turn_of(started_);
    UnderWay& step = under_way_[turn];
    step.answer.clear();
    step.transfers = !plan.transfers.empty();
    begin_lists();
    start_slots(plan);
    edit_tables(plan);
    transfers_.send_down(plan.transfers);
    for (const BlockCopy& copy : plan.copies) copy_block(copy);
    transfers_.bring_up(plan.transfers, slots_.segments());
    if (!plan.segments.empty()) {
      inputs_.gather(plan, slots_);
      const RecordedStep* const recorded = recorded_step(plan);
      if (recorded) inputs_.fill_up(recorded->rows);
      const Inputs inputs = inputs_.place(turn);
      ask("a step's inputs", [&] { return inputs_.send(inputs, turn, stream()); });
      if (recorded) {
        ask("a decode step", [&] { return recorded->graph.launch(stream()); });
      } else if (takes_row_step(plan)) {
        run_row(inputs);
        if (plan.segments[0].all_logits) {
          return_first_logits(step.answer);
          classify_rows(x_.data(), 1, facts().slot_count);
        }
      } else {
        run_layers(inputs);
        return_logits(plan, step.answer);
        compute_last_logits(inputs);
      }
      if (adjust_logits(inputs) || !recorded) draw(inputs, adjusted_.data());
      return_products(plan, turn);
    }
    transfers_.go_beside();
    ask("an event behind a step", [&] { return cudaEventRecord(step.over, stream()); });
    ++started_;
    return {};
  }

  Status finish(const StepPlan& plan, StepResult& result) override {
    const CurrentDevice current(device_->index());
    const int32_t turn = turn_of(finished_);
    ask("a step", [&] { return cudaEventSynchronize(under_way_[turn].over); });
    transfers_.wait();
    if (!device_->ok()) {
      cudaStreamSynchronize(stream());  // what was asked for before the failure may still write to memory of the host's
      return device_->status();
    }
    const FloatState float_state;
    ++finished_;
    StepResult& answer = under_way_[turn].answer;
    read_draws(plan, turn, answer);
    read_scores(plan, turn, answer);
    for (const BlockTransfer& transfer : plan.transfers)
      if (transfer.way == BlockTransfer::Way::kDown && transfer.token_count < kBlockTokens) clear_rest(transfer);
    std::swap(result, answer);
    return {};
  }

  Result<HostMemory> host_memory(size_t bytes, const char* what) override {
    const CurrentDevice current(device_->index());
    KAIJU_TRY(transfers_.take_memory());
    PinnedBuffer pinned;
    KAIJU_TRY(take(pinned, bytes, what));
    const std::shared_ptr<PinnedBuffer> shared(new PinnedBuffer(std::move(pinned)),
                                               [index = device_->index()](PinnedBuffer* gone) {
                                                 const CurrentDevice leaving(index);
                                                 delete gone;
                                               });
    return HostMemory(shared, shared->data());
  }

 private:
  using Inputs = StepInputs::There;
  // A step that was started and has not been finished. There are two, in turn.
  struct UnderWay {
    StepResult answer;
    bool transfers = false;
    cudaEvent_t over = nullptr;
  };
  // Of the memory for lists: where the last step's begin and end, and the end of what it may use.
  struct ListRoom {
    size_t begin = 0, used = 0, end = 0;
  };
  struct RecordedStep {
    int32_t rows = 0;
    Graph graph;
  };

  cudaStream_t stream() const { return device_->stream(); }
  void check(cudaError_t error, const char* what) { device_->check(error, what); }
  // Makes a call, unless one before failed: what this one would read may not be there, and a kernel that follows stale
  // block numbers takes the whole context with it.
  template <class Call>
  void ask(const char* what, Call&& call) {
    if (device_->ok()) check(call(), what);
  }

  static int32_t turn_of(int64_t step) { return static_cast<int32_t>(step % 2); }

  Status check_order(const StepPlan& plan) const {
    if (started_ == finished_ ||
        (started_ == finished_ + 1 && plan.transfers.empty() && !under_way_[turn_of(finished_)].transfers))
      return {};
    return internal_error("a step is started behind one that it cannot follow");
  }

  Status check_lists(const StepPlan& plan) const {
    for (const Segment& segment : plan.segments)
      if (segment.top_logprobs > kMostTop)
        return invalid_argument("a plan asks for " + std::to_string(segment.top_logprobs) +
                                " alternatives of a token; the CUDA backend reports at most " +
                                std::to_string(kMostTop));
    return {};
  }

  // A step's lists have what those of the step before it, if that has not ended, leave: the longer of what is in front
  // of them and what is behind. The one before that has ended.
  void begin_lists() {
    if (started_ == finished_) {
      list_ = {0, 0, list_memory_.size()};
    } else {
      const size_t in_front = list_.begin, behind = list_memory_.size() - list_.used;
      list_ = behind >= in_front ? ListRoom{list_.used, list_.used, list_memory_.size()} : ListRoom{0, 0, in_front};
    }
  }
  // Copies `items` to the GPU, in pieces where they are many, and launches use(items there, count) on each piece.
  template <class T, class Use>
  void send_list(const std::vector<T>& items, const char* what, Use&& use) {
    for (size_t done = 0; done < items.size() && device_->ok();) {
      if (list_.used + sizeof(T) > list_.end) {  // all pieces before must have been read
        check(cudaStreamSynchronize(stream()), what);
        list_ = {0, 0, list_memory_.size()};
      }
      const size_t count = std::min(items.size() - done, (list_.end - list_.used) / sizeof(T)),
                   bytes = count * sizeof(T);
      std::byte *const there = list_memory_.data() + list_.used, *const here = host_list_memory_.data() + list_.used;
      std::memcpy(here, items.data() + done, bytes);
      ask(what, [&] { return cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, stream()); });
      ask(what, [&] { return use(reinterpret_cast<const T*>(there), static_cast<int32_t>(count)); });
      list_.used = std::min(StepInputs::aligned(list_.used + bytes), list_.end);
      done += count;
    }
  }

  void start_slots(const StepPlan& plan) {
    marks_.clear();
    for (const SlotStart& start : plan.starts) {
      ask("clearing a slot", [&] {
        return cudaMemsetAsync(seen_.data() + int64_t{start.slot} * facts().vocab_size, 0,
                               static_cast<size_t>(facts().vocab_size), stream());
      });
      for (const int32_t token : start.history) marks_.push_back({start.slot, token});
    }
    send_list(marks_, "histories", [&](const TokenMark* marks, int32_t count) {
      return mark_seen(stream(), marks, count, facts().vocab_size, seen_.data());
    });
  }

  // The host's tables have taken the edits, in order: what they ended as goes to the GPU, so the order of writes there
  // does not matter. Entries cleared by a start stay behind on the GPU; no row reads what the host's check did not find
  // in its own table.
  void edit_tables(const StepPlan& plan) {
    edits_.clear();
    for (const TableEdit& edit : plan.table_edits) {
      const auto kind = static_cast<int32_t>(edit.kind);
      edits_.push_back(
          {inputs_.table_offset(edit.slot, kind) + edit.index, slots_[edit.slot].table[kind][edit.index], 0});
    }
    send_list(edits_, "table edits", [&](const TableWrite* writes, int32_t count) {
      return write_tables(stream(), writes, count, tables_.data());
    });
  }

  void copy_block(const BlockCopy& copy) {
    const auto kind = static_cast<int32_t>(copy.kind);
    const int64_t bytes = facts().block_bytes[kind];
    if (copy.from != copy.to)
      ask("a block copy", [&] {
        return cudaMemcpyAsync(pool_[kind] + copy.to * bytes, pool_[kind] + copy.from * bytes,
                               static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream());
      });
  }

  // Zeros behind the tokens that came down.
  void clear_rest(const BlockTransfer& transfer) const {
    for (KvSlot kv : kv_slots_) {
      if (kv.kind != transfer.kind) continue;
      kv.pool = transfer.host;
      for (int32_t head = 0; head < kv.kv_heads; ++head)
        for (int32_t token = transfer.token_count; token < kBlockTokens; ++token)
          for (int32_t channel = 0; channel < kv.head_dim; ++channel)
            kv.keys(0, head)[key_byte(token, channel)] = kv.values(0, head)[value_byte(kv.head_dim, token, channel)] =
                std::byte{0};
    }
  }

  void run_layers(const Inputs& inputs) {
    prepare_rows(inputs);
    forward(backend_, weights_, kv_slots_, inputs.batch, workspace_);
  }
  // What a step does before its layers, but for the embedding.
  void prepare_rows(const Inputs& inputs) {
    const Batch& batch = inputs.batch;
    ask("marking tokens", [&] {
      return mark_rows(stream(), inputs.tokens, batch.row_segment.data(), inputs.segment_slot, batch.row_count,
                       facts().vocab_size, last_drawn_.data(), seen_.data());
    });
    const int32_t half = weights_.config.head_dim / 2;
    for (size_t r = 0; r < angles_.size(); ++r)
      ask("angles", [&] {
        return fill_angles(stream(), device_->chip(), batch.positions.data(), batch.row_count,
                           frequencies_.data() + r * static_cast<size_t>(half), half, angles_[r].data());
      });
  }

  void compute_last_logits(const Inputs& inputs) {
    if (inputs.draw_rows == 0 || !device_->ok()) return;
    check(gather_rows(stream(), device_->chip(), x_.data(), inputs.draw_row, inputs.draw_rows, weights_.config.d_model,
                      last_x_.data()),
          "gathering rows");
    logits(backend_, weights_, last_x_.data(), inputs.draw_rows, a_.data(), logits_.data());
    classify_rows(last_x_.data(), inputs.draw_rows, 0);
  }
  // The classifier's products of rows of x: those drawn from come first, in the order of the draws, then those whose
  // logits are asked for. Where the model has a classifier, rows drawn from are always put to it: recorded steps do not
  // know who asks.
  void classify_rows(const arith::bf16* x, int32_t rows, int32_t at) {
    if (facts().label_count > 0)
      classify(backend_, weights_, x, rows, a_.data(), products_.data() + int64_t{at} * facts().label_count);
  }

  // ---- steps of one row, as one kernel ----

  Status take_row_step() {
    const ModelConfig& config = weights_.config;
    std::vector<RowLayer> layers;
    for (const LayerWeights& layer : weights_.layers) {
      const KvWeights& kv = weights_.slots[layer.config.kv_slot];
      layers.push_back({layer.q.weight, layer.o.weight, layer.up.weight, layer.down.weight, layer.q_scale.data(),
                        layer.o_scale.data(), layer.up_alpha.data(), layer.down_scale.data(), layer.q_inverse.data(),
                        kv.k_inverse.data(), kv.v_inverse.data(), layer.out_inverse.data(),
                        angles_[layer.config.rope].data(), layer.attn_in, layer.ffn_in, layer.z,
                        layer.owns_slot ? 1 : 0, kv_slots_[layer.config.kv_slot]});
    }
    row_step_ = {nullptr,
                 static_cast<int32_t>(layers.size()),
                 config.d_model,
                 config.d_ff,
                 config.vocab_size,
                 config.n_heads,
                 config.n_kv_heads,
                 config.head_dim,
                 weights_.embed.weight,
                 weights_.logit_scale.data(),
                 weights_.final_in,
                 config.norm_eps,
                 nullptr,
                 x_.data(),
                 nullptr,
                 logits_.data(),
                 nullptr,
                 nullptr,
                 nullptr,
                 nullptr,
                 nullptr,
                 nullptr,
                 0,
                 0};
    if (!row_step_serves(device_->chip(), row_step_)) return {};
    KAIJU_TRY(take(row_layers_, layers.size(), "the layers' descriptions"));
    const auto chunks = static_cast<size_t>(row_step_chunks(device_->chip(), config.n_kv_heads));
    const auto width = static_cast<size_t>(config.query_width()),
               projected = width + 2 * static_cast<size_t>(config.kv_width()),
               heads = static_cast<size_t>(config.n_heads);
    const auto d_model = static_cast<size_t>(config.d_model), d_ff = static_cast<size_t>(config.d_ff);
    KAIJU_TRY(take(row_words_, projected + d_ff / 4 + width / 4 + chunks * (width + 2 * heads) + d_model / 2,
                   "a row on its way through the layers"));
    KAIJU_TRY(take(row_counters_, 3, "a row on its way through the layers"));
    row_step_.q = row_words_.data(), row_step_.h = row_step_.q + projected, row_step_.a = row_step_.h + d_ff / 4,
    row_step_.sums = row_step_.a + width / 4, row_step_.parts = row_step_.sums + chunks * width;
    row_step_.row = reinterpret_cast<uint32_t*>(row_step_.parts + chunks * 2 * heads);
    row_step_.layers = row_layers_.data(), row_step_.counters = row_counters_.data();
    check(cudaMemcpyAsync(row_layers_.data(), layers.data(), row_layers_.bytes(), cudaMemcpyHostToDevice, stream()),
          "a copy to the GPU");
    check(cudaStreamSynchronize(stream()), "a copy to the GPU");
    return {};
  }

  // From the token of one row to its logits.
  void run_row(const Inputs& inputs) {
    prepare_rows(inputs);
    backend_.embed(weights_.embed, weights_.embed_scale.data(), inputs.batch.tokens, x_.data());
    row_step_.segment = inputs.batch.segments.data();
    ask("a step of one row", [&] { return row_step(stream(), device_->chip(), row_step_); });
    classify_rows(x_.data(), 1, 0);
  }

  // Whether the plan is one row whose logits are wanted, and which sees no more chunks than there is room for.
  bool takes_row_step(const StepPlan& plan) const {
    if (!row_step_.layers || slots_.row_count() != 1 || !(plan.segments[0].sample || plan.segments[0].all_logits))
      return false;
    const int32_t position = slots_.positions()[0],
                  chunks = row_step_chunks(device_->chip(), weights_.config.n_kv_heads);
    return std::all_of(kv_slots_.begin(), kv_slots_.end(), [&](const KvSlot& kv) {
      return position / arith::kChunkKeys - kv.first_visible(position) / arith::kChunkKeys < chunks;
    });
  }

  void return_first_logits(StepResult& answer) {
    answer.logits.resize(static_cast<size_t>(facts().vocab_size));
    ask("returning logits", [&] {
      return cudaMemcpyAsync(answer.logits.data(), logits_.data(), answer.logits.size() * sizeof(float),
                             cudaMemcpyDeviceToHost, stream());
    });
  }

  // The driver loads a kernel, and takes memory for it, when it is first launched: here, in recordings that never run,
  // of steps that between them use all.
  void load_kernels() {
    const ModelConfig& config = weights_.config;
    const int32_t width = config.query_width();
    const GemmShape shapes[] = {{width + 2 * config.kv_width(), config.d_model},
                                {width, config.d_model},
                                {config.d_model, width, true},
                                {config.d_ff, config.d_model},
                                {config.d_model, config.d_ff},
                                {config.vocab_size, config.d_model},
                                {std::max(facts().label_count, 1), config.d_model}};
    for (const int32_t rows : rows_of_all_tiles(device_->chip(), shapes, facts().step_tokens)) {
      if (!device_->ok()) return;
      inputs_.pretend(rows, 1, std::min(rows, facts().slot_count));
      const Inputs inputs = inputs_.place(0);
      Graph never_run;
      check(Graph::record(stream(), never_run,
                          [&] {
                            run_layers(inputs);
                            compute_last_logits(inputs);
                            if (rows <= logit_rows_ && device_->ok())
                              logits(backend_, weights_, x_.data(), rows, a_.data(), logits_.data());
                            classify_rows(x_.data(), rows, 0);
                            if (rows > 1) return;
                            for (const LayerWeights& layer : weights_.layers)
                              backend_.load_attention({nullptr, config.n_heads, layer.z, nullptr, nullptr},
                                                      inputs.batch, kv_slots_[layer.config.kv_slot]);
                            if (row_step_.layers) run_row(inputs);
                            check(mark_seen(stream(), reinterpret_cast<const TokenMark*>(list_memory_.data()), 1,
                                            facts().vocab_size, seen_.data()),
                                  "loading");
                            check(write_tables(stream(), reinterpret_cast<const TableWrite*>(list_memory_.data()), 1,
                                               tables_.data()),
                                  "loading");
                            check(
                                copy_blocks(stream(), reinterpret_cast<const CopiedBlock*>(list_memory_.data()), 1, 1),
                                "loading");
                            check(penalise(stream(), logits_.data(), inputs.draws, 1, facts().vocab_size, seen_.data(),
                                           adjusted_.data()),
                                  "loading");
                            check(cuda::add_biases(stream(), reinterpret_cast<const Bias*>(list_memory_.data()), 1,
                                                   facts().vocab_size, adjusted_.data()),
                                  "loading");
                            draw(inputs, adjusted_.data());
                          }),
            "loading kernels");
    }
  }

  // Batch sizes 1 ... 8, then four to each doubling.
  void record_graphs(int32_t most) {
    for (int32_t rows = 1, step = 1; rows <= most && device_->ok();
         rows = rows < most ? std::min(most, rows + step) : most + 1) {
      if (rows >= 8 * step) step *= 2;
      inputs_.pretend(rows, rows, rows);
      RecordedStep& recorded = recorded_.emplace_back();
      recorded.rows = rows;
      const Inputs inputs = inputs_.place(0);
      check(Graph::record(stream(), recorded.graph,
                          [&] {
                            run_layers(inputs);
                            if (device_->ok())
                              logits(backend_, weights_, x_.data(), rows, a_.data(),
                                     logits_.data());  // every row is drawn from, in order
                            classify_rows(x_.data(), rows, 0);
                            draw(inputs, nullptr);
                          }),
            "recording a decode step");
      if (rows > 1 || !row_step_.layers || !device_->ok()) continue;
      row_recorded_.emplace().rows = 1;
      check(Graph::record(stream(), row_recorded_->graph,
                          [&] {
                            run_row(inputs);
                            draw(inputs, nullptr);
                          }),
            "recording a step of one row");
    }
  }

  // Null unless every segment is one row that is drawn from.
  const RecordedStep* recorded_step(const StepPlan& plan) const {
    for (const Segment& segment : plan.segments)
      if (segment.token_count != 1 || !segment.sample || segment.all_logits) return nullptr;
    if (takes_row_step(plan)) return row_recorded_ ? &*row_recorded_ : nullptr;
    for (const RecordedStep& step : recorded_)
      if (step.rows >= slots_.row_count()) return &step;
    return nullptr;
  }

  void return_logits(const StepPlan& plan, StepResult& answer) {
    const int64_t vocab = facts().vocab_size, d_model = weights_.config.d_model;
    int64_t rows = 0;
    for (const Segment& segment : plan.segments) rows += segment.all_logits ? segment.token_count : 0;
    answer.logits.resize(static_cast<size_t>(rows * vocab));
    float* out = answer.logits.data();
    int32_t at = facts().slot_count;
    for (const Segment& segment : plan.segments)
      for (int32_t done = 0; segment.all_logits && done < segment.token_count; done += logit_rows_) {
        const int32_t count = std::min(logit_rows_, segment.token_count - done);
        logits(backend_, weights_, x_.data() + (segment.first_token + done) * d_model, count, a_.data(),
               logits_.data());
        ask("returning logits", [&] {
          return cudaMemcpyAsync(out, logits_.data(), static_cast<size_t>(count * vocab) * sizeof(float),
                                 cudaMemcpyDeviceToHost, stream());
        });
        out += count * vocab;
        if (!segment.scores) continue;
        classify_rows(x_.data() + (segment.first_token + done) * d_model, count, at);
        at += count;
      }
  }

  // Whether penalties or biases changed logits.
  bool adjust_logits(const Inputs& inputs) {
    if (std::none_of(inputs_.draws().begin(), inputs_.draws().end(),
                     [](const Draw& draw) { return draw.adjusted != 0; }))
      return false;
    ask("penalties", [&] {
      return penalise(stream(), logits_.data(), inputs.draws, inputs.draw_rows, facts().vocab_size, seen_.data(),
                      adjusted_.data());
    });
    add_biases();
    return true;
  }

  // Without `adjusted` the rows that penalties or biases change are left out.
  void draw(const Inputs& inputs, const float* adjusted) {
    if (inputs.draw_rows == 0) return;
    ask("sampling", [&] {
      return sample(stream(), device_->chip(), logits_.data(), adjusted, inputs.draws, inputs.draw_rows,
                    facts().vocab_size, last_drawn_.data(), reinterpret_cast<Drawn*>(host_drawn_.data()),
                    reinterpret_cast<Alternative*>(host_top_.data()));
    });
  }

  // Of the rows that fill a step up, too: what they draw stands as their slot's last token, beside what the row that
  // they repeat has drawn.
  void add_biases() {
    biases_.clear();
    int32_t row = 0;
    for (const Draw& draw : inputs_.draws()) {
      for (const auto& [token, bias] : slots_[draw.slot].sampling.logit_bias) biases_.push_back({row, token, bias});
      ++row;
    }
    send_list(biases_, "biases", [&](const Bias* biases, int32_t count) {
      return cuda::add_biases(stream(), biases, count, facts().vocab_size, adjusted_.data());
    });
  }

  void read_draws(const StepPlan& plan, int32_t turn, StepResult& answer) {
    const auto* drawn = reinterpret_cast<const Drawn*>(host_drawn_.data()) + turn * facts().slot_count;
    auto* top = reinterpret_cast<Alternative*>(host_top_.data()) + int64_t{turn} * facts().slot_count * kMostTop;
    for (const Segment& segment : plan.segments) {
      if (!segment.sample) continue;
      SampledToken& token = answer.sampled.emplace_back();
      token.slot = segment.slot;
      read_drawn(*drawn++, top, token);
      top += kMostTop;
    }
  }

  // Where somebody asks for scores.
  void return_products(const StepPlan& plan, int32_t turn) {
    int32_t rows = 0;
    for (const Segment& segment : plan.segments)
      if (segment.scores) rows = std::max(rows, facts().slot_count) + (segment.all_logits ? segment.token_count : 0);
    if (rows == 0) return;
    const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(facts().label_count) * sizeof(float);
    ask("returning scores", [&] {
      return cudaMemcpyAsync(host_products_.data() + static_cast<size_t>(turn) * products_.bytes(), products_.data(),
                             bytes, cudaMemcpyDeviceToHost, stream());
    });
  }

  void read_scores(const StepPlan& plan, int32_t turn, StepResult& answer) {
    const auto products_at = [&](int32_t row) {
      return reinterpret_cast<const float*>(host_products_.data()) + turn * static_cast<int64_t>(products_.size()) +
             int64_t{row} * facts().label_count;
    };
    int32_t drawn = 0, at = facts().slot_count;
    for (const Segment& segment : plan.segments) {
      if (segment.sample) {
        if (segment.scores)
          append_scores(weights_, products_at(drawn), 1, answer.sampled[static_cast<size_t>(drawn)].scores);
        ++drawn;
      }
      if (!segment.all_logits || !segment.scores) continue;
      append_scores(weights_, products_at(at), segment.token_count, answer.scores);
      at += segment.token_count;
    }
  }

  std::optional<CurrentDevice> leaving_;  // the first member: while all others go
  std::shared_ptr<Device> device_;
  CudaBackend backend_;
  Weights weights_;
  Slots slots_;
  std::vector<KvSlot> kv_slots_;
  int32_t logit_rows_ = 0;

  DeviceBuffer<std::byte> weight_memory_, cache_, list_memory_;
  std::byte* pool_[kBlockKinds] = {nullptr, nullptr};  // where block 0 of each kind lies
  Transfers transfers_;
  DeviceBuffer<BlockId> tables_;  // [slots, kinds, context / 64]
  DeviceBuffer<uint64_t> frequencies_;
  DeviceBuffer<arith::bf16> x_, last_x_;
  DeviceBuffer<int8_t> a_, queries_;
  DeviceBuffer<float> q_, logits_, adjusted_, products_;
  DeviceBuffer<uint8_t> h_, seen_;
  std::vector<DeviceBuffer<arith::CosSin>> angles_;
  DeviceBuffer<int32_t> last_drawn_;  // [slots]
  PinnedBuffer host_list_memory_;
  PinnedBuffer host_drawn_, host_top_, host_products_;  // of two steps
  Workspace workspace_;
  std::vector<RecordedStep> recorded_;  // by rows, ascending
  RowStep row_step_;                    // no layers: it does not serve the model
  std::optional<RecordedStep> row_recorded_;
  DeviceBuffer<RowLayer> row_layers_;
  DeviceBuffer<uint64_t> row_words_;
  DeviceBuffer<int32_t> row_counters_;

  // Steps number started_ - 1 and finished_ are the last one started and the next to be finished.
  int64_t started_ = 0, finished_ = 0;
  UnderWay under_way_[2];
  StepInputs inputs_;
  ListRoom list_;
  std::vector<TokenMark> marks_;
  std::vector<TableWrite> edits_;
  std::vector<Bias> biases_;
};

}  // namespace

bool present() { return Device::fit(0).ok(); }

Result<std::unique_ptr<Executor>> make_executor(Weights weights, const ExecutorSizes& sizes) {
  Result<std::shared_ptr<Device>> device = Device::open();
  if (!device.ok()) return device.status();
  const CurrentDevice current(device.value()->index());
#if defined(KAIJU_INEXACT)  // its attention gives other bits (kernels/attention_weight.cuh), and so its KV blocks are
                            // nobody else's
  ExecutorSizes own_sizes = sizes;
  own_sizes.kv_layout += ", inexact";
#else
  const ExecutorSizes& own_sizes = sizes;
  {
    StagedBackend checked(device.value());
    const Status same_bits = self_check(checked, golden::Shapes::kAll);
    KAIJU_TRY(checked.status());
    KAIJU_TRY(same_bits);
  }
#endif
  auto executor = std::make_unique<CudaExecutor>(device.value(), std::move(weights));
  KAIJU_TRY(executor->take_memory(own_sizes));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace kaiju::cuda
