#include "ranking/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>
#include <set>

#include "partition/expand.h"
#include "schedule/online_choice.h"

namespace nlsplit::inline ranking {
namespace {

std::string schedule_of(const Scenario& scenario, const ScenarioProgram& program, const Plan& plan) {
  if (!program.schedule.empty()) return program.schedule;
  const bool alike = program.workload.training.has_value() == scenario.training.has_value();
  return alike ? plan.schedule : "streaming";
}

}  // namespace

Result<CompiledSession> session_of(const Scenario& scenario, Model& model, const Plan& plan) {
  if (is_online(plan.schedule))
    return unsupported(fmt::format("schedule {} decides while a Program runs: the Programs of a session have an order",
                                   plan.schedule));
  std::vector<ScenarioProgram> programs = scenario.programs;
  if (programs.empty()) programs.push_back({scenario.training ? "train" : "infer", scenario, {}});
  std::set<std::string> trained;
  std::deque<PreparedModel> prepared;  // parts point into it
  std::vector<SessionPart> parts;
  for (const ScenarioProgram& program : programs) {
    Scenario own = scenario;
    static_cast<Workload&>(own) = program.workload;
    Plan same = plan;
    if (!parts.empty()) {
      same.micro_batches = own.micro_batches[0];
      same.schedule = schedule_of(scenario, program, plan);
    }
    auto made = prepare_model(own, model.graph, same.micro_batches, {}, trained);
    if (!made) {
      Error error = made.error();
      error.message = fmt::format("program {}: {}", program.name, error.message);
      return error;
    }
    prepared.push_back(std::move(*made));
    const KernelGraph& kernels = prepared.back().kernels;
    if (kernels.training) {
      for (const ValueId weight : kernels.training->nodes.trained) trained.insert(kernels.graph.value(weight).name);
      model.weights.add_all(kernels.training->nodes.constants);
    }
    parts.push_back({program.name, &kernels, std::move(same)});
  }
  const CostTable costs = cost_table(scenario, model.graph.name);
  CompileOptions options;
  options.all_reduce = scenario.all_reduce;
  options.exact = scenario.exact;
  const std::string name =
      fmt::format("{} [{}]", model.graph.name, fmt::join(stage_parts(plan, model.graph, scenario.cluster), ", "));
  ASSIGN_OR_RETURN(CompiledSession compiled,
                   compile_session(name, parts, scenario.cluster, scenario.endpoints, &costs, options));
  add_slices(compiled.slices, model.weights);
  return compiled;
}

}  // namespace nlsplit::inline ranking
