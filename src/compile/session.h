// compile_session(): several Programs of one network over the same weights and states: a training step and the
// evaluation of what it has trained; inference of one sample and of eight. They are cut by one plan; or each by its
// own, where the graphs have the states where they are needed (compile/hand_over.h).
//
//   const SessionPart parts[] = {{"train", &step, plan}, {"evaluate", &network, same_stages}};
//   ASSIGN_OR_RETURN(CompiledSession compiled, compile_session("resnet50", parts, cluster, endpoints, &costs));
//
// Each is compiled by itself; then what they share gets one name and one place. Weights are shared that have the same
// content in the same form (packed for the same kernel), states by their names. A weight that one of them trains must
// be a state of all: choose_kernels' `states`.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "program/session.h"

namespace nlsplit::inline compiler {

struct SessionPart {
  std::string name;  // of its Program
  const KernelGraph* graph = nullptr;
  Plan plan;
};

struct CompiledSession {
  Session session;
  std::vector<WeightSlice> slices;                         // Compiled's, of all
  std::vector<std::shared_ptr<const Training>> trainings;  // likewise
  std::vector<PlanNote> notes;
  Promise promise = {};  // Compiled's, of the Program that promises least
};

// Where the Programs go on with states of their graphs, device 0, which chooses what is next, is the one that has the
// inputs and is given the outputs. options.table is of one plan and not taken. Errors: compile()'s, naming the Program;
// verify_session's, with options.verify; inputs and outputs of Programs with states on two devices.
Result<CompiledSession> compile_session(const std::string& name, std::span<const SessionPart> parts,
                                        const Cluster& cluster, const Endpoints& endpoints, const CostTable* costs,
                                        const CompileOptions& options = {});

}  // namespace nlsplit::inline compiler
