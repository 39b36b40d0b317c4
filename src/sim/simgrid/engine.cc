#include "sim/simgrid/engine.h"

#include <fmt/format.h>
#include <xbt/log.h>

#include <algorithm>
#include <array>
#include <optional>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <utility>

#include "sim/simgrid/shared_clock.h"

namespace nlsplit::inline sim {
namespace {

namespace sg = simgrid::s4u;

// The parts of the cluster that routes use. A host is two of SimGrid's, one that sends and one that receives, so that
// messages within a host are routed over its own link like all others.
struct SimGridPlatform {
  std::vector<sg::Host*> senders, receivers;  // by dense host number; nullptr where nothing is sent or received
  std::vector<sg::Link*> links;               // by link of the cluster, two directions each; nullptr where unused
};

// SimGrid 4 has other names for what makes a platform.
#ifdef NLS_SIMGRID_4
sg::NetZone* make_zone() { return sg::Engine::get_instance()->get_netzone_root(); }
sg::Host* make_host(sg::NetZone* zone, const std::string& name, double speed) { return zone->add_host(name, speed); }
sg::Link* make_link(sg::NetZone* zone, const std::string& name, double bandwidth) {
  return zone->add_link(name, bandwidth);
}
void make_route(sg::NetZone* zone, sg::Host* from, sg::Host* to, const std::vector<sg::LinkInRoute>& hops) {
  zone->add_route(from, to, hops, false);
}
#else
sg::NetZone* make_zone() { return sg::create_full_zone("cluster"); }
sg::Host* make_host(sg::NetZone* zone, const std::string& name, double speed) { return zone->create_host(name, speed); }
sg::Link* make_link(sg::NetZone* zone, const std::string& name, double bandwidth) {
  return zone->create_link(name, bandwidth);
}
void make_route(sg::NetZone* zone, sg::Host* from, sg::Host* to, const std::vector<sg::LinkInRoute>& hops) {
  zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, hops, false);
}
#endif

SimGridPlatform make_platform(const TimedGraph& graph, const Cluster& cluster, double unit) {
  SimGridPlatform platform;
  sg::NetZone* zone = make_zone();
  int hosts = 0;
  for (const int host : graph.host_of_device) hosts = std::max(hosts, host + 1);
  platform.senders.assign(static_cast<size_t>(hosts), nullptr);
  platform.receivers = platform.senders;

  std::vector<std::pair<int, int>> ends(graph.routes.size(), {-1, -1});
  for (const Activity& activity : graph.activities) {
    if (!activity.is_transfer || activity.route < 0) continue;
    ends[static_cast<size_t>(activity.route)] = {graph.host_of_device[static_cast<size_t>(activity.device)],
                                                 graph.host_of_device[static_cast<size_t>(activity.peer)]};
  }
  const auto host = [&](std::vector<sg::Host*>& all, int number, char side) {
    sg::Host*& made = all[static_cast<size_t>(number)];
    if (made == nullptr) made = make_host(zone, fmt::format("{}{}", side, number), 1.0);  // its speed is never used
    return made;
  };
  platform.links.assign(cluster.links.size() * 2, nullptr);
  const auto link = [&](const Hop& hop) {
    const Link& of = cluster.links[hop.link.index()];
    const size_t lane = lane_of(cluster, hop);
    sg::Link*& made = platform.links[lane];
    if (made == nullptr) {
      made = make_link(zone, fmt::format("l{}", lane), parts_per_unit(of.bandwidth, unit));
      made->set_latency(0.0)
          ->set_sharing_policy(of.shared ? sg::Link::SharingPolicy::SHARED : sg::Link::SharingPolicy::FATPIPE)
          ->seal();
    }
    return made;
  };
  for (size_t r = 0; r < graph.routes.size(); ++r) {
    if (ends[r].first < 0) continue;
    std::vector<sg::LinkInRoute> hops;
    for (const Hop& hop : graph.routes[r].hops) hops.emplace_back(link(hop));
    make_route(zone, host(platform.senders, ends[r].first, 's'), host(platform.receivers, ends[r].second, 'r'), hops);
  }
  zone->seal();
  return platform;
}

class SimGridFlows final : public SharedFlows {
 public:
  SimGridFlows(const TimedGraph& graph, const Cluster& cluster, double unit)
      : graph_(graph),
        platform_(make_platform(graph, cluster, unit)),
        unit_(unit),
        comms_(graph.activities.size()),
        courses_(graph.courses) {
    for (sg::Link* link : platform_.links) bandwidths_.push_back(link != nullptr ? link->get_bandwidth() : 0);
    std::erase_if(courses_, [this](const LinkCourse& course) { return !is_used(course.link()); });
    for (const LinkCourse& course : courses_) follow(course);
  }

  std::vector<LinkId> changing() const {
    std::vector<LinkId> links;
    for (const LinkCourse& course : courses_) links.push_back(course.link());
    return links;
  }

