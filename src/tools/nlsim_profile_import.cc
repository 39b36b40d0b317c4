// `nlsim profile import`: times of another runtime's profiler as a profile that scenarios name.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/output_lock.h"
#include "base/percentage.h"
#include "planning/imported_costs.h"
#include "report/table.h"
#include "tools/exit.h"
#include "tools/nlsim_profile.h"

namespace nlsplit::inline tools {
namespace {

struct ImportArguments {
  std::string what, output, most_unmatched = "5%";
  std::vector<std::string> ort, torch, nsys, nsys_csv;
  std::string range;
  int64_t batch = 1;
  ProfileImport options;
  bool list = false;
};

constexpr size_t shown_lines = 5;   // of each list, without --list
constexpr double disturbed = 0.05;  // of an execution: that much less than it took is said to be of other programs

Result<double> most_unmatched(const std::string& text) {
  Result<double> share = parse_percentage(text);
  if (!share) return invalid_input(fmt::format("--max-unmatched: {}", share.error().message));
  if (*share >= 0 && *share <= 1) return share;
  return invalid_input(fmt::format("--max-unmatched must be from 0% to 100%, not {}", text));
}

Result<std::vector<OperatorTrace>> read_traces(const ImportArguments& arguments) {
  std::vector<OperatorTrace> traces;
  for (const std::string& file : arguments.ort) {
    ASSIGN_OR_RETURN(OperatorTrace trace, read_ort_trace(file));
    traces.push_back(std::move(trace));
  }
  for (const std::string& file : arguments.torch) {
    ASSIGN_OR_RETURN(OperatorTrace trace, read_torch_trace(file, arguments.range));
    traces.push_back(std::move(trace));
  }
  for (const std::string& file : arguments.nsys) {
    ASSIGN_OR_RETURN(OperatorTrace trace, read_nsys_trace(file, arguments.range));
    traces.push_back(std::move(trace));
  }
  for (const std::string& file : arguments.nsys_csv) {
    ASSIGN_OR_RETURN(OperatorTrace trace, read_nsys_csv(file, arguments.range));
    traces.push_back(std::move(trace));
  }
  if (traces.empty()) return invalid_input("no profile is named: --ort, --torch, --nsys or --nsys-csv FILE");
  for (const OperatorTrace& trace : traces) {
    if (trace.runtime == traces[0].runtime) continue;
    return invalid_input(fmt::format("'{}' is of {}, '{}' of {}: profiles of one device are of one runtime",
                                     traces[0].file, traces[0].runtime, trace.file, trace.runtime));
  }
  return traces;
}

std::string matched_text(const ImportedCosts& imported) {
  const Matched& matched = imported.matched;
  std::string text =
      fmt::format("matched   {} of the operators' time: by name {}",
                  percent(matched.by_name + matched.by_order + matched.beside - imported.without_computation, 1),
                  percent(matched.by_name, 1));
  if (matched.by_order > 0) text += fmt::format(", by order {}", percent(matched.by_order, 1));
  if (matched.beside > 0) text += fmt::format(", counted with the operator beside them {}", percent(matched.beside, 1));
  text += "\n";
  if (imported.without_computation > 0) {
    text += fmt::format("          {} of it is of constants and the like, which nlsplit computes before a run\n",
                        percent(imported.without_computation, 1));
  }
  return text;
}

// At most a few of a list, unless all are asked for.
template <typename Item, typename Line>
std::string list_text(const std::vector<Item>& items, bool all, const Line& line) {
  const size_t shown = all ? items.size() : std::min(items.size(), shown_lines);
  std::string text;
  for (size_t i = 0; i < shown; ++i) text += "          " + line(items[i]) + "\n";
  if (shown < items.size()) text += fmt::format("          and {} more: --list\n", items.size() - shown);
  return text;
}

std::string unmatched_text(const ImportedCosts& imported, bool all) {
  const Matched& matched = imported.matched;
  std::string text;
  if (!matched.events.empty()) {
    text += fmt::format("left out  {} of the operators' time, of {} without a node: predictions are short of it\n",
                        percent(matched.not_matched, 1),
                        counted(static_cast<int64_t>(matched.events.size()), "kind of event"));
    text += list_text(matched.events, all, [](const UnmatchedEvent& event) {
      return fmt::format("{:>6}  {}{}", percent(event.share, 2), event.name,
                         event.op.empty() ? "" : fmt::format(" ({})", event.op));
    });
  }
  if (!imported.untimed.empty()) {
    double share = 0;
    for (const UntimedNode& node : imported.untimed) share += node.share;
    text += fmt::format(
        "untimed   {} of {} computations, {} of the operations, have no event, as if fused into others: they cost "
        "nothing\n",
        imported.untimed.size(), imported.nodes, percent(share, 2));
    text += list_text(imported.untimed, all, [](const UntimedNode& node) {
      return fmt::format("{:>6}  {}", percent(node.share, 2), node.label);
    });
  }
  if (imported.moves > 0) {
    text += fmt::format("layouts   {} that only nlsplit has cost nothing: those of the runtime are within its times\n",
                        counted(static_cast<int64_t>(imported.moves), "change"));
  }
  return text;
}

std::string sizes_text(const ImportedCosts& imported) {
  std::string text;
  for (const ImportedSize& size : imported.sizes) {
    if (size.from.size() == 2) {
      text += fmt::format("assumed   {}: on a straight line between batches {} and {}, computation by computation\n",
                          counted(size.samples, "sample"), size.from[0], size.from[1]);
    } else if (size.from[0] != size.samples) {
      text += fmt::format("assumed   {}: batch {} times {:.3g}, in proportion to samples (--scale)\n",
                          counted(size.samples, "sample"), size.from[0],
                          static_cast<double>(size.samples) / static_cast<double>(size.from[0]));
    }
  }
  return text;
}

std::string text_of(const ImportedCosts& imported, const ImportArguments& arguments) {
  const Profile& profile = imported.profile;
  std::string text =
      fmt::format("{}: {} kernels of {} for device '{}', from {}\n", arguments.output, profile.kernels.size(),
                  fmt::join(profile.models, ", "), imported.device, profile.machine);
  text += matched_text(imported) + unmatched_text(imported, arguments.list) + sizes_text(imported);
  text += fmt::format("between   {} a computation: what is left of an execution without its operators\n",
                      to_string(profile.dispatch.median));
  for (const ImportCheck& check : imported.checks) {
    text += fmt::format(
        "batch {:<3} {} on one device with these costs, {} by the profile ({:+.1f} %; median of {}, the "
        "first {} left out)\n",
        check.batch, to_string(seconds(check.predicted_s)), to_string(seconds(check.measured_s)),
        (check.predicted_s / check.measured_s - 1) * 100, counted(check.executions, "execution"), check.left_out);
    if (check.predicted_s < (1 - disturbed) * check.measured_s) {
      text +=
          "          The profile was disturbed: other programs took time from some operators in most executions, "
          "which\n"
          "          medians of operators leave out. Predictions are those of an idle machine; profile on one to "
          "compare.\n";
    }
  }
  return text;
}

Status import_profile(ImportArguments& arguments) {
  ASSIGN_OR_RETURN(arguments.options.most_unmatched, most_unmatched(arguments.most_unmatched));
  ASSIGN_OR_RETURN(const std::vector<OperatorTrace> traces, read_traces(arguments));
  ASSIGN_OR_RETURN(Loaded loaded, load(arguments.what, arguments.batch, false));
  // Of a model alone the costs are for a scenario that names no level, not for the machine that plans: the times are
  // the other runtime's on any level.
  if (!is_scenario(arguments.what)) loaded.scenario.cluster.devices.front().level = Device{}.level;
  ASSIGN_OR_RETURN(const ImportedCosts imported, import_costs(loaded, traces, arguments.options));
  ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::beside(arguments.output));
  RETURN_IF_ERROR(write_profile(arguments.output, imported.profile));
  std::fputs(text_of(imported, arguments).c_str(), stdout);
  return ok_status();
}

void add_matching_options(CLI::App& command, ImportArguments& a) {
  command
      .add_option("--profiled-batch", a.options.match.batch,
                  "The batch the profiles were taken at, where they do not say it")
      ->type_name("COUNT")
      ->check(at_least(1));
  command
      .add_option("--warm-up", a.options.match.warm_up,
                  "Leave out this many executions at the beginning of each file (default 1)")
      ->type_name("COUNT")
      ->check(at_least(0));
  command
      .add_option("--max-unmatched", a.most_unmatched,
                  "Refuse if more of the time belongs to no node, or more of the operations has no time (default 5%)")
      ->type_name("SHARE");
  command.add_flag("--scale", a.options.scale,
                   "For micro-batches outside the profiled batches: assume times in proportion to samples");
  command.add_flag("--list", a.list, "List all events without a node and all computations without a time");
}

}  // namespace

