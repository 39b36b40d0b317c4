// Transport: moves contiguous bytes between the devices of one run. transports/transports.cc lists them: threads of one
// process, Open MPI, gRPC. Beside one of them NCCL may carry messages between GPUs (nccl/transport_nccl.h). One thread
// a device calls it; wake() and abort() any thread.
//
//   const Transport::Request r = transport.irecv(peer, tag, room);     // posts; the bytes belong to the transport
//   until … while (transport.test(r) == Transport::State::pending) transport.pause(rounds++);
//
// Messages of one (source, destination, tag) arrive in the order they were sent. A message may leave before its
// receiver expects it, but a sender that waits for the end of each of its messages is never more than some tens of MiB
// ahead. Both ends give the size; different sizes are an error. A class that wraps a transport must forward all
// functions, also those with a default.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/liveness.h"
#include "graph/graph.h"
#include "program/collective.h"

namespace nlsplit::inline exec {

inline constexpr int control_tag = -1;  // exec's own messages (exec/collectives.h); a Program's tags are 0 and above

class NativeCollectives;

class Transport {
 public:
  using Request = uint32_t;
  enum class State : uint8_t { pending, done, failed };

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The ranks on this one's machine, ascending, itself included: they share its cores.
  virtual std::vector<int> same_machine() const = 0;

  // Whether the bytes of messages may lie in a GPU's memory.
  virtual bool takes_device_memory() const { return false; }

  virtual Request isend(int peer, int tag, std::span<const std::byte> data) = 0;
  virtual Request irecv(int peer, int tag, std::span<std::byte> room) = 0;
  // Also makes progress. After done or failed the request must not be used again.
  virtual State test(Request request) = 0;
  virtual Error error() const = 0;  // why test() failed
  // Operations in progress that the caller does not know of, for the message about a hang; empty: none.
  virtual std::string under_way() const { return {}; }

  // Its own collectives; nullptr: it has none.
  virtual NativeCollectives* collectives() { return nullptr; }

  // Waits until wake(), a message, or a timeout that grows with `rounds`. For a caller that has nothing to do.
  virtual void pause(int rounds) = 0;
  virtual void wake() = 0;  // any thread
  // The same for waits that may last for hours: never polls in a busy loop, so a message may be noticed some
  // milliseconds late.
  virtual void rest() { pause(0); }

  // This device's liveness, which its executor updates; and the time in which no device of the run has done anything, 0
  // while a device computes.
  virtual Liveness& liveness() = 0;
  virtual double idle_s() const = 0;

  // Ends the run on all devices with a reason. Requests in flight are dropped; their bytes belong to the caller again.
  // Over MPI it ends the process, since a peer may hang. Any thread may call it, since the owner may hang.
  virtual void abort(const Error& why) = 0;
};

// A transport's own collectives, in groups of its ranks. The members of a group begin the same collectives in the same
// order; several may be in progress. The thread that owns the transport calls this.
class NativeCollectives {
 public:
  virtual ~NativeCollectives() = default;

  // Error: it has none of this kind, of these elements, or of so many.
  virtual Status accepts(const Collective& collective, DType dtype) const = 0;
  // Joins all groups of this rank, ascending, before it begins a collective. Waits for their other members.
  virtual void join(std::span<const std::vector<int>> groups) = 0;
  // Ends like a message, by Transport::test(). The bytes of value and result belong to the transport until then. The
  // two are the same, except for an all-to-all (program/collective.h).
  virtual Transport::Request begin(const Collective& collective, DType dtype, std::span<std::byte> value,
                                   std::span<std::byte> result) = 0;
};

}  // namespace nlsplit::inline exec