  double clock() const override { return sg::Engine::get_clock(); }

  void set(Alarm alarm, double at) override {
    timer_of(alarm) = Timer::set(at, [this, alarm] {
      timer_of(alarm) = nullptr;
      clock_->on_alarm(alarm);
      release();
    });
  }

  void cancel(Alarm alarm) override { std::exchange(timer_of(alarm), nullptr)->remove(); }

  void move(uint32_t activity, uint64_t parts) override {
    const Activity& what = graph_.activities[activity];
    sg::CommPtr& comm = comms_[activity];
    comm = sg::Comm::sendto_init();
    comm->set_payload_size(parts);  // must come first: without one it would never start
    comm->set_data(&comm);
    comm->set_source(platform_.senders[host_of(what.device)]);
    comm->set_destination(platform_.receivers[host_of(what.peer)]);  // starts it
  }

  void run(const sg::Engine& engine, SharedClock& clock) {
    clock_ = &clock;
    sg::Comm::on_completion_cb([this](const sg::Activity& activity) {
      const auto* which = activity.get_data<const sg::CommPtr>();
      const auto ended = static_cast<uint32_t>(which - comms_.data());
      release();
      clock_->flow_ended(ended);
      finished_.push_back(ended);
    });
    await_change();
    clock.begin();
    engine.run();
  }

 private:
  using Timer = simgrid::kernel::timer::Timer;

  Timer*& timer_of(Alarm alarm) { return timers_[static_cast<size_t>(alarm)]; }
  size_t host_of(int device) const { return static_cast<size_t>(graph_.host_of_device[static_cast<size_t>(device)]); }

  // Comms that are over; not the one whose callback is still at work.
  void release() {
    for (const uint32_t activity : finished_) comms_[activity].reset();
    finished_.clear();
  }

  bool is_used(LinkId link) const {
    return platform_.links[link.index() * 2] != nullptr || platform_.links[link.index() * 2 + 1] != nullptr;
  }

  // Gives the link what it has now.
  void follow(const LinkCourse& course) {
    for (size_t at = course.link().index() * 2; at < course.link().index() * 2 + 2; ++at) {
      if (platform_.links[at] != nullptr) platform_.links[at]->set_bandwidth(bandwidths_[at] * course.share());
    }
  }

  // One timer for the next link that changes, as long as anything can still happen.
  void await_change() {
    const auto next = std::ranges::min_element(courses_, {}, &LinkCourse::until);
    if (next == courses_.end() || next->until() == for_ever) return;
    Timer::set(next->until() / unit_, [this, &course = *next] {
      if (clock_->is_over()) return;
      course.advance();
      follow(course);
      await_change();
    });
  }

  const TimedGraph& graph_;
  SimGridPlatform platform_;
  const double unit_;
  SharedClock* clock_ = nullptr;
  std::array<Timer*, 2> timers_{};  // by alarm; none: it is not set
  std::vector<sg::CommPtr> comms_;  // by activity, while SimGrid moves it
  std::vector<uint32_t> finished_;
  std::vector<LinkCourse> courses_;  // of links that change, at what they are now
  std::vector<double> bandwidths_;   // by link and direction, what they have at best
};

Status run_or_throw(const TimedGraph& graph, const Cluster& cluster, Timing& timing) {
  const double unit = time_unit(graph, cluster, timing);
  xbt_log_control_set("root.thres:critical xbt_cfg.thres:critical");
  std::string name = "nlsplit";
  char* argv[] = {name.data(), nullptr};
  int argc = 1;
  sg::Engine engine(&argc, argv);
  // Exactly latency + bytes/bandwidth: no factors, no flow for acknowledgements, no cap from a TCP window, no merging
  // of close events.
  for (const char* setting :
       {"network/model:CM02", "network/crosstraffic:no", "network/TCP-gamma:1e30", "surf/precision:1e-13"}) {
    sg::Engine::set_config(std::string(setting));
  }
  SimGridFlows flows(graph, cluster, unit);
  SharedClock clock(graph, cluster, timing, flows, unit, flows.changing());
  flows.run(engine, clock);
  const size_t left = clock.unfinished();
  if (left == 0) return ok_status();
  if (std::optional<Error> why = clock.why()) return *std::move(why);
  const auto first =
      static_cast<size_t>(std::find(timing.finish.begin(), timing.finish.end(), 0.0) - timing.finish.begin());
  return failed(fmt::format("SimGrid ended at {} s with {} of {} activities left; one of them is number {}",
                            sg::Engine::get_clock() * unit, left, graph.activities.size(), first));
}

}  // namespace

Status run_engine(const TimedGraph& graph, const Cluster& cluster, Timing& timing) {
  try {
    return run_or_throw(graph, cluster, timing);
  } catch (const std::exception& error) {
    return failed(fmt::format("SimGrid: {}", error.what()));
  }
}

}  // namespace nlsplit::inline sim
