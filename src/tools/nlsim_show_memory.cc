// nlsim show MODEL|SCENARIO --memory: what a network, or a plan, takes of each device's memory, and where it peaks.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "compile/compile.h"
#include "graph/passes/passes.h"
#include "program/footprint.h"
#include "report/table.h"
#include "tools/nlsim_show.h"
#include "tools/rank_options.h"

namespace nlsplit::inline tools {
namespace {

struct ShownMemory {
  Program program;
  std::string what;     // "resnet50 unsplit", or the plan
  std::string details;  // "batch 8 in 2 micro-batches"
  Bytes parameters;     // of the model: each content once, as the model has them
};

Bytes parameters_of(const Graph& graph) {
  std::set<ContentId> seen;
  Bytes sum;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::weight && !value.state && seen.insert(value.content).second)
      sum += size_of(value.type);
  }
  return sum;
}

// The whole network on one device, as `nlbench run MODEL` runs it.
Result<ShownMemory> unsplit(const ShowArguments& arguments) {
  if (!arguments.choice.plan.empty() || !arguments.choice.file.empty())
    return invalid_input("--plan and --plan-file need a scenario: a model alone runs on one device");
  Device device;
  device.name = "cpu0";
  device.memory = bytes(std::numeric_limits<int64_t>::max() / 2);
  ASSIGN_OR_RETURN(device.level, level_of(arguments));
  ASSIGN_OR_RETURN(Model model, load_model(arguments.model));
  ASSIGN_OR_RETURN(model.graph, optimize(model.graph, model.weights));
  RETURN_IF_ERROR(convert_precision(arguments.model, model));
  Graph graph = std::move(model.graph);
  ShownMemory shown;
  shown.what = fmt::format("{} unsplit, kernels of level {}", graph.name, name_of(device.level));
  shown.parameters = parameters_of(graph);
  ASSIGN_OR_RETURN(const KernelGraph kernels, choose_kernels(std::move(graph), {device.level}));
  ASSIGN_OR_RETURN(shown.program, compile_unsplit(kernels, 1, device, "localhost"));
  shown.details = fmt::format("batch {}", shown.program.batch);
  return shown;
}

Result<ShownMemory> of_plan(const ShowArguments& arguments) {
  const ModelArguments& model = arguments.model;
  if (!arguments.isa.empty() || model.batch > 0 || !model.inputs.empty() || !model.dims.empty() ||
      !model.precision.empty()) {
    return invalid_input(
        "--isa, --batch, --input-shape, --dim and --precision are for a model: a scenario says all that itself");
  }
  ASSIGN_OR_RETURN(Loaded loaded, load(model.model, 1));
  ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan_at_terminal(loaded, arguments.choice));
  ASSIGN_OR_RETURN(TimedPlan timed, time_plan(loaded.scenario, loaded.model.graph, chosen.plan));
  ShownMemory shown;
  shown.what = chosen.text;
  shown.parameters = parameters_of(loaded.model.graph);
  shown.program = std::move(timed.program);
  shown.details = fmt::format("batch {} in {}, {}", shown.program.batch,
                              counted(shown.program.micro_batches, "micro-batch"), chosen.plan.schedule);
  return shown;
}

// A table without the columns in which nobody has a byte.
std::string sparse_table(const std::vector<Table::Column>& columns, const std::vector<std::vector<std::string>>& rows) {
  const std::string nothing = to_string(bytes(0));
  std::vector<size_t> kept;
  std::vector<Table::Column> shown;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (std::ranges::all_of(rows, [&](const std::vector<std::string>& row) { return row[c] == nothing; })) continue;
    kept.push_back(c);
    shown.push_back(columns[c]);
  }
  Table table(std::move(shown));
  for (const std::vector<std::string>& row : rows) {
    std::vector<std::string> cells;
    for (const size_t c : kept) cells.push_back(row[c]);
    table.add(std::move(cells));
  }
  return table.to_string();
}

