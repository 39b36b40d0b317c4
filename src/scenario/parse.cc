// The scenario as a whole: model, workload, search, plans. parse_cluster.cc has the machines.
#include "scenario/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.h"
#include "base/text_reader.h"
#include "graph/passes/precision.h"
#include "graph/safetensors/import.h"
#include "partition/search_methods.h"
#include "scenario/read_model.h"
#include "scenario/scenario.h"
#include "schedule/schedules.h"

namespace nlsplit::inline scenario {

namespace {

// Beyond these no plan could be built in memory: a typing error is then better told than computed.
constexpr int64_t max_keep = 100'000;
constexpr int64_t max_candidates = 1'000'000;
constexpr int64_t max_extent = int64_t{1} << 31;
constexpr int64_t max_elements = int64_t{1} << 40;
constexpr size_t max_axes = 8;
constexpr double max_weight = 1e6;

Result<Shape> parse_shape(const Source& source, const Yaml& node) {
  RETURN_IF_ERROR(expect_list(source, node, "the shape of an input"));
  if (node.items.size() > max_axes) return source.at(node, fmt::format("a shape has at most {} axes", max_axes));
  Shape shape;
  int64_t elements = 1;
  for (const Yaml& item : node.items) {
    ASSIGN_OR_RETURN(const int64_t extent, read_integer(source, item, "an extent", 1, max_extent));
    if (elements > max_elements / extent) {
      return source.at(node, fmt::format("this shape has more than {} elements", max_elements));
    }
    elements *= extent;
    shape.push_back(extent);
  }
  return shape;
}

Status parse_model_map(const Source& source, const Yaml& node, Scenario& scenario) {
  ASSIGN_OR_RETURN(
      const Fields model,
      Fields::open(source, node, "model", {"path", "zoo", "safetensors", "inputs", "dims", "seed", "precision"}));
  const Yaml* path = model.find("path");
  const Yaml* zoo = model.find("zoo");
  const Yaml* folder = model.find("safetensors");
  if ((path != nullptr) + (zoo != nullptr) + (folder != nullptr) != 1)
    return source.at(node, "model needs one of 'path', 'zoo' and 'safetensors'");
  if (folder != nullptr) {
    ASSIGN_OR_RETURN(const std::string text, read_text(source, *folder, "a folder with safetensors files"));
    scenario.model = beside(scenario.file, text);
    if (!is_safetensors(scenario.model))
      return source.at(*folder, fmt::format("{} is not a folder with a config.json", scenario.model));
  } else if (path != nullptr) {
    ASSIGN_OR_RETURN(const std::string text, read_text(source, *path, "the path of an ONNX or a GGUF file"));
    scenario.model = beside(scenario.file, text);
  } else {
    ASSIGN_OR_RETURN(const std::string text, read_text(source, *zoo, "the name of a zoo model"));
    scenario.model = fmt::format("zoo:{}", text);
  }
  scenario.model_where = source.location(path != nullptr ? *path : zoo != nullptr ? *zoo : *folder);
  if (const Yaml* inputs = model.find("inputs")) {
    if (!leaves_extents(scenario.model))
      return source.at(*inputs, "'inputs' gives shapes to an ONNX file; other models have theirs");
    if (!inputs->is_map()) return source.at(*inputs, "'inputs' must be a map, e.g. {x: [1, 3, 224, 224]}");
    for (size_t i = 0; i < inputs->keys.size(); ++i) {
      ASSIGN_OR_RETURN(scenario.input_shapes[inputs->keys[i].text], parse_shape(source, inputs->items[i]));
    }
  }
  if (const Yaml* dims = model.find("dims")) {
    if (!leaves_extents(scenario.model))
      return source.at(*dims, "'dims' binds extents of an ONNX file; other models have theirs");
    if (!dims->is_map()) return source.at(*dims, "'dims' must be a map, e.g. {batch: 8, width: 192}");
    for (size_t i = 0; i < dims->keys.size(); ++i) {
      ASSIGN_OR_RETURN(scenario.dims[dims->keys[i].text],
                       read_integer(source, dims->items[i], "an extent", 1, max_extent));
    }
  }
  if (const Yaml* seed = model.find("seed")) {
    if (zoo == nullptr) return source.at(*seed, "'seed' makes the weights of zoo models; a file has its own");
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *seed, "seed", 0, INT64_MAX));
    scenario.weights_seed = static_cast<uint64_t>(value);
  }
  if (const Yaml* precision = model.find("precision")) {
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *precision, "precision", precision_words()));
    ASSIGN_OR_RETURN(scenario.precision, parse_precision(precision_words()[chosen]));
  }
  return ok_status();
}

