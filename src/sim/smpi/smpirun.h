// SimGrid's SMPI on a folder that save() of sim/smpi/replay_files.h wrote.
#pragma once

#include <string>

#include "base/result.h"

namespace nlsplit::inline sim {

// Error: there is no smpirun in PATH; the text names Debian's package.
Status check_smpirun();

// The makespan in seconds. The child ends with this process, however that ends. Errors: as check_smpirun; the replay
// failed, with its last words.
Result<double> replay(const std::string& folder);

}  // namespace nlsplit::inline sim
