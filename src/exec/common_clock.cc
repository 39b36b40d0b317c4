#include "exec/common_clock.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/rest_a_moment.h"

namespace nlsplit::inline exec {
namespace {

constexpr int most_rounds = 16, least_rounds = 3;
constexpr std::chrono::milliseconds enough_rounds(50);  // over a slow link fewer round trips must do
// Crystals differ by up to 100 millionths: in so long by 0.1 ms.
constexpr std::chrono::seconds fresh(1);
constexpr std::chrono::microseconds to_wake(100);  // from a message's arrival to the receiver's going on
constexpr std::chrono::milliseconds longest_lead(500);
constexpr std::chrono::milliseconds longest_spin(1);  // a sleeping thread wakes up later than it should

// What names a clock: the running kernel, and the time namespace, which may shift it.
std::string clock_name() {
  const auto boot = read_file("/proc/sys/kernel/random/boot_id");
  std::array<char, 64> space{};
  const ssize_t length = ::readlink("/proc/self/ns/time", space.data(), space.size());  // none: an older kernel
  if (!boot) return "";
  return *boot + std::string(space.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
}

template <class T>
std::span<std::byte> bytes_in_value(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

struct Question {
  int64_t another = 0;        // 0: the last one
  int64_t round_trip_ns = 0;  // the shortest so far
};

int64_t nanoseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

Result<CommonClock> CommonClock::measure(Transport& transport, const std::vector<double>& foreign_s,
                                         const Waiting& waiting) {
  CommonClock clock;
  const auto rank = static_cast<size_t>(transport.rank());
  const double ahead_s = rank < foreign_s.size() ? foreign_s[rank] : 0;
  clock.ahead_ = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(ahead_s));
  std::string mine = ahead_s != 0 ? "" : clock_name(), first = mine;
  RETURN_IF_ERROR(broadcast(transport, &first, waiting));
  clock.same_clock_ = !mine.empty() && mine == first;
  if (transport.rank() == 0) clock.same_clock_ = true;
  ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(transport, clock.same_clock_ ? "y" : "n", waiting));
  std::string same = std::ranges::count(all, "n") == 0 ? "y" : "n";
  RETURN_IF_ERROR(broadcast(transport, &same, waiting));
  clock.all_same_ = same == "y";
  RETURN_IF_ERROR(clock.synchronize(transport, waiting));
  return clock;
}

Status CommonClock::refresh(Transport& transport, const Waiting& waiting) {
  if (all_same_) return ok_status();
  std::string again = Clock::now() - measured_ > fresh ? "y" : "n";
  RETURN_IF_ERROR(broadcast(transport, &again, waiting));
  return again == "y" ? synchronize(transport, waiting) : ok_status();
}

// Each rank in turn measures against rank 0. On the same machine only the round trip matters.
Status CommonClock::synchronize(Transport& transport, const Waiting& waiting) {
  if (transport.rank() != 0) {
    RETURN_IF_ERROR(ask(transport, waiting));
  } else {
    round_trip_ = {};
    for (int peer = 1; peer < transport.size(); ++peer) RETURN_IF_ERROR(serve(transport, peer, waiting));
  }
  measured_ = Clock::now();
  return ok_status();
}

Status CommonClock::serve(Transport& transport, int peer, const Waiting& waiting) {
  std::byte go{};
  RETURN_IF_ERROR(send_bytes(transport, peer, bytes_in_value(go), waiting));  // its turn
  for (Question question{1, 0}; question.another != 0;) {
    RETURN_IF_ERROR(recv_at_once(transport, peer, bytes_in_value(question), waiting));
    int64_t time_ns = nanoseconds(now().time_since_epoch());
    if (question.another != 0) RETURN_IF_ERROR(send_bytes(transport, peer, bytes_in_value(time_ns), waiting));
    if (question.another == 0)
      round_trip_ = std::max<Clock::duration>(round_trip_, std::chrono::nanoseconds(question.round_trip_ns));
  }
  return ok_status();
}

Status CommonClock::ask(Transport& transport, const Waiting& waiting) {
  std::byte go{};
  RETURN_IF_ERROR(recv_bytes(transport, 0, bytes_in_value(go), waiting));
  Clock::duration shortest = Clock::duration::max();
  const Clock::time_point begin = Clock::now();
  for (int round = 0; round < most_rounds; ++round) {
    if (round >= least_rounds && Clock::now() - begin > enough_rounds) break;
    Question question{1, 0};
    int64_t theirs_ns = 0;
    const Clock::time_point asked = now();
    RETURN_IF_ERROR(send_bytes(transport, 0, bytes_in_value(question), waiting));
    RETURN_IF_ERROR(recv_at_once(transport, 0, bytes_in_value(theirs_ns), waiting));
    const Clock::duration round_trip = now() - asked;
    if (round_trip >= shortest) continue;
    shortest = round_trip;
    if (!same_clock_) offset_ = Clock::time_point(std::chrono::nanoseconds(theirs_ns)) - (asked + round_trip / 2);
  }
  error_s_ = same_clock_ ? 0 : std::chrono::duration<double>(shortest).count() / 2;
  Question last{0, nanoseconds(shortest)};
  return send_bytes(transport, 0, bytes_in_value(last), waiting);
}

Result<double> CommonClock::worst_error_s(Transport& transport, const Waiting& waiting) const {
  const std::string mine(reinterpret_cast<const char*>(&error_s_), sizeof(error_s_));
  ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(transport, mine, waiting));
  std::vector<double> errors = {0, 0};
  for (const std::string& one : all) {
    double error = 0;
    if (one.size() == sizeof(error)) std::memcpy(&error, one.data(), sizeof(error));
    errors.push_back(error);
  }
  std::ranges::sort(errors, std::greater<>());
  return errors[0] + errors[1];  // between the two worst
}

Result<CommonClock::Clock::time_point> CommonClock::agree_on_start(Transport& transport, const Waiting& waiting) {
  if (transport.size() == 1) return Clock::now();
  RETURN_IF_ERROR(barrier(transport, false, waiting));  // some are long done, and sleep
  RETURN_IF_ERROR(barrier(transport, true, waiting));   // now all are awake, and soon see rank 0's message
  int64_t start_ns = 0;
  if (transport.rank() == 0) {
    // A message takes half a round trip; those to many ranks leave one after the other.
    const Clock::duration lead = std::min<Clock::duration>(round_trip_ + to_wake, longest_lead);
    start_ns = nanoseconds((now() + lead).time_since_epoch());
    std::vector<Transport::Request> sent;
    for (int peer = 1; peer < transport.size(); ++peer)
      sent.push_back(transport.isend(peer, control_tag, bytes_in_value(start_ns)));
    for (size_t i = 0; i < sent.size(); ++i)
      RETURN_IF_ERROR(wait(transport, static_cast<int>(i) + 1, sent[i], waiting));
  } else {
    RETURN_IF_ERROR(recv_at_once(transport, 0, bytes_in_value(start_ns), waiting));
  }
  const Clock::time_point zero = Clock::time_point(std::chrono::nanoseconds(start_ns)) - offset_ - ahead_;
  std::this_thread::sleep_until(zero - longest_spin);
  while (Clock::now() < zero) rest_a_moment();
  return zero;
}

}  // namespace nlsplit::inline exec
