// The epilogue of a product or convolution whose result is bfloat16: its steps go over sums in float32, a register tile
// at a time, and what they leave is rounded once.
#pragma once

#include <vector>

#include "kernels/functions/unary.h"
#include "kernels/module/bf16_pairs.h"
#include "kernels/module/kernel.h"

namespace nlsplit::inline kernels {

// `runs` runs of `floats` floats, one behind the other; of each the first `count` are elements of the result, from
// `offset` + i * `stride` on.
struct Bf16Tile {
  float* values;
  int64_t runs, floats;
  int64_t count, offset, stride;
};

class Bf16Epilogue {
 public:
  explicit Bf16Epilogue(const KernelCall& call);
  void apply(const Bf16Tile& tile) const;  // and store it

 private:
  struct Step {
    Op op;
    const uint16_t* operand;
    float a, b;
  };
  std::vector<Step> steps_;
  uint16_t* out_;
};

}  // namespace nlsplit::inline kernels
