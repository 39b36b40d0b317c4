// A plan's time with slower or faster links.
//
//   makespan_over(lowered, {.bandwidth = 0.5, .latency = 1})      // half of every bandwidth
//   makespan_over(lowered, no_network)                            // messages take no time, of links and of processors
#pragma once

#include <functional>
#include <optional>

#include "ranking/evaluate.h"

namespace nlsplit::inline ranking {

inline constexpr ScaledLinks no_network = {.bandwidth = 1e300, .latency = 0, .overheads = false};

// By the fast tier, and no shorter than the busiest link or device.
double makespan_over(const LoweredPlan& lowered, const ScaledLinks& links);
// Whether that is less than so many seconds: not simulated where the busiest link or device alone takes longer.
bool is_shorter_over(const LoweredPlan& lowered, const ScaledLinks& links, double seconds);

// The factor at which `wins` changes, by bisection over nine decades, if it does so once: true from there on if
// `rising`, else true up to there. None: it is the same at both ends.
std::optional<double> where_it_changes(const std::function<bool(double)>& wins, bool rising);

}  // namespace nlsplit::inline ranking
