#include "ranking/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/limits.h"
#include "compile/hand_over.h"
#include "partition/expand.h"
#include "program/scalar_values.h"
#include "ranking/evaluate.h"
#include "schedule/online_choice.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline ranking {
namespace {

std::string schedule_of(const Scenario& scenario, const ScenarioProgram& program, const Plan& plan) {
  if (!program.schedule.empty()) return program.schedule;
  const bool alike = program.workload.training.has_value() == scenario.training.has_value();
  return alike ? plan.schedule : "streaming";
}

// What the scenario's Programs have in common. graph: of the plan.
Result<CompiledSession> compile_parts(const Scenario& scenario, const Graph& graph, const Plan& plan,
                                      std::span<const SessionPart> parts, bool verify = true,
                                      bool inputs_on_first = false) {
  const CostTable costs = cost_table(scenario, graph.name);
  CompileOptions options = compile_options(scenario);
  options.inputs_on_first = inputs_on_first;
  options.verify = verify;
  const std::string name =
      fmt::format("{} [{}]", graph.name, fmt::join(stage_parts(plan, graph, scenario.cluster), ", "));
  return compile_session(name, parts, scenario.cluster, scenario.endpoints, &costs, options);
}

// The same stages of the same network for another length: nodes are called alike.
Result<Plan> plan_by_names(const Plan& plan, const Graph& from, const Graph& to) {
  std::map<std::string_view, size_t> places;
  for (size_t n = 0; n < to.nodes.size(); ++n) places.emplace(to.nodes[n].name, n);
  Plan same = plan;
  for (size_t s = 0; s < same.stages.size(); ++s) {
    Stage& stage = same.stages[s];
    stage.end = to.nodes.size();
    if (s == 0) continue;
    const auto found = places.find(from.nodes[stage.begin].name);
    if (found == places.end())
      return unsupported(fmt::format("layer '{}' begins a stage, and prefill has no layer of that name",
                                     from.nodes[stage.begin].name));
    stage.begin = same.stages[s - 1].end = found->second;
  }
  return same;
}

std::set<std::string> states_of(const DeviceProgram& device) {
  std::set<std::string> names;
  for (const Buffer& buffer : device.buffers) {
    if (buffer.kind == BufferKind::state) names.insert(buffer.name);
  }
  return names;
}

// Error: tokens would not find there what prompts leave.
Status check_states(const Session& session, bool moved) {
  const std::vector<Program>& programs = session.programs;
  for (size_t d = 0; d < programs[0].devices.size(); ++d) {
    const std::set<std::string> of_prompts = states_of(programs.front().devices[d]),
                                of_tokens = states_of(programs.back().devices[d]);
    if (moved ? !std::ranges::includes(of_prompts, of_tokens) : of_prompts != of_tokens)
      return unsupported(
          fmt::format("device {} would keep other states of prompts than of tokens", programs[0].devices[d].name));
  }
  return ok_status();
}

// Programs over the same weights, ready to be compiled.
struct PreparedPrograms {
  std::deque<PreparedModel> models;  // parts point into it
  std::vector<SessionPart> parts;
};

// The first one under the plan, the others under its stages.
Result<PreparedPrograms> prepare_programs(const Scenario& scenario, Model& model, const Plan& plan,
                                          const std::vector<ScenarioProgram>& programs) {
  std::set<std::string> trained;
  PreparedPrograms prepared;
  for (const ScenarioProgram& program : programs) {
    Scenario own = scenario;
    static_cast<Workload&>(own) = program.workload;
    Plan same = plan;
    if (!prepared.parts.empty()) {
      same.micro_batches = own.micro_batches[0];
      same.schedule = schedule_of(scenario, program, plan);
    }
    auto made = prepare_model(own, model.graph, same.micro_batches, {}, trained);
    if (!made) {
      Error error = made.error();
      error.message = fmt::format("program {}: {}", program.name, error.message);
      return error;
    }
    prepared.models.push_back(std::move(*made));
    const KernelGraph& kernels = prepared.models.back().kernels;
    if (kernels.training) {
      for (const ValueId weight : changed_weights(kernels.training->nodes))
        trained.insert(kernels.graph.value(weight).name);
      model.weights.add_all(kernels.training->nodes.constants);
    }
    prepared.parts.push_back({program.name, &kernels, std::move(same)});
  }
  return prepared;
}

Result<CompiledSession> compile_programs(const Scenario& scenario, Model& model, const Plan& plan,
                                         const std::vector<ScenarioProgram>& programs, bool inputs_on_first) {
  ASSIGN_OR_RETURN(const PreparedPrograms prepared, prepare_programs(scenario, model, plan, programs));
  ASSIGN_OR_RETURN(CompiledSession compiled,
                   compile_parts(scenario, model.graph, plan, prepared.parts, true, inputs_on_first));
  add_slices(compiled.slices, model.weights);
  for (const auto& training : compiled.trainings) model.weights.add_all(training->nodes.constants);
  return compiled;
}

// A scenario without `programs` has one.
std::vector<ScenarioProgram> programs_of(const Scenario& scenario) {
  if (!scenario.programs.empty()) return scenario.programs;
  return {{std::string(scenario.training ? train_name : "infer"), scenario, {}}};
}

Status check_ordered(const Plan& plan) {
  if (!is_online(plan.schedule)) return ok_status();
  return unsupported(
      fmt::format("schedule {} decides while a Program runs: the Programs of a session have an order", plan.schedule));
}

}  // namespace