void add_profile_import_command(CLI::App& profile, int& code) {
  CLI::App* command = profile.add_subcommand(
      "import",
      "Make costs of a device from another runtime's profile of the scenario's network (docs/profiles.md).\n"
      "Then write in the scenario: `costs: costs.json`.");
  const auto a = std::make_shared<ImportArguments>();
  command->add_option("SCENARIO", a->what, "A scenario (*.yaml), or a model alone")->type_name("FILE")->required();
  command
      ->add_option("--ort", a->ort,
                   "Profiles of ONNX Runtime (SessionOptions.enable_profiling), one or more: of several batches, say")
      ->type_name("FILE...");
  command
      ->add_option("--torch", a->torch,
                   "Profiles of PyTorch (torch.profiler with record_shapes=True, export_chrome_trace())")
      ->type_name("FILE...");
  command->add_option("--nsys", a->nsys, "Nsight Systems' exports to SQLite, with NVTX ranges of the nodes' names")
      ->type_name("FILE...");
  command
      ->add_option("--nsys-csv", a->nsys_csv, "The same as CSV: nsys stats --report nvtx_gpu_proj_trace --format csv")
      ->type_name("FILE...");
  command
      ->add_option(
          "--range", a->range,
          "For --torch, --nsys and --nsys-csv: the name of the ranges that are an execution (default: the outermost)")
      ->type_name("NAME");
  command->add_option("--device", a->options.device, "The scenario's device that was profiled (default: all are equal)")
      ->type_name("NAME");
  command->add_option("--batch", a->batch, "For a model alone: samples of a batch (default 1)")
      ->type_name("COUNT")
      ->check(at_least(1));
  command
      ->add_option("--machine", a->options.machine,
                   "What the profile calls its machine; files of one device must agree (default: the runtime)")
      ->type_name("TEXT");
  add_matching_options(*command, *a);
  command->add_option("-o,--output", a->output, "The profile to write")->type_name("FILE")->required();
  command->callback([a, &code] {
    if (const Status status = import_profile(*a); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
