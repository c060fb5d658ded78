// StepGraphs: decode steps as CUDA graphs on one GPU, captured at creation, from the inputs of the rows to the sampled
// tokens. There is a graph for each of several batch sizes, and one for a step of one row as one kernel. Such a step is
// one copy of its inputs and one launch.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "graph.hpp"
#include "model_runner.hpp"
#include "step_outputs.hpp"

namespace kaiju::cuda {

class StepGraphs {
 public:
  // What recordings are of. All outlive the graphs, whose launches hold their memory's addresses.
  struct Parts {
    Device& device;
    ModelRunner& runner;
    StepInputs& inputs;
    StepOutputs& outputs;
  };

  // Records every batch size of graph_row_counts(most_rows).
  static Result<StepGraphs> make(const Parts& parts, int32_t most_rows);

  // Null where nothing of that size was recorded. `as_one_kernel`: of a step of one row.
  const Graph* find(int32_t rows, bool as_one_kernel) const;

 private:
  StepGraphs() = default;

  struct Recorded {
    int32_t rows = 0;
    Graph graph;
  };
  std::vector<Recorded> recorded_;  // by rows, ascending
  std::optional<Graph> one_row_;
};

// Launches every kernel that a step may use, in recordings that never run: the driver loads a kernel, and takes memory
// for it, when it is first launched or recorded. What fails is kept by the device.
void load_kernels(const StepGraphs::Parts& parts, const StepLists& lists, const ExecutorInfo& info);

}  // namespace kaiju::cuda
