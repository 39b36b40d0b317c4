// A graph on the kernels that an executor would run, node by node in memory of its own: no plan, no devices.
//
//   ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, run_on_kernels(library, model.graph, model.weights, inputs));
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "graph/reference/evaluate.h"
#include "kernels/catalogue.h"
#include "kernels/module/kernel_library.h"

namespace nlsplit::testing {

// Bytes at an address that every kernel accepts.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size) : memory_(size + alignment) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = (alignment - address % alignment) % alignment;
  }
  char* data() { return memory_.data() + begin_; }

 private:
  static constexpr size_t alignment = 64;
  std::vector<char> memory_;
  size_t begin_ = 0;
};

inline Result<std::vector<Tensor>> run_node(const KernelLibrary& library, ComputeDesc desc,
                                            const std::vector<const Tensor*>& inputs) {
  ASSIGN_OR_RETURN(desc.kernel, choose_kernel(desc, library.isa()));
  RETURN_IF_ERROR(verify(desc));
  ASSIGN_OR_RETURN(const KernelCode* entry, library.find(desc.kernel));
  std::vector<AlignedBytes> memory;
  memory.reserve(inputs.size() + desc.outputs.size());
  std::vector<const void*> in;
  std::vector<void*> out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string_view raw = bytes_of(*inputs[i]);
    const Bytes packed = packed_bytes_of(desc, i);
    AlignedBytes& here = memory.emplace_back(packed.value() > 0 ? static_cast<size_t>(packed.value()) : raw.size());
    if (packed.value() > 0)
      entry->pack(desc, i, raw.data(), here.data());
    else if (!raw.empty())
      std::memcpy(here.data(), raw.data(), raw.size());
    in.push_back(here.data());
  }
  for (const TensorType& type : desc.outputs)
    out.push_back(memory.emplace_back(static_cast<size_t>(size_of(type).value())).data());
  AlignedBytes workspace(static_cast<size_t>(workspace_of(desc, 1).value()));
  entry->run({&desc, in.data(), out.data(), workspace.data()});
  std::vector<Tensor> results;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto size = static_cast<size_t>(size_of(desc.outputs[i]).value());
    results.push_back(tensor_of(desc.outputs[i], std::string(static_cast<const char*>(out[i]), size)));
  }
  return results;
}

// `inputs` in the order of graph.inputs.
inline Result<std::vector<Tensor>> run_on_kernels(const KernelLibrary& library, const Graph& graph,
                                                  const WeightStore& weights, const std::vector<Tensor>& inputs) {
  std::vector<std::optional<Tensor>> made(graph.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) made[graph.inputs[i].index()] = inputs[i];
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind != ValueKind::weight) continue;
    ASSIGN_OR_RETURN(std::string raw, weights.materialise(graph.values[v].content));
    made[v] = tensor_of(graph.values[v].type, std::move(raw));
  }
  for (const Node& node : graph.nodes) {
    std::vector<const Tensor*> in;
    for (const ValueId read : reads_of(node)) in.push_back(&*made[read.index()]);
    if (is_view(node.op)) {
      const TensorType& type = graph.value(node.outputs[0]).type;
      made[node.outputs[0].index()] = tensor_of(type, std::string(bytes_of(*in[0])));
      continue;
    }
    ASSIGN_OR_RETURN(std::vector<Tensor> results, run_node(library, describe(graph, node), in));
    for (size_t i = 0; i < results.size(); ++i) made[node.outputs[i].index()] = std::move(results[i]);
  }
  std::vector<Tensor> outputs;
  for (const ValueId output : graph.outputs) outputs.push_back(*made[output.index()]);
  return outputs;
}

}  // namespace nlsplit::testing
