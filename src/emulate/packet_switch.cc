#include "emulate/packet_switch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "base/units.h"

namespace nlsplit::inline emulation {
namespace {

constexpr size_t small_packet = 4096;  // up to this a packet is copied, so that it does not hold a whole buffer
constexpr int reads_a_turn = 32;       // from one place, before others and what is due have their turn

double seconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

timespec duration_of(double seconds) {
  const double whole = std::floor(seconds);
  return {static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
}

double now_s() { return seconds_of(CLOCK_MONOTONIC); }

// None: anywhere.
void stay_on(const std::vector<int>& cpus) {
  cpu_set_t own;
  CPU_ZERO(&own);
  for (const int cpu : cpus) CPU_SET(cpu, &own);
  if (!cpus.empty()) ::sched_setaffinity(0, sizeof(own), &own);
}

// This thread before all that compute: it sleeps nearly always, and every packet waits for it.
SwitchPriority ask_for_priority() {
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // wake on time, not up to 50 us later together with other things
  sched_param priority{};
  priority.sched_priority = sched_get_priority_min(SCHED_FIFO);
  if (::sched_setscheduler(0, SCHED_FIFO, &priority) == 0) return SwitchPriority::realtime;
  if (::setpriority(PRIO_PROCESS, 0, -20) == 0) return SwitchPriority::high;
  return SwitchPriority::normal;
}

uint16_t read_16(const std::byte* at) {
  return static_cast<uint16_t>(std::to_integer<unsigned>(at[0]) << 8 | std::to_integer<unsigned>(at[1]));
}
uint32_t read_32(const std::byte* at) { return static_cast<uint32_t>(read_16(at)) << 16 | read_16(at + 2); }

// Source and destination port, where it has them: each TCP connection and direction is a flow.
uint32_t ports_of(std::span<const std::byte> ip) {
  const auto protocol = std::to_integer<unsigned>(ip[9]);
  const size_t header = (std::to_integer<size_t>(ip[0]) & 15) * 4;
  const bool tcp_or_udp = protocol == 6 || protocol == 17;
  return tcp_or_udp && ip.size() >= header + 4 ? read_32(ip.data() + header) : 0;
}

}  // namespace

std::string address_text(size_t place) {
  const uint32_t address = first_address + static_cast<uint32_t>(place);
  return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255, address & 255);
}

PacketSwitch::Carrier::Carrier(size_t place, Port port)
    : place(place),
      port(std::move(port)),
      event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      wake(0),
      incoming(std::make_unique_for_overwrite<std::byte[]>(Port::largest_packet)),
      chance(place) {}

PacketSwitch::PacketSwitch(const EmulatedNetwork& network, std::vector<Port> ports)
    : network_(network), fluid_(network.rates) {
  for (Port& port : ports) carriers_.emplace_back(carriers_.size(), std::move(port));
}

PacketSwitch::~PacketSwitch() {
  for (const Carrier& carrier : carriers_) ::close(carrier.event);
}

void PacketSwitch::wake(const std::vector<size_t>& places) const {
  const uint64_t one = 1;
  for (const size_t place : places) {
    [[maybe_unused]] const ssize_t written = ::write(carriers_[place].event, &one, sizeof(one));
  }
}

void PacketSwitch::stop() {
  stop_ = true;
  std::vector<size_t> all(carriers_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  wake(all);
}

void PacketSwitch::run() {
  begin_ = now_s();
  std::vector<std::thread> threads;
  for (Carrier& carrier : carriers_) threads.emplace_back([this, &carrier] { carry(carrier); });
  for (std::thread& thread : threads) thread.join();
  conclude(now_s() - begin_);
}

void PacketSwitch::carry(Carrier& carrier) {
  stay_on(network_.places[carrier.place].cpus);
  carrier.report.priority = ask_for_priority();
  std::array<pollfd, 2> polled = {pollfd{carrier.port.fd(), POLLIN, 0}, pollfd{carrier.event, POLLIN, 0}};
  while (!stop_) {
    hand_over(carrier);
    const timespec wait = duration_of(std::clamp(carrier.wake - now_s(), 0.0, 3600.0));
    if (::ppoll(polled.data(), polled.size(), &wait, nullptr) <= 0) continue;
    if (polled[1].revents != 0) {
      uint64_t times = 0;
      [[maybe_unused]] const ssize_t got = ::read(carrier.event, &times, sizeof(times));
    }
    if (polled[0].revents != 0) receive(carrier);
  }
  carrier.report.cpu_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

void PacketSwitch::receive(Carrier& carrier) {
  for (int turn = 0; turn < reads_a_turn; ++turn) {
    const size_t size = carrier.port.read({carrier.incoming.get(), Port::largest_packet});
    if (size == 0) return;
    accept(carrier, size);
  }
}

bool PacketSwitch::is_cut(const FluidRoute& route, double now) const {
  return std::ranges::any_of(network_.cuts, [&](const Cut& cut) {
    return now - begin_ >= cut.after_s && std::ranges::find_first_of(route.links, cut.links) != route.links.end();
  });
}

void PacketSwitch::accept(Carrier& carrier, size_t size) {
  const size_t offset = carrier.port.ip_offset(), from = carrier.place;
  if (size < offset + 20) return;
  const std::span<const std::byte> ip(carrier.incoming.get() + offset, size - offset);
  if ((std::to_integer<unsigned>(ip[0]) >> 4) != 4) return;
  const size_t to = read_32(ip.data() + 16) - first_address;
  if (to >= carriers_.size() || to == from) return;  // nobody's: multicast, an address that is not used
  if (!network_.cuts.empty() && is_cut(network_.route(from, to), now_s())) {
    ++carrier.report.cut_off;
    return;
  }
  if (network_.loss > 0 && carrier.chance.uniform() < network_.loss) {
    ++carrier.report.dropped;
    return;
  }
  const uint64_t flow = static_cast<uint64_t>(from) << 48 | static_cast<uint64_t>(to) << 32 | ports_of(ip);
  const auto charged = static_cast<double>(ip.size());
  std::vector<size_t> early;
  {
    const std::lock_guard lock(mutex_);
    const double now = now_s();
    settle(now, early);  // what has been sent by now leaves the fluid first
    fluid_.offer(now, flow, network_.route(from, to), charged, keep(carrier, size, to));
    if (fluid_.next_due(to) < carriers_[to].wake) early.push_back(to);
  }
  wake(early);
}

// The packet just read, as a number.
uint32_t PacketSwitch::keep(Carrier& carrier, size_t size, size_t to) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(packets_.size()));
    packets_.emplace_back();
  }
  const uint32_t number = free_.back();
  free_.pop_back();
  Packet& packet = packets_[number];
  packet.size = size;
  packet.to = to;
  packet.whole_buffer = size > small_packet;
  if (packet.whole_buffer) {
    if (spare_.empty()) spare_.push_back(std::make_unique_for_overwrite<std::byte[]>(Port::largest_packet));
    packet.bytes = std::exchange(carrier.incoming, std::move(spare_.back()));
    spare_.pop_back();
  } else {
    packet.bytes = std::make_unique_for_overwrite<std::byte[]>(size);
    std::memcpy(packet.bytes.get(), carrier.incoming.get(), size);
  }
  return number;
}

