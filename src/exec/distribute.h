// Rank 0 distributes weights and inputs, and collects outputs and states.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exec/collectives.h"
#include "exec/run.h"

namespace nlsplit::inline exec {

// All instances of a buffer, one after the other without gaps.
std::string instances_of(const Buffer& buffer, std::byte* arena);
void fill_instances(const Buffer& buffer, std::span<const std::byte> data, std::byte* arena);  // from the same

// On rank 0: whether all inputs and contents are there with the right sizes, so that distribution cannot fail half-way.
Status check_job(const Program& program, const Job& job);

// Writes the bytes of a weight or state into the device's buffer (Backend::place).
using PlaceContent = std::function<Status(const Buffer& buffer, std::string_view raw)>;

// Fills the weight, state and input buffers of this rank's device. Rank 0 sends the weights, but not to a rank whose
// own job has all it needs (the same files over a shared file system, or a copy of them). Rank 0 tells every rank the
// checksums that were saved with the weights; a rank whose bytes differ, read or received, answers with an error that
// names the weight, itself and its host. An error of one rank does not stop the exchange; agree() afterwards.
Status place_weights(const Program& program, const Job& job, const PlaceContent& place, Transport& transport,
                     const Waiting& waiting);
Status place_inputs(const Program& program, const Job& job, std::byte* arena, Transport& transport,
                    const Waiting& waiting);

// Outputs; of a training step weights and the optimizer's tensors.
bool is_result(const DeviceProgram& device, const Buffer& buffer);
// On rank 0, who has the whole Program, all outputs, elsewhere none. states: also f32 states, of replicas the first
// one's.
Result<std::vector<OutputTensor>> collect_outputs(const Program& program, bool states, std::byte* arena,
                                                  Transport& transport, const Waiting& waiting);

}  // namespace nlsplit::inline exec
