#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "base/limits.h"
#include "base/output_lock.h"
#include "base/units.h"
#include "kernels/generated/lower.h"
#include "planning/load.h"
#include "planning/messages_program.h"
#include "planning/network_set.h"
#include "planning/profile_sums.h"
#include "planning/saved_form.h"
#include "planning/validation_set.h"
#include "program/saved.h"
#include "program/text.h"
#include "program/verify.h"
#include "ranking/evaluate.h"
#include "ranking/session.h"
#include "report/table.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/next_command.h"
#include "tools/option_values.h"
#include "tools/rank_options.h"
#include "tools/terminal.h"
#include "validate/network_tests.h"

namespace nlsplit::inline tools {
namespace {

struct LowerArguments {
  std::string what, save, profile_set, isa, precision;
  ValidationSetArguments validation;
  std::string network_set, eager_limit, pairs = fmt::format("{}", usual_pairs);
  PlanChoice choice;
  int64_t batch = 1;
  bool passes = false, session = false, train = false, kernels = false;
};

Result<SavedProgram> lower_chosen(Loaded& loaded, const LowerArguments& arguments) {
  if (is_scenario(arguments.what)) {
    ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan_at_terminal(loaded, arguments.choice));
    ASSIGN_OR_RETURN(TimedPlan timed, time_plan(loaded.scenario, loaded.model.graph, chosen.plan));
    return saved_form(loaded, chosen.plan, std::move(timed));
  }
  if (!arguments.choice.plan.empty() || !arguments.choice.file.empty())
    return invalid_input("--plan and --plan-file need a scenario: a model alone runs on one device");
  SavedProgram saved;
  ASSIGN_OR_RETURN(saved.unsplit,
                   unsplit_program(loaded.scenario, loaded.model.graph, 1, loaded.scenario.cluster.devices[0]));
  saved.program = saved.unsplit;
  return saved;
}

// What each pass of the compiler makes of the plan, in order.
Status print_passes(Loaded& loaded, const LowerArguments& arguments) {
  Plan plan;
  if (is_scenario(arguments.what)) {
    ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan_at_terminal(loaded, arguments.choice));
    plan = chosen.plan;
  } else {
    plan.stages.push_back({0, loaded.model.graph.nodes.size(), {DeviceId(0)}});
  }
  const Scenario& scenario = loaded.scenario;
  ASSIGN_OR_RETURN(const PreparedModel prepared, prepare_model(scenario, loaded.model.graph, plan.micro_batches));
  const CostTable costs = cost_table(scenario, loaded.model.graph.name);
  CompileOptions options = compile_options(scenario);
  options.after_pass = [](std::string_view pass, const std::string& text) {
    fmt::print("=== {}\n{}{}\n", pass, text, text.ends_with('\n') ? "" : "\n");
  };
  const auto compiled = compile(prepared.kernels, plan, scenario.cluster, scenario.endpoints, &costs, options);
  return compiled.ok() ? ok_status() : Status(compiled.error());
}

// The scenario's Programs under one plan.
Status lower_session(Loaded& loaded, const LowerArguments& arguments) {
  if (!is_scenario(arguments.what))
    return invalid_input(
        fmt::format("{} needs a scenario: it has the programs", arguments.train ? "--train" : "--session"));
  ASSIGN_OR_RETURN(const RankedPlan chosen, choose_plan_at_terminal(loaded, arguments.choice));
  ASSIGN_OR_RETURN(const SavedSession saved,
                   arguments.train ? saved_training_session(loaded, chosen.plan) : saved_session(loaded, chosen.plan));
  const Session& session = saved.session;
  if (arguments.save.empty()) {
    std::fputs(to_string(session).c_str(), stdout);
    return ok_status();
  }
  RETURN_IF_ERROR(save_session(arguments.save, saved, loaded.model.weights));
  std::string names;
  for (const Program& program : session.programs) names += (names.empty() ? "" : " ") + program.name;
  const size_t ranks = session.programs[0].devices.size();
  fmt::print("saved {} for {}; run it with: {} {} {} {} --transport threads\n", session.name,
             counted(static_cast<int64_t>(ranks), "device"), program_here("nlbench"),
             saved.generation ? "generate"
             : saved.training ? "train"
                              : "session",
             arguments.save,
             saved.generation ? (saved.generation->tokenizer.empty() ? "--prompt-tokens 1,2,3" : "--prompt TEXT")
             : saved.training ? "--steps 100"
                              : fmt::format("--sequence \"{}\"", names));
  return ok_status();
}

