// What no other kernel computes: the reference evaluator's loops. The same code on every level, so the same bits.
#include <cstring>

#include "graph/reference/evaluate.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

void run_reference(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    const auto size = static_cast<size_t>(size_of(desc.inputs[i]).value());
    tensors.push_back(tensor_of(desc.inputs[i], std::string(static_cast<const char*>(call.inputs[i]), size)));
  }
  std::vector<const Tensor*> inputs;
  for (const Tensor& tensor : tensors) inputs.push_back(&tensor);
  std::vector<EpilogueStep> steps;
  for (const DescStep& step : desc.epilogue) steps.push_back({step.op, ValueId(), step.attrs, {}});
  const OneThread alone;  // the device's others are not ours to start
  const std::vector<Tensor> results = evaluate_op(desc.op, desc.attrs, steps, inputs, desc.outputs);
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string_view made = bytes_of(results[i]);
    if (!made.empty()) std::memcpy(call.outputs[i], made.data(), made.size());
  }
}

}  // namespace

const KernelCode code::reference = {run_reference};

}  // namespace nlsplit::inline kernels
