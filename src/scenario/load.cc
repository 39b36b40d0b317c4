// From a scenario to the values the other modules work on.
#include "graph/passes/passes.h"
#include "graph/passes/precision.h"
#include "scenario/fields.h"
#include "scenario/read_model.h"
#include "scenario/scenario.h"

namespace nlsplit::inline scenario {

namespace {

Result<Model> build_optimized(const Scenario& scenario, int64_t tokens) {
  std::string name = scenario.model;
  if (const auto& generation = scenario.generation) {
    std::vector<std::pair<std::string_view, int64_t>> sizes = {
        {"length", tokens}, {"context", generation->context}, {"candidates", generation->candidates}};
    if (generation->page > 0) {
      sizes.emplace_back("page", generation->page);
      sizes.emplace_back("pages", pages_of(*generation, scenario.batch));
    }
    ASSIGN_OR_RETURN(name, with_sizes(name, sizes));
  }
  ASSIGN_OR_RETURN(Model model, read_model(name, {scenario.input_shapes, scenario.dims}, scenario.weights_seed));
  const Purpose purpose = scenario.training ? Purpose::training : Purpose::inference;
  ASSIGN_OR_RETURN(model.graph, optimize(model.graph, model.weights, purpose));
  if (scenario.precision) {
    ASSIGN_OR_RETURN(model.graph, with_precision(model.graph, model.weights, *scenario.precision, purpose));
  }
  return model;
}

}  // namespace

Scenario bare_scenario(std::string model, int64_t batch, Bytes memory, Isa isa) {
  Scenario scenario;
  scenario.file = model;
  scenario.model = std::move(model);
  scenario.batch = batch;
  scenario.micro_batches = {1};
  const HostId host(0);
  scenario.cluster.hosts = {{"localhost", false}};
  scenario.cluster.devices = {{.name = "cpu0", .host = host, .memory = memory, .level = isa}};
  scenario.costs = {no_costs()};
  scenario.endpoints = {host, host};
  scenario.schedules = {"streaming"};
  return scenario;
}

Result<Model> load_model(const Scenario& scenario, int64_t tokens) {
  auto model = build_optimized(scenario, tokens);
  if (!model.ok()) return moved_to(model.error(), scenario.model_where, scenario.model_line);
  return model;
}

void name_constants(const Model& model, Scenario& scenario) {
  const auto name = [&](Workload& workload) {
    if (!workload.training) return;
    for (const ContentId content : model.weights.formulas()) workload.training->constants.insert(content);
  };
  name(scenario);
  for (ScenarioProgram& program : scenario.programs) name(program.workload);
}

CostTable cost_table(const Scenario& scenario, const std::string& graph_name) {
  CostNames names{scenario.file, graph_name, {}};
  for (const Device& device : scenario.cluster.devices) {
    names.devices.push_back(device.name);
    names.cores.push_back(device.cores);
  }
  return CostTable(scenario.costs, std::move(names));
}

Error at_plan(const UserPlan& plan, Error error) { return moved_to(std::move(error), plan.where, plan.line); }

Error at_counts(const Workload& workload, Error error) {
  return moved_to(std::move(error), workload.counts_where, workload.counts_line);
}

}  // namespace nlsplit::inline scenario