// More micro-batches of one size in an execution tell nothing new: caches are as they are in the middle of a run when
// one has followed another.
constexpr int most_micro_batches = 2;

// The scenario with its micro-batches of this count, but no more of them than it takes to measure; in training two, the
// second of which adds its gradients to the first one's.
Scenario shortened(const Scenario& scenario, int count, int& micro_batches) {
  Scenario shorter = scenario;
  micro_batches = scenario.training ? most_micro_batches : std::min(count, most_micro_batches);
  shorter.batch = scenario.batch / count * micro_batches;
  return shorter;
}

// Folders of one network share their weights; `cut`: but not this one, which has slices of them, or others.
class ProfileSet {
 public:
  // weights: is told of what Programs name besides.
  ProfileSet(std::string dir, WeightStore& weights) : dir_(std::move(dir)), weights_(weights) {}
  WeightStore& weights() { return weights_; }

  Status add(const std::string& name, Program program, bool cut = false) {
    SavedProgram saved;
    saved.unsplit = std::move(program);
    saved.program = saved.unsplit;
    const std::string folder = fmt::format("{}/{:04}-{}", dir_, count_++, name);
    if (cut) return save_program(folder, saved, weights_);
    Status status = first_.empty() ? save_program(folder, saved, weights_) : save_program_like(folder, saved, first_);
    if (first_.empty()) first_ = folder;
    return status;
  }

 private:
  std::string dir_, first_;
  WeightStore& weights_;
  int count_ = 0;
};

// The scenario's own plans that split layers, where they are tried in so many micro-batches.
Result<std::vector<Plan>> own_splits(const Loaded& loaded, int micro_batches) {
  std::vector<Plan> plans;
  for (const UserPlan& own : loaded.scenario.plans) {
    ASSIGN_OR_RETURN(const std::vector<RankedPlan> ways, resolve_own_plan(loaded.scenario, loaded.model.graph, own));
    for (const RankedPlan& way : ways) {
      const bool known = std::ranges::find(plans, way.plan.stages, &Plan::stages) != plans.end();
      if (way.plan.micro_batches == micro_batches && has_splits(way.plan) && !known) plans.push_back(way.plan);
    }
  }
  return plans;
}

// Where the search may split layers: the whole network in 2, 3, … equal shards on each axis it may, on devices like
// this one. Most plans that split a part of it have the same shards of its layers. Others, as halos that are computed
// again and unequal shards, are a matter of the scenario's own plans, or of predictions.
std::vector<Plan> searched_splits(const Loaded& loaded, const Device& like) {
  constexpr size_t most_shards = 8;  // as the search (partition/search_splits.h)
  const Graph& graph = loaded.model.graph;
  std::vector<DeviceId> alike;
  const std::vector<Device>& devices = loaded.scenario.cluster.devices;
  for (size_t d = 0; d < devices.size(); ++d) {
    if (devices[d].level == like.level && devices[d].cores == like.cores) alike.emplace_back(d);
  }
  const std::span<const SplitAxis> axes = loaded.scenario.search.axes;
  std::vector<Plan> plans;
  for (const SplitAxis axis : applicable_axes(graph, 0, graph.nodes.size(), axes)) {
    const bool rows = axis == SplitAxis::height || axis == SplitAxis::width;
    for (size_t shards = 2; shards <= std::min(alike.size(), most_shards); ++shards) {
      for (const bool recompute : {false, true}) {
        if (recompute && !rows) continue;
        Stage stage{0, graph.nodes.size(), {alike.begin(), alike.begin() + static_cast<std::ptrdiff_t>(shards)}};
        stage.split = Split{axis, recompute, std::vector<int64_t>(shards, 1)};
        plans.emplace_back().stages = {std::move(stage)};
      }
    }
  }
  return plans;
}

