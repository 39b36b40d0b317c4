// What the simulator's runner keeps of activities, devices, cards and connections while time passes (sim/runner.h).
#pragma once

#include <array>
#include <cstdint>

#include "sim/event_queue.h"
#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

// Of an activity: what has happened to it.
struct Life {
  std::array<bool, event_count> happened{};
  double ready = 0;  // transfer
  bool arrived = false;
  bool ends_seen = false;        // whether they computed when its handshake was to end
  bool delayed = false;          // by computing at its ends, or its answer
  double waited_for_answer = 0;  // seconds of Answers::late that its release has waited for
};

// The block under way on a device.
struct Computing {
  bool active = false;
  uint32_t block = 0;
  double left = 0;      // seconds of computing, alone
  double since = 0;     // when that was so
  double slowness = 1;  // by company: seconds for a second of it
  double due = 0;       // when it ends if nothing changes
};

// A network card, where `nic_window` limits how many messages it moves at a time.
struct Card {
  int moving = 0;
  EventQueue waiting;  // by when they asked, then by activity
};

// From one device to another one message moves at a time, of those that could whoever asked first: in online runs, and
// where messages stream.
struct Lane {
  bool taken = false;
  double free = 0;  // streams: by when all that asked so far has moved, alone on its way
  EventQueue waiting;
};

}  // namespace nlsplit::inline sim
