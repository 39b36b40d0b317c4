// The epilogue of a product or convolution whose result is bfloat16: its steps go over sums in float32, a register tile
// at a time, and what they leave is rounded once.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "kernels/functions/unary.h"
#include "kernels/module/bf16_pairs.h"
#include "kernels/module/kernel.h"

namespace nlsplit::inline kernels {

// `runs` runs of `floats` floats, one behind the other; of each the first `count` are elements of the result, from
// `offset` + i * `stride` on. `bias`: as many floats, added to every run; nullptr: none.
struct Bf16Tile {
  float* values;
  int64_t runs, floats;
  int64_t count, offset, stride;
  const float* bias = nullptr;
};

// x → clamp(x + added[i]), as EpilogueHead.
struct Bf16Head {
  const uint16_t* added = nullptr;  // laid out like the result
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
};

class Bf16Epilogue {
 public:
  explicit Bf16Epilogue(const KernelCall& call);
  void apply(const Bf16Tile& tile) const;  // and store it
  // All of it, if it is no more than that: a kernel does it in registers.
  std::optional<Bf16Head> as_head() const;
  uint16_t* output() const { return out_; }
  // What apply will read and write of such a tile is fetched into the second-level cache meanwhile.
  void fetch_ahead(const Bf16Tile& tile) const;

 private:
  struct Step {
    Op op;
    const uint16_t* operand;
    float a, b;
  };
  // Steps that go over the values one by one.
  void apply_first_steps(const Bf16Tile& tile) const;
  // The others, and the rounding: f behind the last Add.
  template <class F>
  void store_through(const Bf16Tile& tile, const float* bias, const F& f) const;

  std::vector<Step> steps_;
  // The last steps, an Add and then a function, each if it is there, are done as the values are rounded.
  size_t first_ = 0;
  const uint16_t* added_ = nullptr;
  bool has_function_ = false;
  uint16_t* out_;
};

}  // namespace nlsplit::inline kernels