// The network unsplit, for each micro-batch count, level and number of cores, as often as its computations have kernels
// to choose from: together these Programs hold every computation any plan of the scenario can need, but for those that
// split layers. Those of its own plans and of its search are there too, all shards on one device. They are numbered
// in the order in which they are measured, the usual kernels first: a computation that several hold is measured in the
// first of them.
class ProfileSetMaker {
 public:
  // name: of its network among several.
  ProfileSetMaker(Loaded& loaded, ProfileSet& set, std::string name = {})
      : loaded_(loaded), set_(set), name_(std::move(name)) {}

  Status make(const Device& device, int count, bool mixed) {
    int micro_batches = 0;
    const Scenario shorter = shortened(loaded_.scenario, count, micro_batches);
    ASSIGN_OR_RETURN(std::vector<Plan> splits, own_splits(loaded_, count));
    for (Plan& plan : searched_splits(loaded_, device)) {
      if (std::ranges::find(splits, plan.stages, &Plan::stages) == splits.end()) splits.push_back(std::move(plan));
    }
    for (Plan& plan : splits) plan.micro_batches = micro_batches;
    const std::string name = fmt::format("{}mb{}-{}-{}", name_, count, name_of(device.level), device.cores);
    size_t most = 1;
    for (size_t variant = 0; variant < most; ++variant) {
      const auto prefer = [&](const ComputeDesc& desc, std::span<const KernelId> candidates) {
        if (candidates[0].level == device.level && !desc.outputs.empty()) most = std::max(most, candidates.size());
        return variant < candidates.size() ? variant : size_t{0};
      };
      ASSIGN_OR_RETURN(const PreparedModel prepared,
                       prepare_model(shorter, loaded_.model.graph, micro_batches, prefer));
      ASSIGN_OR_RETURN(Program program, on_one_device(shorter, prepared.kernels, micro_batches, device));
      const Training* training = prepared.kernels.training.get();  // its constants depend on the micro-batches
      if (training != nullptr) set_.weights().add_all(training->nodes.constants);
      RETURN_IF_ERROR(set_.add(fmt::format("{}-{}", name, variant), std::move(program), training != nullptr));
      for (size_t s = 0; s < splits.size(); ++s) {
        auto split = expand_plan(prepared.kernels, splits[s], shorter.cluster, prefer);
        if (!split) continue;  // nothing to measure; nlsim rank says why
        ASSIGN_OR_RETURN(Program shards, on_one_device(shorter, split->kernels, micro_batches, device));
        RETURN_IF_ERROR(add_cut(fmt::format("{}-{}-split{}", name, variant, s + 1), *split, std::move(shards)));
      }
    }
    if (!mixed && shorter.cluster.messages == DType::f32) return ok_status();
    return make_messages(shorter, device, micro_batches, mixed, splits, name + (mixed ? "-reorders" : "-messages"));
  }

  // Of replicas' gradients.
  Status make_sums(const Device& device) {
    Program program =
        sums_program(loaded_.model.graph.name, device, loaded_.scenario.cluster.hosts[device.host.index()].name,
                     loaded_.scenario.cluster.messages);
    RETURN_IF_ERROR(verify(program));
    return set_.add(fmt::format("sums-{}-{}", name_of(device.level), device.cores), std::move(program), true);
  }

