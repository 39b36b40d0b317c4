// The Programs that `nlbench network` plays: what lower's option --network-set writes.
#pragma once

#include <string>

#include "planning/load.h"

namespace nlsplit::inline planning {

// Writes the tests (validate/network_tests.h) of every two hosts of the scenario that may exchange messages: a saved
// Program each, and network.json, which lists them.
Status write_network_set(const Loaded& loaded, const std::string& dir, Bytes eager_limit);

}  // namespace nlsplit::inline planning
