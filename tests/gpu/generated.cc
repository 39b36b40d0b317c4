// Random computations of every operator that loops are made of, of all types, bit for bit against the interpreter.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <vector>

#include "gpu/gpu_check.h"
#include "kernels/generated_bits.h"
#include "kernels/random_generated.h"
#include "kernels/random_operands.h"

namespace nlsplit::testing {
namespace {

// Also those that another kernel of the GPU computes, or the host: the loops are the same.
std::vector<Computation> drawn(Op op, Random& random, int cases, std::optional<Isa> in_place) {
  std::vector<Computation> all;
  if (!has_loops(op)) return all;
  for (int tried = 0; std::ssize(all) < cases && tried < 40 * cases; ++tried) {
    std::optional<ComputeDesc> desc = random_generated(op, random);
    if (!desc || !refuse_lowering(*desc).empty()) continue;
    if (in_place) {
      const auto chosen = choose_kernel(*desc, *in_place);
      if (!chosen.ok() || chosen->name != KernelName::generated) continue;
    }
    desc->kernel = {KernelName::gpu_generated, Isa::cuda};
    std::vector<std::string> operands = random_operands(*desc, random, tried % 2 == 0);
    all.push_back({std::move(*desc), std::move(operands)});
  }
  return all;
}

}  // namespace

Result<int> check_generated(Bench& bench, uint64_t seed, int cases, std::optional<Isa> in_place) {
  fmt::print("seed {}\n", seed);
  std::vector<Computation> all;
  int ops = 0, differing = 0;
  for (int i = 0; i < op_count; ++i) {
    Random random(seed * 1013 + static_cast<uint64_t>(i));
    std::vector<Computation> some = drawn(static_cast<Op>(i), random, cases, in_place);
    ops += some.empty() ? 0 : 1;
    std::ranges::move(some, std::back_inserter(all));
  }
  constexpr size_t at_once = 256;  // the emulated GPU compiles so many in one go
  for (size_t begin = 0; begin < all.size(); begin += at_once) {
    const auto some = std::span(all).subspan(begin, std::min(at_once, all.size() - begin));
    ASSIGN_OR_RETURN(const std::vector<std::vector<std::string>> results, bench.run(some));
    for (size_t i = 0; i < some.size(); ++i) {
      const std::string other = other_bits(some[i].desc, results[i][0], interpreted(some[i].desc, some[i].inputs));
      if (other.empty()) continue;
      ++differing;
      fmt::print("DIFFERS: {}: {}\n", signature(some[i].desc), other);
    }
  }
  fmt::print("{} generated kernels of {} operators compared, bit for bit\n", all.size(), ops);
  return differing;
}

}  // namespace nlsplit::testing