 private:
  Status make_messages(const Scenario& shorter, const Device& device, int micro_batches, bool row_major,
                       const std::vector<Plan>& splits, const std::string& name) {
    ASSIGN_OR_RETURN(const PreparedModel prepared, prepare_model(shorter, loaded_.model.graph, micro_batches));
    ASSIGN_OR_RETURN(Program program, messages_program(shorter, prepared.kernels, micro_batches, device, row_major));
    const Training* training = prepared.kernels.training.get();  // its constants depend on the micro-batches
    if (training != nullptr) set_.weights().add_all(training->nodes.constants);
    RETURN_IF_ERROR(set_.add(name, std::move(program), training != nullptr));
    for (size_t s = 0; s < splits.size(); ++s) {
      auto split = expand_plan(prepared.kernels, splits[s], shorter.cluster, fastest_measured(shorter.costs));
      if (!split) continue;
      ASSIGN_OR_RETURN(Program shards, messages_program(shorter, split->kernels, micro_batches, device, row_major));
      RETURN_IF_ERROR(add_cut(fmt::format("{}-split{}", name, s + 1), *split, std::move(shards)));
    }
    return ok_status();
  }

  Status add_cut(const std::string& name, const SplitPlan& split, Program program) {
    add_slices(split.slices, set_.weights());
    if (split.kernels.training) set_.weights().add_all(split.kernels.training->nodes.constants);
    return set_.add(name, std::move(program), true);
  }

  Loaded& loaded_;
  ProfileSet& set_;
  std::string name_;
};

// Of a scenario that generates: prompts are another network than tokens.
Result<std::optional<Loaded>> load_prompts(const Loaded& loaded) {
  if (!loaded.scenario.generation || loaded.scenario.generation->chunk == 1) return std::optional<Loaded>();
  ASSIGN_OR_RETURN(Model prompts, load_model(loaded.scenario, loaded.scenario.generation->chunk));
  return std::optional(Loaded{loaded.scenario, std::move(prompts)});
}

Status write_profile_set(Loaded& loaded, const std::string& dir) {
  ASSIGN_OR_RETURN([[maybe_unused]] const auto left_out, leave_out_counts(loaded.scenario, loaded.model.graph));
  std::set<int> counts(loaded.scenario.micro_batches.begin(), loaded.scenario.micro_batches.end());
  for (const UserPlan& own : loaded.scenario.plans) counts.insert(own.micro_batches.begin(), own.micro_batches.end());
  std::error_code failure;
  std::filesystem::create_directories(dir, failure);
  if (failure) return io_error(fmt::format("cannot create {}: {}", dir, failure.message()));
  ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::of_folder(dir));
  const std::vector<Device>& devices = loaded.scenario.cluster.devices;
  const bool mixed =
      std::ranges::any_of(devices, [&](const Device& device) { return device.level != devices[0].level; });
  ASSIGN_OR_RETURN(std::optional<Loaded> prompts, load_prompts(loaded));
  if (prompts) loaded.model.weights.add_all(prompts->model.weights);
  std::map<int64_t, Loaded> fewer;
  for (const int64_t sequences : fewer_sequences(loaded.scenario)) {
    Loaded& of = fewer.emplace(sequences, loaded).first->second;
    of.scenario.batch = sequences;
  }
  ProfileSet set(dir, loaded.model.weights);
  ProfileSetMaker maker(loaded, set);
  std::set<std::pair<Level, int>> done;
  for (const Device& device : devices) {
    if (!done.emplace(device.level, device.cores).second) continue;
    for (const int count : counts) RETURN_IF_ERROR(maker.make(device, count, mixed));
    for (const int count : prompts ? counts : std::set<int>())
      RETURN_IF_ERROR(ProfileSetMaker(*prompts, set, "prefill-").make(device, count, mixed));
    for (auto& [sequences, of] : fewer)
      RETURN_IF_ERROR(ProfileSetMaker(of, set, decode_name_of(sequences) + "-").make(device, 1, mixed));
    if (loaded.scenario.training && devices.size() > 1 && !is_gpu(device.level.isa))
      RETURN_IF_ERROR(maker.make_sums(device));
  }
  return ok_status();
}

