#include "kernels/generated/llvm/tables.h"

#include <llvm/IR/Constants.h>

#include <algorithm>
#include <vector>

namespace nlsplit::inline kernels {
namespace {

llvm::Constant* constant_of(llvm::LLVMContext& context, const LoopTable& table) {
  if (!table.numbers.empty()) return llvm::ConstantDataArray::get(context, llvm::ArrayRef<double>(table.numbers));
  const auto fits = [](int64_t value) { return value == static_cast<int32_t>(value); };
  if (std::ranges::all_of(table.integers, fits)) {
    const std::vector<uint32_t> narrow(table.integers.begin(), table.integers.end());
    return llvm::ConstantDataArray::get(context, llvm::ArrayRef<uint32_t>(narrow));
  }
  const std::vector<uint64_t> wide(table.integers.begin(), table.integers.end());
  return llvm::ConstantDataArray::get(context, llvm::ArrayRef<uint64_t>(wide));
}

}  // namespace

llvm::GlobalVariable* constant_table(llvm::Module& module, const LoopTable& table) {
  llvm::Constant* all = constant_of(module.getContext(), table);
  return new llvm::GlobalVariable(module, all->getType(), true, llvm::GlobalValue::PrivateLinkage, all, "table");
}

}  // namespace nlsplit::inline kernels
