#include "sim/simgrid/platform_child.h"

#include <fmt/format.h>
#include <xbt/log.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <simgrid/s4u.hpp>

#include "cost/topology.h"
#include "sim/simgrid/platform_answer.h"

namespace nlsplit::inline sim {
namespace {

namespace sg = simgrid::s4u;

constexpr double max_rate = 1e21;   // byte/s, flop/s
constexpr double max_delay = 3600;  // s

Status check_link(const sg::Link& link) {
  const std::string& name = link.get_name();
  const double bandwidth = link.get_bandwidth(), latency = link.get_latency();
  switch (link.get_sharing_policy()) {
    case sg::Link::SharingPolicy::SHARED:
    case sg::Link::SharingPolicy::FATPIPE:
      break;
    case sg::Link::SharingPolicy::SPLITDUPLEX:  // routes name one of its two halves, which are SHARED
    case sg::Link::SharingPolicy::WIFI:
    case sg::Link::SharingPolicy::NONLINEAR:
      return unsupported(
          fmt::format("link '{}' has a sharing policy that is not supported; SHARED, SPLITDUPLEX and "
                      "FATPIPE are",
                      name));
  }
  if (!(bandwidth >= 1 && bandwidth <= max_rate))
    return invalid_input(fmt::format("link '{}' has a bandwidth of {:g} byte/s, which cannot be", name, bandwidth));
  if (!(latency >= 0 && latency <= max_delay))
    return invalid_input(fmt::format("link '{}' has a latency of {:g} s, which cannot be", name, latency));
  if (!link.is_on()) return invalid_input(fmt::format("link '{}' is turned off", name));
  return ok_status();
}

class RouteProbe {
 public:
  RouteProbe(const std::vector<std::string>& names, ProbeStage& stage) : names_(names), stage_(stage) {}

  Result<std::string> run(bool loops) {
    for (const std::string& name : names_) {
      const sg::Host* host = sg::Host::by_name_or_null(name);
      if (host == nullptr) return invalid_input(fmt::format("there is no host '{}'", name));
      if (!(host->get_speed() > 0 && host->get_speed() <= max_rate))
        return invalid_input(
            fmt::format("host '{}' has a speed of {:g} flop/s, which cannot be", name, host->get_speed()));
      hosts_.push_back(host);
    }
    // First between different ones: there a missing route is a mistake, and within a host it is none.
    routes_.resize(hosts_.size() * hosts_.size());
    for (size_t a = 0; a < hosts_.size(); ++a) {
      for (size_t b = 0; b < hosts_.size(); ++b) {
        if (a != b) RETURN_IF_ERROR(add(a, b));
      }
    }
    for (size_t a = 0; loops && a < hosts_.size(); ++a) RETURN_IF_ERROR(add(a, a));
    platform_.route_begin.push_back(0);
    for (const std::vector<uint32_t>& route : routes_) {
      platform_.route_links.insert(platform_.route_links.end(), route.begin(), route.end());
      platform_.route_begin.push_back(platform_.route_links.size());
    }
    return encode(platform_);
  }

 private:
  Status add(size_t a, size_t b) {
    stage_ = {static_cast<int>(a), static_cast<int>(b)};
    std::vector<sg::Link*> route;
    double latency = 0, sum = 0;
    hosts_[a]->route_to(hosts_[b], route, &latency);
    if (route.empty() && a != b)
      return invalid_input(fmt::format("no links are on the route from host '{}' to host '{}'", names_[a], names_[b]));
    // SimGrid's default for a host without such a link: figures that are not in the file.
    if (a == b && route.size() == 1 && route[0]->get_name() == "__loopback__") return ok_status();
    for (const sg::Link* link : route) {
      const auto [at, added] = numbers_.try_emplace(link, static_cast<uint32_t>(numbers_.size()));
      if (added) {
        RETURN_IF_ERROR(check_link(*link));
        platform_.links.push_back({link->get_name(), bytes_per_second(link->get_bandwidth()),
                                   seconds(link->get_latency()),
                                   link->get_sharing_policy() == sg::Link::SharingPolicy::SHARED});
      }
      routes_[a * hosts_.size() + b].push_back(at->second);
      sum += link->get_latency();
    }
    if (!route.empty() && std::abs(latency - sum) > 1e-9 * std::max(latency, sum)) {
      return unsupported(
          fmt::format("the route from host '{}' to host '{}' takes {:g} s, its links {:g} s: latencies "
                      "that are not a link's (Vivaldi coordinates) are not supported",
                      names_[a], names_[b], latency, sum));
    }
    return ok_status();
  }

  const std::vector<std::string>& names_;
  ProbeStage& stage_;
  std::vector<const sg::Host*> hosts_;
  std::map<const sg::Link*, uint32_t> numbers_;
  std::vector<std::vector<uint32_t>> routes_;  // [from * hosts + to]
  Platform platform_;
};

Result<std::string> probe_hosts(const sg::Engine& engine) {
  if (static_cast<double>(engine.get_host_count()) > max_hosts)
    return invalid_input(fmt::format("{} hosts; at most {:.0f} can be", engine.get_host_count(), max_hosts));
  if (engine.get_host_count() == 0) return invalid_input("it has no hosts");
  std::vector<std::string> names;
  for (const sg::Host* host : engine.get_all_hosts()) names.push_back(host->get_name());
  return encode(names);
}

}  // namespace

Result<std::string> probe_platform(const std::string& path, const std::vector<std::string>& hosts, bool loops,
                                   ProbeStage& stage) {
  try {
    // What SimGrid dies of it says on this level; without time stamps and the like.
    xbt_log_control_set("root.thres:critical");
    xbt_log_control_set("root.fmt:%m%n");
    std::string name = "nlsplit";
    char* argv[] = {name.data(), nullptr};
    int argc = 1;
    sg::Engine engine(&argc, argv);
    for (const char* setting : {"network/model:CM02", "network/crosstraffic:no", "network/TCP-gamma:1e30"})
      sg::Engine::set_config(std::string(setting));
    engine.load_platform(path);
    return hosts.empty() ? probe_hosts(engine) : RouteProbe(hosts, stage).run(loops);
  } catch (const std::exception& error) {
    std::string words = error.what();
    std::ranges::replace(words, '\n', ' ');
    constexpr std::string_view prefix = "Parse error at ";
    if (words.starts_with(prefix)) words.erase(0, prefix.size());
    return invalid_input(stage.from < 0 ? words
                                        : fmt::format("no route from host '{}' to host '{}' ({})",
                                                      hosts[static_cast<size_t>(stage.from)],
                                                      hosts[static_cast<size_t>(stage.to)], words));
  }
}

}  // namespace nlsplit::inline sim
