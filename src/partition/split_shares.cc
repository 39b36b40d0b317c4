#include "partition/split_shares.h"

#include <algorithm>
#include <numeric>

#include "partition/score.h"

namespace nlsplit::inline partition {
namespace {

constexpr int64_t most_shares_each = 8;  // so many for each device, on average
constexpr double good_enough = 1.03;     // times what exact shares would take
// Of its memory: what ShardBytes leaves out is less than the rest. Only then are other shares not worth a look.
constexpr double surely_fits = 0.5;

std::vector<double> parts_of(const std::vector<int64_t>& shares) {
  const auto all = static_cast<double>(std::accumulate(shares.begin(), shares.end(), int64_t{0}));
  std::vector<double> parts;
  for (const int64_t share : shares) parts.push_back(static_cast<double>(share) / all);
  return parts;
}

std::vector<int64_t> small_shares_of(const std::vector<double>& parts) {
  std::vector<double> seconds;
  for (const double part : parts) seconds.push_back(1 / part);
  return small_shares(seconds);
}

// Each part at most as large as its limit; what is cut off one goes to those below theirs, in proportion. The limits
// add up to more than 1.
std::vector<double> cut_to(std::vector<double> parts, const std::vector<double>& limits) {
  std::vector<bool> at_limit(parts.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    double left = 1, below = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i] > limits[i]) {
        parts[i] = limits[i];
        at_limit[i] = changed = true;
      }
      (at_limit[i] ? left : below) += at_limit[i] ? -parts[i] : parts[i];
    }
    for (size_t i = 0; changed && i < parts.size(); ++i) {
      if (!at_limit[i]) parts[i] *= left / below;
    }
  }
  return parts;
}

}  // namespace

std::vector<int64_t> small_shares(const std::vector<double>& seconds) {
  const auto count = static_cast<int64_t>(seconds.size());
  std::vector<int64_t> best(seconds.size(), 1);
  if (std::ranges::any_of(seconds, [](double s) { return s <= 0; })) return best;
  const auto time_of = [&](const std::vector<int64_t>& shares) {
    const auto all = static_cast<double>(std::accumulate(shares.begin(), shares.end(), int64_t{0}));
    double slowest = 0;
    for (size_t i = 0; i < shares.size(); ++i)
      slowest = std::max(slowest, static_cast<double>(shares[i]) / all * seconds[i]);
    return slowest;
  };
  const double ideal = shared_seconds(seconds);
  double least = time_of(best);
  for (int64_t all = count + 1; all <= count * most_shares_each && least > good_enough * ideal; ++all) {
    const std::vector<int> jobs = share_jobs(static_cast<int>(all), seconds);
    if (std::ranges::find(jobs, 0) != jobs.end()) continue;
    const std::vector<int64_t> shares(jobs.begin(), jobs.end());
    const double time = time_of(shares);
    if (time >= least) continue;
    least = time;
    best = shares;
  }
  reduce(best);
  return best;
}

void reduce(std::vector<int64_t>& shares) {
  int64_t divisor = 0;
  for (const int64_t share : shares) divisor = std::gcd(divisor, share);
  for (int64_t& share : shares) share /= divisor;
}

std::vector<int64_t> shares_by_speed(const SearchCosts& costs, const Stage& stage) {
  std::vector<double> seconds;
  for (const DeviceId device : stage.devices) {
    const std::vector<double>& of = costs.node_seconds[device.index()];
    seconds.push_back(std::accumulate(of.begin() + static_cast<std::ptrdiff_t>(stage.begin),
                                      of.begin() + static_cast<std::ptrdiff_t>(stage.end), 0.0));
  }
  return small_shares(seconds);
}

std::vector<std::vector<int64_t>> shares_by_memory(const std::vector<int64_t>& by_speed, const ShardBytes& bytes) {
  const std::vector<double> parts = parts_of(by_speed);
  std::vector<double> limits;  // of the part that a memory has room for
  bool fits = true;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double free = bytes.memory[i] - bytes.each;
    if (free <= 0) return {};
    if (bytes.each + parts[i] * bytes.shared > surely_fits * bytes.memory[i]) fits = false;
    limits.push_back(free / bytes.shared);
  }
  if (fits) return {};
  std::vector<std::vector<int64_t>> found;
  const auto add = [&](const std::vector<double>& wanted) {
    std::vector<int64_t> shares = small_shares_of(wanted);
    if (shares != by_speed && std::ranges::find(found, shares) == found.end()) found.push_back(std::move(shares));
  };
  if (std::accumulate(limits.begin(), limits.end(), 0.0) > 1) add(cut_to(parts, limits));
  add(limits);
  return found;
}

}  // namespace nlsplit::inline partition
