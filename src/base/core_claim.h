// CoreClaim: processors of this machine that no other run has. Runs share out the cores by asking for them: each core
// is a byte of one file in /tmp, claimed by a lock on it, which ends with its holder, however that ends. Network,
// process and user namespaces of one machine see the same file.
//
//   const CoreClaim claim = CoreClaim::take({0, 1, 2, 3}, 2, run);
//   claim.cores();         // two of them; empty: fewer are free
//   claim.others_have();   // whether another run is why
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace nlsplit::inline base {

class CoreClaim {
 public:
  CoreClaim() = default;  // of nothing
  // The first `count` of `cores` that are free, or none. `run`: a number that the processes of one run share and no
  // other run has. `file`: for tests; empty: this machine's own. Where it cannot be opened or locked all are free.
  static CoreClaim take(const std::vector<int>& cores, size_t count, uint64_t run, const std::string& file = {});

  const std::vector<int>& cores() const { return cores_; }
  bool others_have() const { return others_have_; }

 private:
  std::vector<int> cores_;
  bool others_have_ = false;
  Descriptor locks_;  // of the cores; they end with it
};

}  // namespace nlsplit::inline base
