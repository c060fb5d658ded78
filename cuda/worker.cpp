// Worker: runs checked steps on one GPU. See worker.hpp.
#include "worker.hpp"

#include <algorithm>
#include <utility>

#include "changes.hpp"
#include "graph_rows.hpp"
#include "kaiju/base/detail/owner_process.hpp"
#include "kaiju/format/scales.hpp"

namespace kaiju::cuda {

Result<std::unique_ptr<Worker>> Worker::make(std::shared_ptr<Device> device, Weights weights, const StepIntake& intake,
                                             const ExecutorSizes& sizes, const Split& split,
                                             std::shared_ptr<LostFlag> lost) {
  const CurrentDevice current(device->index());
  const ExecutorInfo& info = intake.info();
  Result<ModelRunner> runner =
      ModelRunner::make(device, std::move(weights), info, intake.kv_slots(), sizes, split, std::move(lost));
  if (!runner.ok()) return runner.status();
  Result<StepInputs> inputs = StepInputs::make(info);
  if (!inputs.ok()) return inputs.status();
  Result<StepLists> lists = StepLists::make(device, info);
  if (!lists.ok()) return lists.status();
  Result<StepOutputs> outputs = StepOutputs::make(device, info);
  if (!outputs.ok()) return outputs.status();
  Result<WeightSums> sums = WeightSums::make(device, runner->weight_memory());
  if (!sums.ok()) return sums.status();
  Event ended[2];
  for (Event& event : ended)
    if (!device->check(Event::make(event), "an event after a step")) return device->status();
  return std::unique_ptr<Worker>(new Worker({std::move(device),
                                             std::move(runner).value(),
                                             std::move(inputs).value(),
                                             std::move(lists).value(),
                                             std::move(outputs).value(),
                                             std::move(sums).value(),
                                             {std::move(ended[0]), std::move(ended[1])}},
                                            info, sizes));
}

void Worker::load() {
  const CurrentDevice current(device_->index());
  load_kernels({*device_, runner_, inputs_, outputs_}, lists_, info_);
}

Status Worker::record(const ExecutorSizes& sizes) {
  const CurrentDevice current(device_->index());
  graph_rows_ = most_graph_rows(sizes);
  KAIJU_TRY(record_graphs());
  device_->creation_done();
  return {};
}

Status Worker::record_graphs() {
  Result<StepGraphs> graphs = StepGraphs::make({*device_, runner_, inputs_, outputs_}, graph_rows_);
  if (!graphs.ok()) return graphs.status();
  graphs_ = std::move(graphs).value();
  return {};
}

Worker::Worker(Parts parts, const ExecutorInfo& info, const ExecutorSizes& sizes)
    : device_(std::move(parts.device)),
      info_(info),
      runner_(std::move(parts.runner)),
      inputs_(std::move(parts.inputs)),
      lists_(std::move(parts.lists)),
      outputs_(std::move(parts.outputs)),
      host_sampling_(device_, info, sizes.draw_threads, sizes.host_threads),
      transfers_(device_, runner_.pool()),
      sums_(std::move(parts.sums)),
      ended_{std::move(parts.ended[0]), std::move(parts.ended[1])} {}

Worker::~Worker() {
  leaving_.emplace(device_->index());
  device_->check(cudaStreamSynchronize(device_->stream()), "a step");
  transfers_.wait();
}

void Worker::begin(const CheckedStep& step, int32_t turn, bool alone) {
  lists_.begin(alone);
  outputs_.start_slots(step, lists_);
  lists_.send(step.table_writes, "table edits", [&](const TableWrite* writes, int32_t count) {
    return write_tables(device_->stream(), writes, count, inputs_.tables());
  });
  transfers_.send_down(step.plan.transfers);
  for (const BlockCopy& copy : step.plan.copies)
    if (copy.from != copy.to)
      device_->attempt("a block copy", [&] { return runner_.pool().copy(copy, device_->stream()); });
  transfers_.bring_up(step.plan.transfers, step.segments);
  if (step.plan.segments.empty()) return;
  placed_ = inputs_.place(step.rows, turn);
  device_->attempt("a step's inputs", [&] { return inputs_.send(placed_, turn, device_->stream()); });
}

bool Worker::is_one_kernel(const CheckedStep& step) const {
  const Segment& first = step.plan.segments[0];
  return step.rows.row_count() == 1 && (first.sample_count > 0 || first.all_logits) &&
         runner_.one_row_step_serves(first.position);
}

void Worker::launch_graph(const CheckedStep& step) {
  device_->attempt("a decode step", [&] { return graph_of(step)->launch(device_->stream()); });
}

void Worker::sample(const CheckedStep& step) {
  if (step.adjusts) outputs_.adjust(runner_.logits(), placed_, step, lists_);
  if (step.adjusts || !is_recorded(step)) outputs_.sample(runner_.logits(), placed_, true);
}

void Worker::return_rows(const CheckedStep& step, int32_t turn) {
  if (!step.plan.hooks.empty()) host_sampling_.send_rows(step.plan, runner_.logits());
  int32_t rows = 0;
  for (const Segment& segment : step.plan.segments)
    if (segment.scores) rows = std::max(rows, info_.slot_count) + (segment.all_logits ? segment.token_count : 0);
  if (rows > 0) outputs_.return_scores(runner_.scores(), rows, turn);
}

void Worker::end(int32_t turn) {
  transfers_.start_beside();
  device_->attempt("an event after a step", [&] { return cudaEventRecord(ended_[turn].get(), device_->stream()); });
}

Status Worker::wait(int32_t turn) {
  const CurrentDevice current(device_->index());
  device_->attempt("a step", [&] { return cudaEventSynchronize(ended_[turn].get()); });
  transfers_.wait();
  if (exchange()) exchange()->look_for_lost();
  if (!device_->ok())
    cudaStreamSynchronize(device_->stream());  // launches before the failure may still write to the host's memory
  return device_->status();
}

void Worker::answer(const StepPlan& plan, const Slots& slots, int32_t turn, const FloatState& float_state,
                    StepResult& answer) {
  const CurrentDevice current(device_->index());
  outputs_.read_samples(plan, turn, answer);
  if (!plan.hooks.empty()) host_sampling_.sample(plan, slots, float_state, answer);
  outputs_.read_scores(plan, runner_.weights(), turn, answer);
  for (const BlockTransfer& transfer : plan.transfers)
    if (transfer.way == BlockTransfer::Way::kDown && transfer.token_count < kBlockTokens) runner_.clear_tail(transfer);
}

Status Worker::set_head(const std::shared_ptr<const Checkpoint>& checkpoint) {
  const CurrentDevice current(device_->index());
  KAIJU_TRY(runner_.set_classifier(Weights::classifier_from(checkpoint)));
  return final_error(guarded<Status>([&] { return sums_.renew(); }));
}

Status Worker::set_weights(Weights read) {
  const CurrentDevice current(device_->index());
  return final_error(guarded<Status>([&]() -> Status {
    bool is_rerecorded = false;
    KAIJU_TRY(runner_.set_weights(std::move(read), is_rerecorded));
    if (is_rerecorded) KAIJU_TRY(record_graphs());
    return sums_.renew();
  }));
}

Status Worker::set_scales(Weights read) {
  const CurrentDevice current(device_->index());
  if (!has_clips(runner_.weights().config.shape)) return no_clips();
  return final_error(guarded<Status>([&]() -> Status {
    KAIJU_TRY(runner_.set_kv_scales(read));
    return sums_.renew();
  }));
}

Status Worker::count_kv(BlockKind kind, BlockId block, KvCounts& counts) {
  const CurrentDevice current(device_->index());
  if (!has_clips(runner_.weights().config.shape)) return no_clips();
  const BlockAddresses& blocks = runner_.pool().blocks();
  counted_.resize(static_cast<size_t>(blocks.bytes_of(kind)));
  device_->attempt("the count of keys and values", [&] {
    const cudaError_t error = cudaMemcpyAsync(counted_.data(), blocks.of(kind, block), counted_.size(),
                                              cudaMemcpyDeviceToHost, device_->stream());
    return error == cudaSuccess ? cudaStreamSynchronize(device_->stream()) : error;
  });
  if (!device_->ok()) return device_->status();
  runner_.pool().count(kind, counted_, counts);
  return {};
}

Result<Scrubbed> Worker::scrub(size_t most_bytes) {
  const CurrentDevice current(device_->index());
  return sums_.look(most_bytes);
}

Result<HostMemory> Worker::host_memory(size_t bytes, const char* what) {
  const CurrentDevice current(device_->index());
  KAIJU_TRY(transfers_.travel_beside_steps());
  PinnedBuffer pinned;
  KAIJU_TRY(take(pinned, bytes, what));
  const std::shared_ptr<PinnedBuffer> shared(new PinnedBuffer(std::move(pinned)),
                                             [index = device_->index(), process = OwnerProcess()](PinnedBuffer* gone) {
                                               if (!process.is_this()) return;  // a child of fork() has none of CUDA
                                               const CurrentDevice leaving(index);
                                               delete gone;
                                             });
  return HostMemory(shared, shared->data());
}

}  // namespace kaiju::cuda
