// Programs that measure a network: messages there and back, both ways at once, with and without computing beside them.
//
// Calibration is a Program run by exec, the same path as the real thing, so what a rank adds by the way it waits for
// messages is in the figures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "program/program.h"
#include "program/saved.h"

namespace nlsplit::inline validation {

// Devices "ping" on host `a` and "pong" on host `b`. Each slot is a message there and back. Both compute between the
// message that comes and the one that leaves, as the stages of a plan do: whoever has waited longer wakes later.
struct PingPongOptions {
  std::optional<Level> level_a = {}, level_b = {};  // none: that host has no device, and computes nothing
  Bytes eager_limit;
  int chores = 64;                  // computations between two messages
  int64_t largest_bytes = 4 << 20;  // no message is larger
};
struct PingPong {
  Program program;
  std::vector<int64_t> sizes;  // of each slot's message, bytes
};
PingPong ping_pong(const std::string& a, const std::string& b, const PingPongOptions& options);

// Two devices compute for some milliseconds, again and again, while messages from `a` to `b` pass, or not.
struct BusyPairOptions {
  int64_t message_bytes = 0;
  Bytes eager_limit;
  bool messages = true;
  int slots = 8;     // in each computations, and a message of what the slot before has made
  int chores = 750;  // computations of a slot
  // As many more, during which no message passes: the sender's after the others, the receiver's before them. What a
  // message takes from the computing of either end is the difference, of the same milliseconds of the same process.
  bool quiet_too = false;
};
Program busy_pair(const std::string& a, const std::string& b, Level level_a, Level level_b,
                  const BusyPairOptions& options);
// The same with at most so many in each slot.
Program with_fewer_chores(Program busy, int chores);
// A clock by which each slot of a busy pair, or of a ping-pong, computes so long, whatever the machine.
Clocks busy_clock(const Program& busy, double slot_s);

// Devices "here" on `a` and "there" on `b` send each other a message, both at once and without computing.
Program crossing(const std::string& a, const std::string& b, int64_t message_bytes, Bytes eager_limit);

// "here" on `a` sends a message above the eager limit to "there" on `b`, whose own long message moves already (or not):
// what an answer waits behind is the difference of what the first one takes to leave.
struct ClearToSendOptions {
  int64_t message_bytes = 0;
  int64_t bulk_bytes = 0;  // of the long one
  Bytes eager_limit;
  bool bulk = true;
  int chores = 0;  // that `here` computes before it sends, while the long one begins to move
  int slots = 8;   // in each one message, and a long one
};
Program answers(const std::string& a, const std::string& b, Level level_a, Level level_b,
                const ClearToSendOptions& options);

// Tests to be played: what `nlsim lower --network-set` writes and `nlbench network` reads.
struct PingPongTest {
  std::string folder;  // a saved Program
  std::string a, b;    // hosts
  std::vector<int64_t> sizes;
};
struct BusyPair {
  std::string folder, a, b;  // a saved Program, quiet_too
  int64_t bytes = 0;         // of a message
};
struct MessageTest {
  std::string folder, a, b;
  int64_t bytes = 0;  // of all messages from a to b
  int messages = 0;
};
struct ClearToSendTest {
  std::string quiet, loud;  // folders: without long messages, with them
  std::string a, b;
};
struct NetworkTests {
  Bytes eager_limit;
  std::vector<PingPongTest> tests;
  std::vector<BusyPair> pairs;
  std::vector<MessageTest> crossings;  // messages both ways at once
  std::vector<MessageTest> slowed;     // large ones from a to b while both compute
  std::vector<ClearToSendTest> answers;
  std::vector<MessageTest> busy = {};  // messages barely above the eager limit from a to b while both compute
};
std::string to_json(const NetworkTests& set);
Result<NetworkTests> parse_network_tests(const std::string& text, const std::string& file);

}  // namespace nlsplit::inline validation
