// What the catalogue says of the computations of a graph. The blocks of a network repeat their layers, and shards of a
// layer are alike: equal computations are asked about once.
//
//   Choices choices(level, prefer);
//   const Choice& choice = choices.of(desc, wanted, true);
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

// Is there such a kernel, and does it take the computation as it is laid out?
bool accepts(KernelId kernel, const ComputeDesc& desc, Level level);

// Equal descs have equal ones.
uint64_t hash_of(const ComputeDesc& desc);

struct Choice {
  ComputeDesc desc;  // row-major, its kernel unchosen
  KernelId wanted;
  bool plain = false;                  // the wanted kernel takes it row-major
  std::optional<ComputeDesc> blocked;  // in_blocks(), where anybody wants that
};

class Choices {
 public:
  // Borrows prefer.
  Choices(Level level, const KernelPreference& prefer) : level_(level), prefer_(prefer) {}
  // It stays where it is. blocks: whether in_blocks() is wanted, the same in all calls.
  const Choice& of(const ComputeDesc& desc, KernelId wanted, bool blocks);
  // choose_kernel() for its desc.
  const Result<KernelId>& kernel(const Choice& choice);

 private:
  const Level level_;
  const KernelPreference& prefer_;
  std::unordered_multimap<uint64_t, Choice> known_;
  std::unordered_map<const Choice*, Result<KernelId>> kernels_;
};

}  // namespace nlsplit::inline kernels
