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
#include <limits>
#include <utility>

#include "base/units.h"

namespace nlsplit {
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

PacketSwitch::PacketSwitch(const EmulatedNetwork& network, std::vector<Port> ports)
    : network_(network),
      ports_(std::move(ports)),
      fluid_(network.rates),
      least_latency_(std::numeric_limits<double>::infinity()),
      stop_event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      incoming_(std::make_unique_for_overwrite<std::byte[]>(Port::largest_packet)) {
  for (const FluidRoute& route : network_.routes) {
    if (!route.links.empty()) least_latency_ = std::min(least_latency_, route.latency);
  }
}

PacketSwitch::~PacketSwitch() { ::close(stop_event_); }

void PacketSwitch::stop() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_event_, &one, sizeof(one));
}

void PacketSwitch::run() {
  report_.priority = ask_for_priority();
  std::vector<pollfd> polled;
  for (const Port& port : ports_) polled.push_back({port.fd(), POLLIN, 0});
  polled.push_back({stop_event_, POLLIN, 0});
  begin_ = seconds_of(CLOCK_MONOTONIC);
  while (polled.back().revents == 0) {
    double now = seconds_of(CLOCK_MONOTONIC);
    hand_over(now);
    const double wake = next_wake();
    now = seconds_of(CLOCK_MONOTONIC);
    const timespec wait = duration_of(std::clamp(wake - now, 0.0, 3600.0));
    if (::ppoll(polled.data(), polled.size(), &wait, nullptr) <= 0) continue;
    now = seconds_of(CLOCK_MONOTONIC);
    for (size_t p = 0; p < ports_.size(); ++p) {
      if (polled[p].revents != 0) receive(p, now);
    }
  }
  conclude(seconds_of(CLOCK_MONOTONIC) - begin_);
}

// No packet can be due before the next one is sent, and that plus the shortest way.
double PacketSwitch::next_wake() const {
  const double sent = fluid_.next_sent() + least_latency_;
  return due_.empty() ? sent : std::min(sent, due_.top().time);
}

void PacketSwitch::receive(size_t from, double now) {
  for (int turn = 0; turn < reads_a_turn; ++turn) {
    const size_t size = ports_[from].read({incoming_.get(), Port::largest_packet});
    if (size == 0) return;
    accept(from, size, now);
  }
}

bool PacketSwitch::is_cut(const FluidRoute& route, double now) const {
  return std::ranges::any_of(network_.cuts, [&](const Cut& cut) {
    return now - begin_ >= cut.after_s && std::ranges::find_first_of(route.links, cut.links) != route.links.end();
  });
}

void PacketSwitch::accept(size_t from, size_t size, double now) {
  const size_t offset = ports_[from].ip_offset();
  if (size < offset + 20) return;
  const std::span<const std::byte> ip(incoming_.get() + offset, size - offset);
  if ((std::to_integer<unsigned>(ip[0]) >> 4) != 4) return;
  const size_t to = read_32(ip.data() + 16) - first_address;
  if (to >= ports_.size() || to == from) return;  // nobody's: multicast, an address that is not used
  if (is_cut(network_.route(from, to), now)) {
    ++report_.cut_off;
    return;
  }
  const uint64_t flow = static_cast<uint64_t>(from) << 48 | static_cast<uint64_t>(to) << 32 | ports_of(ip);
  const auto charged = static_cast<double>(ip.size());
  // What has been sent by now leaves the fluid first.
  fluid_.advance(now, sent_);
  fluid_.offer(now, flow, network_.route(from, to), charged, keep(size, to));
}

// The packet just read, as a number.
uint32_t PacketSwitch::keep(size_t size, size_t to) {
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
    packet.bytes = std::exchange(incoming_, std::move(spare_.back()));
    spare_.pop_back();
  } else {
    packet.bytes = std::make_unique_for_overwrite<std::byte[]>(size);
    std::memcpy(packet.bytes.get(), incoming_.get(), size);
  }
  return number;
}

void PacketSwitch::hand_over(double now) {
  fluid_.advance(now, sent_);
  for (const FluidDelivery& delivery : sent_) due_.push({delivery.due, order_++, delivery.packet});
  sent_.clear();
  while (!due_.empty() && due_.top().time <= now) {
    const Due next = due_.top();
    due_.pop();
    Packet& packet = packets_[next.packet];
    const bool taken = ports_[packet.to].write({packet.bytes.get(), packet.size});
    ++report_.packets;
    report_.bytes += packet.size;
    if (!taken) ++report_.lost;
    const double late = std::max(0.0, now - next.time);
    ++late_[std::min(static_cast<size_t>(late * 1e6), late_buckets - 1)];
    report_.late_worst_s = std::max(report_.late_worst_s, late);
    if (packet.whole_buffer)
      spare_.push_back(std::move(packet.bytes));
    else
      packet.bytes.reset();
    free_.push_back(next.packet);
    now = seconds_of(CLOCK_MONOTONIC);
  }
}

void PacketSwitch::conclude(double elapsed) {
  report_.elapsed_s = elapsed;
  report_.cpu_s = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  for (const Port& port : ports_) report_.lost += port.overrun();
  const auto quantile = [&](double share) {
    uint64_t seen = 0;
    for (size_t bucket = 0; bucket < late_buckets; ++bucket) {
      seen += late_[bucket];
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
  const std::string cut = report.cut_off > 0 ? fmt::format(", {} met a cut link", report.cut_off) : "";
  return fmt::format(
      "{} in {} packets, {} lost, {} sent again{}; late by {} (median), {} (99 %), {} (worst); the switch used {} of "
      "CPU in {} at {} priority",
      to_string(bytes(static_cast<int64_t>(report.bytes))), report.packets, report.lost, report.sent_again, cut,
      to_string(seconds(report.late_median_s)), to_string(seconds(report.late_99_s)),
      to_string(seconds(report.late_worst_s)), to_string(seconds(report.cpu_s)), to_string(seconds(report.elapsed_s)),
      priorities[static_cast<size_t>(report.priority)]);
}

}  // namespace nlsplit
