// StepGraphs: captures and starts the graphs of decode steps. See step_graphs.hpp.
#include "step_graphs.hpp"

#include <algorithm>
#include <iterator>

#include "graph_rows.hpp"
#include "kernels/blocks.hpp"
#include "launch/gate_tiles.hpp"
#include "launch/packed_matmuls.hpp"

namespace kaiju::cuda {

Result<StepGraphs> StepGraphs::make(const Parts& parts, int32_t most_rows) {
  Device& device = parts.device;
  ModelRunner& runner = parts.runner;
  StepOutputs& outputs = parts.outputs;
  StepGraphs made;
  for (const int32_t rows : graph_row_counts(most_rows)) {
    if (!device.ok()) break;
    const StepInputs::Placed placed = parts.inputs.place(StepRows::blank(rows, rows, rows), 0);
    Recorded& recorded = made.recorded_.emplace_back();
    recorded.rows = rows;
    device.check(Graph::record(device.stream(), recorded.graph,
                               [&] {
                                 outputs.mark_rows(placed);
                                 runner.run_layers(placed);
                                 runner.run_logits(0, rows);  // every row is sampled from, in order
                                 runner.run_scores(0, rows, 0);
                                 outputs.sample(runner.logits(), placed, false);
                               }),
                 "capturing a decode step");
    if (rows > 1 || !runner.has_one_row_step() || !device.ok()) continue;
    device.check(Graph::record(device.stream(), made.one_row_.emplace(),
                               [&] {
                                 outputs.mark_rows(placed);
                                 runner.run_one_row(placed);
                                 outputs.sample(runner.logits(), placed, false);
                               }),
                 "capturing a step of one row");
  }
  device.check(cudaStreamSynchronize(device.stream()), "recording steps");  // graphs have been uploaded
  if (!device.ok()) return device.status();
  return made;
}

const Graph* StepGraphs::find(int32_t rows, bool as_one_kernel) const {
  if (as_one_kernel) return one_row_ ? &*one_row_ : nullptr;
  const auto found = std::lower_bound(recorded_.begin(), recorded_.end(), rows,
                                      [](const Recorded& recorded, int32_t count) { return recorded.rows < count; });
  return found != recorded_.end() && found->rows == rows ? &found->graph : nullptr;
}

void load_kernels(const StepGraphs::Parts& parts, const StepLists& lists, const ExecutorInfo& info) {
  Device& device = parts.device;
  ModelRunner& runner = parts.runner;
  StepOutputs& outputs = parts.outputs;
  const ModelConfig& config = runner.weights().config;
  const std::vector<int32_t> plain = rows_of_all_tiles(
                                 device.chip(), matmul_shapes(config, runner.weights().output.out), info.step_tokens),
                             gated = rows_of_gate_tiles(device.chip(), gate_shapes(config), info.step_tokens);
  std::vector<int32_t> counts;
  std::set_union(plain.begin(), plain.end(), gated.begin(), gated.end(), std::back_inserter(counts));
  for (const int32_t rows : counts) {
    if (!device.ok()) return;
    const StepInputs::Placed placed = parts.inputs.place(StepRows::blank(rows, 1, std::min(rows, info.slot_count)), 0);
    Graph never_run;
    device.check(
        Graph::record(device.stream(), never_run,
                      [&] {
                        outputs.mark_rows(placed);
                        runner.run_layers(placed);
                        runner.run_sampled_logits(placed);
                        if (rows <= runner.logit_rows()) runner.run_logits(0, rows);
                        runner.run_scores(0, rows, 0);
                        if (rows > 1) return;
                        runner.load_attention(placed.batch);
                        if (runner.has_one_row_step()) runner.run_one_row(placed);
                        device.attempt("loading", [&] {
                          return write_tables(device.stream(), lists.any<TableWrite>(), 1, parts.inputs.tables());
                        });
                        device.attempt("loading",
                                       [&] { return copy_blocks(device.stream(), lists.any<CopiedBlock>(), 1, 1); });
                        outputs.load_kernels(runner.logits(), placed, lists);
                      }),
        "loading kernels");
  }
}

}  // namespace kaiju::cuda
