// What loops become by a compiler, and the module that compiles them (generated/llvm): one function, found as those of
// the kernels' modules are. The module that holds LLVM is loaded where loops are run for the first time, or shown as
// code, so whoever only plans does without.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "kernels/generated/loops.h"
#include "kernels/kernel_id.h"

namespace nlsplit::inline kernels {

// Parts [begin, end) of parts_of(loops).
using LoopFunction = void (*)(const void* const* inputs, void* output, int64_t begin, int64_t end);

// How compiled loops are cut into parts: the points of the first `outer` axes; with none, positions along the first
// axis.
struct LoopParts {
  int outer = 0;
  int64_t count = 1;
  int unrolled = 0;  // of the last axes: 1 if its few positions are written out, and the loop is over the one before
};
LoopParts parts_of(const Loops& loops);

struct LoopListing {
  std::string llvm, assembly;
};

// Raised with every change of what both sides use; the size beside it notices when that was forgotten.
inline constexpr uint32_t codegen_interface = 1;
struct CodegenModule {
  uint32_t interface = codegen_interface;  // stays first in every version
  uint32_t loops_bytes = sizeof(Loops);
  // Verified loops; the function stays for the rest of the process. Any thread.
  Result<LoopFunction> (*compile)(const Loops& loops, Isa isa) = nullptr;
  Result<LoopListing> (*list)(const Loops& loops, Isa isa) = nullptr;  // what compile makes, as text
};

inline constexpr const char* codegen_file = "libnlsplit_codegen.so";
// Stays loaded: its code may run until the process ends. Error: LLVM's library is missing, or the file is of another
// version.
Result<const CodegenModule*> load_codegen(const std::string& path);

}  // namespace nlsplit::inline kernels

extern "C" const nlsplit::CodegenModule* nlsplit_codegen_module();
