// compile(), of which a test wants only the Program.
#pragma once

#include <utility>

#include "compile/compile.h"

namespace nlsplit {

inline Result<Program> compile_program(const KernelGraph& graph, const Plan& plan, const Cluster& cluster,
                                       const Endpoints& endpoints, const CostTable* costs,
                                       const SlotTable* table = nullptr,
                                       std::optional<CollectiveAlgorithm> all_reduce = {},
                                       std::optional<int> buckets = {}, int zero = 0) {
  CompileOptions options;
  options.table = table;
  options.all_reduce = all_reduce;
  options.buckets = buckets;
  options.zero = zero;
  ASSIGN_OR_RETURN(Compiled compiled, compile(graph, plan, cluster, endpoints, costs, options));
  return std::move(compiled.program);
}

}  // namespace nlsplit
