// Loops as LLVM IR: one function of LoopFunction's type, whose loops the vectoriser can take.
#pragma once

#include <string>

#include "kernels/generated/compiled.h"

namespace llvm {
class Module;
}

namespace nlsplit::inline kernels {

void emit(const Loops& loops, const std::string& name, llvm::Module& module);

}  // namespace nlsplit::inline kernels
