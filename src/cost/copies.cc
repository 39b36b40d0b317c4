#include "cost/copies.h"

#include <algorithm>
#include <cmath>

namespace nlsplit::inline cost {

MessageCost line_through(const std::map<int64_t, double>& seconds_of) {
  double w = 0, wx = 0, wxx = 0, wy = 0, wxy = 0;
  for (const auto& [size, time] : seconds_of) {
    const double x = static_cast<double>(size), weight = 1 / (time * time);
    w += weight, wx += weight * x, wxx += weight * x * x, wy += weight * time, wxy += weight * x * time;
  }
  const double slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
  return {seconds((wy - slope * wx) / w), bytes_per_second(1 / slope)};
}

Result<CopyLine> fit_copies(const std::map<int64_t, double>& seconds_of) {
  CHECK(seconds_of.size() >= 2, "a line needs two points");
  CopyLine line{line_through(seconds_of), 0};
  const double bandwidth = line.cost.bandwidth.value();
  if (!std::isfinite(bandwidth) || bandwidth <= 0)
    return failed("longer copies took no longer: the measurement was disturbed");
  line.cost.latency = std::max(line.cost.latency, seconds(0));
  for (const auto& [size, time] : seconds_of) {
    const double fitted = (line.cost.latency + bytes(size) / line.cost.bandwidth).value();
    line.largest_error = std::max(line.largest_error, std::abs(fitted / time - 1));
  }
  return line;
}

Bus bus_of(const Copies& copies) {
  const MessageCost &in = copies.in.cost, &out = copies.out.cost;
  const double each = 2 / (1 / in.bandwidth.value() + 1 / out.bandwidth.value());
  Bus bus;
  bus.link.bandwidth = bytes_per_second(each);
  bus.link.latency = (in.latency + out.latency) / 2.0;
  bus.link.full_duplex = copies.both.value() > each * 0.75;  // in the middle between all of it and half
  return bus;
}

}  // namespace nlsplit::inline cost
