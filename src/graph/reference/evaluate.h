// The slow reference evaluator: what every kernel is measured against. Plain loops, sums in double, no blocking, no
// tricks. It also folds constants at import, and is the kernel of operators that have no other.
//
//   ASSIGN_OR_RETURN(std::vector<Tensor> outputs, evaluate(model.graph, model.weights, {image}));
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/operators/operator.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

struct Tensor {
  TensorType type;
  std::vector<float> values;  // of f32; empty for all other types
  std::string raw = {};       // row-major bytes of all other types; empty for f32
};

// From and to row-major bytes.
Tensor tensor_of(TensorType type, std::string raw);
std::string_view bytes_of(const Tensor& tensor);

// While it lives, evaluations by its thread use no others.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  bool before_;
};

// One op. `inputs` in the order of the op table, nullptr for an optional one left out; all of them and `outputs` are as
// the table's type rules accept and infer them, else CHECK fails. An index outside of what it points into counts as the
// nearest one inside.
std::vector<Tensor> evaluate_op(Op op, const Attrs& attrs, const std::vector<const Tensor*>& inputs, Types outputs);

// One op with its epilogue: the op's own inputs, then the steps' operands in their order. Every step's result is
// rounded to f32, as it would be unfused.
std::vector<Tensor> evaluate_op(Op op, const Attrs& attrs, std::span<const EpilogueStep> epilogue,
                                const std::vector<const Tensor*>& inputs, Types outputs);

// What states hold between two executions, by name; one that is not there holds zeros.
using States = std::map<std::string, Tensor>;

// The whole graph; `inputs` in the order of graph.inputs. states: what it begins with, and what it leaves; nullptr:
// zeros. Errors: a graph that does not verify, counts or types that do not fit, a weight that is not in the store.
Result<std::vector<Tensor>> evaluate(const Graph& graph, const WeightStore& weights, const std::vector<Tensor>& inputs,
                                     States* states = nullptr);

}  // namespace nlsplit::inline graph
