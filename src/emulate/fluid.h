// Fluid: what the links of a cluster do to packets, in time. No sockets, no clocks: times go in and come out.
//
//   Fluid fluid({125e6});                                  // one link of 1 Gbit/s
//   fluid.offer(0.0, flow, {{0}, 50e-6}, 125'000, packet); // its last byte leaves after 1 ms
//   fluid.advance(1e-3, delivered);                        // {packet, due 1.05 ms}
//
// Packets of one flow queue behind each other. All flows with something queued share the links they cross max-min
// fairly, at every moment, as the simulator's messages do; a flow crosses all links of its route at once, so several
// links cost their latencies and the slowest one's time, not each link's. Nothing is ever dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace nlsplit::inline emulation {

struct FluidRoute {
  std::vector<int> links;  // each at most once
  double latency = 0;      // seconds, from a packet's last byte sent to its delivery
  size_t to = 0;           // whatever next_due() is asked for
};

struct FluidDelivery {
  uint32_t packet = 0;
  double due = 0;  // seconds
};

class Fluid {
 public:
  explicit Fluid(std::vector<double> rates);  // of each link, byte/s; the two directions of a half-duplex link are one

  // `packet` of this many bytes joins its flow's queue. `now` never goes back; what is due by `now` must have been
  // taken out before. The route must outlive the queue, and is the same for all packets of a flow.
  void offer(double now, uint64_t flow, const FluidRoute& route, double bytes, uint32_t packet);

  // Appends the packets whose last byte has been sent by `now`, in the order in which that happened.
  void advance(double now, std::vector<FluidDelivery>& delivered);

  // When the next delivery over routes that lead there is due if nothing else comes; infinity if there is none.
  double next_due(size_t to) const;

 private:
  struct Flow {
    const FluidRoute* route = nullptr;
    std::deque<std::pair<double, uint32_t>> queue;  // bytes, packet
    double left = 0;                                // bytes of the first one
    double rate = 0;
  };

  double sent(const Flow& flow) const;  // its first packet
  void share();                         // max-min fair rates of the active flows

  std::vector<double> rates_;
  std::unordered_map<uint64_t, Flow> flows_;  // stay when their queue is empty: they come back
  std::vector<Flow*> active_;
  std::vector<double> room_;  // of share(), kept to save allocations
  std::vector<int> users_;
  double clock_ = 0;
};

}  // namespace nlsplit::inline emulation
