#include "exec/heartbeat/fault_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace nlsplit {
namespace {

double log_uniform(Random& random, double least, double most) {
  return least * std::pow(most / least, random.uniform());
}

double fault_time(Random& random) { return random.below(2) == 0 ? random.uniform(0, 3) : random.uniform(3, 20); }

void add_cuts(FaultScenario& it, Random& random, double begin, double end) {
  const auto ranks = static_cast<uint64_t>(it.ranks);
  const int a = static_cast<int>(random.below(ranks)),
            b = static_cast<int>((static_cast<uint64_t>(a) + 1 + random.below(ranks - 1)) % ranks);
  const auto cut = [&](int from, int to) { it.cuts.push_back({from, to, begin, end}); };
  switch (random.below(4)) {
    case 0:
      cut(a, b);
      it.text += fmt::format(", cut {}->{} at {:.3f} to {:.3f} s", a, b, begin, end);
      break;
    case 1:
      cut(a, b);
      cut(b, a);
      it.text += fmt::format(", cut {}<->{} at {:.3f} to {:.3f} s", a, b, begin, end);
      break;
    case 2: {
      const uint64_t ways = random.below(3);
      for (int other = 0; other < it.ranks; ++other) {
        if (other == a) continue;
        if (ways != 0) cut(a, other);
        if (ways != 1) cut(other, a);
      }
      it.text += fmt::format(", {} is cut off ({}) at {:.3f} to {:.3f} s", a,
                             ways == 0   ? "from hearing"
                             : ways == 1 ? "from being heard"
                                         : "both ways",
                             begin, end);
      break;
    }
    case 3:
      for (int low = 0; low <= std::min(a, b); ++low) {
        for (int high = std::min(a, b) + 1; high < it.ranks; ++high) {
          cut(low, high);
          cut(high, low);
        }
      }
      it.text += fmt::format(", 0..{} and the rest are parted at {:.3f} to {:.3f} s", std::min(a, b), begin, end);
      break;
  }
}

void add_fault(FaultScenario& it, Random& random) {
  const double when = fault_time(random);
  const auto victim = static_cast<int>(random.below(static_cast<uint64_t>(it.ranks)));
  const uint64_t kind = random.below(it.victim >= 0 ? 2 : 6);  // one victim
  if (kind == 1) {
    add_cuts(it, random, when, random.below(2) == 0 ? for_ever_s : when + random.uniform(1.5, 4) * limit_s);
  } else if (kind == 0) {
    add_cuts(it, random, when, for_ever_s);
  } else {
    it.victim = victim;
    if (kind <= 3) {
      if (random.below(2) == 0)
        it.dies_after_steps = static_cast<int>(random.below(80));
      else
        it.dies_s = when;
      it.text += it.dies_after_steps >= 0 ? fmt::format(", {} dies after {} steps", victim, it.dies_after_steps)
                                          : fmt::format(", {} dies at {:.3f} s", victim, when);
    } else {
      it.stops_s = when;
      if (kind == 4) it.goes_on_s = when + random.uniform(1.2, 3) * limit_s;
      it.text += fmt::format(", {} is stopped at {:.3f} to {:.3f} s", victim, when, it.goes_on_s);
    }
  }
  ++it.faults;
  it.harmless = false;
}

void add_short_fault(FaultScenario& it, Random& random) {
  const double when = fault_time(random), end = when + random.uniform(0, 0.4) * limit_s;
  if (random.below(2) == 0) return add_cuts(it, random, when, end);
  it.victim = static_cast<int>(random.below(static_cast<uint64_t>(it.ranks)));
  it.stops_s = when;
  it.goes_on_s = end;
  it.text += fmt::format(", {} is stopped at {:.3f} to {:.3f} s", it.victim, when, end);
}

}  // namespace

FaultScenario choose(Random& random) {
  FaultScenario it;
  it.ranks = 2 + static_cast<int>(random.below(6));
  if (random.below(40) == 0) it.ranks = 2 + static_cast<int>(random.below(63));
  const bool small = random.below(4) != 0;
  it.least_delay_s = log_uniform(random, 1e-5, 1e-2);
  it.most_delay_s =
      small ? log_uniform(random, it.least_delay_s, 0.02 * limit_s / 4) : random.uniform(0.05, 0.3) * limit_s;
  it.lateness_s = log_uniform(random, 1e-4, 0.005 * limit_s);
  it.text = fmt::format("{} ranks, delays {:.5f} to {:.5f} s", it.ranks, it.least_delay_s, it.most_delay_s);
  if (random.below(3) == 0) it.strangers = static_cast<int>(random.below(40));
  if (random.below(20) == 0) it.floods = 1 + static_cast<int>(random.below(3));
  if (random.below(4) == 0) it.odd_addresses = 0.5;
  if (it.strangers > 0 || it.floods > 0) it.text += fmt::format(", {} strangers, {} floods", it.strangers, it.floods);
  const uint64_t kind = random.below(10);
  if (kind < 7) add_fault(it, random);
  if (kind == 6) add_fault(it, random);
  if (kind == 7 && small) add_short_fault(it, random);
  return it;
}

FaultScenario choose_death(Random& random, int ranks, bool in_start) {
  FaultScenario it;
  it.ranks = ranks;
  it.least_delay_s = log_uniform(random, 1e-5, 1e-2);
  it.most_delay_s = log_uniform(random, it.least_delay_s, 0.02 * limit_s / 4);
  it.lateness_s = log_uniform(random, 1e-4, 0.005 * limit_s);
  it.victim = static_cast<int>(random.below(static_cast<uint64_t>(ranks)));
  if (in_start)
    it.dies_after_steps = static_cast<int>(random.below(80));
  else
    it.dies_s = random.uniform(10, 20);
  it.faults = 1;
  it.harmless = false;
  it.text = fmt::format("{} ranks, delays {:.5f} to {:.5f} s, {} dies {}", ranks, it.least_delay_s, it.most_delay_s,
                        it.victim, in_start ? "in the start" : "later");
  return it;
}

}  // namespace nlsplit
