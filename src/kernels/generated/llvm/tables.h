// Tables of loops as constants of a module; integers in 32 bits where all fit.
#pragma once

#include <llvm/IR/Module.h>

#include "kernels/generated/loops.h"

namespace nlsplit::inline kernels {

llvm::GlobalVariable* constant_table(llvm::Module& module, const LoopTable& table);

}  // namespace nlsplit::inline kernels