std::string memory_text(const ShownMemory& shown, const std::vector<DeviceFootprint>& devices) {
  std::vector<std::vector<std::string>> stages, totals;
  for (const DeviceFootprint& device : devices) {
    for (const StageFootprint& stage : device.stages) {
      stages.push_back({device.name, fmt::format("{}", stage.stage), to_string(stage.weights),
                        to_string(stage.activations), to_string(stage.bound), to_string(stage.workspace),
                        to_string(stage.messages), to_string(stage.stash), stage.peak});
    }
    totals.push_back({device.name, to_string(device.weights), to_string(device.states), to_string(device.activations),
                      to_string(device.workspace), to_string(device.messages), to_string(device.stash),
                      to_string(device.inputs + device.outputs), to_string(device.total())});
  }
  constexpr Align right = Align::right;
  std::string text =
      fmt::format("{}, {}; {} of weights in the model\n\n", shown.what, shown.details, to_string(shown.parameters));
  text += sparse_table({{"device"},
                        {"stage", right},
                        {"weights", right},
                        {"activations", right},
                        {"bound", right},
                        {"workspace", right},
                        {"messages", right},
                        {"stash", right},
                        {"most at"}},
                       stages);
  text += "\n" + sparse_table({{"device"},
                               {"weights", right},
                               {"states", right},
                               {"activations", right},
                               {"workspace", right},
                               {"messages", right},
                               {"stash", right},
                               {"in, out", right},
                               {"arena", right}},
                              totals);
  text +=
      "\nWeights are in the form that the kernels take, packed or transformed, which may be larger than the model's; "
      "the "
      "bound is the\nleast that any order and placement of the activations needs; the arena is what the device "
      "allocates.\n";
  return text;
}

std::string memory_json(const ShownMemory& shown, const std::vector<DeviceFootprint>& devices) {
  nlohmann::json rows = nlohmann::json::array();
  for (size_t d = 0; d < devices.size(); ++d) {
    const DeviceFootprint& device = devices[d];
    nlohmann::json stages = nlohmann::json::array();
    for (const StageFootprint& stage : device.stages) {
      stages.push_back({{"stage", stage.stage},
                        {"weights_bytes", stage.weights.value()},
                        {"activations_bytes", stage.activations.value()},
                        {"bound_bytes", stage.bound.value()},
                        {"workspace_bytes", stage.workspace.value()},
                        {"messages_bytes", stage.messages.value()},
                        {"stash_bytes", stage.stash.value()},
                        {"most_at", stage.peak}});
    }
    rows.push_back({{"name", device.name},
                    {"arena_bytes", shown.program.devices[d].arena.value()},
                    {"weights_bytes", device.weights.value()},
                    {"states_bytes", device.states.value()},
                    {"activations_bytes", device.activations.value()},
                    {"workspace_bytes", device.workspace.value()},
                    {"messages_bytes", device.messages.value()},
                    {"stash_bytes", device.stash.value()},
                    {"inputs_bytes", device.inputs.value()},
                    {"outputs_bytes", device.outputs.value()},
                    {"stages", std::move(stages)}});
  }
  const nlohmann::json file = {{"format", "nlsplit-memory"},
                               {"version", 1},
                               {"plan", shown.what},
                               {"batch", shown.program.batch},
                               {"micro_batches", shown.program.micro_batches},
                               {"model_weights_bytes", shown.parameters.value()},
                               {"devices", std::move(rows)}};
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

Status show_memory(const ShowArguments& arguments) {
  ASSIGN_OR_RETURN(const ShownMemory shown,
                   is_scenario(arguments.model.model) ? of_plan(arguments) : unsplit(arguments));
  const std::vector<DeviceFootprint> devices = footprints(shown.program);
  return print_or_save(memory_text(shown, devices), memory_json(shown, devices), arguments.json);
}

}  // namespace nlsplit::inline tools
