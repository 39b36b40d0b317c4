// Transport: moves contiguous bytes between the devices of one run. transports/transports.cc lists them: threads of one
// process, Open MPI, gRPC. Beside one of them NCCL may carry messages between GPUs (nccl/transport_nccl.h). One thread
// a device calls it; wake() and abort() any thread.
//
//   const Transport::Request r = transport.irecv(peer, tag, room);     // posts; the bytes belong to the transport
//   until … while (transport.test(r) == Transport::State::pending) transport.pause(rounds++);
//
// Messages of one (source, destination, tag) arrive in the order they were sent. Both ends know the size: a different
// one is an error. Who wraps a transport, say to count bytes, hands on all functions, those with a default too.
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
  // Also drives the transport. After done or failed the request is gone.
  virtual State test(Request request) = 0;
  virtual Error error() const = 0;  // why test() failed
  // What it has under way beside what its caller knows, for the message of a hang; empty: nothing to say.
  virtual std::string under_way() const { return {}; }

  // Its own collectives; nullptr: it has none.
  virtual NativeCollectives* collectives() { return nullptr; }

  // Nothing to do at the moment: rests until wake(), a message, or a short while that grows with `rounds`.
  virtual void pause(int rounds) = 0;
  virtual void wake() = 0;  // any thread
  // The same in a wait that may last for hours: costs no core, however the transport looks for messages otherwise. It
  // may notice a message some milliseconds late.
  virtual void rest() { pause(0); }

  // This device's own, to be kept up to date by who runs it; and how long no device of the run has done anything: 0
  // while one computes.
  virtual Liveness& liveness() = 0;
  virtual double idle_s() const = 0;

  // Ends the run on all devices, saying why. Requests in flight are dropped; their bytes are the caller's again.
  // Over MPI it ends the process: a peer that hangs cannot be asked. Any thread: the owner may be what hangs.
  virtual void abort(const Error& why) = 0;
};

// Collectives of a transport's own, in groups of its ranks. The members of a group begin the same ones in the same
// order; several may be under way. The thread that owns the transport calls this.
class NativeCollectives {
 public:
  virtual ~NativeCollectives() = default;

  // Error: it has none of this kind, of these elements, or of so many.
  virtual Status accepts(const Collective& collective, DType dtype) const = 0;
  // The groups this rank is in, ascending: before it begins anything in them. Waits for their other members.
  virtual void join(std::span<const std::vector<int>> groups) = 0;
  // Ends as a message does: Transport::test(). value and result, of which the bytes belong to the transport: as
  // program/collective.h says; of all kinds but an all-to-all they are the same.
  virtual Transport::Request begin(const Collective& collective, DType dtype, std::span<std::byte> value,
                                   std::span<std::byte> result) = 0;
};

}  // namespace nlsplit::inline exec
