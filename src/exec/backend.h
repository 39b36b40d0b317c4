// Backend: what one device of a run computes on, with the memory it computes in. exec/backends/ has a row for each
// DeviceKind.
//
//   ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, open_backend(context));
//   … place weights (place) and inputs (in host()) …
//   RETURN_IF_ERROR(backend->upload(every_buffer));
//   RETURN_IF_ERROR(backend->begin());                              // the thread that computes …
//   RETURN_IF_ERROR(backend->execute(slot, steps, Clock::now()));
//   ASSIGN_OR_RETURN(const std::span<const Ran> ran, backend->finish());
//   ASSIGN_OR_RETURN(const Copy copy, backend->begin_copy(slot, operand, peer, Direction::out));   // … and
//   … transport.isend(peer, tag, backend->message(slot, operand, peer));                   // the transport's
//
// Two threads use it at a time: one computes, the other owns the transport. All that is borrowed outlives it. Errors
// name the device.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "exec/heartbeat/facts.h"
#include "kernels/module/kernel.h"
#include "program/program.h"

namespace nlsplit::inline exec {

struct GpuOptions;
struct OpenGpu;

// An instruction of a slot, by its place in the slot's segment.
struct Step {
  uint32_t tag = 0;  // under which the backend says when it ran
  int instr = 0;
};

struct Ran {
  uint32_t tag = 0;
  std::chrono::steady_clock::time_point start, finish;
};

// Between the device's memory and the host's.
enum class Direction : uint8_t { out, in };
// A copy under way.
enum class Copy : int32_t { none = -1 };

using WhichBuffers = std::function<bool(const Buffer&)>;

class Backend {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Backend() = default;

  // ---- memory

  // Host memory that has every buffer at its place in the arena: the arena itself, or its mirror.
  virtual std::span<std::byte> host() const = 0;
  // The initial bytes of a weight or state: `raw`, row-major, packed if its kernel wants that; zero if it has no
  // content. They are in host() then. Error: raw has another size than the buffer's type.
  virtual Status place(const Buffer& buffer, std::string_view raw) = 0;
  // All instances of some buffers (none of them a view), from host() to where the device computes, or back. Nothing
  // else runs meanwhile.
  virtual Status upload(const WhichBuffers& which) = 0;
  virtual Status download(const WhichBuffers& which) = 0;

  // ---- the thread that computes

  virtual void attach() = 0;   // the calling thread is the one that computes from here on
  virtual Status begin() = 0;  // an execution
  // Instructions of one slot that are no transfers, in their order, after those before. `now`: the time.
  virtual Status execute(const Slot& slot, std::span<const Step> steps, TimePoint now) = 0;
  // Waits for all since the last call; says when each ran, in their order. Valid until the next call of anything.
  virtual Result<std::span<const Ran>> finish() = 0;
  // Whether execute() only begins its steps, so that the more it is given at once the better. Otherwise it gets one
  // step at a time, and returns when that has run.
  virtual bool runs_ahead() const = 0;

  // ---- the thread that owns the transport

  // Where the transport reads or writes the operand of a send to, or a recv from, rank `peer`.
  virtual std::span<std::byte> message(const Slot& slot, const Operand& operand, int peer) const = 0;
  // Brings what is sent there (out), or takes from there what was received (in). Computations that wrote it have ended,
  // and finish() has said so. none: nothing is to be done.
  virtual Result<Copy> begin_copy(const Slot& slot, const Operand& operand, int peer, Direction direction) = 0;
  virtual Result<bool> has_ended(Copy copy) = 0;  // once it says yes the copy is gone

  // ---- any thread

  virtual std::vector<pid_t> threads() const { return {}; }  // that compute, but the attached one
  // What ranks that have it must have alike: the build of kernels.
  virtual std::vector<Fact> facts() const { return {}; }
  // What the user should know of how executions go; empty: nothing.
  virtual std::string notice() const { return {}; }
  // Whether a CPU computes in place of the device's GPU.
  virtual bool stands_in() const { return false; }
  // nullptr: the device is no GPU. As long as the Backend.
  virtual const OpenGpu* gpu() const { return nullptr; }
};

// What a Backend is opened with.
struct BackendContext {
  const Program& program;
  int device = 0;
  std::vector<int> same_machine = {};  // the devices on this one's machine, ascending, itself included
  std::vector<int> pins = {};          // cores of the threads that compute, one each; none: the system places them
  // [rank]: whether messages with it may lie in a GPU's memory; a rank that is missing here: no.
  std::vector<bool> device_messages = {};
  // Instead of the library's kernels: for tests.
  std::function<const KernelCode*(KernelId kernel)> kernels = nullptr;
  const GpuOptions& gpu;
  // Told what the user should know of how the device computes.
  std::function<void(const std::string&)> notice = nullptr;

  const DeviceProgram& own() const { return program.devices[static_cast<size_t>(device)]; }
};

inline bool every_buffer(const Buffer&) { return true; }
inline WhichBuffers of_kinds(std::vector<BufferKind> kinds) {
  return [kinds = std::move(kinds)](const Buffer& buffer) {
    return std::find(kinds.begin(), kinds.end(), buffer.kind) != kinds.end();
  };
}

}  // namespace nlsplit::inline exec