std::string decode_name_of(int64_t sequences) { return fmt::format("{}_{}", decode_name, sequences); }

std::vector<int64_t> fewer_sequences(const Scenario& scenario) {
  std::vector<int64_t> fewer;
  if (!scenario.generation || scenario.generation->page == 0) return fewer;
  for (int64_t sequences = 1; sequences < scenario.batch; sequences *= 2) fewer.push_back(sequences);
  return fewer;
}

Status add_fewer(const Scenario& scenario, const Graph& optimized, GenerationModels& models) {
  for (const int64_t sequences : fewer_sequences(scenario)) {
    Scenario own = scenario;
    own.batch = sequences;
    ASSIGN_OR_RETURN(models.fewer[sequences], prepare_model(own, optimized, 1, {}, {}, &models.decode.kernels));
  }
  return ok_status();
}

Result<GenerationModels> prepare_generation(const Scenario& scenario, const Graph& optimized, int micro_batches,
                                            WeightStore* weights) {
  GenerationModels models;
  ASSIGN_OR_RETURN(models.decode, prepare_model(scenario, optimized, micro_batches));
  if (scenario.generation->chunk == 1) return models;
  ASSIGN_OR_RETURN(const Model prompts, load_model(scenario, scenario.generation->chunk));
  if (weights != nullptr) weights->add_all(prompts.weights);
  ASSIGN_OR_RETURN(models.prefill,
                   prepare_model(scenario, prompts.graph, micro_batches, {}, {}, &models.decode.kernels));
  return models;
}

Result<Plan> plan_of_prompts(const GenerationModels& models, const Plan& plan) {
  Plan prompts = plan;
  if (!plan.prefill.empty()) prompts.stages = std::exchange(prompts.prefill, {});
  return plan_by_names(prompts, models.decode.kernels.graph, models.prefill.value().kernels.graph);
}

Result<CompiledSession> generation_session(const Scenario& scenario, const GenerationModels& models, const Plan& plan,
                                           bool verify) {
  const Graph& graph = models.decode.kernels.graph;
  const bool moved = !plan.prefill.empty();
  Plan tokens = plan;
  tokens.prefill.clear();
  std::vector<SessionPart> parts;
  HandOver handed_over;
  if (models.prefill) {
    ASSIGN_OR_RETURN(Plan prompts, plan_of_prompts(models, plan));
    const KernelGraph* kernels = &models.prefill->kernels;
    if (moved) {
      ASSIGN_OR_RETURN(handed_over, hand_over_states({kernels, &prompts}, {&models.decode.kernels, &tokens}));
      kernels = &handed_over.graph;
      prompts = handed_over.plan;
    }
    parts.push_back({std::string(prefill_name), kernels, std::move(prompts)});
  } else if (moved) {
    return unsupported("prompts are taken token by token, and there is no prefill");
  }
  for (const auto& [sequences, model] : models.fewer) {
    ASSIGN_OR_RETURN(Plan same, plan_by_names(tokens, models.decode.kernels.graph, model.kernels.graph));
    parts.push_back({decode_name_of(sequences), &model.kernels, std::move(same)});
  }
  parts.push_back({std::string(decode_name), &models.decode.kernels, std::move(tokens)});
  ASSIGN_OR_RETURN(CompiledSession compiled, compile_parts(scenario, graph, plan, parts, verify));
  RETURN_IF_ERROR(check_states(compiled.session, moved));
  return compiled;
}

