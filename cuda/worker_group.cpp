// WorkerGroup: launches a step on all GPUs of a model. See worker_group.hpp.
#include "worker_group.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "changes.hpp"

namespace kaiju::cuda {

Result<std::unique_ptr<WorkerGroup>> WorkerGroup::make(std::span<const std::shared_ptr<Device>> devices,
                                                       Weights weights, const StepIntake& intake,
                                                       const ExecutorSizes& sizes) {
  const auto count = static_cast<int32_t>(devices.size());
  KAIJU_TRY(check_split(weights.config, count));
  std::shared_ptr<LostFlag> lost;
  if (count > 1) {
    Result<std::shared_ptr<LostFlag>> made = LostFlag::make();
    if (!made.ok()) return made.status();
    lost = std::move(made).value();
  }
  std::unique_ptr<WorkerGroup> group(new WorkerGroup);
  if (count > 1) {
    std::vector<int32_t> gpus;
    for (const std::shared_ptr<Device>& device : devices) gpus.push_back(device->index());
    group->turns_.emplace(TurnBoard::of_process(), gpus);
  }
  for (int32_t rank = 0; rank < count; ++rank) {
    const std::shared_ptr<Device>& device = devices[static_cast<size_t>(rank)];
    Weights own;
    if (rank + 1 < count) {
      Result<Weights> read = Weights::from(weights.checkpoint);
      if (!read.ok()) return read.status();
      own = std::move(read).value();
    } else {
      own = std::move(weights);
    }
    Result<std::unique_ptr<Worker>> worker =
        Worker::make(device, std::move(own), intake, sizes, Split{count, rank}, lost);
    if (!worker.ok()) return worker.status();
    group->members_.push_back({device->index(), std::move(worker).value()});
  }
  if (count > 1) KAIJU_TRY(group->connect());
  for (const Member& member : group->members_) {
    // CUDA may wait for the whole GPU when it loads a kernel: not for one that waits for what is not launched yet.
    const QuietGpu quiet(member.index);
    member.worker->load();
  }
  for (const Member& member : group->members_) KAIJU_TRY(member.worker->record(sizes));
  return group;
}

// In a turn: no other group waits for this one's marks any more when they are destroyed.
WorkerGroup::~WorkerGroup() {
  if (!turns_) return;
  Turns::Turn last = turns_->begin();
  members_.clear();
  last.end({});
}

Turns::Turn WorkerGroup::begin_turn() {
  if (!turns_) return {};
  Turns::Turn turn = turns_->begin();
  if (!turn.before().empty())
    each([&](Worker& worker) {
      for (const Mark mark : turn.before()) worker.exchange()->wait_for(mark);
    });
  return turn;
}

void WorkerGroup::end_turn(Turns::Turn& turn) {
  if (!turns_) return;
  std::array<Mark, kMostGpus> marks{};
  size_t rank = 0;
  each([&](Worker& worker) { marks[rank++] = worker.exchange()->mark(); });
  turn.end(std::span(marks).first(rank));
}

Status WorkerGroup::connect() {
  std::vector<Exchange*> exchanges;
  std::vector<Exchange::Rooms> rooms;
  for (const Member& member : members_) {
    exchanges.push_back(member.worker->exchange());
    rooms.push_back(member.worker->exchanged_rooms());
  }
  return Exchange::connect(exchanges, rooms);
}

Status WorkerGroup::status() const {
  for (const Member& member : members_) KAIJU_TRY(member.worker->status());
  return {};
}

void WorkerGroup::start(const CheckedStep& step, int32_t turn, bool alone, StepResult& answer) {
  each([&](Worker& worker) { worker.begin(step, turn, alone); });
  if (!step.plan.segments.empty()) run_rows(step, turn, answer);
  each([&](Worker& worker) { worker.end(turn); });
  release_if_failed();
}

void WorkerGroup::run_rows(const CheckedStep& step, int32_t turn, StepResult& answer) {
  Turns::Turn among_groups = begin_turn();
  if (first().is_recorded(step)) {
    each([&](Worker& worker) { worker.launch_graph(step); });
  } else {
    const bool as_one_kernel = first().is_one_kernel(step);
    each([&](Worker& worker) {
      worker.mark_rows();
      if (as_one_kernel)
        worker.run_one_row();
      else
        worker.run_embedding();
    });
    const int32_t layers = as_one_kernel ? 0 : first().layer_count();
    for (int32_t layer = 0; layer < layers; ++layer) each([&](Worker& worker) { worker.run_layer(layer); });
    return_logits(step, as_one_kernel, among_groups, answer);
    if (!as_one_kernel) each([](Worker& worker) { worker.run_sampled_logits(); });
  }
  each([&](Worker& worker) { worker.sample(step); });
  end_turn(among_groups);
  const CurrentDevice current(members_.front().index);
  first().return_rows(step, turn);
}

// Computes the logits of segments that ask for those of all rows, and copies them to the answer. `are_there`: the
// logits of the only row have been computed.
void WorkerGroup::return_logits(const CheckedStep& step, bool are_there, Turns::Turn& turn, StepResult& answer) {
  const std::vector<Segment>& segments = step.plan.segments;
  const CurrentDevice current(members_.front().index);  // each() comes back to it
  const ExecutorInfo& info = first().info();
  int64_t rows = 0;
  for (const Segment& segment : segments) rows += segment.all_logits ? segment.token_count : 0;
  answer.logits.resize(static_cast<size_t>(rows * info.vocab_size));
  float* out = answer.logits.data();
  int32_t score_at = info.slot_count;
  for (const Segment& segment : segments)
    for (int32_t done = 0; segment.all_logits && done < segment.token_count; done += first().logit_rows()) {
      const int32_t from = segment.first_token + done,
                    count = std::min(first().logit_rows(), segment.token_count - done);
      if (!are_there) each([&](Worker& worker) { worker.run_logits(from, count); });
      release_if_failed();
      end_turn(turn);                     // others launch while the host waits
      first().return_logits(count, out);  // waits for the GPU, and so for all: theirs have been launched
      turn = begin_turn();
      out += int64_t{count} * info.vocab_size;
      if (!segment.scores) continue;
      first().run_scores(from, count, score_at);
      score_at += count;
    }
}

Status WorkerGroup::finish(const StepPlan& plan, const Slots& slots, int32_t turn, const FloatState& float_state,
                           StepResult& answer) {
  release_if_failed();
  Status failed;
  for (const Member& member : members_) {
    const Status waited = member.worker->wait(turn);
    if (failed.ok()) failed = waited;
    if (!waited.ok()) release_if_failed();
  }
  KAIJU_TRY(failed);
  first().answer(plan, slots, turn, float_state, answer);
  return {};
}

// So that no GPU waits for one that has failed.
void WorkerGroup::release_if_failed() {
  if (members_.size() > 1 && !status().ok()) first().exchange()->leave();
}

// Each GPU reads what it needs of the file when the change begins.
Status WorkerGroup::set_head(const std::shared_ptr<const Checkpoint>& checkpoint) {
  return change_each(members_.size(), [&](size_t rank) { return members_[rank].worker->set_head(checkpoint); });
}

Status WorkerGroup::set_scales(const std::shared_ptr<const Checkpoint>& checkpoint) {
  return change_by(checkpoint, [](Worker& worker, Weights read) { return worker.set_scales(std::move(read)); });
}

Status WorkerGroup::set_weights(const std::shared_ptr<const Checkpoint>& checkpoint) {
  return change_by(checkpoint, [](Worker& worker, Weights read) { return worker.set_weights(std::move(read)); });
}

// Reads the checkpoint for each GPU, before the first is changed.
template <class Change>
Status WorkerGroup::change_by(const std::shared_ptr<const Checkpoint>& checkpoint, Change&& change) {
  std::vector<Weights> all;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    Result<Weights> read = Weights::from(checkpoint);
    if (!read.ok()) return read.status();
    all.push_back(std::move(*read));
  }
  return change_each(members_.size(),
                     [&](size_t rank) { return change(*members_[rank].worker, std::move(all[rank])); });
}

Status WorkerGroup::count_kv(BlockKind kind, BlockId block, KvCounts& counts) {
  for (const Member& member : members_) KAIJU_TRY(member.worker->count_kv(kind, block, counts));
  return {};
}

// The weights of one GPU after those of the other.
Result<Scrubbed> WorkerGroup::scrub(size_t most_bytes) {
  Result<Scrubbed> looked = members_[scrubbed_].worker->scrub(most_bytes);
  if (!looked.ok() || !looked->whole) return looked;
  scrubbed_ = (scrubbed_ + 1) % members_.size();
  looked->whole = scrubbed_ == 0;
  return looked;
}

// Pinned memory is within reach of every GPU; each has streams of its own for it.
Result<HostMemory> WorkerGroup::host_memory(size_t bytes, const char* what) {
  for (size_t rank = 1; rank < members_.size(); ++rank) KAIJU_TRY(members_[rank].worker->travel_beside_steps());
  return first().host_memory(bytes, what);
}

}  // namespace kaiju::cuda
