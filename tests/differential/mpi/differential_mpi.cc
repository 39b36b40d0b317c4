// Runs saved Programs over MPI, one after the other, for differential_test.cc:
//   mpirun -np D differential_mpi SEED FOLDER…        every Program has D devices
// Writes FOLDER/mpi.digest and FOLDER/mpi.npy: its output, or of a collective alone all states.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "base/npy.h"
#include "differential/digest.h"
#include "exec/mpi/transport_mpi.h"
#include "program/saved.h"

namespace nlsplit {
namespace {

Status run_folder(const std::string& folder, uint64_t seed, Transport& transport) {
  ASSIGN_OR_RETURN(const SavedProgram saved, load_program(folder));
  ASSIGN_OR_RETURN(const WeightFile weights, WeightFile::open(folder));
  Job job;
  job.contents = [&](ContentId id) { return weights.bytes(id); };
  ASSIGN_OR_RETURN(job.inputs, seeded_inputs(saved.program, seed));
  RunOptions options;
  options.warmup = 0;
  options.repeats = 1;
  options.poison = true;
  options.states = std::ranges::none_of(saved.program.devices, [](const DeviceProgram& device) {
    return std::ranges::any_of(device.buffers, [](const Buffer& buffer) { return buffer.kind == BufferKind::output; });
  });
  ASSIGN_OR_RETURN(const RunResult result,
                   run(transport.rank() == 0 ? &saved.program : nullptr, job, transport, options));
  if (transport.rank() != 0) return ok_status();
  RETURN_IF_ERROR(write_file(folder + "/mpi.digest", digest(saved.program, result.trace)));
  const NamedTensor& output = result.outputs.at(0).tensor;
  if (!options.states) return write_npy(folder + "/mpi.npy", {output.type.shape, output.values});
  std::vector<float> all;
  for (const OutputTensor& one : result.outputs)
    all.insert(all.end(), one.tensor.values.begin(), one.tensor.values.end());
  return write_npy(folder + "/mpi.npy", {{std::ssize(all)}, all});
}

}  // namespace
}  // namespace nlsplit

int main(int argc, char** argv) {
  using namespace nlsplit;
  auto transport = start_mpi({});
  if (!transport || argc < 3) return 2;
  for (int i = 2; i < argc; ++i) {
    const Status status = run_folder(argv[i], std::strtoull(argv[1], nullptr, 10), **transport);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", argv[i], status.error().to_string().c_str());
    (*transport)->abort(status.error());
    return 1;
  }
  return 0;
}
