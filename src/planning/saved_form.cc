#include "planning/saved_form.h"

#include <algorithm>
#include <map>

#include "base/limits.h"
#include "compile/compile.h"
#include "program/trace.h"
#include "program/verify.h"
#include "ranking/generation.h"
#include "report/timeline.h"
#include "sim/online.h"

namespace nlsplit::inline planning {
namespace {

// Emulated compute takes for each computation what the simulation took.
Result<Clocks> clocks_of(const Loaded& loaded, const Program& program) {
  const Cluster& cluster = loaded.scenario.cluster;
  if (std::ranges::none_of(cluster.devices, [](const Device& device) { return device.slowdown > 0; })) return Clocks{};
  const CostTable costs = cost_table(loaded.scenario, loaded.model.graph.name);
  Clocks clocks(program.devices.size());
  for (size_t d = 0; d < clocks.size(); ++d) {
    const DeviceId id = cluster.find_device(program.devices[d].name);
    if (!id.valid() || cluster.device(id).slowdown == 0) continue;
    clocks[d].assign(program.descs.size(), 0);
    for (const Segment& segment : program.devices[d].segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute) continue;
        const auto desc = static_cast<size_t>(instr.desc);
        ASSIGN_OR_RETURN(const Cost cost, costs.cost(id, program.descs[desc], instr.label));
        clocks[d][desc] = cost.time.value();
      }
    }
  }
  return clocks;
}

// As one device alone: each stage the gradients of its weights from the first micro-batch to the last. Of a Program
// that does not train nothing is added.
bool adds_in_order(const Program& program, const Plan& plan) {
  if (!is_training(program)) return true;
  if (std::ranges::any_of(plan.stages, [](const Stage& stage) { return stage.devices.size() > 1; })) return false;
  for (const DeviceProgram& device : program.devices) {
    std::map<int, int> last;  // stage: micro-batch
    for (const Slot& slot : device.order) {
      const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
      if (segment.phase != Phase::weight_gradient) continue;
      const auto [before, first] = last.try_emplace(segment.stage, slot.micro_batch);
      if (!first && slot.micro_batch < before->second) return false;
      before->second = slot.micro_batch;
    }
  }
  return true;
}

Promise other_order() {
  return {rounding_tolerance(DType::f32), "gradients of micro-batches are added in another order"};
}

}  // namespace

Result<Program> unsplit_program(const Scenario& scenario, const Graph& optimized, int micro_batches, const Device& like,
                                const KernelPreference& prefer) {
  ASSIGN_OR_RETURN(const PreparedModel prepared, prepare_model(scenario, optimized, micro_batches, prefer));
  return on_one_device(scenario, prepared.kernels, micro_batches, like);
}

Result<Program> on_one_device(const Scenario& scenario, const KernelGraph& kernels, int micro_batches,
                              const Device& like) {
  Device device = like;
  device.memory = bytes(unlimited_memory);
  ASSIGN_OR_RETURN(Program program,
                   compile_unsplit(kernels, micro_batches, device, scenario.cluster.hosts[like.host.index()].name));
  RETURN_IF_ERROR(verify(program));
  return program;
}

Result<SavedProgram> saved_form(Loaded& loaded, const Plan& plan, TimedPlan timed) {
  add_slices(timed.slices, loaded.model.weights);
  if (timed.training) loaded.model.weights.add_all(timed.training->nodes.constants);
  SavedProgram saved;
  saved.promise = std::move(timed.promise);
  saved.has_prediction = true;
  saved.prediction.fingerprint = timed.trace.fingerprint;
  saved.prediction.makespan_s = timed.estimate.makespan_s;
  saved.prediction.latency_mean_s = timed.estimate.latency_mean_s;
  if (timed.graph.online) saved.online = online_of(timed.graph, timed.program);
  for (const DeviceTimes& times : device_times(timed.program, timed.trace))
    saved.prediction.device_compute_s.push_back(times.compute);
  saved.program = std::move(timed.program);
  ASSIGN_OR_RETURN(saved.clocks, clocks_of(loaded, saved.program));
  const Device& first = loaded.scenario.cluster.device(plan.stages[0].devices[0]);
  ASSIGN_OR_RETURN(const PreparedModel prepared,
                   prepare_model(loaded.scenario, loaded.model.graph, plan.micro_batches));
  if (prepared.kernels.training) {
    loaded.model.weights.add_all(prepared.kernels.training->nodes.constants);
    if (saved.promise == Promise{} && !adds_in_order(saved.program, plan)) saved.promise = other_order();
  }
  ASSIGN_OR_RETURN(saved.unsplit, on_one_device(loaded.scenario, prepared.kernels, plan.micro_batches, first));
  return saved;
}

Result<SavedSession> saved_session(Loaded& loaded, const Plan& plan) {
  ASSIGN_OR_RETURN(CompiledSession compiled, session_of(loaded.scenario, loaded.model, plan));
  SavedSession saved{std::move(compiled.session)};
  saved.promise = std::move(compiled.promise);
  if (loaded.scenario.generation) {
    ASSIGN_OR_RETURN(const auto times, time_generation(loaded.scenario, {{&saved.session}}, simgrid_tier()));
    saved.generation = saved_generation(loaded.scenario, times.front());
  } else {
    const Device& first = loaded.scenario.cluster.device(plan.stages[0].devices[0]);
    ASSIGN_OR_RETURN(CompiledSession unsplit, unsplit_session(loaded.scenario, loaded.model, plan, first));
    saved.unsplit = std::move(unsplit.session);
    if (saved.promise == Promise{} && !std::ranges::all_of(saved.session.programs, [&](const Program& program) {
          return adds_in_order(program, plan);
        }))
      saved.promise = other_order();
  }
  ASSIGN_OR_RETURN(const Program joined, join(saved.session));
  ASSIGN_OR_RETURN(saved.clocks, clocks_of(loaded, joined));
  return saved;
}

Result<SavedSession> saved_training_session(Loaded& loaded, const Plan& plan) {
  const Scenario& scenario = loaded.scenario;
  ASSIGN_OR_RETURN(CompiledSession compiled, training_session(scenario, loaded.model, plan));
  SavedSession saved{std::move(compiled.session)};
  SavedTraining& of = saved.training.emplace();
  of.model = scenario.model;
  of.loss = scenario.training->loss;
  const Graph& graph = loaded.model.graph;
  const Value& output = graph.value(graph.outputs[0]);
  of.probabilities = of.loss == Loss::softmax_cross_entropy && output.kind == ValueKind::node &&
                     graph.node(output.producer).op == Op::Softmax;
  ASSIGN_OR_RETURN(const PreparedModel prepared, prepare_model(scenario, graph, plan.micro_batches));
  const KernelGraph& kernels = prepared.kernels;
  for (const ValueId weight : changed_weights(kernels.training->nodes))
    of.weights.push_back(kernels.training->step.graph.value(weight).name);
  ASSIGN_OR_RETURN(of.step_s, time_steps(scenario, saved.session, simgrid_tier()));
  ASSIGN_OR_RETURN(const Program joined, join(saved.session));
  ASSIGN_OR_RETURN(saved.clocks, clocks_of(loaded, joined));
  return saved;
}

}  // namespace nlsplit::inline planning
