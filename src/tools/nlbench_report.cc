#include "tools/nlbench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/calibration.h"
#include "base/hash.h"
#include "program/text.h"
#include "program/trace.h"
#include "report/table.h"
#include "report/timeline.h"
#include "tools/nlbench_conditions.h"
#include "validate/statistics.h"

namespace nlsplit::inline tools {
namespace {

using nlohmann::json;

struct Makespans {
  double middle = 0;  // the median
  double spread = 0;  // half the distance between the quartiles
};

Makespans makespans_of(const std::vector<double>& all) {
  return {median(all), (quantile(all, 0.75) - quantile(all, 0.25)) / 2};
}

struct Figures {
  double makespan = 0;  // see Makespans
  double spread = 0;
  double throughput = 0;  // samples/s at the median
  Latency latency;
  std::vector<DeviceTimes> devices;
};

Figures figures_of(const RunReport& report) {
  const Program& program = report.saved->program;
  Figures f;
  const Makespans makespans = makespans_of(report.result->makespans_s);
  f.makespan = makespans.middle;
  f.spread = makespans.spread;
  f.throughput = static_cast<double>(program.batch) / f.makespan;
  f.latency = latency_of(program, report.result->trace);
  f.devices = device_times(program, report.result->trace);
  return f;
}

std::string rate(double per_second) {
  return fmt::format("{:.{}f}", per_second, per_second >= 100 ? 0 : per_second >= 10 ? 1 : 2);
}

std::string time_and_share(double part, double whole) {
  return fmt::format("{} {:3.0f} %", to_string(seconds(part)), whole > 0 ? part / whole * 100 : 0);
}

std::string throughput_line(double throughput, const Makespans& makespans, size_t repeats) {
  return fmt::format("throughput  {} samples/s · {} for the batch, median of {} repeat{}, spread ±{:.1f} %\n",
                     rate(throughput), to_string(seconds(makespans.middle)), repeats, repeats == 1 ? "" : "s",
                     makespans.spread / makespans.middle * 100);
}

// Of a device's core before a repeat, against its best.
double largest_slowdown(const RunResult& result) {
  const std::vector<double> best = best_calibrations(result.calibrations_s);
  double largest = 0;
  for (const std::vector<double>& repeat : result.calibrations_s) {
    for (size_t d = 0; d < repeat.size(); ++d) largest = std::max(largest, repeat[d] / best[d] - 1);
  }
  return largest;
}

// Of the repeats before and after which every device's core was at its best.
std::vector<double> undisturbed_makespans_s(const RunResult& result) {
  std::vector<double> makespans;
  for (const size_t r : undisturbed(result.calibrations_s, best_calibrations(result.calibrations_s)))
    makespans.push_back(result.makespans_s[r]);
  return makespans;
}

Conditions conditions_of(const RunReport& report) {
  return conditions_of(report.saved->program, report.result->ran_on, report.saved->clocks);
}

// "measured +4.2 %"
std::string error_text(double measured, double predicted) {
  const double error = (measured - predicted) / predicted * 100;
  return fmt::format("measured {:+.1f} %", error);
}

}  // namespace

std::string headline(const Program& program, const std::string& transport) {
  return fmt::format("{} · batch {} in {} · {} ({})\n\n", program.name, program.batch,
                     counted(program.micro_batches, "micro-batch"),
                     counted(static_cast<int64_t>(program.devices.size()), "device"), transport);
}

json check_json(const Comparison& check) {
  json outputs = json::array();
  for (const OutputComparison& output : check.outputs) {
    outputs.push_back({{"name", output.name},
                       {"equal", output.equal(check.tolerance)},
                       {"values", output.values},
                       {"different", output.different},
                       {"not_finite", output.not_finite},
                       {"roundings", output.is_roundings},
                       {"largest_difference", output.largest_difference},
                       {"largest_value", output.largest_value}});
  }
  json result = {{"equal", check.equal()}, {"tolerance", check.tolerance}, {"outputs", std::move(outputs)}};
  if (!check.why.empty()) result["tolerance_because"] = check.why;
  return result;
}

std::string report_text(const IncompleteRun& run) {
  const Makespans m = makespans_of(run.makespans_s);
  const size_t repeats = run.makespans_s.size();
  return headline(*run.program, run.transport) +
         throughput_line(static_cast<double>(run.program->batch) / m.middle, m, repeats) +
         "incomplete  the run was ended after these repeats\n";
}

std::string report_json(const IncompleteRun& run) {
  const Makespans m = makespans_of(run.makespans_s);
  const json file = {{"format", "nlsplit-run"},
                     {"version", 1},
                     {"program", run.program->name},
                     {"fingerprint", hex16(fingerprint(*run.program))},
                     {"transport", run.transport},
                     {"batch", run.program->batch},
                     {"micro_batches", run.program->micro_batches},
                     {"makespan_s", m.middle},
                     {"makespan_spread_s", m.spread},
                     {"makespans_s", run.makespans_s},
                     {"throughput_per_s", static_cast<double>(run.program->batch) / m.middle},
                     {"incomplete", run.why}};
  return file.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string report_text(const RunReport& report) {
  const Program& program = report.saved->program;
  const Figures f = figures_of(report);
  const size_t repeats = report.result->makespans_s.size(), devices = program.devices.size();
  std::string text =
      headline(program, report.transport) + throughput_line(f.throughput, {f.makespan, f.spread}, repeats);
  text += fmt::format("latency     {} of a micro-batch, longest {}\n", to_string(seconds(f.latency.mean)),
                      to_string(seconds(f.latency.max)));
  if (const std::vector<double>& losses = report.result->losses; !losses.empty())
    text += fmt::format("loss        {:.6g}\n", losses[0]);  // every repeat is the same step
  const bool predicted = report.saved->has_prediction;
  const Prediction& p = report.saved->prediction;
  const Conditions conditions = conditions_of(report);
  if (predicted && p.makespan_s > 0) {
    const auto against = [&](double measured, double expected) {
      return conditions.comparable() && expected > 0 ? " (" + error_text(measured, expected) + ")" : "";
    };
    text += fmt::format("predicted   {} samples/s · {} for the batch{} · latency {}{}\n",
                        rate(static_cast<double>(program.batch) / p.makespan_s), to_string(seconds(p.makespan_s)),
                        against(f.makespan, p.makespan_s), to_string(seconds(p.latency_mean_s)),
                        against(f.latency.mean, p.latency_mean_s));
  }
  text += conditions_text(conditions);
  std::vector<Table::Column> columns = {{"device", Align::left},
                                        {"computing", Align::right},
                                        {"waiting", Align::right},
                                        {"communicating", Align::right},
                                        {"arena", Align::right}};
  if (predicted) columns.push_back({"predicted\ncomputing", Align::right});
  Table table(columns);
  const double makespan = report.result->trace.makespan;
  for (size_t d = 0; d < devices; ++d) {
    const DeviceTimes& times = f.devices[d];
    std::vector<std::string> row = {program.devices[d].name, time_and_share(times.compute, makespan),
                                    time_and_share(times.wait, makespan), time_and_share(times.communicate, makespan),
                                    to_string(report.result->trace.peak_bytes[d])};
    if (predicted) row.push_back(d < p.device_compute_s.size() ? to_string(seconds(p.device_compute_s[d])) : "-");
    table.add(std::move(row));
  }
  text += "\n" + table.to_string();
  text += "Computing and waiting make up the whole time; messages go beside both.\n";
  if (const std::vector<double> others = undisturbed_makespans_s(*report.result); others.size() < repeats) {
    text += fmt::format("\ndisturbed   {} of {} repeats: a processor was slower than at its best, by up to {:.0f} %",
                        repeats - others.size(), repeats, largest_slowdown(*report.result) * 100);
    if (!others.empty()) text += fmt::format("; the others took {}", to_string(seconds(median(others))));
    text += "\n";
  }
  if (report.result->overruns > 0) {
    text += fmt::format("\nlate        emulated compute ended too late {} in {}: figures are too low\n",
                        counted(static_cast<int64_t>(report.result->overruns), "time"),
                        counted(static_cast<int64_t>(repeats), "repeat"));
  }
  if (report.result->clock_error_s > 0) {
    text +=
        fmt::format("\nclocks      the ranks' clocks differ; a trace's times of two devices may be apart by up to {}\n",
                    to_string(seconds(report.result->clock_error_s)));
  }
  if (report.check) text += fmt::format("\ncheck       {}\n", to_string(*report.check));
  return text;
}

std::string report_json(const RunReport& report) {
  const Program& program = report.saved->program;
  const Figures f = figures_of(report);
  const Conditions conditions = conditions_of(report);
  json devices = json::array();
  for (size_t d = 0; d < program.devices.size(); ++d) {
    json calibrations = json::array();
    for (const std::vector<double>& repeat : report.result->calibrations_s) calibrations.push_back(repeat[d]);
    devices.push_back(
        {{"name", program.devices[d].name},
         {"calibrations_s", std::move(calibrations)},  // of its core before each repeat: base/calibration.h
         {"compute_s", f.devices[d].compute},
         {"wait_s", f.devices[d].wait},
         {"communicate_s", f.devices[d].communicate},
         {"arena_bytes", report.result->trace.peak_bytes[d].value()}});
  }
  json file = {
      {"format", "nlsplit-run"},
      {"version", 1},
      {"program", program.name},
      {"fingerprint", hex16(report.result->trace.fingerprint)},
      {"transport", report.transport},
      {"batch", program.batch},
      {"micro_batches", program.micro_batches},
      {"makespan_s", f.makespan},
      {"makespan_spread_s", f.spread},
      {"makespans_s", report.result->makespans_s},
      {"undisturbed", undisturbed(report.result->calibrations_s, best_calibrations(report.result->calibrations_s))},
      {"throughput_per_s", f.throughput},
      {"latency_mean_s", f.latency.mean},
      {"latency_max_s", f.latency.max},
      {"messages_s", message_seconds(program, report.result->trace)},
      {"devices", std::move(devices)},
      {"timeline", json::parse(timeline_json(program, report.result->trace))},
      {"overruns", report.result->overruns},
      {"clock_error_s", report.result->clock_error_s},
      {"predicted", nullptr},
      {"conditions", conditions_json(conditions)},
      {"check", nullptr}};
  if (!report.result->losses.empty()) file["losses"] = report.result->losses;
  if (report.saved->has_prediction) {
    const Prediction& p = report.saved->prediction;
    file["predicted"] = {
        {"makespan_s", p.makespan_s}, {"latency_mean_s", p.latency_mean_s}, {"device_compute_s", p.device_compute_s}};
    if (p.makespan_s > 0 && conditions.comparable())
      file["predicted"]["makespan_error"] = f.makespan / p.makespan_s - 1;
  }
  if (report.check) file["check"] = check_json(*report.check);
  return file.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace nlsplit::inline tools
