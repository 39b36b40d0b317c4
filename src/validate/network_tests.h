// Programs that measure a network: ping-pong, messages in both directions at once, with and without computing.
//
// The executor runs these Programs like any plan, so the measurements include the executor's way of waiting for
// messages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "cost/network_profile.h"
#include "program/program.h"
#include "program/saved.h"

namespace nlsplit::inline validation {

inline constexpr int64_t smallest_message = 256;  // bytes, of a ping-pong

// Devices "ping" on host `a` and "pong" on host `b`. Each slot is a message there and back. Both devices compute
// between receiving and sending, as the stages of a plan do: a rank that has waited longer wakes up later.
struct PingPongOptions {
  std::optional<Level> level_a = {}, level_b = {};  // none: that host has no device, and computes nothing
  Bytes eager_limit;
  int computations = 64;            // computations between two messages
  int64_t largest_bytes = 4 << 20;  // no message is larger
};
struct PingPong {
  Program program;
  std::vector<int64_t> sizes;  // of each slot's message, bytes
};
PingPong ping_pong(const std::string& a, const std::string& b, const PingPongOptions& options);

// Two devices compute for some milliseconds, repeatedly, with or without messages from `a` to `b` at the same time.
struct BusyPairOptions {
  int64_t message_bytes = 0;
  Bytes eager_limit;
  bool messages = true;
  int slots = 8;           // each has computations, and a message with the result of the slot before
  int computations = 750;  // computations of a slot
  // Adds as many computations during which no message passes: the sender's after the others, the receiver's before
  // them. The difference is the time that a message takes from computing, of neighbouring milliseconds of one process.
  bool also_without_messages = false;
};
Program busy_pair(const std::string& a, const std::string& b, Level level_a, Level level_b,
                  const BusyPairOptions& options);
// The same with at most this many computations in each slot.
Program with_fewer_computations(Program busy, int computations);
// Clocks for emulated compute: each slot of a busy pair, or of a ping-pong, computes for slot_s on any machine.
Clocks busy_clock(const Program& busy, double slot_s);

// Devices "here" on `a` and "there" on `b` send each other a message at the same time, without computing.
Program crossing(const std::string& a, const std::string& b, int64_t message_bytes, Bytes eager_limit);

// "here" on `a` sends a message above the eager limit to "there" on `b`, while a long message moves from "there" to
// "here", or while none does. The difference of the two send times is the delay of the clear to send, which queues
// behind the long message.
struct ClearToSendOptions {
  int64_t message_bytes = 0;
  int64_t bulk_bytes = 0;  // of the long message
  Bytes eager_limit;
  bool bulk = true;
  int computations = 0;  // that `here` computes before it sends, while the long one begins to move
  int slots = 8;         // each has one message, and a long one
};
Program clear_to_send_pair(const std::string& a, const std::string& b, Level level_a, Level level_b,
                           const ClearToSendOptions& options);

// The device on `b` computes for long on each message before it has room for the next one, which the device on `a`
// sends at once.
struct LateReceiverOptions {
  int64_t message_bytes = 0;
  Bytes eager_limit;
  int computations = 0;
  int messages = 4;
};
Program late_receiver(const std::string& a, const std::string& b, Level level_a, Level level_b,
                      const LateReceiverOptions& options);

// The tests that `nlsim lower --network-set` writes and `nlbench network` runs.
struct PingPongTest {
  std::string folder;  // a saved Program
  std::string a, b;    // hosts
  std::vector<int64_t> sizes;
};
struct BusyPair {
  std::string folder, a, b;  // a saved Program, also_without_messages
  int64_t bytes = 0;         // of a message
};
struct MessageTest {
  std::string folder, a, b;
  int64_t bytes = 0;  // of all messages from a to b
  int messages = 0;
};
struct ClearToSendTest {
  std::string alone, with_bulk;  // folders: without and with long messages in the other direction
  std::string a, b;
};
// Pairs of hosts that the scenario describes alike (cost/pair_classes.h) and of which only some are measured.
struct AlikePairs {
  std::vector<RouteEnds> measured, others;  // each in the direction in which it is like the others
  bool symmetric = false;                   // both directions are alike
};
// Of pairs that are alike so many are measured, unless somebody says otherwise.
inline constexpr int usual_pairs = 2;

struct NetworkTests {
  Bytes eager_limit;
  std::vector<PingPongTest> tests;
  std::vector<BusyPair> pairs;
  std::vector<MessageTest> crossings;  // messages both ways at once
  std::vector<MessageTest> slowed;     // large ones from a to b while both compute
  std::vector<ClearToSendTest> clear_to_send;
  std::vector<MessageTest> busy = {};  // messages barely above the eager limit from a to b while both compute
  std::vector<MessageTest> late = {};  // large ones from a to b, whose receiver computes
  std::vector<AlikePairs> alike = {};
};
std::string to_json(const NetworkTests& set);
Result<NetworkTests> parse_network_tests(const std::string& text, const std::string& file);

}  // namespace nlsplit::inline validation
