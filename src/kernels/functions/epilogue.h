// The epilogue of a call: element-wise steps on its output, taken over runs of it while they are hot in the cache.
// The products and convolutions do the head of it (an Add, then one clamp: by far the commonest) in registers.
#pragma once

#include <limits>
#include <vector>

#include "kernels/module/kernel.h"

namespace nlsplit::inline kernels {

// x → clamp(x + operand[i]), each if it is there.
struct EpilogueHead {
  const float* operand = nullptr;  // laid out like the output
  bool clamps = false;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
};

class Epilogue {
 public:
  Epilogue() = default;  // of no steps
  explicit Epilogue(const KernelCall& call);

  EpilogueHead take_head();  // those steps are then no longer applied
  bool empty() const { return next_ == steps_.size(); }
  // Elements [begin, begin + count) of the output.
  void apply(float* output, int64_t begin, int64_t count) const;

 private:
  struct Step {
    Op op;
    const float* operand;
    float a, b;
  };
  std::vector<Step> steps_;
  size_t next_ = 0;
};

}  // namespace nlsplit::inline kernels