// What has been sent by now waits for its time at the place where it goes; `early`: places that would sleep longer.
void PacketSwitch::settle(double now, std::vector<size_t>& early) {
  fluid_.advance(now, sent_);
  for (const FluidDelivery& delivery : sent_) {
    Carrier& carrier = carriers_[packets_[delivery.packet].to];
    carrier.due.push({delivery.due, order_++, delivery.packet});
    if (delivery.due < carrier.wake) early.push_back(carrier.place);
  }
  sent_.clear();
}

// All that is due at this place, and until when it may sleep then.
void PacketSwitch::hand_over(Carrier& carrier) {
  std::vector<size_t> early;
  for (;;) {
    Packet packet;
    double due = 0;
    {
      const std::lock_guard lock(mutex_);
      carrier.wake = 0;  // nobody needs to wake us: we are
      const double now = now_s();
      settle(now, early);
      if (carrier.due.empty() || carrier.due.top().time > now) {
        carrier.wake = fluid_.next_due(carrier.place);
        if (!carrier.due.empty()) carrier.wake = std::min(carrier.wake, carrier.due.top().time);
        break;
      }
      const Due next = carrier.due.top();
      carrier.due.pop();
      due = next.time;
      packet = std::move(packets_[next.packet]);
      free_.push_back(next.packet);
    }
    deliver(carrier, packet, due);
    if (!packet.whole_buffer) continue;
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(packet.bytes));
  }
  std::erase(early, carrier.place);
  wake(early);
}

