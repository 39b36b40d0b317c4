// The messages of a Program between GPUs over NVIDIA's NCCL, beside a transport that carries everything else: messages
// with CPUs, exec's own, and what the ranks say to each other about NCCL.
//
//   ASSIGN_OR_RETURN(const auto library, find_nccl(program, options.gpu, transport, waiting));   // early
//   ASSIGN_OR_RETURN(const auto nccl, open_nccl(program, library, *backend, transport, waiting));
//   … run the device over `nccl ? *nccl : transport` …
//   if (nccl) RETURN_IF_ERROR(nccl->close(waiting));
//
// There is one communicator, of all ranks whose devices are GPUs, which does not block: nothing here waits in a call of
// NCCL. Each rank has one stream for messages and one group of operations at a time (exec/nccl/pairing.h says why, and
// why that cannot block). Its end is an event on that stream. Of NCCL only sends and receives are used: the sums of a
// Program's collectives are made in an order that its text says, and ncclAllReduce promises none.
//
// While operations are in progress ncclCommGetAsyncError is polled. An error ends the run on all ranks, by the
// transport's abort(), and aborts the communicator, so that no GPU goes on waiting.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/backend.h"
#include "exec/collectives.h"
#include "exec/nccl/library.h"
#include "exec/nccl/pairing.h"
#include "exec/transport.h"

namespace nlsplit::cuda {
struct Event;
}

namespace nlsplit::inline exec {

class NcclTransport final : public Transport {
 public:
  // `devices`: names of all ranks' devices; `members`: those that NCCL connects, ascending, this one among them. GPU
  // and transport are borrowed.
  NcclTransport(NcclLibrary library, const OpenGpu& gpu, Transport& control, std::vector<std::string> devices,
                std::vector<int> members);
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;
  ~NcclTransport() override;

  // Makes the communicator; all members call it, and none sends a message before all have. Error also: the run was
  // aborted. After any other one it must be: the other members wait.
  Status connect(const nccl::UniqueId& id, const Waiting& waiting);
  // After the last message; all members call it. Nothing of this transport is left on the other one.
  Status close(const Waiting& waiting);

  int rank() const override { return control_.rank(); }
  int size() const override { return control_.size(); }
  std::vector<int> same_machine() const override { return control_.same_machine(); }
  bool takes_device_memory() const override { return control_.takes_device_memory(); }
  Request isend(int peer, int tag, std::span<const std::byte> data) override;
  Request irecv(int peer, int tag, std::span<std::byte> room) override;
  State test(Request request) override;
  Error error() const override { return failure_ ? *failure_ : control_.error(); }
  std::string under_way() const override;
  NativeCollectives* collectives() override { return control_.collectives(); }
  void pause(int rounds) override;
  void wake() override { control_.wake(); }
  void rest() override { control_.rest(); }
  Liveness& liveness() override { return control_.liveness(); }
  double idle_s() const override { return control_.idle_s(); }
  void abort(const Error& why) override { control_.abort(why); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Message {
    std::byte* at = nullptr;
    MessageEnd end;
    int peer = 0;
    State state = State::pending;
  };
  struct Hearing {
    PairingRecord record;
    Request request = 0;
    bool over = false;  // it has said bye
  };
  struct Saying {
    PairingRecord record;
    Request request = 0;
  };
  struct Running {
    PairingBatch batch;
    Clock::time_point since;
    bool recorded = false;  // its end, on the stream
  };

  bool goes_by_nccl(int peer, int tag) const { return tag != control_tag && place_[static_cast<size_t>(peer)] >= 0; }
  Request post(int peer, bool sends, int tag, std::byte* at, size_t bytes);
  bool drive();  // whether anything happened
  bool hear();
  bool say();
  bool begin();
  bool look();
  Status call_nccl(const PairingBatch& batch);
  Result<bool> has_ended(Running& running);
  void fail(const Error& why);
  Status check(const Status& status);
  Status outcome_of(nccl::Outcome outcome, const char* what) const;
  Status settle(const char* what, const Waiting& waiting);
  std::string rank_name(int rank) const;

  const NcclLibrary library_;
  const OpenGpu& gpu_;
  Transport& control_;
  const std::vector<std::string> devices_;
  const std::vector<int> members_;
  std::vector<int> place_;  // [rank]: in the communicator; -1: not in it
  nccl::Communicator* communicator_ = nullptr;
  cuda::Event* event_ = nullptr;
  Pairing pairing_;
  std::vector<Message> messages_;
  std::vector<uint32_t> free_;
  std::map<int, Hearing> hearing_;            // by member
  std::map<int, std::deque<Saying>> saying_;  // by member, what has not left
  std::optional<Running> running_;
  std::optional<Error> failure_;
};

// All ranks call it. Nothing if the options do not ask for NCCL, or this rank's device is no GPU. Errors, the same on
// all ranks: fewer than two devices are GPUs; a rank with a GPU has no NCCL that can be used.
Result<std::optional<NcclLibrary>> find_nccl(const Program& program, const GpuOptions& options, Transport& control,
                                             const Waiting& waiting);

// All ranks call it if the options ask for NCCL, each with its own device's backend. nullptr where that is no GPU.
// Errors, the same on all ranks: a CPU in a GPU's place; two ranks on one GPU, which NCCL refuses; ranks with other
// versions of NCCL; what NCCL says.
Result<std::unique_ptr<NcclTransport>> open_nccl(const Program& program, const std::optional<NcclLibrary>& library,
                                                 const Backend& backend, Transport& control, const Waiting& waiting);

}  // namespace nlsplit::inline exec
