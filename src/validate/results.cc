#include "validate/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "base/file.h"
#include "base/gauge.h"

namespace nlsplit {
namespace {

using nlohmann::json;

std::string line_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

json header_of(const PlanSet& set, const std::string& machine) {
  return {{"format", "nlsplit-validation"},
          {"version", 3},
          {"model", set.model},
          {"batch", set.batch},
          {"machine", machine}};
}

json to_json(const PlanRun& run) {
  if (!run.error.empty()) return {{"fingerprint", run.fingerprint}, {"round", run.round}, {"error", run.error}};
  return {{"fingerprint", run.fingerprint}, {"round", run.round},
          {"makespans_s", run.makespans_s}, {"latency_mean_s", run.latency_mean_s},
          {"compute_s", run.compute_s},     {"messages_s", run.messages_s},
          {"gauges_s", run.gauges_s},       {"timeline", json::parse(run.timeline)}};
}

PlanRun run_of(const json& value) {
  PlanRun run;
  value.at("fingerprint").get_to(run.fingerprint);
  value.at("round").get_to(run.round);
  if (value.contains("error")) {
    value.at("error").get_to(run.error);
    return run;
  }
  value.at("makespans_s").get_to(run.makespans_s);
  value.at("gauges_s").get_to(run.gauges_s);
  value.at("latency_mean_s").get_to(run.latency_mean_s);
  value.at("compute_s").get_to(run.compute_s);
  value.at("messages_s").get_to(run.messages_s);
  run.timeline = value.at("timeline").dump();
  return run;
}

// Appends and waits until it is on disk.
Status append_line(const std::string& path, const std::string& line) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (file < 0) return io_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(file, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    done += static_cast<size_t>(n);
  }
  const bool whole = done == line.size() && ::fsync(file) == 0;
  const int why = errno;
  ::close(file);
  return whole ? ok_status() : Status(io_error(fmt::format("cannot write {}: {}", path, std::strerror(why))));
}

}  // namespace

Result<ResultsFile> ResultsFile::open(const std::string& path, const PlanSet& set, const std::string& machine) {
  ResultsFile file;
  file.path_ = path;
  std::error_code failure;
  const json header = header_of(set, machine);
  if (!std::filesystem::exists(path, failure)) {
    RETURN_IF_ERROR(append_line(path, line_of(header)));
    return file;
  }
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const size_t end = text.rfind('\n');
  const std::string whole = end == std::string::npos ? "" : text.substr(0, end + 1);
  std::istringstream lines(whole);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    try {
      const json value = json::parse(line);
      if (number > 1) {
        file.runs_.push_back(run_of(value));
      } else if (value != header) {
        return invalid_input(
            fmt::format("{} is of something else: {} instead of {}; give another --output or remove it", path, line,
                        header.dump()));
      }
    } catch (const json::exception& e) {
      return invalid_input(fmt::format("{}:{}: {}", path, number, e.what()));
    }
  }
  if (number == 0) return invalid_input(fmt::format("{} holds no results", path));
  if (whole.size() < text.size()) std::filesystem::resize_file(path, whole.size(), failure);
  if (failure) return io_error(fmt::format("cannot shorten {}: {}", path, failure.message()));
  return file;
}

bool ResultsFile::has(const std::string& fingerprint, int round) const {
  return std::ranges::any_of(runs_, [&](const PlanRun& run) {
    return run.error.empty() && run.fingerprint == fingerprint && run.round == round;
  });
}

Status ResultsFile::append(const PlanRun& run) {
  RETURN_IF_ERROR(append_line(path_, line_of(to_json(run))));
  runs_.push_back(run);
  return ok_status();
}

Result<PlanRun> parse_run(const std::string& text, const std::string& file) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-run" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: not the figures of a run of version 1", file));
    PlanRun run;
    value.at("fingerprint").get_to(run.fingerprint);
    value.at("makespans_s").get_to(run.makespans_s);
    value.at("latency_mean_s").get_to(run.latency_mean_s);
    value.at("messages_s").get_to(run.messages_s);
    for (const json& device : value.at("devices")) {
      run.compute_s.push_back(device.at("compute_s").get<double>());
      device.at("gauges_s").get_to(run.gauges_s[device.at("name").get<std::string>()]);
    }
    run.timeline = value.at("timeline").dump();
    if (run.makespans_s.empty()) return invalid_input(fmt::format("{}: a run without repeats", file));
    return run;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
}

