// PacketSwitch: carries packets between places, each when the links of the scenario would have.
//
//   PacketSwitch wires(network, std::move(ports));
//   std::thread thread([&] { wires.run(); });  …  wires.stop(); thread.join(); wires.report();
//
// A thread for each place reads what the place sends, asks Fluid when each packet arrives, and hands over what is due
// there. The kernel's work for a packet is done where it is read or handed over, so each thread stays on its place's
// processors: what a host spends on its network it does not take from another one. Charged is what the kernel hands
// over in one piece with its headers once, so a link's bandwidth is what payload gets.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "emulate/fluid.h"
#include "emulate/places.h"
#include "emulate/port.h"

namespace nlsplit::inline emulation {

// Places have the addresses 10.133.0.0 + 1, + 2, …
inline constexpr uint32_t first_address = (10u << 24 | 133u << 16) + 1;
std::string address_text(size_t place);

enum class SwitchPriority : uint8_t { realtime, high, normal };

struct SwitchReport {
  uint64_t packets = 0, bytes = 0;
  uint64_t lost = 0;        // no room to wait to be read, or the kernel did not take them
  uint64_t sent_again = 0;  // by TCP in all places, which took them for lost
  uint64_t cut_off = 0;     // met a link that was cut
  uint64_t dropped = 0;     // thrown away because the network is to lose some
  double elapsed_s = 0, cpu_s = 0;
  // How long after its time a packet was handed over: mostly the time to wake up.
  double late_median_s = 0, late_99_s = 0, late_worst_s = 0;
  SwitchPriority priority = SwitchPriority::normal;
};
std::string to_string(const SwitchReport& report);  // one line

class PacketSwitch {
 public:
  PacketSwitch(const EmulatedNetwork& network, std::vector<Port> ports);  // the network outlives it
  ~PacketSwitch();
  PacketSwitch(const PacketSwitch&) = delete;
  PacketSwitch& operator=(const PacketSwitch&) = delete;

  void run();                                             // until stop()
  void stop();                                            // from another thread
  const SwitchReport& report() const { return report_; }  // after run(); what only places know is not in it

 private:
  struct Packet {
    std::unique_ptr<std::byte[]> bytes;
    size_t size = 0;
    size_t to = 0;
    bool whole_buffer = false;  // its buffer goes back to spare_
  };
  struct Due {
    double time;
    uint64_t order;
    uint32_t packet;
    bool operator>(const Due& other) const { return time != other.time ? time > other.time : order > other.order; }
  };
  static constexpr size_t late_buckets = 10'000;  // of a microsecond; the last one has all above
  // What one thread does. Of these, `due` and `wake` are everybody's, under the mutex.
  struct Carrier {
    Carrier(size_t place, Port port);
    size_t place;
    Port port;
    int event;  // to end its sleep
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due;
    double wake;  // until when it sleeps
    std::unique_ptr<std::byte[]> incoming;
    std::array<uint64_t, late_buckets> late{};
    Random chance;  // for packets that are to be lost
    SwitchReport report;
  };

  void carry(Carrier& carrier);
  void receive(Carrier& carrier);
  void accept(Carrier& carrier, size_t size);
  bool is_cut(const FluidRoute& route, double now) const;
  uint32_t keep(Carrier& carrier, size_t size, size_t to);
  void settle(double now, std::vector<size_t>& early);
  void hand_over(Carrier& carrier);
  void deliver(Carrier& carrier, const Packet& packet, double due);
  void wake(const std::vector<size_t>& places) const;
  void conclude(double elapsed);

  const EmulatedNetwork& network_;
  std::deque<Carrier> carriers_;  // by place
  std::atomic<bool> stop_{false};
  double begin_ = 0;  // of run()
  SwitchReport report_;

  std::mutex mutex_;  // of all below
  Fluid fluid_;
  std::vector<std::unique_ptr<std::byte[]>> spare_;
  std::vector<Packet> packets_;
  std::vector<uint32_t> free_;
  std::vector<FluidDelivery> sent_;
  uint64_t order_ = 0;
};

}  // namespace nlsplit::inline emulation
