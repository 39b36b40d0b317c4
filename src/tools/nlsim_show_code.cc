// nlsim show MODEL --code NODE: the code that is generated for a computation, from its loops to assembly, or to CUDA C.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/text_reader.h"
#include "compile/kernel_graph.h"
#include "graph/passes/passes.h"
#include "kernels/find_module.h"
#include "kernels/generated/compiled.h"
#include "kernels/generated/cuda_source.h"
#include "kernels/generated/lower.h"
#include "tools/nlsim_show.h"

namespace nlsplit::inline tools {
namespace {

struct Found {
  size_t node = 0;
  std::string label;
  ComputeDesc desc;
};

// Computations by what Programs call them ("add1, relu1") or by the node that they are made of.
Result<Found> find_computation(const KernelGraph& graph, Level level, const std::string& name) {
  const std::vector<ComputeDesc>& descs = graph.chosen.at(level).descs;
  std::vector<std::string> names, generated;
  for (size_t n = 0; n < graph.graph.nodes.size(); ++n) {
    if (!graph.computed[n]) continue;
    if (graph.graph.nodes[n].name == name || graph.labels[n] == name) return Found{n, graph.labels[n], descs[n]};
    names.push_back(graph.graph.nodes[n].name);
    if (is_generated(descs[n].kernel.name)) generated.push_back(graph.graph.nodes[n].name);
  }
  const std::string near = nearest(name, names);
  constexpr size_t most = 8;
  const bool all = generated.size() <= most;
  if (!all) generated.resize(most);
  return invalid_input(fmt::format(
      "no computation of {} is called '{}'{}; {}", graph.graph.name, name,
      near.empty() ? "" : fmt::format(", did you mean '{}'?", near),
      generated.empty() ? std::string("none of its kernels is generated")
                        : fmt::format("generated kernels: {}{}", fmt::join(generated, ", "), all ? "" : ", …")));
}

}  // namespace

Status show_code(const ShowArguments& arguments) {
  ASSIGN_OR_RETURN(const Level level, level_of(arguments));
  ASSIGN_OR_RETURN(Model model, load_model(arguments.model));
  ASSIGN_OR_RETURN(model.graph, optimize(model.graph, model.weights));
  RETURN_IF_ERROR(convert_precision(arguments.model, model));
  ASSIGN_OR_RETURN(const KernelGraph graph, choose_kernels(std::move(model.graph), {level}));
  ASSIGN_OR_RETURN(const Found found, find_computation(graph, level, arguments.code));
  if (!is_generated(found.desc.kernel.name)) {
    return invalid_input(
        fmt::format("{} computes '{}': code that nlsplit was built with. --code is for generated "
                    "kernels (docs/generated.md)",
                    to_string(found.desc.kernel), found.label));
  }
  const Loops loops = lower(found.desc);
  const std::string head = fmt::format("# {}\n{}\n\n# loops\n{}\n", found.label, signature(found.desc), to_text(loops));
  if (is_gpu(level.isa)) {
    fmt::print("{}# CUDA C\n{}", head, loops.output.count == 0 ? "" : cuda_source(loops).text);
    return ok_status();
  }
  ASSIGN_OR_RETURN(const std::string path, find_module(codegen_file));
  ASSIGN_OR_RETURN(const CodegenModule* const codegen, load_codegen(path));
  ASSIGN_OR_RETURN(const LoopListing listing, codegen->list(loops, level.isa));
  fmt::print("{}# LLVM IR\n{}\n# assembly\n{}", head, listing.llvm, listing.assembly);
  return ok_status();
}

}  // namespace nlsplit::inline tools