namespace {
std::vector<size_t> all_repeats(const PlanRun& run) {
  std::vector<size_t> all(run.makespans_s.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}
}  // namespace

std::map<std::string, double> best_gauges(const std::vector<PlanRun>& runs) {
  std::map<std::string, std::vector<double>> all;
  for (const PlanRun& run : runs) {
    for (const auto& [device, gauges] : run.gauges_s)
      all[device].insert(all[device].end(), gauges.begin(), gauges.end());
  }
  std::map<std::string, double> best;
  for (auto& [device, gauges] : all) {
    if (!gauges.empty()) best[device] = best_gauge(std::move(gauges));
  }
  return best;
}

std::vector<size_t> undisturbed(const PlanRun& run, const std::map<std::string, double>& best) {
  std::vector<std::vector<double>> gauges(run.makespans_s.size());
  std::vector<double> best_here;
  for (const auto& [device, of_device] : run.gauges_s) {
    const auto known = best.find(device);
    if (known == best.end() || of_device.size() != gauges.size()) continue;
    for (size_t r = 0; r < gauges.size(); ++r) gauges[r].push_back(of_device[r]);
    best_here.push_back(known->second);
  }
  return undisturbed(gauges, best_here);
}

ErrorSources error_sources(const std::vector<ValidatedPlan>& plans) {
  std::vector<double> computing, messages;
  for (const ValidatedPlan& plan : plans) {
    if (plan.runs.empty()) continue;
    computing.push_back(std::abs(plan.compute_error));
    if (plan.predicted->messages_s > 0) messages.push_back(std::abs(plan.message_error));
  }
  ErrorSources sources;
  if (!computing.empty()) sources.computing = quantiles_of(computing);
  if (!messages.empty()) sources.messages = quantiles_of(messages);
  return sources;
}

std::vector<ValidatedPlan> join(const PlanSet& set, const std::vector<PlanRun>& runs) {
  std::vector<ValidatedPlan> plans;
  const std::map<std::string, double> best = best_gauges(runs);
  for (const PredictedPlan& predicted : set.plans) {
    ValidatedPlan plan;
    plan.predicted = &predicted;
    std::vector<double> makespans, latencies, computing, sending;
    const size_t longest =
        static_cast<size_t>(std::ranges::max_element(predicted.compute_s) - predicted.compute_s.begin());
    for (const PlanRun& run : runs) {
      if (run.fingerprint != predicted.fingerprint) continue;
      if (run.error.empty())
        plan.runs.push_back(&run);
      else
        plan.error = run.error;
    }
    const auto good = [&best](const PlanRun* run) { return !undisturbed(*run, best).empty(); };
    plan.disturbed = std::ranges::none_of(plan.runs, good);
    for (const PlanRun* each : plan.runs) {
      const PlanRun& run = *each;
      if (!plan.disturbed && !good(each)) continue;
      for (const size_t r : plan.disturbed ? all_repeats(run) : undisturbed(run, best))
        makespans.push_back(run.makespans_s[r]);
      latencies.push_back(run.latency_mean_s);
      if (longest < run.compute_s.size()) computing.push_back(run.compute_s[longest]);
      sending.push_back(run.messages_s);
    }
    if (!plan.runs.empty()) {
      plan.error.clear();
      plan.outcome = {predicted.makespan_s, quantile(makespans, 0.5), predicted.latency_mean_s,
                      quantile(latencies, 0.5), (quantile(makespans, 0.75) - quantile(makespans, 0.25)) / 2};
      if (!computing.empty() && predicted.compute_s[longest] > 0)
        plan.compute_error = quantile(computing, 0.5) / predicted.compute_s[longest] - 1;
      if (predicted.messages_s > 0) plan.message_error = quantile(sending, 0.5) / predicted.messages_s - 1;
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace nlsplit
