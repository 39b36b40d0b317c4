#include <fmt/format.h>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <xbt/log.h>

#include <algorithm>
#include <map>

#include "sim/events.h"
#include "sim/simgrid/simgrid_tier.h"

namespace nlsplit {
namespace {

namespace s4u = simgrid::s4u;
using simgrid::kernel::timer::Timer;

// One SimGrid host for each of the Program's devices, one SimGrid link for each direction of a link.
std::vector<s4u::Host*> build_platform(const Cluster& cluster, const TimedGraph& graph) {
  s4u::NetZone* zone = s4u::create_full_zone("cluster");
  std::vector<s4u::Host*> hosts;
  for (size_t d = 0; d < graph.host_of_device.size(); ++d) hosts.push_back(zone->create_host(fmt::format("device{}", d), 1e9));
  std::map<std::pair<size_t, bool>, s4u::Link*> links;
  const auto link_of = [&](const Hop& hop) {
    const Link& link = cluster.links[hop.link.index()];
    const bool forward = hop.forward || !link.full_duplex;   // half duplex: one link for both directions
    s4u::Link*& made = links[{hop.link.index(), forward}];
    if (made == nullptr) {
      made = zone->create_link(fmt::format("link{}{}", hop.link.index(), forward ? "f" : "b"), link.bandwidth.value());
      made->set_latency(0);
      made->seal();
    }
    return made;
  };
  std::map<std::pair<int, int>, int> pairs;
  for (const Activity& activity : graph.activities) {
    if (activity.is_transfer) pairs.try_emplace({activity.device, activity.peer}, activity.route);
  }
  for (const auto& [pair, route] : pairs) {
    std::vector<s4u::LinkInRoute> hops;
    for (const Hop& hop : graph.routes[static_cast<size_t>(route)].hops) hops.emplace_back(link_of(hop));
    zone->add_route(hosts[static_cast<size_t>(pair.first)]->get_netpoint(), hosts[static_cast<size_t>(pair.second)]->get_netpoint(),
                    nullptr, nullptr, hops, false);
  }
  zone->seal();
  return hosts;
}

}  // namespace

class SimGridRun::Impl : public Clock {
 public:
  Impl(const Cluster& cluster, const TimedGraph& graph) : graph_(graph) {
    xbt_log_control_set("root.thres:critical");
    xbt_log_control_set("xbt_cfg.thres:critical");
    int argc = 1;
    char name[] = "nlsplit";
    char* argv[] = {name, nullptr};
    engine_ = std::make_unique<s4u::Engine>(&argc, argv);
    s4u::Engine::set_config("network/model:CM02");
    s4u::Engine::set_config("network/crosstraffic:no");
    s4u::Engine::set_config("network/TCP-gamma:1e30");
    s4u::Engine::set_config("surf/precision:1e-12");
    hosts_ = build_platform(cluster, graph);
    // Callbacks cannot be removed, and there is one engine for a process: one callback, dispatching to this run.
    s4u::Activity::on_completion_cb([this](const s4u::Activity& activity) {
      const auto number = reinterpret_cast<uintptr_t>(activity.get_data<void>());
      if (number > 0) events_->happens(Occurrence::message_sent, static_cast<uint32_t>(number - 1));
    });
  }

  double now() const override { return s4u::Engine::get_clock() - origin_; }

  void at(double time, Occurrence what, uint32_t activity) override {
    if (time <= now()) {   // SimGrid's timers need a future
      due_.push_back({what, activity});
      if (!draining_) drain();
      return;
    }
    Timer::set(time + origin_, [this, what, activity] { run_event(what, activity); });
  }

  void send(uint32_t activity) override {
    const Activity& transfer = graph_.activities[activity];
    if (transfer.bytes <= 0) return at(now(), Occurrence::message_sent, activity);   // a Comm without bytes never starts
    s4u::CommPtr comm = s4u::Comm::sendto_init();
    comm->set_payload_size(static_cast<uint64_t>(transfer.bytes));   // first, or it never starts
    comm->set_data(reinterpret_cast<void*>(static_cast<uintptr_t>(activity) + 1));
    comm->set_source(hosts_[static_cast<size_t>(transfer.device)]);
    comm->set_destination(hosts_[static_cast<size_t>(transfer.peer)]);   // starts it
    comms_.push_back(std::move(comm));
  }

  Result<Timing> run() {
    Timing timing;
    comms_.clear();
    due_.clear();
    origin_ = s4u::Engine::get_clock();
    Events events(graph_, *this, timing);
    events_ = &events;
    Timer::set(origin_, [this] {
      draining_ = true;
      events_->begin();
      draining_ = false;
      drain();
    });
    engine_->run();
    events_ = nullptr;
    if (events.finished() != graph_.activities.size()) {
      return failed(fmt::format("SimGrid stopped with {} of {} activities done", events.finished(), graph_.activities.size()));
    }
    return timing;
  }

 private:
  void run_event(Occurrence what, uint32_t activity) {
    events_->happens(what, activity);
    if (!draining_) drain();
  }

  // What is due now, one after the other: no recursion, however many blocks of no duration there are.
  void drain() {
    draining_ = true;
    for (size_t i = 0; i < due_.size(); ++i) {
      const auto [what, activity] = due_[i];
      events_->happens(what, activity);
    }
    due_.clear();
    draining_ = false;
  }

  const TimedGraph& graph_;
  std::unique_ptr<s4u::Engine> engine_;
  std::vector<s4u::Host*> hosts_;
  std::vector<s4u::CommPtr> comms_;   // kept past their completion callback
  std::vector<std::pair<Occurrence, uint32_t>> due_;
  bool draining_ = false;
  double origin_ = 0;
  Events* events_ = nullptr;
};

SimGridRun::SimGridRun(const Cluster& cluster, const TimedGraph& graph) : impl_(std::make_unique<Impl>(cluster, graph)) {}
SimGridRun::~SimGridRun() = default;
Result<Timing> SimGridRun::run() { return impl_->run(); }

}  // namespace nlsplit