Status parse_model(const Source& source, const Yaml& node, Scenario& scenario) {
  scenario.model_where = source.location(node);
  if (node.is_map()) {
    RETURN_IF_ERROR(parse_model_map(source, node, scenario));
  } else {
    ASSIGN_OR_RETURN(
        const std::string text,
        read_text(source, node,
                  "a model (zoo:NAME, or the path of an ONNX or a GGUF file or of a folder with safetensors)"));
    scenario.model = text;
    if (!is_zoo(text)) scenario.model = beside(scenario.file, text);
  }
  scenario.model_line = source.line(scenario.model_where.line);
  return ok_status();
}

// A workload of several.
std::vector<std::string_view> program_keys() {
  std::vector<std::string_view> keys = {"mode", "batch", "micro_batches"};
  std::ranges::copy(training_keys(), std::back_inserter(keys));
  return keys;
}

std::vector<std::string_view> workload_keys() {
  std::vector<std::string_view> keys = program_keys();
  std::ranges::copy(generation_keys(), std::back_inserter(keys));
  return keys;
}

Status parse_workload(const Source& source, const Fields& workload, Scenario& scenario) {
  if (const Yaml* mode = workload.find("mode")) {
    static constexpr std::array<std::string_view, 3> modes = {"inference", "training", "generation"};
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *mode, "mode", modes));
    if (chosen == 2) {
      RETURN_IF_ERROR(parse_training(source, workload, scenario));
      return parse_generation(source, workload, scenario);
    }
    if (chosen == 1) {
      if (scenario.precision == DType::f16)
        return source.at(*mode,
                         "a model in float16 is for inference: its gradients need loss scaling; bfloat16 trains");
      scenario.training.emplace();
      scenario.schedules = {"gpipe", "1f1b"};
    }
  }
  for (const std::string_view key : generation_keys()) {
    if (const Yaml* node = workload.find(key))
      return source.at(*node, fmt::format("'{}' is for generation: mode: generation", key));
  }
  RETURN_IF_ERROR(parse_training(source, workload, scenario));
  ASSIGN_OR_RETURN(const Yaml* batch, workload.need("batch"));
  ASSIGN_OR_RETURN(scenario.batch, read_integer(source, *batch, "batch", 1, max_batch));
  const Yaml* counts = workload.find("micro_batches");
  scenario.counts_where = source.location(counts != nullptr ? *counts : *batch);
  scenario.counts_line = source.line(scenario.counts_where.line);
  if (counts != nullptr) {
    ASSIGN_OR_RETURN(scenario.micro_batches, parse_micro_batches(source, *counts, scenario.batch));
  } else {
    for (const int count : {1, 2, 4, 8, 16}) {
      if (scenario.batch % count == 0) scenario.micro_batches.push_back(count);
    }
  }
  return ok_status();
}

