// Figures of routes that were not measured, from routes that the scenario describes alike.
//
//   add_medians(tests.alike, profile);                   // after the others have been measured
//   for (const std::string& warning : warnings_of(tests.alike, profile)) …
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cost/network_profile.h"
#include "validate/network_tests.h"

namespace nlsplit::inline validation {

// Every figure of a route that was not measured is the median over those that were; but `largest_error` is the largest
// of theirs, each with how far that route is from the medians (`longer_by`). The profile has the measured ones.
void add_medians(std::span<const AlikePairs> classes, NetworkProfile& profile);

// By how much longer a message takes on one route than on the other, relative: the largest over all sizes from
// smallest_message on.
double longer_by(const NamedRoute& x, const NamedRoute& y, Bytes eager_limit);

// Links that `nlsim init` gives the same figures differ by at most so much: twice what its kinds are wide.
inline constexpr double alike_within = 0.10;

struct ApartRoutes {
  RouteEnds x, y;
  double longer = 0;   // longer_by
  double allowed = 0;  // alike_within and the errors of both routes' lines
};
// The two measured pairs that are furthest beyond what is allowed; none: all are within.
std::optional<ApartRoutes> furthest_apart(const AlikePairs& alike, const NetworkProfile& profile);

// A sentence for each class whose measured pairs are apart.
std::vector<std::string> warnings_of(std::span<const AlikePairs> classes, const NetworkProfile& profile);

}  // namespace nlsplit::inline validation
