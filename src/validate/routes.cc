#include "validate/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "cost/copies.h"
#include "validate/statistics.h"

namespace nlsplit::inline validation {
namespace {

using nlohmann::json;

bool rises(const MessageCost& line) { return std::isfinite(line.bandwidth.value()) && line.bandwidth.value() > 0; }

}  // namespace

Result<std::vector<RouteSample>> samples_of(const PingPongTest& test, const std::string& chrome_trace,
                                            const std::string& file) {
  std::vector<RouteSample> samples;
  try {
    const json trace = json::parse(chrome_trace);
    // From the end of one copy to the end of the next one: two messages, each from a computation to a computation.
    std::optional<double> start;
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X" || event.at("pid") != 0 || samples.size() == test.sizes.size()) continue;
      const double begin = event.at("ts").get<double>();
      if (!start) start = begin;
      if (event.at("cat") == "send" || event.at("cat") == "recv") continue;
      const double end = begin + event.at("dur").get<double>();
      samples.push_back({test.sizes[samples.size()], (end - *start) * 1e-6 / 2});
      start = end;
    }
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
  if (samples.size() != test.sizes.size())
    return failed(fmt::format("{} has {} of {} messages", file, samples.size(), test.sizes.size()));
  return samples;
}

Result<std::vector<double>> send_times(const std::string& chrome_trace, const std::string& file) {
  std::vector<double> times;
  try {
    const json trace = json::parse(chrome_trace);
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X" && event.at("pid") == 0 && event.at("cat") == "send")
        times.push_back(event.at("dur").get<double>() * 1e-6);
    }
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
  if (times.empty()) return failed(fmt::format("{} has no messages of the first device", file));
  return times;
}

Result<BusyTimes> busy_times(const std::string& chrome_trace, const std::string& file) {
  std::array<std::map<int, std::map<double, double>>, 2> computed;  // [device][slot][start]: duration
  try {
    const json trace = json::parse(chrome_trace);
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X" || event.at("cat") != "compute") continue;
      const json& arguments = event.at("args");
      if (arguments.at("instruction").get<std::string>().find("= Erf(") == std::string::npos) continue;
      computed.at(event.at("pid").get<size_t>())[arguments.at("micro_batch").get<int>()][event.at("ts").get<double>()] =
          event.at("dur").get<double>() * 1e-6;
    }
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  } catch (const std::out_of_range&) {
    return invalid_input(fmt::format("{}: it has more than two devices", file));
  }
  BusyTimes times;
  for (const size_t device : {0, 1}) {
    // No message passes during the sender's first slot and after the receiver's last.
    const int last = computed[device].empty() ? 0 : computed[device].rbegin()->first;
    std::vector<double> durations;
    for (const auto& [slot, chores] : computed[device]) {
      for (const auto& [start, duration] : chores) durations.push_back(duration);
      if (slot == (device == 0 ? 0 : last)) continue;
      double difference = 0;
      size_t place = 0;
      for (const auto& [start, duration] : chores)
        difference += (place++ < chores.size() / 2) == (device == 0) ? duration : -duration;
      times.taken[device].push_back(difference);
    }
    if (times.taken[device].empty()) return failed(fmt::format("{} has no computations of device {}", file, device));
    const double median = quantile(durations, 0.5);
    times.chore_s = device == 0 ? median : std::min(times.chore_s, median);
  }
  return times;
}

Result<RouteFit> fit_route(const std::vector<RouteSample>& samples, Bytes eager_limit) {
  std::map<int64_t, std::vector<double>> by_size;
  for (const RouteSample& sample : samples) by_size[sample.bytes].push_back(sample.seconds);
  std::map<int64_t, double> eager, rendezvous;
  for (const auto& [size, times] : by_size)
    (bytes(size) <= eager_limit ? eager : rendezvous)[size] = quantile(times, 0.5);
  if (rendezvous.empty() && eager.size() >= 2) rendezvous = eager;  // all messages start at once: one line
  if (rendezvous.size() < 2) return invalid_input("too few sizes above the eager limit were measured");
  RouteFit fit;
  fit.rendezvous = line_through(rendezvous);
  if (!rises(fit.rendezvous)) return failed("longer messages took no longer: the measurement was disturbed");
  fit.eager = eager.size() < 2 ? fit.rendezvous : line_through(eager);
  if (!rises(fit.eager)) {  // small ones differ by less than the noise: what larger ones take for a byte will do
    std::vector<double> latencies;
    for (const auto& [size, time] : eager) latencies.push_back(time - (bytes(size) / fit.rendezvous.bandwidth).value());
    fit.eager = {seconds(quantile(latencies, 0.5)), fit.rendezvous.bandwidth};
  }
  for (MessageCost* cost : {&fit.eager, &fit.rendezvous}) cost->latency = seconds(std::max(0.0, cost->latency.value()));
  for (const auto& [size, times] : by_size) {
    const MessageCost& cost = bytes(size) <= eager_limit ? fit.eager : fit.rendezvous;
    const double fitted = (cost.latency + bytes(size) / cost.bandwidth).value(), median = quantile(times, 0.5);
    fit.largest_error = std::max(fit.largest_error, std::abs(fitted / median - 1));
  }
  return fit;
}

}  // namespace nlsplit::inline validation
