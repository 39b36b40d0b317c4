// The Programs that `nlbench network` plays: what lower's option --network-set writes.
#pragma once

#include <cstddef>
#include <string>

#include "planning/load.h"

namespace nlsplit::inline planning {

// Writes the tests (validate/network_tests.h) of hosts of the scenario that may exchange messages: a saved Program
// each, and network.json, which lists them. Of pairs of hosts that the scenario describes alike (cost/pair_classes.h)
// `most_pairs` at most have tests.
Status write_network_set(const Loaded& loaded, const std::string& dir, Bytes eager_limit, size_t most_pairs);

}  // namespace nlsplit::inline planning
