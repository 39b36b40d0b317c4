// Pairing: decides which messages a rank gives to NCCL, with which peer and when. A state machine without NCCL, clock
// or network. Input: the rank's messages and other ranks' records. Output: records to send, and NCCL operations.
//
//   pairing.post(peer, {.sends = true, .tag = 3, .bytes = 4096, .id = 7});     // the caller's send or recv
//   pairing.hear(peer, record);                                                // what `peer` has said
//   for (const auto& [peer, record] : pairing.take_said()) …                   // to be sent, in this order
//   if (const std::optional<Batch> batch = pairing.take_batch()) …             // one group of NCCL calls; later
//   pairing.batch_ended();
//
// Why it is needed. NCCL has no tags: sends and receives of a pair of ranks match in the order in which they are begun.
// A send occupies its GPU's stream until the receive runs on the other one. And NVIDIA promises for no two operations
// of a GPU that they run at the same time, not even on different streams or of different communicators ("Using multiple
// NCCL communicators concurrently", NVIDIA/nccl#195). Ranks that begin whatever they have, as over MPI, can thus wait
// for each other in a circle: A's send to B occupies A, B's to C occupies B, C's to A occupies C.
//
// What it does. An operation begins only when both its ends are there, and each rank takes part in one batch at a time,
// as if it had one port. A batch is all that two ranks have for each other, in both directions, as one group; within a
// group NCCL lets operations progress independently. The lower rank of a pair leads:
//
//   1. each end is posted; the higher rank tells the lower one of its ends (`end`), which matches them by tag in their
//      order: both ends have messages of one tag in the same order (exec/transport.h), so there is one way to do it;
//   2. once the lower rank's port is free, it takes it for the batch and asks the higher one (`ask`, one an operation);
//   3. once the higher rank's port is free, it takes it, begins its half, and says so (`go`); then the lower one begins
//      its own. Both have the operations in the order of the `ask`s, so NCCL matches them as they were paired;
//   4. each rank frees its port when its half has ended on its GPU.
//
// Why it ends. A port is taken by a rank that (a) has begun its half, or (b) leads and waits for a higher rank. In (a)
// the other rank has begun, too, or does so as soon as it hears `go`, for which it holds its port; nothing else of NCCL
// is on either GPU, so both halves run, behind computations at most, which wait for no message. In (b) the port waited
// for is that of a higher rank, which is in (a), or in (b) for a still higher one; the highest rank is never in (b). So
// every port gets free, and ports are given in the order in which they were asked for. A message whose two ends are
// there is therefore moved in finite time, whatever others wait for. That is what the dry run of verify() takes for
// granted of every message (a rendezvous), hence no Program that it accepts can block here.
//
// What it costs: up to three small messages before one of the Program (two of them while the port is waited for), and a
// GPU that talks with one other at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline exec {

// One end of a message.
struct MessageEnd {
  bool sends = false;
  int32_t tag = 0;
  uint64_t bytes = 0;
  uint32_t id = 0;  // the rank's own number of it
};

// What ranks say to each other: plain bytes, of ranks of one architecture and build.
struct PairingRecord {
  enum class What : uint32_t { end, ask, last_ask, go, bye };
  What what = What::end;
  uint32_t sends = 0;  // end: its rank sends
  int32_t tag = 0;
  uint32_t id = 0;  // end, ask: the higher rank's number
  uint64_t bytes = 0;
};
static_assert(sizeof(PairingRecord) == 24);

// Operations with one peer, to be begun as one group in this order: the caller's numbers.
struct PairingBatch {
  int peer = 0;
  std::vector<uint32_t> ids;
};

class Pairing {
 public:
  explicit Pairing(int rank) : rank_(rank) {}

  // Errors: the two ends have different sizes.
  Status post(int peer, const MessageEnd& end);
  Status hear(int peer, const PairingRecord& record);  // error also: what no rank says
  void batch_ended();

  std::vector<std::pair<int, PairingRecord>> take_said() { return std::exchange(said_, {}); }
  std::optional<PairingBatch> take_batch() { return std::exchange(begun_, std::nullopt); }

  // What it waits for, in words: "asked rank 2 for its turn", "2 ends of messages with rank 1 are here and not there";
  // empty: nothing.
  std::string waits_for() const;

 private:
  // Both ends, by their ranks' numbers.
  struct Paired {
    uint32_t own = 0, other = 0;
  };
  // Messages with a higher rank.
  struct Led {
    std::map<std::pair<bool, int32_t>, std::deque<MessageEnd>> here, there;  // by whether this rank sends, and tag
    std::vector<Paired> paired;
  };

  Status pair(int peer, bool sends, int32_t tag);
  void queue(int peer);
  void give_port();

  const int rank_;
  std::map<int, Led> led_;                      // by peer
  std::map<int, std::vector<uint32_t>> asked_;  // by lower peer: what it asks for, until the last of it
  std::map<int, int> told_;                     // by lower peer: ends that it was told of and has not asked for
  std::deque<PairingBatch> wanting_;            // the port; of led ones without operations: those there are by then
  bool port_taken_ = false;
  std::optional<PairingBatch> waits_for_go_;
  std::optional<PairingBatch> begun_;
  std::vector<std::pair<int, PairingRecord>> said_;
};

}  // namespace nlsplit::inline exec
