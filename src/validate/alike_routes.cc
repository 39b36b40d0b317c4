#include "validate/alike_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "survey/network_shape.h"
#include "validate/statistics.h"

namespace nlsplit::inline validation {
namespace {

static_assert(alike_within == 2 * alike, "what nlsim init takes as alike");

const NamedRoute& measured_route(const NetworkProfile& profile, const RouteEnds& ends) {
  const auto found = std::ranges::find_if(profile.routes, [&](const NamedRoute& route) {
    return route.from == ends.from && route.to == ends.to && route.median_of.empty();
  });
  CHECK(found != profile.routes.end(), "a route that was to be measured was not");
  return *found;
}

RouteEnds turned(const RouteEnds& ends) { return {ends.to, ends.from}; }

NamedRoute median_route(const std::vector<NamedRoute>& known, Bytes eager_limit) {
  const auto median = [&](const auto& figure) {
    std::vector<double> values;
    for (const NamedRoute& route : known) values.push_back(figure(route));
    return quantile(std::move(values), 0.5);
  };
  const auto cost = [&](MessageCost NamedRoute::*which) {
    return MessageCost{seconds(median([&](const NamedRoute& route) { return (route.*which).latency.value(); })),
                       bytes_per_second(median([&](const NamedRoute& r) { return (r.*which).bandwidth.value(); }))};
  };
  const auto overhead = [&](double Overheads::*which) {
    return median([&](const NamedRoute& route) { return route.overheads.*which; });
  };
  NamedRoute result;
  result.eager = cost(&NamedRoute::eager);
  result.rendezvous = cost(&NamedRoute::rendezvous);
  for (double Overheads::*which : {&Overheads::sender, &Overheads::receiver, &Overheads::slowed, &Overheads::busy,
                                   &Overheads::held, &Overheads::handover})
    result.overheads.*which = overhead(which);
  result.crossing = bytes_per_second(median([](const NamedRoute& route) { return route.crossing.value(); }));
  result.clear_to_send_delay =
      seconds(median([](const NamedRoute& route) { return route.clear_to_send_delay.value(); }));
  result.starts_early = std::ranges::all_of(known, &NamedRoute::starts_early);
  for (const NamedRoute& route : known) {
    result.largest_error = std::max(result.largest_error, route.largest_error + longer_by(result, route, eager_limit));
    result.median_of.push_back({route.from, route.to});
  }
  std::ranges::sort(result.median_of);
  return result;
}

// Times are lines over the size, so their ratio is largest at the ends of a range.
double ratio_at(const MessageCost& x, const MessageCost& y, Bytes size) {
  const Seconds one = x.latency + size / x.bandwidth, other = y.latency + size / y.bandwidth;
  return std::max(one, other) / std::min(one, other);
}

}  // namespace

void add_medians(std::span<const AlikePairs> classes, NetworkProfile& profile) {
  std::vector<NamedRoute> more;
  for (const AlikePairs& alike : classes) {
    if (alike.others.empty()) continue;
    for (const bool back : {false, true}) {
      std::vector<NamedRoute> known;
      for (const RouteEnds& pair : alike.measured) {
        known.push_back(measured_route(profile, back ? turned(pair) : pair));
        if (alike.symmetric && pair.from != pair.to)
          known.push_back(measured_route(profile, back ? pair : turned(pair)));
      }
      NamedRoute route = median_route(known, profile.eager_limit);
      for (const RouteEnds& pair : alike.others) {
        if (back && pair.from == pair.to) continue;
        const RouteEnds ends = back ? turned(pair) : pair;
        route.from = ends.from;
        route.to = ends.to;
        more.push_back(route);
      }
    }
  }
  profile.routes.insert(profile.routes.end(), more.begin(), more.end());
}

double longer_by(const NamedRoute& x, const NamedRoute& y, Bytes eager_limit) {
  const Bytes smallest = bytes(smallest_message), limit = std::max(smallest, eager_limit);
  const double of_endless = x.rendezvous.bandwidth / y.rendezvous.bandwidth;
  return std::max({ratio_at(x.eager, y.eager, smallest), ratio_at(x.eager, y.eager, limit),
                   ratio_at(x.rendezvous, y.rendezvous, limit), of_endless, 1 / of_endless}) -
         1;
}

std::optional<ApartRoutes> furthest_apart(const AlikePairs& alike, const NetworkProfile& profile) {
  std::optional<ApartRoutes> worst;
  for (size_t i = 0; i < alike.measured.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const NamedRoute &x = measured_route(profile, alike.measured[j]), &y = measured_route(profile, alike.measured[i]);
      const ApartRoutes apart{alike.measured[j], alike.measured[i], longer_by(x, y, profile.eager_limit),
                              alike_within + x.largest_error + y.largest_error};
      if (apart.longer <= apart.allowed) continue;
      if (!worst || apart.longer - apart.allowed > worst->longer - worst->allowed) worst = apart;
    }
  }
  return worst;
}

std::vector<std::string> warnings_of(std::span<const AlikePairs> classes, const NetworkProfile& profile) {
  std::vector<std::string> warnings;
  for (const AlikePairs& alike : classes) {
    const std::optional<ApartRoutes> apart = furthest_apart(alike, profile);
    if (!apart) continue;
    warnings.push_back(fmt::format(
        "the scenario describes {} pairs of hosts alike, but {} - {} and {} - {} differ: a message takes up to {:.0f} "
        "% "
        "longer on one of them ({:.0f} % would be within the errors). Medians were given to {} more; --pairs all "
        "measures every pair",
        alike.measured.size() + alike.others.size(), apart->x.from, apart->x.to, apart->y.from, apart->y.to,
        apart->longer * 100, apart->allowed * 100, alike.others.size()));
  }
  return warnings;
}

}  // namespace nlsplit::inline validation
