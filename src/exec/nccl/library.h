// NCCL's library, loaded at run time.
//
//   ASSIGN_OR_RETURN(const NcclLibrary library, load_nccl(""));       // libnccl.so.2, where the loader finds it
//   library.api.get_unique_id(&id)
#pragma once

#include <string>

#include "base/result.h"
#include "exec/nccl/nccl_api.h"

namespace nlsplit::inline exec {

inline constexpr const char* nccl_file = "libnccl.so.2";
inline constexpr int least_nccl = 21800;  // 2.18.0

struct NcclLibrary {
  nccl::Api api = {};
  int version = 0;   // as NCCL codes it: 21805 is 2.18.5
  std::string name;  // of the file, as it was asked for
};

// `name`: a file, or a name that the loader looks for; empty: nccl_file. It stays loaded until the process ends.
// Errors: there is none, it is no NCCL, it is older than least_nccl.
Result<NcclLibrary> load_nccl(const std::string& name);

std::string nccl_version_text(int version);  // "2.18.5"

}  // namespace nlsplit::inline exec