// What is generated for the Program's computations, each once.
void print_generated(const Program& program) {
  std::set<std::string> seen;
  for (const ComputeDesc& desc : program.descs) {
    if (!is_generated(desc.kernel.name) || !seen.insert(signature(desc)).second) continue;
    fmt::print("{}{}\n{}", seen.size() == 1 ? "" : "\n", signature(desc), to_text(lower(desc)));
  }
  if (seen.empty()) fmt::print("no kernel of {} is generated\n", program.name);
}

Status lower_command(const LowerArguments& arguments) {
  const bool need_profiles = arguments.profile_set.empty() && arguments.network_set.empty();
  ASSIGN_OR_RETURN(Loaded loaded, load(arguments.what, arguments.batch, need_profiles, arguments.precision));
  if (!arguments.isa.empty()) {
    if (is_scenario(arguments.what))
      return invalid_input("--isa is for a model alone: a scenario says the levels of its devices itself");
    Device& device = loaded.scenario.cluster.devices[0];
    ASSIGN_OR_RETURN(device.level, parse_level(arguments.isa));
    if (is_gpu(device.level.isa)) device.kind = DeviceKind::cuda;
  }
  if (!arguments.profile_set.empty()) return write_profile_set(loaded, arguments.profile_set);
  if (!arguments.network_set.empty()) {
    if (!is_scenario(arguments.what)) return invalid_input("--network-set needs a scenario: it has the hosts");
    ASSIGN_OR_RETURN(const Bytes limit, size_option("--eager-limit", arguments.eager_limit));
    ASSIGN_OR_RETURN(const size_t pairs, pairs_option("--pairs", arguments.pairs));
    return write_network_set(loaded, arguments.network_set, limit, pairs);
  }
  if (!arguments.validation.dir.empty()) {
    if (!is_scenario(arguments.what)) return invalid_input("--validation-set needs a scenario: it holds many plans");
    Status written = write_validation_set(loaded, arguments.validation, terminal_options());
    clear_progress();
    return written;
  }
  if (arguments.passes) return print_passes(loaded, arguments);
  if (arguments.session || arguments.train) return lower_session(loaded, arguments);
  ASSIGN_OR_RETURN(const SavedProgram saved, lower_chosen(loaded, arguments));
  if (arguments.kernels) {
    print_generated(saved.program);
    return ok_status();
  }
  if (arguments.save.empty()) {
    std::fputs(to_string(saved.program).c_str(), stdout);
    return ok_status();
  }
  RETURN_IF_ERROR(save_program(arguments.save, saved, loaded.model.weights));
  fmt::print("saved {} for {}; run it with: {} run {} --transport threads\n", saved.program.name,
             counted(std::ssize(saved.program.devices), "device"), program_here("nlbench"), arguments.save);
  return ok_status();
}

// "--validation-set", which is answered, and what is of one only.
CLI::Option* add_validation_set_options(CLI::App& command, ValidationSetArguments& arguments, CLI::Option* save,
                                        CLI::Option* plan) {
  CLI::Option* validation = command
                                .add_option("--validation-set", arguments.dir,
                                            "Write the best plans, the scenario's own, and random others, with what "
                                            "is predicted of them, to DIR, for `nlbench validate`")
                                ->type_name("DIR")
                                ->excludes(save, plan);
  command.add_option("--top", arguments.top, "For a validation set: how many of the best plans (default 10)")
      ->type_name("COUNT")
      ->needs(validation);
  command.add_option("--also", arguments.also, "For a validation set: how many random plans (default 10)")
      ->type_name("COUNT")
      ->needs(validation);
  command.add_option("--seed", arguments.seed, "For a validation set: seed of the random plans (default 1)")
      ->type_name("N")
      ->needs(validation);
  add_confidence_option(command, arguments.confidence,
                        "For a validation set: first the plans among which the best one is with this probability, if "
                        "costs have spreads (docs/confidence.md)")
      ->needs(validation);
  command
      .add_option("--plans", arguments.plans,
                  "For a validation set: the plans of FILE, the plans.json of an earlier one, predicted anew")
      ->type_name("FILE")
      ->needs(validation);
  command
      .add_option("--corrections", arguments.corrections,
                  "For a validation set: only predict its plans again, with the costs corrected by FILE")
      ->type_name("FILE")
      ->needs(validation);
  return validation;
}