// The Programs of a session. All but the first run in one way, so they have one count of micro-batches, 1 if they do
// not say.
Status parse_programs(const Source& source, const Yaml& node, Scenario& scenario) {
  if (!node.is_map() || node.keys.empty())
    return source.at(node, "programs must be a map, e.g. {train: {mode: training, batch: 32}, evaluate: {batch: 64}}");
  std::vector<std::string_view> keys = program_keys();
  keys.push_back("schedule");
  for (size_t i = 0; i < node.keys.size(); ++i) {
    ASSIGN_OR_RETURN(std::string name, read_name(source, node.keys[i], "a program"));
    ASSIGN_OR_RETURN(const Fields fields, Fields::open(source, node.items[i], "program " + name, keys));
    Scenario one;
    one.precision = scenario.precision;
    one.schedules = scenario.schedules;
    RETURN_IF_ERROR(parse_workload(source, fields, one));
    if (one.generation)
      return source.at(node.keys[i], "generation has Programs of its own: it is a 'workload', not one of 'programs'");
    std::string schedule;
    if (const Yaml* given = fields.find("schedule")) {
      ASSIGN_OR_RETURN(schedule, parse_schedule_name(source, *given));
    }
    if (i == 0) {
      static_cast<Workload&>(scenario) = one;
      scenario.schedules = schedule.empty() ? one.schedules : std::vector<std::string>{schedule};
    } else {
      const Yaml* counts = fields.find("micro_batches");
      if (counts == nullptr) one.micro_batches = {1};
      if (one.micro_batches.size() != 1)
        return source.at(*counts, fmt::format("program {} needs one count: several are tried for the first program, "
                                              "which plans are ranked for",
                                              name));
      if (one.training && !scenario.training)
        return source.at(node.keys[i],
                         fmt::format("program {} trains, so the first program must: where weights change, "
                                     "plans are ranked with weights that change",
                                     name));
      if (one.training && one.training->optimizer != scenario.training->optimizer)
        return source.at(node.keys[i],
                         fmt::format("program {} has another optimizer than the first program: they share "
                                     "what it keeps of each weight",
                                     name));
    }
    scenario.programs.push_back({std::move(name), one, std::move(schedule)});
  }
  return ok_status();
}

// layer, replicate, and the axes along which layers are split.
Status parse_splits(const Source& source, const Yaml& node, SearchOptions& options) {
  static constexpr std::array<SplitAxis, split_axis_count> axes = {SplitAxis::batch,  SplitAxis::height,
                                                                   SplitAxis::width,  SplitAxis::channels,
                                                                   SplitAxis::tensor, SplitAxis::sequence};
  std::vector<std::string_view> splits = {"layer", "replicate"};
  for (const SplitAxis axis : axes) splits.push_back(name_of(axis));
  RETURN_IF_ERROR(expect_list(source, node, "splits"));
  options.layers = options.replicate = false;
  options.axes.clear();
  std::vector<bool> given(splits.size(), false);
  for (const Yaml& item : node.items) {
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, item, "split", splits));
    if (given[chosen]) return source.at(item, fmt::format("'{}' is given twice", item.text));
    given[chosen] = true;
    if (chosen >= 2) options.axes.push_back(axes.at(chosen - 2));
  }
  options.layers = given[0];
  options.replicate = given[1];
  return ok_status();
}

// A file's or an online one shows later what it is for.
bool may_serve(const std::string& schedule, bool training) {
  const Result<const SchedulePolicy*> policy = find_schedule(schedule);
  if (!policy || (*policy)->mode == ScheduleMode::both) return true;
  return (*policy)->mode == (training ? ScheduleMode::training : ScheduleMode::inference);
}

Status parse_schedules(const Source& source, const Yaml& node, std::vector<std::string>& schedules) {
  RETURN_IF_ERROR(expect_list(source, node, "schedules"));
  if (node.items.empty()) return source.at(node, "at least one schedule is needed");
  schedules.clear();
  for (const Yaml& item : node.items) {
    ASSIGN_OR_RETURN(std::string name, parse_schedule_name(source, item));
    if (std::find(schedules.begin(), schedules.end(), name) != schedules.end()) {
      return source.at(item, fmt::format("'{}' is given twice", name));
    }
    schedules.push_back(std::move(name));
  }
  return ok_status();
}

// `throughput`, `latency`, or both with their weights: {throughput: 0.7, latency: 0.3}.
Status parse_objective(const Source& source, const Yaml& node, Scenario& scenario) {
  if (scenario.generation) {
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, node, "objective", generation_objectives));
    scenario.generation->objective = static_cast<GenerationObjective>(chosen);
    return ok_status();
  }
  if (node.is_map()) {
    ASSIGN_OR_RETURN(const Fields weights, Fields::open(source, node, "objective", {"throughput", "latency"}));
    scenario.objective = Objective::weighted;
    scenario.weights = {0, 0};
    if (const Yaml* weight = weights.find("throughput")) {
      ASSIGN_OR_RETURN(scenario.weights.throughput,
                       read_number(source, *weight, "the weight of throughput", 0, max_weight));
    }
    if (const Yaml* weight = weights.find("latency")) {
      ASSIGN_OR_RETURN(scenario.weights.latency, read_number(source, *weight, "the weight of latency", 0, max_weight));
    }
    if (scenario.weights.throughput + scenario.weights.latency == 0)
      return source.at(node, "one of the weights must be above 0, e.g. {throughput: 0.7, latency: 0.3}");
    return ok_status();
  }
  static constexpr std::array<std::string_view, 2> objectives = {"throughput", "latency"};
  ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, node, "objective", objectives));
  scenario.objective = chosen == 0 ? Objective::throughput : Objective::latency;
  return ok_status();
}

