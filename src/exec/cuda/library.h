// Which backend runs the devices of kind cuda, and which of the machine's GPUs each gets.
//
//   ASSIGN_OR_RETURN(const ChosenBackend chosen, choose_backend({.missing = GpuMissing::cpu}));
//   if (!chosen.notice.empty()) …     // "no GPU: libbackend_cuda.so is not built; the CPU computes in its place"
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "exec/cuda/backend.h"
#include "program/program.h"

namespace nlsplit::inline exec {

enum class GpuMissing : uint8_t {
  cpu,   // the CPU computes in its place, and a notice says so
  error  // the run ends before it starts
};

// How runs of computations that nothing interrupts are begun.
enum class GpuGraphs : uint8_t {
  timed,    // as one CUDA graph, which also says when each of them ran
  untimed,  // as one that does not: in a trace the first computation has all of the run's time
  off       // one by one
};

// How messages of devices of kind cuda travel.
enum class GpuMessages : uint8_t {
  direct,  // from and to the GPU's memory, where the transport takes that; else by the mirror
  mirror,  // always by the host's memory
  nccl     // those between two GPUs over NCCL (exec/nccl/transport_nccl.h), others as if direct
};

struct GpuOptions {
  std::string backend = {};  // the backend's file; empty: libbackend_cuda.so from beside the program
  GpuMissing missing = GpuMissing::error;
  GpuGraphs graphs = GpuGraphs::timed;
  GpuMessages messages = GpuMessages::direct;
  std::string nccl = {};  // NCCL's library, a file or a name; empty: libnccl.so.2, where the loader finds it
};

struct ChosenBackend {
  const cuda::Backend* backend = nullptr;  // valid until the process ends: what CUDA has started is not unloaded
  int devices = 0;                         // 1 and above
  std::string notice = {};                 // why the CPU stands in; empty: it does not
};

// A GPU that a Backend (exec/backend.h) has opened, for libraries that work on it beside the Backend.
struct OpenGpu {
  const cuda::Backend& module;
  cuda::Device* device = nullptr;
};

// A file that is not there, or finds no device, is missing; one that is no backend, or of another version, is an error
// in any case. Errors say why, not whose device it is.
Result<ChosenBackend> choose_backend(const GpuOptions& options);

// The GPUs of a machine go round among its devices of kind cuda, in the order of the Program. Expects devices > 0.
int gpu_number(const Program& program, int device, std::span<const int> devices_of_this_machine, int devices);

}  // namespace nlsplit::inline exec
