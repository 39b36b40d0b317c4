#include "kernels/choices.h"

#include <algorithm>
#include <vector>

#include "kernels/assign.h"

namespace nlsplit::inline kernels {

bool accepts(KernelId kernel, const ComputeDesc& desc, Level level) {
  return is_in_catalogue(kernel.name) && kernel.level == level && !refusal(kernel, desc);
}

uint64_t hash_of(const ComputeDesc& desc) {
  uint64_t hash = static_cast<uint64_t>(desc.op);
  const auto add = [&hash](uint64_t part) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: Knuth, TAOCP 3, section 6.4
    hash ^= hash >> 32;
  };
  add(static_cast<uint64_t>(desc.kernel.name));
  add(desc.weights);
  for (const std::vector<TensorType>* types : {&desc.inputs, &desc.outputs}) {
    for (const TensorType& type : *types) {
      add(static_cast<uint64_t>(type.dtype) << 32 | static_cast<uint64_t>(type.block));
      for (const int64_t extent : type.shape) add(static_cast<uint64_t>(extent));
    }
  }
  for (const DescStep& step : desc.epilogue) add(static_cast<uint64_t>(step.op));
  return hash;
}

const Choice& Choices::of(const ComputeDesc& desc, KernelId wanted, bool blocks) {
  const uint64_t key = hash_of(desc);
  const auto [begin, end] = known_.equal_range(key);
  const auto same = std::find_if(
      begin, end, [&](const auto& entry) { return entry.second.wanted == wanted && entry.second.desc == desc; });
  if (same != end) return same->second;
  Choice choice{desc, wanted, accepts(wanted, desc, level_), {}};
  if (blocks) choice.blocked = in_blocks(desc, level_, prefer_, wanted);
  return known_.emplace(key, std::move(choice))->second;
}

const Result<KernelId>& Choices::kernel(const Choice& choice) {
  const auto found = kernels_.find(&choice);
  if (found != kernels_.end()) return found->second;
  return kernels_.emplace(&choice, choose_kernel(choice.desc, level_, prefer_)).first->second;
}

}  // namespace nlsplit::inline kernels
