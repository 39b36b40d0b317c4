// What loops become by a compiler, and the module that compiles them (generated/llvm): one function, found as those of
// the kernels' modules are. The module that holds LLVM is loaded where loops are run for the first time, or shown as
// code, so whoever only plans does without.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "kernels/generated/code_cache.h"
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

struct CompiledLoops {
  LoopFunction function = nullptr;  // stays for the rest of the process
  bool from_cache = false;
};

struct LoopListing {
  std::string llvm, assembly;
};

// Raised with every change of what both sides use; the size beside it notices when that was forgotten.
inline constexpr uint32_t codegen_interface = 3;
struct CodegenModule {
  uint32_t interface = codegen_interface;  // stays first in every version
  uint32_t loops_bytes = sizeof(Loops);
  // Verified loops. `cache`: where the code may be already, and is kept if not; nullptr: nowhere. Any thread.
  Result<CompiledLoops> (*compile)(const Loops& loops, Isa isa, CodeCache* cache) = nullptr;
  // The user's (code_cache_folder), opened by the first call; nullptr: there is none. One that is refused is told once.
  CodeCache* (*user_cache)() = nullptr;
  Result<LoopListing> (*list)(const Loops& loops, Isa isa) = nullptr;  // what compile makes, as text
};

inline constexpr const char* codegen_file = "libnlsplit_codegen.so";
// Stays loaded: its code may run until the process ends. Error: LLVM's library is missing, or the file is of another
// version.
Result<const CodegenModule*> load_codegen(const std::string& path);

}  // namespace nlsplit::inline kernels

extern "C" const nlsplit::CodegenModule* nlsplit_codegen_module();
