// What this machine is and how fast: for a survey (survey/survey.h).
//
//   ASSIGN_OR_RETURN(Machine machine, machine_facts());               // without its speed
//   RETURN_IF_ERROR(measure_speed(4, machine));                       // about a second
#pragma once

#include <string>
#include <vector>

#include "exec/cuda/backend.h"
#include "survey/survey.h"

namespace nlsplit::inline measure {

// Cores, caches and memory as hwloc sees them, of what this process may use; its control group's memory, if that is
// less. name: that of the host. Error: hwloc cannot look, or no kernels for this machine's processor.
Result<Machine> machine_facts();

// Fills in compute, memory_rate and measured_cores: a product of matrices at the highest level, and an element-wise
// kernel over more than all caches hold, shared by so many cores as a device's computations are. Medians. Error: the
// kernels' library is missing, or no memory.
Status measure_speed(int cores, Machine& machine);

// The GPUs of a backend (exec/cuda/library.h), each with its speed and its copies; what a GPU refuses stands in its
// `trouble`. Without a backend, or a driver, there are none.
std::vector<Gpu> gpu_facts(const std::string& backend);

}  // namespace nlsplit::inline measure
