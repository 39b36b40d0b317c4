#include "base/calibration.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>

namespace nlsplit::inline base {
namespace {

using Clock = std::chrono::steady_clock;
typedef float Vector __attribute__((vector_size(16)));

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Twelve independent chains of multiplications and additions keep every floating-point pipe of today's cores busy: then
// what another hardware thread takes from it shows.
double compute() {
  constexpr size_t chains = 12;
  constexpr int rounds = 20000;
  const Vector factor = {0.999F, 0.999F, 0.999F, 0.999F}, summand = {0.5F, 0.5F, 0.5F, 0.5F};
  std::array<Vector, chains> values;
  for (size_t i = 0; i < chains; ++i) values[i] = factor * static_cast<float>(i);
  const auto start = Clock::now();
  for (int round = 0; round < rounds; ++round) {
    for (Vector& value : values) value = value * factor + summand;
  }
  volatile float kept = 0;
  for (const Vector& value : values) kept = kept + value[0];
  return seconds_since(start);
}

// Through 4 MiB, a part of each line of 64 bytes: more than today's second-level caches hold. The reads do not depend
// on each other: bandwidth counts, not latency.
double walk() {
  constexpr size_t floats = size_t{1} << 20, line = 16, chains = 8;
  static const std::vector<float> field(floats, 1);  // only read, so threads may share it
  std::array<Vector, chains> sums{};
  const auto start = Clock::now();
  for (size_t i = 0; i < floats; i += line * chains) {
    for (size_t c = 0; c < chains; ++c) {
      Vector part;
      std::memcpy(&part, &field[i + line * c], sizeof(part));
      sums[c] = sums[c] + part;
    }
  }
  volatile float kept = 0;
  for (const Vector& sum : sums) kept = kept + sum[0];
  return seconds_since(start);
}

double middle_of(size_t times, double (*measure)()) {
  std::vector<double> all(times);
  for (double& one : all) one = measure();
  std::ranges::sort(all);
  return all[times / 2];
}

}  // namespace

double time_calibration_loop() {
  constexpr size_t computations = 15, walks = 5;
  // So weighted, a cache half as fast counts like a core a fifth slower (on Zen 5: 34 and 40 us).
  constexpr double weight = 0.2;
  walk();  // brings it into the cache
  return middle_of(computations, compute) + weight * middle_of(walks, walk);
}

double best_calibration(std::vector<double> calibrations) {
  std::ranges::sort(calibrations);
  return calibrations[calibrations.size() / 10];
}

void BestCalibration::add(double calibration_s) {
  if (!std::isfinite(calibration_s)) return;
  seen_.push_back(calibration_s);
  best_s_ = best_calibration(seen_);
  if (known_s_ > 0) best_s_ = std::min(best_s_, known_s_);
}

std::vector<double> best_calibrations(const std::vector<std::vector<double>>& calibrations) {
  std::vector<std::vector<double>> by_device;
  for (const std::vector<double>& repeat : calibrations) {
    by_device.resize(std::max(by_device.size(), repeat.size()));
    for (size_t d = 0; d < repeat.size(); ++d) by_device[d].push_back(repeat[d]);
  }
  std::vector<double> best;
  for (std::vector<double>& all : by_device) best.push_back(best_calibration(std::move(all)));
  return best;
}

std::vector<size_t> undisturbed(const std::vector<std::vector<double>>& calibrations, const std::vector<double>& best) {
  const auto fast = [&](const std::vector<double>& repeat) {
    for (size_t d = 0; d < repeat.size() && d < best.size(); ++d) {
      if (repeat[d] > (1 + calibration_tolerance) * best[d]) return false;
    }
    return true;
  };
  std::vector<size_t> good;
  for (size_t r = 0; r < calibrations.size(); ++r) {
    if (fast(calibrations[r]) && (r + 1 == calibrations.size() || fast(calibrations[r + 1]))) good.push_back(r);
  }
  return good;
}

}  // namespace nlsplit::inline base
