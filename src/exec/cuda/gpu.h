// Gpu: one device of kind cuda while a Program runs on it. Its arena is in the GPU's memory; the host has a mirror of
// it, with every buffer at the same offset, through which all comes and goes: weights and inputs before the run, what
// is sent and received during it, outputs after it. So whatever may lie in the arena's bytes may lie in the mirror's.
//
//   ASSIGN_OR_RETURN(Gpu gpu, Gpu::open(*chosen.backend, 0, program, device, mirror, graphs));
//   RETURN_IF_ERROR(gpu.upload(all_kinds));
//   RETURN_IF_ERROR(gpu.begin());                            // the thread that computes …
//   RETURN_IF_ERROR(gpu.execute(slot, steps));               // begins them, and returns
//   ASSIGN_OR_RETURN(std::vector<GpuTime> ran, gpu.finish());
//   ASSIGN_OR_RETURN(cuda::Event* copy, gpu.copy_out(slot, sent));    // … and the one that owns the transport
//   … while (!*gpu.copied(copy));
//
// Errors name the device, what it was asked for, and the library's own words.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/launches.h"
#include "exec/cuda/library.h"
#include "program/program.h"

namespace nlsplit::inline exec {

// Bytes [begin, end) of an arena.
struct ByteRange {
  int64_t begin = 0, end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// What the transport reads and writes of a device's mirror, in whole pages, ascending and apart: to be page-locked.
std::vector<ByteRange> staged_ranges(const DeviceProgram& device, int64_t page);

class Gpu {
 public:
  struct Step {
    uint32_t tag = 0;
    const Instr* instr = nullptr;
  };

  // Allocates the arena, locks what is staged, makes every computation ready. `mirror` has as many bytes as the arena,
  // begins with a page, and all that is borrowed outlives this. Errors: no such GPU, too little memory, a computation
  // that its libraries refuse.
  static Result<Gpu> open(const cuda::Backend& backend, int number, const Program& program, const DeviceProgram& device,
                          std::byte* mirror, GpuGraphs graphs);
  Gpu(Gpu&&) noexcept;
  Gpu& operator=(Gpu&&) noexcept;
  ~Gpu();

  const std::string& description() const;  // "NVIDIA H200, sm_90, 139 GiB"

  // All banks of the buffers of these kinds, from the mirror or into it. Returns when it is done; nothing else runs.
  Status upload(std::initializer_list<BufferKind> kinds);
  Status download(std::initializer_list<BufferKind> kinds);

  // One thread. execute() begins instructions of a slot that are no transfers, in their order, after those before them;
  // finish() waits for all and says when they ran since begin(), in their order, each under its tag.
  Status begin();
  Status execute(const Slot& slot, std::span<const Step> steps);
  Result<std::vector<GpuTime>> finish();
  // Why graphs are not used although they were asked for; empty: they are.
  const std::string& no_graphs() const;

  // Where an operand is, in the GPU's memory.
  std::span<std::byte> operand(const Slot& slot, const Operand& operand) const;

  // One thread, any other: begins to copy an operand into the mirror, or from it. Once copied() says yes the event is
  // gone. What is copied out has been computed, and finish() has said so.
  Result<cuda::Event*> copy_out(const Slot& slot, const Operand& operand);
  Result<cuda::Event*> copy_in(const Slot& slot, const Operand& operand);
  Result<bool> copied(cuda::Event* copy);

 private:
  struct State;
  explicit Gpu(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace nlsplit::inline exec