// What a plan may use at most: so many devices, so much memory of each.
Status parse_limits(const Source& source, const Yaml& node, Scenario& scenario) {
  ASSIGN_OR_RETURN(const Fields limits, Fields::open(source, node, "limits", {"devices", "memory"}));
  if (const Yaml* devices = limits.find("devices")) {
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *devices, "devices", 1, max_devices));
    scenario.search.max_devices = static_cast<size_t>(value);
  }
  if (const Yaml* memory = limits.find("memory")) {
    ASSIGN_OR_RETURN(const Bytes most, read_quantity(source, *memory, parse_size));
    if (most == bytes(0)) return source.at(*memory, "a plan without memory cannot be");
    for (Device& device : scenario.cluster.devices) device.memory = std::min(device.memory, most);
  }
  return ok_status();
}

Status parse_method(const Source& source, const Yaml& node, SearchOptions& options) {
  std::vector<std::string_view> names;
  for (const SearchMethod& method : search_methods()) names.push_back(method.name);
  ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, node, "method", names));
  options.method = names[chosen];
  return ok_status();
}

Status parse_search(const Source& source, const Yaml& node, Scenario& scenario) {
  ASSIGN_OR_RETURN(const Fields search, Fields::open(source, node, "search",
                                                     {"splits", "schedules", "objective", "require", "method", "limits",
                                                      "keep", "max_candidates", "max_stages", "seed"}));
  if (const Yaml* splits = search.find("splits")) {
    RETURN_IF_ERROR(parse_splits(source, *splits, scenario.search));
  }
  if (const Yaml* schedules = search.find("schedules")) {
    RETURN_IF_ERROR(parse_schedules(source, *schedules, scenario.schedules));
    if (std::ranges::none_of(scenario.schedules,
                             [&](const std::string& name) { return may_serve(name, scenario.training.has_value()); })) {
      return source.at(*schedules,
                       fmt::format("none of these schedules is for {}; `nlsim schedule --list` says which are",
                                   scenario.training ? "training" : "inference"));
    }
  }
  if (const Yaml* objective = search.find("objective")) {
    RETURN_IF_ERROR(parse_objective(source, *objective, scenario));
  }
  if (const Yaml* require = search.find("require")) {
    RETURN_IF_ERROR(parse_requirements(source, *require, scenario));
  }
  if (const Yaml* method = search.find("method")) {
    RETURN_IF_ERROR(parse_method(source, *method, scenario.search));
  }
  if (const Yaml* limits = search.find("limits")) {
    RETURN_IF_ERROR(parse_limits(source, *limits, scenario));
  }
  if (const Yaml* keep = search.find("keep")) {
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *keep, "keep", 1, max_keep));
    scenario.keep = static_cast<int>(value);
  }
  if (const Yaml* candidates = search.find("max_candidates")) {
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *candidates, "max_candidates", 1, max_candidates));
    scenario.search.max_candidates = static_cast<size_t>(value);
  }
  if (const Yaml* stages = search.find("max_stages")) {
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *stages, "max_stages", 0, max_devices));
    scenario.search.max_stages = static_cast<size_t>(value);
  }
  if (const Yaml* seed = search.find("seed")) {
    ASSIGN_OR_RETURN(const int64_t value, read_integer(source, *seed, "seed", 0, INT64_MAX));
    scenario.search.seed = static_cast<uint64_t>(value);
  }
  return ok_status();
}

