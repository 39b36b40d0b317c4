// What scripts/check_gpu runs on a machine with a GPU: the operators against the reference, split networks against
// unsplit ones, and a table of kernels with their share of what the GPU was measured to do.
//
//   gpu_check operators [SEED [CASES]]      exit code 1: something differs
//   gpu_check generated [SEED [CASES]]      kernels made of loops, bit for bit; exit code 1 as above
//   gpu_check attention [SEED]              of long sequences; exit code 1 as above
//   gpu_check split
//   gpu_check nccl [FILE]                   messages and split networks over NCCL; needs two GPUs
//   gpu_check run DIR                       a Program that `nlsim lower --save DIR` has written, with its weights
//   gpu_check table [NETWORK [BATCH]]
//   gpu_check overlap                       copies alone, computing alone, both at once
//   gpu_check time NETWORK BATCH LEVEL [SECONDS [on|untimed|off]]
//
// In front, `--cpu` lets the CPU stand in, to try the program itself where there is no GPU; `--emulated` runs the CUDA
// backend's own code on the emulated GPU (tests/gpu/emulator).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/cuda/library.h"
#include "exec/nccl/transport_nccl.h"
#include "kernels/catalogue.h"
#include "testing/transport_conformance.h"

namespace nlsplit::testing {

struct Computation {
  ComputeDesc desc;
  std::vector<std::string> inputs;  // row-major bytes
};

// A backend's device and one computation on it, with memory of its own.
class Bench {
 public:
  static Result<Bench> open(const cuda::Backend& backend);
  Bench(Bench&& other) noexcept;
  Bench& operator=(Bench&&) = delete;
  ~Bench();

  const std::string& text() const { return text_; }
  // Row-major bytes of the outputs. They and the workspace are poisoned before.
  Result<std::vector<std::string>> run(const ComputeDesc& desc, const std::vector<std::string>& inputs);
  // The same of several, all of which are made ready before the first of them begins.
  Result<std::vector<std::vector<std::string>>> run(std::span<const Computation> all);
  // Seconds of one execution: the median of several, on random operands. Copies count for nothing.
  Result<double> seconds(const ComputeDesc& desc);
  // Bytes a second, read and written together, of copying within the memory.
  Result<double> bandwidth();
  // A line each: copies in, out and both ways, of pageable and of page-locked memory, beside computing. small: for a
  // CPU that stands in.
  Status print_overlap(bool small);

 private:
  explicit Bench(const cuda::Backend& backend) : backend_(&backend) {}
  struct Prepared;
  Result<std::vector<std::string>> results_of(Prepared& prepared, const ComputeDesc& desc);
  Result<double> timed(const std::function<cuda::Answer()>& begin);

  const cuda::Backend* backend_;
  cuda::Device* device_ = nullptr;
  std::string text_;
};

// How many computations differ. Every operator, every level, `cases` random computations each; not what is generated.
Result<int> check_operators(Bench& bench, uint64_t seed, int cases);
// How many of `cases` random computations of each operator differ from the interpreter of their loops. in_place: the
// level of the CPU that stands in, which is asked for what it has generated code of, too.
Result<int> check_generated(Bench& bench, uint64_t seed, int cases, std::optional<Isa> in_place);
// Shapes that random computations do not have.
Result<int> check_shapes(Bench& bench, uint64_t seed);
// Attention whose scores take several passes (kernels/cuda/gpu.h).
Result<int> check_attention_passes(Bench& bench, uint64_t seed);
// A line a kernel of the network.
Status print_table(Bench& bench, const std::string& network, int64_t batch);

// Ranks of NCCL on the first GPUs of this machine, one each, in threads of this process.
struct NcclWorld {
  int gpus = 2;
  int64_t eager_bytes = 0;  // small messages between the ranks wait for their receivers, or do not
};
// `body` on each rank; then all is closed. The first error, which ends all ranks.
Status over_nccl(const cuda::Backend& backend, const NcclLibrary& library, const NcclWorld& asked,
                 const std::function<Status(NcclTransport&, MessageMemory&)>& body);
// The suite of all transports.
Status check_nccl_messages(const cuda::Backend& backend, const NcclLibrary& library, const NcclWorld& asked);

// How many ways to run it differ from the unsplit network, or from DIR/expected.npy by more than arithmetic may.
Result<int> check_saved(const GpuOptions& gpu, const std::string& dir);

struct TimedNetwork {
  std::string network;  // of the zoo
  int64_t batch = 1;
  std::string level;  // "cuda", "tf32", "float16", "bfloat16"
  double seconds = 1;
  GpuGraphs graphs = GpuGraphs::untimed;
};
// One line of JSON: what executions of the whole network took.
Status print_times(const GpuOptions& gpu, const TimedNetwork& what);

}  // namespace nlsplit::testing
