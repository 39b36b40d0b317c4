#include "measure/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/file.h"
#include "base/interrupts.h"
#include "program/saved.h"
#include "program/verify.h"
#include "validate/results.h"
#include "validate/routes.h"
#include "validate/statistics.h"

namespace nlsplit::inline measure {

Result<NetworkTests> make_network_tests(const std::string& nlsim, const std::string& scenario,
                                        const std::string& folder, Bytes eager_limit, const std::string& pairs) {
  RETURN_IF_ERROR(run_nlsim(nlsim, {"lower", scenario, "--network-set", folder, "--eager-limit",
                                    fmt::format("{}B", eager_limit.value()), "--pairs", pairs}));
  ASSIGN_OR_RETURN(const std::string text, read_file(folder + "/network.json"));
  ASSIGN_OR_RETURN(NetworkTests set, parse_network_tests(text, folder + "/network.json"));
  if (set.tests.empty()) return invalid_input(fmt::format("{}: no two devices exchange messages", scenario));
  return set;
}

// Once more with what was there already, if something disturbed it.
Result<MeasuredMessages> play(const LaunchArguments& arguments, const std::string& set, const PingPongTest& test,
                              Bytes eager_limit) {
  constexpr int attempts = 3;
  constexpr double disturbed = 0.05;  // on a quiet machine lines are within 2 %
  const std::string trace = set + "/" + test.folder + ".json";
  std::vector<RouteSample> samples, sends;
  for (int attempt = 1;; ++attempt) {
    ASSIGN_OR_RETURN(const ChildEnd end, launch(arguments, set + "/" + test.folder, {test.a, test.b},
                                                {"--trace", trace, "--repeats", "3"}));
    if (end.code != 0) return launch_error(end, fmt::format("messages between {} and {}", test.a, test.b));
    ASSIGN_OR_RETURN(const std::string text, read_file(trace));
    ASSIGN_OR_RETURN(const std::vector<RouteSample> more, samples_of(test, text, trace));
    samples.insert(samples.end(), more.begin(), more.end());
    ASSIGN_OR_RETURN(const std::vector<RouteSample> more_sends, sends_of(text, trace));
    sends.insert(sends.end(), more_sends.begin(), more_sends.end());
    auto fit = fit_route(samples, eager_limit);
    const bool last = attempt == attempts || interrupted();
    if (fit && (last || fit->largest_error <= disturbed))
      return MeasuredMessages{*fit, fit_sender(samples, sends, *fit, eager_limit)};
    if (fit || !last) continue;
    fit.error().message = fmt::format("messages between {} and {}: {}", test.a, test.b, fit.error().message);
    return std::move(fit.error());
  }
}

Result<Played> run_saved(const LaunchArguments& arguments, const std::string& folder,
                         const std::vector<std::string>& hosts, int repeats) {
  const std::string figures = folder + ".json";
  ASSIGN_OR_RETURN(const ChildEnd end,
                   launch(arguments, folder, hosts, {"--json", figures, "--repeats", fmt::format("{}", repeats)}));
  if (end.code != 0) {
    return launch_error(end, fmt::format("computing on {}", fmt::join(hosts, " and ")));
  }
  ASSIGN_OR_RETURN(const std::string text, read_file(figures));
  ASSIGN_OR_RETURN(const PlanRun run, parse_run(text, figures));
  return Played{quantile(run.makespans_s, 0.5), run.compute_s, run.messages_s};
}

Result<BusyFigures> measure_overheads(const LaunchArguments& arguments, const std::string& set, const BusyPair& pair) {
  constexpr int turns = 5;
  const std::string folder = set + "/" + pair.folder, trace = folder + ".json";
  std::array<std::vector<double>, 2> taken;
  std::vector<double> computations_s;
  for (int turn = 0; turn < turns && !interrupted(); ++turn) {
    ASSIGN_OR_RETURN(const ChildEnd end,
                     launch(arguments, folder, {pair.a, pair.b}, {"--trace", trace, "--repeats", "3"}));
    if (end.code != 0) return launch_error(end, fmt::format("computing on {} and {}", pair.a, pair.b));
    ASSIGN_OR_RETURN(const std::string text, read_file(trace));
    ASSIGN_OR_RETURN(const BusyTimes more, busy_times(text, trace));
    for (size_t device = 0; device < 2; ++device)
      taken[device].insert(taken[device].end(), more.taken[device].begin(), more.taken[device].end());
    computations_s.push_back(more.computation_s);
  }
  // Below zero it is noise.
  const auto per_byte = [&](const std::vector<double>& differences) {
    return differences.empty() ? 0 : std::max(0.0, quantile(differences, 0.5)) / static_cast<double>(pair.bytes);
  };
  return BusyFigures{per_byte(taken[0]), per_byte(taken[1]),
                     computations_s.empty() ? 0 : std::ranges::min(computations_s)};
}

Result<Seconds> measure_clear_to_send_delay(const LaunchArguments& arguments, const std::string& set,
                                            const ClearToSendTest& test) {
  double waits = 0;
  for (const bool with_bulk : {false, true}) {
    const std::string folder = set + "/" + (with_bulk ? test.with_bulk : test.alone), trace = folder + ".json";
    ASSIGN_OR_RETURN(const ChildEnd end,
                     launch(arguments, folder, {test.a, test.b}, {"--trace", trace, "--repeats", "1"}));
    if (end.code != 0) return launch_error(end, fmt::format("messages between {} and {}", test.a, test.b));
    ASSIGN_OR_RETURN(const std::string text, read_file(trace));
    ASSIGN_OR_RETURN(const std::vector<double> times, send_times(text, trace));
    waits = quantile(times, 0.5) - waits;
  }
  return seconds(std::max(0.0, waits));
}

Result<bool> measure_starts_early(const LaunchArguments& arguments, const std::string& set, const MessageTest& test) {
  const std::string folder = set + "/" + test.folder, trace = folder + ".json";
  ASSIGN_OR_RETURN(const ChildEnd end,
                   launch(arguments, folder, {test.a, test.b}, {"--trace", trace, "--repeats", "1"}));
  if (end.code != 0) return launch_error(end, fmt::format("messages between {} and {}", test.a, test.b));
  ASSIGN_OR_RETURN(const std::string text, read_file(trace));
  return left_early(text, trace);
}

namespace {

// A slot of a saved busy pair then computes for so long, or for as long as it did.
Status shorten(const std::string& folder, double slot_s, double computation_s) {
  constexpr double most = 1e6;
  if (computation_s <= 0) return ok_status();
  ASSIGN_OR_RETURN(SavedProgram saved, load_program(folder));
  saved.program =
      with_fewer_computations(std::move(saved.program), static_cast<int>(std::min(slot_s / computation_s, most)) + 1);
  saved.unsplit = saved.program;
  RETURN_IF_ERROR(verify(saved.program));
  return save_program(folder, saved, {});
}

}  // namespace

Result<double> measure_longer(const LaunchArguments& arguments, const std::string& set, const MessageTest& test,
                              const MessageCost& alone, double computation_s) {
  constexpr int turns = 5, repeats = 1;
  const double alone_s = (alone.latency * test.messages + bytes(test.bytes) / alone.bandwidth).value();
  const std::string folder = set + "/" + test.folder;
  RETURN_IF_ERROR(shorten(folder, 2 * alone_s / test.messages, computation_s));
  std::vector<double> longer;
  for (int turn = 0; turn < turns && !interrupted(); ++turn) {
    ASSIGN_OR_RETURN(const Played played, run_saved(arguments, folder, {test.a, test.b}, repeats));
    longer.push_back((played.messages_s - alone_s) / test.messages);
  }
  return longer.empty() ? 0 : std::max(0.0, quantile(longer, 0.5));
}

}  // namespace nlsplit::inline measure