Status parse_corrections_key(const Source& source, const Yaml& node, const ScenarioOptions& options,
                             Scenario& scenario) {
  ASSIGN_OR_RETURN(const std::string name, read_text(source, node, "the corrections of a validation"));
  const std::string path = beside(source.file, name);
  const auto text = read_file(path);
  if (!text && !options.need_profiles) return ok_status();
  const auto corrections = text ? parse_corrections(*text, path) : Result<Corrections>(text.error());
  Status status = corrections ? apply(*corrections, scenario.cluster, scenario.costs) : Status(corrections.error());
  if (!status.ok()) return moved_to(status.error(), source.location(node), source.line(node.line));
  scenario.corrected = true;
  scenario.spreads = corrections->spreads;
  return ok_status();
}

Status parse_plans(const Source& source, const Yaml& node, Scenario& scenario) {
  if (!node.is_map()) return source.at(node, "plans must be a map, e.g. {mine: [..conv2@A, rest@B]}");
  for (size_t i = 0; i < node.keys.size(); ++i) {
    ASSIGN_OR_RETURN(std::string name, read_name(source, node.keys[i], "a plan"));
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      return source.at(node.keys[i], fmt::format("a plan cannot be called '{}': numbers are ranks", name));
    }
    if (node.items[i].kind == Yaml::Kind::null)
      return source.at(node.keys[i], fmt::format("plan '{}' has no stages", name));
    ASSIGN_OR_RETURN(UserPlan plan, parse_plan(source, node.items[i], std::move(name), scenario.batch));
    scenario.plans.push_back(std::move(plan));
  }
  return ok_status();
}

}  // namespace

std::string beside(const std::string& scenario_file, const std::string& path) {
  return (std::filesystem::path(scenario_file).parent_path() / path).lexically_normal().string();
}

Result<Scenario> parse_scenario(std::string_view text, const std::string& file, const ScenarioOptions& options) {
  const Source source{file, text};
  ASSIGN_OR_RETURN(const Yaml tree, parse_yaml(source));
  if (tree.kind == Yaml::Kind::null) {
    Error error = invalid_input("this scenario is empty");
    error.where.file = file;
    return error;
  }
  ASSIGN_OR_RETURN(const Fields root,
                   Fields::open(source, tree, "the scenario",
                                {"model", "workload", "programs", "topology", "devices", "switches", "links", "network",
                                 "source", "sink", "search", "plans", "noise", "corrections"}));
  Scenario scenario;
  scenario.file = file;
  scenario.schedules = {"streaming"};
  ASSIGN_OR_RETURN(const Yaml* model, root.need("model"));
  RETURN_IF_ERROR(parse_model(source, *model, scenario));
  if (const Yaml* programs = root.find("programs")) {
    if (const Yaml* workload = root.find("workload"))
      return source.at(*workload,
                       "'programs' has the workloads: the first program's is the one that plans are ranked for");
    RETURN_IF_ERROR(parse_programs(source, *programs, scenario));
  } else {
    ASSIGN_OR_RETURN(const Yaml* node, root.need("workload"));
    ASSIGN_OR_RETURN(const Fields workload, Fields::open(source, *node, "workload", workload_keys()));
    RETURN_IF_ERROR(parse_workload(source, workload, scenario));
  }
  RETURN_IF_ERROR(parse_cluster(source, root, options, scenario));
  if (const Yaml* sink = root.find("sink"); scenario.generation && scenario.endpoints.sink != scenario.endpoints.source)
    return source.at(sink == nullptr ? tree : *sink,
                     "for generation source and sink are one host: the prompt's host gets the text");
  if (const Yaml* search = root.find("search")) {
    RETURN_IF_ERROR(parse_search(source, *search, scenario));
  }
  if (const Yaml* plans = root.find("plans")) {
    RETURN_IF_ERROR(parse_plans(source, *plans, scenario));
  }
  if (const Yaml* noise = root.find("noise")) {
    RETURN_IF_ERROR(parse_noise(source, *noise, scenario));
  }
  if (const Yaml* corrections = root.find("corrections")) {
    RETURN_IF_ERROR(parse_corrections_key(source, *corrections, options, scenario));
  }
  return scenario;
}

Result<Scenario> read_scenario(const std::string& path, const ScenarioOptions& options) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return parse_scenario(text, path, options);
}

}  // namespace nlsplit::inline scenario