void PacketSwitch::deliver(Carrier& carrier, const Packet& packet, double due) {
  const double late = std::max(0.0, now_s() - due);
  SwitchReport& report = carrier.report;
  if (!carrier.port.write({packet.bytes.get(), packet.size})) ++report.lost;
  ++report.packets;
  report.bytes += packet.size;
  ++carrier.late[std::min(static_cast<size_t>(late * 1e6), late_buckets - 1)];
  report.late_worst_s = std::max(report.late_worst_s, late);
}

void PacketSwitch::conclude(double elapsed) {
  report_ = {};
  report_.elapsed_s = elapsed;
  report_.priority = SwitchPriority::realtime;
  std::array<uint64_t, late_buckets> all{};
  for (const Carrier& carrier : carriers_) {
    report_.packets += carrier.report.packets;
    report_.bytes += carrier.report.bytes;
    report_.lost += carrier.report.lost + carrier.port.overrun();
    report_.cut_off += carrier.report.cut_off;
    report_.dropped += carrier.report.dropped;
    report_.cpu_s += carrier.report.cpu_s;
    report_.late_worst_s = std::max(report_.late_worst_s, carrier.report.late_worst_s);
    report_.priority = std::max(report_.priority, carrier.report.priority);
    for (size_t bucket = 0; bucket < late_buckets; ++bucket) all[bucket] += carrier.late[bucket];
  }
  const auto quantile = [&](double share) {
    uint64_t seen = 0;
    for (size_t bucket = 0; bucket < late_buckets; ++bucket) {
      seen += all[bucket];
      if (static_cast<double>(seen) >= share * static_cast<double>(report_.packets))
        return std::min(report_.late_worst_s, 1e-6 * static_cast<double>(bucket + 1));
    }
    return report_.late_worst_s;
  };
  report_.late_median_s = quantile(0.5);
  report_.late_99_s = quantile(0.99);
}

std::string to_string(const SwitchReport& report) {
  static constexpr std::array<const char*, 3> priorities = {"real-time", "high", "normal"};
  std::string faults = report.cut_off > 0 ? fmt::format(", {} met a cut link", report.cut_off) : "";
  if (report.dropped > 0) faults += fmt::format(", {} dropped on purpose", report.dropped);
  return fmt::format(
      "{} in {} packets, {} lost, {} sent again{}; late by {} (median), {} (99 %), {} (worst); the switch used {} of "
      "CPU in {} at {} priority",
      to_string(bytes(static_cast<int64_t>(report.bytes))), report.packets, report.lost, report.sent_again, faults,
      to_string(seconds(report.late_median_s)), to_string(seconds(report.late_99_s)),
      to_string(seconds(report.late_worst_s)), to_string(seconds(report.cpu_s)), to_string(seconds(report.elapsed_s)),
      priorities[static_cast<size_t>(report.priority)]);
}

}  // namespace nlsplit::inline emulation