Result<CompiledSession> session_of(const Scenario& scenario, Model& model, const Plan& plan) {
  RETURN_IF_ERROR(check_ordered(plan));
  if (scenario.generation) {
    ASSIGN_OR_RETURN(GenerationModels models,
                     prepare_generation(scenario, model.graph, plan.micro_batches, &model.weights));
    RETURN_IF_ERROR(add_fewer(scenario, model.graph, models));
    ASSIGN_OR_RETURN(CompiledSession compiled, generation_session(scenario, models, plan));
    add_slices(compiled.slices, model.weights);
    return compiled;
  }
  return compile_programs(scenario, model, plan, programs_of(scenario), false);
}

Result<CompiledSession> unsplit_session(const Scenario& scenario, Model& model, const Plan& plan, const Device& like) {
  RETURN_IF_ERROR(check_ordered(plan));
  if (scenario.generation) return unsupported("a session that generates is not compared with an unsplit one");
  ASSIGN_OR_RETURN(PreparedPrograms prepared, prepare_programs(scenario, model, plan, programs_of(scenario)));
  for (SessionPart& part : prepared.parts) part.plan = unsplit_plan(*part.graph, part.plan.micro_batches);
  Device device = like;
  device.memory = bytes(unlimited_memory);
  const Cluster alone = cluster_of_one(device, scenario.cluster.hosts[like.host.index()].name);
  return compile_session(model.graph.name, prepared.parts, alone, {HostId(0), HostId(0)}, nullptr);
}

Result<CompiledSession> training_session(const Scenario& scenario, Model& model, const Plan& plan) {
  if (!scenario.training) {
    Error error = invalid_input("the workload does not train: `workload: {mode: training, …}` does");
    error.where.file = scenario.file;
    return error;
  }
  RETURN_IF_ERROR(check_ordered(plan));
  Workload evaluation;
  evaluation.batch = scenario.batch;
  evaluation.micro_batches = {plan.micro_batches};
  Scenario local = scenario;
  local.endpoints.sink = local.endpoints.source;
  return compile_programs(
      local, model, plan,
      {{std::string(train_name), scenario, {}}, {std::string(evaluate_name), std::move(evaluation), {}}}, true);
}

Result<double> time_steps(const Scenario& scenario, const Session& session, const Tier& tier) {
  constexpr int steps = 4;
  const Choice choices[] = {{0, steps, Refill::read}};
  ASSIGN_OR_RETURN(const Sequence sequence, in_sequence(session, choices, Choosing::messages));
  ASSIGN_OR_RETURN(const ScalarTable scalars, scalar_values(sequence.program, sequence.dependencies, {}));
  const CostTable costs = cost_table(scenario, session.name.substr(0, session.name.find(' ')));
  ASSIGN_OR_RETURN(const TimedGraph graph,
                   build_timed_graph(sequence.program, sequence.dependencies, scenario.cluster, costs, scalars));
  ASSIGN_OR_RETURN(const std::vector<Timing> timings, simulate_all(tier, scenario.cluster, {&graph}));
  const std::vector<double> ends =
      execution_ends(sequence, to_trace(sequence.program, sequence.dependencies, graph, timings.front()));
  return (ends[steps - 1] - ends[0]) / (steps - 1);
}

std::vector<double> execution_ends(const Sequence& sequence, const Trace& trace) {
  std::vector<double> ends;
  for (const Span& span : trace.spans) {
    const int execution = sequence.execution_of[static_cast<size_t>(span.device)][static_cast<size_t>(span.slot)];
    if (execution < 0) continue;
    if (static_cast<size_t>(execution) >= ends.size()) ends.resize(static_cast<size_t>(execution) + 1);
    double& end = ends[static_cast<size_t>(execution)];
    end = std::max(end, span.finish);
  }
  return ends;
}

}  // namespace nlsplit::inline ranking
