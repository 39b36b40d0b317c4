// Survey: what was found out of some machines and of the ways between them. `nlbench survey` measures it
// (measure/survey.h), `nlsim init` makes a scenario of it (survey/scenario_text.h).
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "kernels/kernel_id.h"

namespace nlsplit::inline survey {

struct Cache {
  int level = 0;  // 1 and above; of data
  Bytes size;     // of one
  int count = 0;  // that this process' cores use
  friend bool operator==(const Cache&, const Cache&) = default;
};

struct Gpu {
  std::string about;               // "NVIDIA H200, sm_90, 139 GiB"
  Bytes memory;                    // 0: not known
  FlopsPerSecond compute{};        // of a product of matrices; 0: could not be measured
  BytesPerSecond memory_rate{};    // of element by element; 0: could not be measured
  Seconds bus_latency{};           // of copies to and from page-locked memory of the host
  BytesPerSecond bus_bandwidth{};  // 0: not measured
  std::string trouble = {};        // why something was not; empty: nothing is missing
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

// What one machine is. Those that are alike have the same `about`.
struct Machine {
  std::string name;        // of the host, in a scenario
  std::string about;       // "AMD EPYC, 2 cores, 23.4 GiB"
  int cores = 0;           // that this process may use, each counted once however many threads it has
  int measured_cores = 0;  // that shared what `compute` and `memory_rate` measured
  Bytes memory;            // of the machine, or what its control group may have
  Bytes free_memory;       // of that, at the moment; 0: not known
  std::vector<Cache> caches;
  std::vector<Isa> levels;       // the lowest first
  FlopsPerSecond compute{};      // of a product of matrices, at the highest level; 0: could not be measured
  BytesPerSecond memory_rate{};  // read and written, of what no cache holds; 0: could not be measured
  std::string trouble = {};      // why something was not measured; empty: nothing is missing
  std::vector<Gpu> gpus;
  friend bool operator==(const Machine&, const Machine&) = default;
};

// Of messages between two machines.
struct Path {
  size_t a = 0, b = 0;       // machines, a < b
  Seconds latency;           // one way, of the smallest messages: half of the shortest time there and back
  BytesPerSecond bandwidth;  // of large ones, from a to b
  BytesPerSecond back;       // from b to a
  BytesPerSecond both_ways;  // of each direction while the other one is used too
  friend bool operator==(const Path&, const Path&) = default;
};

struct Survey {
  std::string transport;  // "mpi"
  std::vector<Machine> machines;
  std::vector<Path> paths;
  std::vector<std::vector<size_t>> one_machine = {};  // entries of `machines` that are one machine; each list upwards
  friend bool operator==(const Survey&, const Survey&) = default;
};

// The pairs that are measured among so many machines: all of few, of more each with those 1, 2, 4, … places away.
inline constexpr size_t all_pairs_of = 8;
std::vector<std::pair<size_t, size_t>> pairs_to_measure(size_t machines);

std::string to_json(const Machine& machine);
Result<Machine> parse_machine(const std::string& text, const std::string& from);

// {"format": "nlsplit-survey", "version": 1, "transport", "machines": […], "paths": […]}, and "one_machine": [[0, 1]]
// where ranks share a machine. Errors: not JSON, another format or version, missing or impossible figures, a path
// between machines that are not there, ranks of one machine that are not there.
std::string to_json(const Survey& survey);
Result<Survey> parse_survey(const std::string& text, const std::string& from);

}  // namespace nlsplit::inline survey
