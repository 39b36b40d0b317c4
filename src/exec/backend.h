// Backend: the processor and the memory of one device of a run: the CPU's kernels, or a GPU. exec/backends/ has a row
// for each DeviceKind.
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
// Two threads use it at a time: one computes, the other owns the transport. Borrowed objects outlive it. Errors name
// the device.
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
  uint32_t tag = 0;  // identifies the step in Ran
  int instr = 0;
};

struct Ran {
  uint32_t tag = 0;
  std::chrono::steady_clock::time_point start, finish;
};

// Between the device's memory and the host's.
enum class Direction : uint8_t { out, in };
// A copy in progress.
enum class Copy : int32_t { none = -1 };

using WhichBuffers = std::function<bool(const Buffer&)>;

class Backend {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Backend() = default;

  // ---- memory

  // Host memory with every buffer at its offset in the arena: the arena itself, or its mirror.
  virtual std::span<std::byte> host() const = 0;
  // Writes the initial bytes of a weight or state to host(): `raw`, row-major, packed if its kernel needs that; zeros
  // if the buffer has no content. Error: raw has another size than the buffer's type.
  virtual Status place(const Buffer& buffer, std::string_view raw) = 0;
  // Copies all instances of some buffers (none of them a view) from host() to the device's memory, or back. Nothing
  // else runs meanwhile.
  virtual Status upload(const WhichBuffers& which) = 0;
  virtual Status download(const WhichBuffers& which) = 0;

  // ---- the thread that computes

  virtual void attach() = 0;   // the calling thread computes from here on
  virtual Status begin() = 0;  // of an execution
  // Runs instructions of one slot that are not transfers, in order, after all earlier ones. `now`: the current time.
  virtual Status execute(const Slot& slot, std::span<const Step> steps, TimePoint now) = 0;
  // Waits for all steps since the last call; their times, in order. Valid until the next call of any function.
  virtual Result<std::span<const Ran>> finish() = 0;
  // Whether execute() is asynchronous: it then gets as many steps at once as possible. Otherwise it gets one step, and
  // returns when the step has run.
  virtual bool runs_ahead() const = 0;

  // ---- the thread that owns the transport

  // The memory that the transport reads for a send to rank `peer`, or writes for a recv from it.
  virtual std::span<std::byte> message(const Slot& slot, const Operand& operand, int peer) const = 0;
  // Begins the copy of a message to that memory before a send (out), or from it after a recv (in). The computations
  // that wrote the message have ended, according to finish(). none: no copy is needed.
  virtual Result<Copy> begin_copy(const Slot& slot, const Operand& operand, int peer, Direction direction) = 0;
  virtual Result<bool> has_ended(Copy copy) = 0;  // after true the copy must not be used again

  // ---- any thread

  virtual std::vector<pid_t> threads() const { return {}; }  // that compute, without the attached one
  // Properties that must be equal on all ranks that have them, such as the build of the kernels.
  virtual std::vector<Fact> facts() const { return {}; }
  // A notice for the user about the executions; empty: none.
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
  // Receives notices for the user about how the device computes.
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
