#include "validate/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "cost/copies.h"
#include "validate/statistics.h"

namespace nlsplit::inline validation {
namespace {

using nlohmann::json;

struct Interval {
  double begin = 0, end = 0;  // microseconds
};

// Seconds by which samples are longer than their size's median, on average. Of many messages in a row each takes its
// mean, not its median. The median over sizes: a hiccup during a few large messages says nothing about small ones.
double mean_excess(const std::map<int64_t, std::vector<double>>& by_size, const std::map<int64_t, double>& medians) {
  std::vector<double> excess;
  for (const auto& [size, median] : medians) {
    const std::vector<double>& times = by_size.at(size);
    excess.push_back(std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size()) - median);
  }
  return excess.empty() ? 0 : quantile(excess, 0.5);
}

bool rises(const MessageCost& line) { return std::isfinite(line.bandwidth.value()) && line.bandwidth.value() > 0; }

}  // namespace

Result<std::vector<RouteSample>> samples_of(const PingPongTest& test, const std::string& chrome_trace,
                                            const std::string& file) {
  // When each device's computing of each slot begins and ends: [device][slot].
  std::array<std::vector<std::optional<Interval>>, 2> computing;
  for (auto& slots : computing) slots.resize(test.sizes.size());
  std::optional<double> start;  // ping's first message leaves
  try {
    const json trace = json::parse(chrome_trace);
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const auto device = event.at("pid").get<size_t>();
      const double begin = event.at("ts").get<double>(), end = begin + event.at("dur").get<double>();
      if (device == 0) start = std::min(start.value_or(begin), begin);
      if (event.at("cat") == "send" || event.at("cat") == "recv") continue;
      std::optional<Interval>& slot = computing.at(device).at(event.at("args").at("micro_batch").get<size_t>());
      slot = slot ? Interval{std::min(slot->begin, begin), std::max(slot->end, end)} : Interval{begin, end};
    }
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  } catch (const std::out_of_range&) {
    return invalid_input(fmt::format("{} has other devices or slots than the test", file));
  }
  std::vector<RouteSample> samples;
  for (size_t slot = 0; slot < test.sizes.size(); ++slot) {
    const auto &ping = computing[0][slot], &pong = computing[1][slot];
    if (!start || !ping || !pong) break;
    samples.push_back({test.sizes[slot], (ping->begin - *start - (pong->end - pong->begin)) * 1e-6 / 2});
    start = ping->end;
  }
  if (samples.size() != test.sizes.size())
    return failed(fmt::format("{} has {} of {} messages", file, samples.size(), test.sizes.size()));
  return samples;
}

Result<std::vector<RouteSample>> sends_of(const std::string& chrome_trace, const std::string& file) {
  std::vector<RouteSample> sends;
  try {
    const json trace = json::parse(chrome_trace);
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X" || event.at("cat") != "send") continue;
      sends.push_back({event.at("args").at("bytes").get<int64_t>(), event.at("dur").get<double>() * 1e-6});
    }
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
  return sends;
}

SenderFit fit_sender(const std::vector<RouteSample>& samples, const std::vector<RouteSample>& sends,
                     const RouteFit& fit, Bytes eager_limit) {
  const double handshake = std::max(0.0, (fit.rendezvous.latency - fit.eager.latency).value());
  const double request = (eager_limit / fit.rendezvous.bandwidth).value();
  std::map<int64_t, std::vector<double>> whole, by_size;
  for (const RouteSample& sample : samples) whole[sample.bytes].push_back(sample.seconds);
  for (const RouteSample& send : sends)
    if (bytes(send.bytes) > eager_limit * 2) by_size[send.bytes].push_back(send.seconds - handshake);
  if (by_size.empty()) return {};
  SenderFit sender{0, std::numeric_limits<double>::infinity()};
  for (const auto& [size, times] : by_size) {
    const double median = quantile(times, 0.5);
    // The largest comes last. Its own time: a line that is off by a hundredth is off by a tenth of what is held.
    const double moving = quantile(whole[size], 0.5) - fit.rendezvous.latency.value();
    sender.held = std::max(0.0, moving - median);
    sender.handover =
        std::clamp((median - request) / static_cast<double>(size - eager_limit.value()), 0.0, sender.handover);
  }
  return sender;
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

Result<bool> left_early(const std::string& chrome_trace, const std::string& file) {
  double begin = std::numeric_limits<double>::infinity(), sent = 0, computed = 0;
  try {
    const json trace = json::parse(chrome_trace);
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      const double at = event.at("ts").get<double>(), end = at + event.at("dur").get<double>();
      begin = std::min(begin, at);
      if (event.at("pid") == 0 && event.at("cat") == "send") sent = std::max(sent, end);
      if (event.at("pid") == 1 && event.at("cat") == "compute") computed = std::max(computed, end);
    }
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
  if (sent == 0 || computed == 0) return failed(fmt::format("{} has no messages, or nobody computes on them", file));
  return sent - begin < (computed - begin) / 2;
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
    for (const auto& [slot, computations] : computed[device]) {
      for (const auto& [start, duration] : computations) durations.push_back(duration);
      if (slot == (device == 0 ? 0 : last)) continue;
      double difference = 0;
      size_t place = 0;
      for (const auto& [start, duration] : computations)
        difference += (place++ < computations.size() / 2) == (device == 0) ? duration : -duration;
      times.taken[device].push_back(difference);
    }
    if (times.taken[device].empty()) return failed(fmt::format("{} has no computations of device {}", file, device));
    const double median = quantile(durations, 0.5);
    times.computation_s = device == 0 ? median : std::min(times.computation_s, median);
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
  // Sums over many messages need means; lines through means would be moved by single samples.
  fit.eager.latency = fit.eager.latency + seconds(std::max(0.0, mean_excess(by_size, eager)));
  fit.rendezvous.latency = fit.rendezvous.latency + seconds(std::max(0.0, mean_excess(by_size, rendezvous)));
  return fit;
}

}  // namespace nlsplit::inline validation
