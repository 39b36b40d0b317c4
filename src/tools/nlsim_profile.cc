// `nlsim profile show`: what is in a profile, and how well it predicts kernels that it does not hold.
#include "tools/nlsim_profile.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cost/kernel_fit.h"
#include "report/table.h"
#include "tools/commands.h"
#include "tools/exit.h"

namespace nlsplit::inline tools {
namespace {

using nlohmann::ordered_json;

struct ProfileShowArguments {
  std::vector<std::string> files;
  std::string json, against;
  bool kernels = false;
};

struct Row {
  std::string key;
  ProfileKey what;
  MeasuredCost cost;
  Work work;
};

// All kernels of one implementation, operator and number of cores.
struct Kind {
  std::vector<const Row*> rows;
  FitQuality quality;
  double seconds = 0, flops = 0, bytes = 0;

  double spread() const {  // the median of theirs, relative
    std::vector<double> spreads;
    for (const Row* row : rows) spreads.push_back(row->cost.spread / row->cost.median);
    std::ranges::nth_element(spreads, spreads.begin() + static_cast<std::ptrdiff_t>(spreads.size() / 2));
    return spreads[spreads.size() / 2];
  }
};

// Predictions of kernels that the profile does not hold, against what they took.
struct Test {
  std::vector<double> errors;
  size_t within = 0, refused = 0;
  double took = 0, predicted = 0;  // seconds of those that were predicted
};

struct ShownProfile {
  Profile profile;
  std::vector<Profile> files;  // as they were read
  std::vector<Row> rows;
  std::vector<Kind> kinds;  // most of the time first
  double seconds = 0;
  size_t unknown = 0;
  std::map<std::string, Test> tests;  // by kernel and operator
};

std::string name_of(const FitQuality& q) {
  return q.cores == 1 ? to_string(q.kernel) : fmt::format("{} on {} cores", to_string(q.kernel), q.cores);
}

void sort_into_kinds(const KernelFit& fit, ShownProfile& shown) {
  std::map<std::tuple<std::string, Op, int>, Kind> kinds;
  for (const FitQuality& quality : fit.quality())
    kinds[{to_string(quality.kernel), quality.op, quality.cores}].quality = quality;
  for (const Row& row : shown.rows) {
    Kind& kind = kinds[{to_string(row.what.desc.kernel), row.what.desc.op, row.what.cores}];
    kind.rows.push_back(&row);
    kind.seconds += row.cost.median.value();
    kind.flops += row.work.flops.value();
    kind.bytes += static_cast<double>((row.work.bytes_read + row.work.bytes_written).value());
    shown.seconds += row.cost.median.value();
  }
  for (auto& [name, kind] : kinds) shown.kinds.push_back(std::move(kind));
  std::ranges::stable_sort(shown.kinds, std::ranges::greater(), &Kind::seconds);
}

Status test_against(const std::string& path, const KernelFit& fit, ShownProfile& shown) {
  ASSIGN_OR_RETURN(const Profile other, read_profile(path));
  ASSIGN_OR_RETURN(const Profile both, join({shown.profile, other}));  // says if they do not mix
  for (const auto& [key, cost] : other.kernels) {
    const auto what = parse_profile_key(key);
    if (!what || what->moved || shown.profile.kernels.contains(key) || cost.median.value() <= 0) continue;
    Test& test = shown.tests[fmt::format("{} {}", to_string(what->desc.kernel), name_of(what->desc.op))];
    const auto predicted = fit.predict(what->desc, what->cores);
    if (!predicted) {
      ++test.refused;
      continue;
    }
    const double error = std::abs(predicted->time / usual(cost) - 1);
    test.errors.push_back(error);
    test.took += usual(cost).value();
    test.predicted += predicted->time.value();
    test.within += error <= predicted->spread ? 1 : 0;
  }
  return ok_status();
}

// ---- text

std::string fine_percent(double part) { return fmt::format("{:.{}f} %", part * 100, part < 0.0995 ? 1 : 0); }

std::string errors_text(const FitErrors& errors) {
  if (!errors.p90) return "-";
  return fmt::format("{} / {}", fine_percent(errors.median), fine_percent(*errors.p90));
}

std::string age_text(int64_t measured_at) {
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const int64_t age = std::max<int64_t>(0, now - measured_at);
  constexpr int64_t minute = 60, hour = 60 * minute, day = 24 * hour;
  if (age >= 2 * day) return counted(age / day, "day") + " ago";
  if (age >= 2 * hour) return counted(age / hour, "hour") + " ago";
  return counted(age / minute, "minute") + " ago";
}

// "to it 9.1 us + 25 GB/s (±3.1 %), from it …"
std::string copies_text(const Copies& copies) {
  const auto rate = [](BytesPerSecond bandwidth) { return fmt::format("{:.3g} GB/s", bandwidth.value() * 1e-9); };
  const auto line = [&](const CopyLine& one) {
    return fmt::format("{} + {} (±{})", to_string(one.cost.latency), rate(one.cost.bandwidth),
                       fine_percent(one.largest_error));
  };
  return fmt::format("to it {}, from it {}, both at once {} each way", line(copies.in), line(copies.out),
                     rate(copies.both));
}

std::string heading(const ShownProfile& shown) {
  const Profile& profile = shown.profile;
  std::vector<double> uncertainties;
  for (const auto& [key, cost] : profile.kernels) uncertainties.push_back(uncertainty(cost));
  std::ranges::sort(uncertainties);
  std::string text = fmt::format(
      "{}\nmachine   {}\nmodels    {}\nmeasured  {:%Y-%m-%d %H:%M} UTC, {}, {}\n", profile.file, profile.machine,
      fmt::join(profile.models, ", "), fmt::gmtime(static_cast<std::time_t>(profile.measured_at)),
      age_text(profile.measured_at),
      profile.beside == 0
          ? std::string("alone")
          : fmt::format("alone and beside {} of the network",
                        profile.beside == 1 ? std::string("a copy") : fmt::format("{} copies", profile.beside)));
  text += fmt::format("kernels   {}", profile.kernels.size());
  if (!uncertainties.empty()) {
    text += fmt::format("; their medians are known to ±{} in the middle, ±{} at worst",
                        fine_percent(uncertainties[uncertainties.size() / 2]), fine_percent(uncertainties.back()));
  }
  if (shown.unknown > 0) text += fmt::format("; {} are of another version and unknown here", shown.unknown);
  text += "\n";
  if (const double slowness = slowness_of(profile); slowness > 0)
    text += fmt::format("slowness  x{:.3f}: mean of the times, over these medians\n", slowness);
  if (profile.dispatch.repeats > 0)
    text += fmt::format("dispatch  {} from one computation to the next\n", to_string(profile.dispatch.median));
  if (profile.copies) {
    text += fmt::format("copies    {}\n  pinned    {}\n  pageable  {}\n", profile.copies->gpu,
                        copies_text(profile.copies->pinned), copies_text(profile.copies->pageable));
  }
  for (size_t i = 1; i < shown.files.size(); ++i) {
    const Overlap overlap = overlap_of(shown.files[0], shown.files[i]);
    if (overlap.kernels == 0) continue;
    text += fmt::format(
        "overlap   {} and {} both hold {}: the first one counts; they differ by {} in the middle, {} at "
        "most\n",
        shown.files[0].file, shown.files[i].file, counted(static_cast<int64_t>(overlap.kernels), "kernel"),
        fine_percent(overlap.median_difference), fine_percent(overlap.largest_difference));
  }
  return text + "\n";
}

std::string kinds_text(const ShownProfile& shown) {
  Table table({{"kernel"},
               {"computes"},
               {"kernels", Align::right},
               {"share", Align::right},
               {"GFLOP/s", Align::right},
               {"GB/s", Align::right},
               {"spread", Align::right},
               {"error, other batch\nsizes known", Align::right},
               {"error, other\nshapes only", Align::right}});
  for (const Kind& kind : shown.kinds) {
    table.add({name_of(kind.quality), std::string(name_of(kind.quality.op)), fmt::format("{}", kind.rows.size()),
               fine_percent(kind.seconds / shown.seconds), fmt::format("{:.1f}", kind.flops / kind.seconds / 1e9),
               fmt::format("{:.1f}", kind.bytes / kind.seconds / 1e9), "±" + fine_percent(kind.spread()),
               errors_text(kind.quality.other_sizes), errors_text(kind.quality.other_shapes)});
  }
  return table.to_string() +
         "\nshare  of the time of all kernels, each counted once\n"
         "error  of each kernel predicted from the others (median / p90): those at other batch "
         "sizes among them, or not; -: too few\n";
}

std::string kernels_text(const ShownProfile& shown) {
  Table table({{"median", Align::right},
               {"spread", Align::right},
               {"repeats", Align::right},
               {"GFLOP/s", Align::right},
               {"GB/s", Align::right},
               {"computation"}});
  for (const Kind& kind : shown.kinds) {
    for (const Row* row : kind.rows) {
      const double time = row->cost.median.value();
      table.add({to_string(row->cost.median), "±" + fine_percent(row->cost.spread / row->cost.median),
                 fmt::format("{}", row->cost.repeats), fmt::format("{:.1f}", row->work.flops.value() / time / 1e9),
                 fmt::format("{:.1f}", static_cast<double>((row->work.bytes_read + row->work.bytes_written).value()) /
                                           time / 1e9),
                 row->key});
    }
  }
  return "\n" + table.to_string();
}

std::vector<std::string> cells_of(const std::string& name, const Test& test) {
  std::vector<double> errors = test.errors;
  std::ranges::sort(errors);
  const size_t n = errors.size();
  std::vector<std::string> cells = {name, fmt::format("{}", n + test.refused), fmt::format("{}", test.refused)};
  if (n == 0) {
    cells.resize(cells.size() + 4, "-");
    return cells;
  }
  cells.push_back(fmt::format("{} / {}", fine_percent(errors[n / 2]), fine_percent(errors[(9 * n + 9) / 10 - 1])));
  cells.push_back(fmt::format("{} of {}", test.within, n));
  cells.push_back(to_string(seconds(test.took)));
  cells.push_back(
      fmt::format("{} ({:+.0f} %)", to_string(seconds(test.predicted)), (test.predicted / test.took - 1) * 100));
  return cells;
}

std::string tests_text(const ShownProfile& shown, const std::string& against) {
  Table table({{"kernel"},
               {"kernels", Align::right},
               {"not\npredicted", Align::right},
               {"error, median\n/ p90", Align::right},
               {"within the\nspread given", Align::right},
               {"took", Align::right},
               {"predicted", Align::right}});
  Test all;
  for (const auto& [kind, test] : shown.tests) {
    table.add(cells_of(kind, test));
    all.errors.insert(all.errors.end(), test.errors.begin(), test.errors.end());
    all.within += test.within;
    all.refused += test.refused;
    all.took += test.took;
    all.predicted += test.predicted;
  }
  if (shown.tests.size() > 1) table.add(cells_of("all", all));
  return fmt::format("\nkernels of {} that are not here, predicted\n", against) + table.to_string();
}

// ---- JSON

ordered_json errors_json(const FitErrors& errors) {
  ordered_json json = {{"count", errors.count}, {"median", errors.median}};
  if (errors.p90) json["p90"] = *errors.p90;
  return json;
}

ordered_json copies_json(const Copies& copies) {
  const auto line = [](const CopyLine& one) -> ordered_json {
    return {{"latency_s", one.cost.latency.value()},
            {"bytes_per_s", one.cost.bandwidth.value()},
            {"largest_error", one.largest_error}};
  };
  return {{"in", line(copies.in)}, {"out", line(copies.out)}, {"both_bytes_per_s", copies.both.value()}};
}

ordered_json to_json(const ShownProfile& shown, const ProfileShowArguments& arguments) {
  ordered_json root = {{"files", arguments.files},
                       {"machine", shown.profile.machine},
                       {"models", shown.profile.models},
                       {"beside", shown.profile.beside},
                       {"measured_at_s", shown.profile.measured_at},
                       {"unknown_kernels", shown.unknown}};
  if (const double slowness = slowness_of(shown.profile); slowness > 0) root["slowness"] = slowness;
  if (shown.profile.dispatch.repeats > 0) root["dispatch_s"] = shown.profile.dispatch.median.value();
  if (const std::optional<HostCopies>& copies = shown.profile.copies) {
    root["copies"] = {
        {"gpu", copies->gpu}, {"pinned", copies_json(copies->pinned)}, {"pageable", copies_json(copies->pageable)}};
  }
  for (const Kind& kind : shown.kinds) {
    root["kinds"].push_back({{"kernel", to_string(kind.quality.kernel)},
                             {"op", name_of(kind.quality.op)},
                             {"cores", kind.quality.cores},
                             {"kernels", kind.rows.size()},
                             {"computations", kind.quality.computations},
                             {"share", kind.seconds / shown.seconds},
                             {"flops_per_s", kind.flops / kind.seconds},
                             {"bytes_per_s", kind.bytes / kind.seconds},
                             {"spread", kind.spread()},
                             {"error_other_sizes", errors_json(kind.quality.other_sizes)},
                             {"error_other_shapes", errors_json(kind.quality.other_shapes)}});
    for (const Row* row : kind.rows) {
      if (!arguments.kernels) break;
      root["kernels"].push_back({{"signature", row->key},
                                 {"median_s", row->cost.median.value()},
                                 {"mean_s", usual(row->cost).value()},
                                 {"spread_s", row->cost.spread.value()},
                                 {"repeats", row->cost.repeats},
                                 {"flops", row->work.flops.value()},
                                 {"bytes", (row->work.bytes_read + row->work.bytes_written).value()}});
    }
  }
  for (const auto& [kind, test] : shown.tests) {
    root["against"].push_back({{"kernel", kind},
                               {"errors", test.errors},
                               {"within_spread", test.within},
                               {"not_predicted", test.refused},
                               {"took_s", test.took},
                               {"predicted_s", test.predicted}});
  }
  return root;
}

Status show_profile(const ProfileShowArguments& arguments) {
  ShownProfile shown;
  for (const std::string& path : arguments.files) {
    ASSIGN_OR_RETURN(Profile one, read_profile(path));
    shown.files.push_back(std::move(one));
  }
  ASSIGN_OR_RETURN(shown.profile, join(shown.files));
  for (const auto& [key, cost] : shown.profile.kernels) {
    auto what = parse_profile_key(key);
    if (!what || cost.median.value() <= 0) {
      ++shown.unknown;
      continue;
    }
    Work work = work_of(what->desc);
    if (what->moved)
      work = {work.flops * (*what->moved / (work.bytes_read + work.bytes_written)), *what->moved, bytes(0)};
    shown.rows.push_back({key, std::move(*what), cost, work});
  }
  const KernelFit fit(shown.profile);
  sort_into_kinds(fit, shown);
  if (!arguments.against.empty()) RETURN_IF_ERROR(test_against(arguments.against, fit, shown));
  if (!arguments.json.empty()) {
    const std::string text = to_json(shown, arguments).dump(1) + "\n";
    if (arguments.json != "-") return write_file(arguments.json, text);
    std::fputs(text.c_str(), stdout);
    return ok_status();
  }
  std::string text = heading(shown) + (shown.kinds.empty() ? "" : kinds_text(shown));
  if (arguments.kernels) text += kernels_text(shown);
  if (!arguments.against.empty()) text += tests_text(shown, arguments.against);
  std::fputs(text.c_str(), stdout);
  return ok_status();
}

}  // namespace

void add_profile_command(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("profile", "Show profiles of `nlbench profile`, or import those of other runtimes");
  command->require_subcommand(1);
  add_profile_import_command(*command, code);
  CLI::App* shows = command->add_subcommand(
      "show",
      "Machine, models and age of a profile, and for each kind of kernel: how many, how fast, how steady,\n"
      "and how far off one of them is when it is predicted from the others.\n"
      "Of several files the first that has a kernel counts, as in a scenario's `costs: [a.json, b.json]`.");
  const auto a = std::make_shared<ProfileShowArguments>();
  shows->add_option("FILES", a->files, "Profiles of one machine")->type_name("FILE...")->required();
  shows->add_flag("--kernels", a->kernels, "Every kernel too");
  shows
      ->add_option("--against", a->against,
                   "Predict the kernels of this profile of the same machine that the others do not hold, and compare")
      ->type_name("FILE");
  shows->add_option("--json", a->json, "The same figures as JSON ('-': to the terminal)")->type_name("FILE");
  shows->callback([a, &code] {
    if (const Status status = show_profile(*a); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
