#include "sim/simgrid/engine.h"

#include <fmt/format.h>
#include <xbt/log.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <simgrid/kernel/Timer.hpp>
#include <simgrid/s4u.hpp>
#include <string>
#include <utility>

#include "sim/fast.h"
#include "sim/simgrid/even_clock.h"

namespace nlsplit::inline sim {
namespace {

namespace sg = simgrid::s4u;

// SimGrid compares times with an absolute precision, so we give it times in a unit of about the makespan. A power of
// two: scaling changes no bits. The fast tier's answer is a lower bound, and so is what each link and device must do.
// `timing` is overwritten; its memory serves again.
double time_unit(const TimedGraph& graph, const Cluster& cluster, Timing& timing) {
  simulate_fast(graph, timing);
  const double bound = std::max(timing.makespan, load_of(graph, cluster, graph.host_of_device.size()).busiest());
  return bound > 0 && std::isfinite(bound) ? std::exp2(std::ceil(std::log2(bound))) : 1;
}

// SimGrid counts whole bytes. Where measured ways make a message more or fewer bytes of its links than it has, those
// are no whole number, and for a fast way may be none: so it gets its bytes in such parts. A power of two, again.
constexpr double parts_of_a_byte = 4096;

uint64_t payload_of(double bytes) {
  return std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(bytes * parts_of_a_byte)));
}

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
      made = make_link(zone, fmt::format("l{}", lane), of.bandwidth.value() * parts_of_a_byte * unit);
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

// While SimGrid has no message at all it is not asked for the time.
class SimGridClock : private EvenClock {
 public:
  SimGridClock(const TimedGraph& graph, const Cluster& cluster, Timing& timing, SimGridPlatform platform, double unit)
      : EvenClock(graph, cluster, timing, links_of(graph.courses)),
        platform_(std::move(platform)),
        unit_(unit),
        comms_(graph.activities.size()),
        courses_(graph.courses) {
    for (sg::Link* link : platform_.links) bandwidths_.push_back(link != nullptr ? link->get_bandwidth() : 0);
    std::erase_if(courses_, [this](const LinkCourse& course) { return !is_used(course.link()); });
    for (const LinkCourse& course : courses_) follow(course);
    sg::Comm::on_completion_cb([this](const sg::Activity& activity) {
      const auto* which = activity.get_data<const sg::CommPtr>();
      shared_flow_done(static_cast<uint32_t>(which - comms_.data()));
    });
  }

  size_t run(const sg::Engine& engine) {
    begin();
    await_change();
    after_steps();
    engine.run();
    return unfinished();
  }

  std::optional<Error> why() const { return runner_.why(); }

 private:
  static std::vector<LinkId> links_of(const std::vector<LinkCourse>& courses) {
    std::vector<LinkId> links;
    for (const LinkCourse& course : courses) links.push_back(course.link());
    return links;
  }

  size_t host_of(int device) const { return static_cast<size_t>(graph_.host_of_device[static_cast<size_t>(device)]); }

  bool needs_simgrid() const { return shared_ > 0 || !courses_.empty(); }

  void begin_shared() {
    shared_ += waiting_.size();
    for (const auto& [activity, rest] : waiting_) {
      const Activity& what = graph_.activities[activity];
      sg::CommPtr& comm = comms_[activity];
      comm = sg::Comm::sendto_init();
      comm->set_payload_size(payload_of(rest));  // must come first: without one it would never start
      comm->set_data(&comm);
      comm->set_source(platform_.senders[host_of(what.device)]);
      comm->set_destination(platform_.receivers[host_of(what.peer)]);  // starts it
    }
    waiting_.clear();
  }

  void shared_flow_done(uint32_t activity) {
    --shared_;
    release();
    lone_.end(activity);
    now_ = clock();
    runner_.step(activity, Step::flow_done, now_);
    after_steps();
    finished_.push_back(activity);
  }

  // Comms that are over; not the one whose callback is still at work.
  void release() {
    for (const uint32_t activity : finished_) comms_[activity].reset();
    finished_.clear();
  }

  // While SimGrid has nothing to move and no link changes, time is the queue's.
  void go_on_without() {
    if (!needs_simgrid()) {
      cancel(timer_);
      cancel(admission_);
      go_on();
    }
    arm();
  }

  static void cancel(simgrid::kernel::timer::Timer*& timer) {
    if (timer != nullptr) timer->remove();
    timer = nullptr;
  }

  // One timer, for messages that wait for SimGrid's clock, or else for the next step.
  void arm() {
    const double next = waiting_.empty() ? next_time() : now_;
    if (std::isinf(next)) return;
    if (timer_ != nullptr && timer_due_ <= next) return;
    cancel(timer_);
    timer_due_ = next;
    timer_ =
        simgrid::kernel::timer::Timer::set(std::max(next / unit_, sg::Engine::get_clock()), [this] { on_timer(); });
  }

  void on_timer() {
    timer_ = nullptr;
    now_ = timer_due_;
    begin_shared();
    take_steps(now_);
    after_steps();
    release();
  }

  // SimGrid's clock is at the moment of the last steps.
  void after_steps() {
    if (needs_simgrid()) begin_shared();
    if (runner_.has_asked() && needs_simgrid()) admit_after_this_moment();
    go_on_without();
  }

  // A card takes messages when all steps of a moment are done, or who asked first would depend on whether SimGrid ends
  // a flow before a timer of the same time. The next time a double can hold comes after all of this one.
  void admit_after_this_moment() {
    if (admission_ != nullptr) return;
    const double after = std::nextafter(sg::Engine::get_clock(), std::numeric_limits<double>::infinity());
    admission_ = simgrid::kernel::timer::Timer::set(after, [this] {
      admission_ = nullptr;
      now_ = clock();
      runner_.admit(now_);
      after_steps();
    });
  }

  double clock() const { return sg::Engine::get_clock() * unit_; }

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
    simgrid::kernel::timer::Timer::set(next->until() / unit_, [this, &course = *next] {
      if (shared_ == 0 && waiting_.empty() && queue_.empty() && admission_ == nullptr) return;
      course.advance();
      follow(course);
      await_change();
    });
  }

  SimGridPlatform platform_;
  double unit_;
  simgrid::kernel::timer::Timer* timer_ = nullptr;
  double timer_due_ = 0;
  simgrid::kernel::timer::Timer* admission_ = nullptr;
  std::vector<sg::CommPtr> comms_;  // by activity, while SimGrid moves it
  std::vector<uint32_t> finished_;
  size_t shared_ = 0;                // messages that SimGrid moves
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
  SimGridClock clock(graph, cluster, timing, make_platform(graph, cluster, unit), unit);
  const size_t left = clock.run(engine);
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