// "--network-set", which is answered, and what is of one only.
CLI::Option* add_network_set_options(CLI::App& command, LowerArguments& arguments) {
  CLI::Option* network = command
                             .add_option("--network-set", arguments.network_set,
                                         "Write the messages that `nlbench network` measures to DIR")
                             ->type_name("DIR");
  command
      .add_option("--eager-limit", arguments.eager_limit,
                  "For a network set: messages up to this size start without waiting for their receiver")
      ->type_name("SIZE")
      ->needs(network);
  command
      .add_option("--pairs", arguments.pairs,
                  fmt::format("For a network set: so many of the pairs of hosts that the scenario describes alike, or "
                              "all (default {})",
                              usual_pairs))
      ->type_name("COUNT|all")
      ->needs(network);
  return network;
}

}  // namespace

void add_lower_command(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("lower", "Print or save the Program of a plan: what every machine does, in order");
  const auto arguments = std::make_shared<LowerArguments>();
  command
      ->add_option(
          "SCENARIO", arguments->what,
          "A scenario; or a model (.onnx, .gguf, a safetensors folder, zoo:NAME), which is lowered for one device")
      ->type_name("FILE")
      ->required();
  CLI::Option* plan = command
                          ->add_option("--plan", arguments->choice.plan,
                                       "Number in the ranking, or name of one of the scenario's plans (default 1)")
                          ->type_name("K|NAME");
  command
      ->add_option("--plan-file", arguments->choice.file, "A plan in a file of its own (rank --save-plans writes such)")
      ->type_name("FILE")
      ->excludes(plan);
  command->add_option("--batch", arguments->batch, "Samples of one execution, for a model without a scenario")
      ->type_name("COUNT")
      ->check(at_least(1));
  command
      ->add_option("--isa", arguments->isa,
                   "For a model: kernels of this instruction level (v2, v3, v4, neon; default: this machine's)")
      ->type_name("LEVEL");
  command
      ->add_option("--precision", arguments->precision,
                   "For a model: float16 or bfloat16 instead of float32, except for inputs and outputs")
      ->type_name("TYPE");
  CLI::Option* save =
      command
          ->add_option(
              "--save", arguments->save,
              "Write the Program and its weights to DIR, for `nlbench run DIR` (which then needs nothing else)")
          ->type_name("DIR");
  command
      ->add_flag("--passes", arguments->passes,
                 "Print what each pass of the compiler makes: kernels, split, place, schedule, exchange, allocate")
      ->excludes(save);
  command
      ->add_flag("--kernels", arguments->kernels,
                 "Print the loops of the Program's generated kernels instead (docs/generated.md)")
      ->excludes(save)
      ->excludes("--passes");
  command->add_flag(
      "--session", arguments->session,
      "The scenario's `programs` over the same weights, one session under the plan: for `nlsim session` and\n"
      "`nlbench session` (docs/program.md)");
  command
      ->add_flag(
          "--train", arguments->train,
          "The session that `nlbench train` runs: the scenario's training step under the plan, and the evaluation "
          "of what it has trained (docs/training.md)")
      ->excludes("--session", "--passes", "--kernels");
  command->add_option("--profile-set", arguments->profile_set, "Write what `nlbench profile` measures to DIR")
      ->type_name("DIR")
      ->excludes(save);
  CLI::Option* validation = add_validation_set_options(*command, arguments->validation, save, plan);
  add_network_set_options(*command, *arguments)->excludes(save, plan, validation);
  command->callback([arguments, &code] {
    if (const Status status = lower_command(*arguments); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
