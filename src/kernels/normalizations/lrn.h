// What LRN does with an element and the sum of squares around it: x / (bias + alpha / size * sum) ^ beta.
#pragma once

#include "graph/graph.h"
#include "kernels/module/packets.h"

namespace nlsplit::inline kernels {

class LrnFunction {
 public:
  explicit LrnFunction(const Attrs& attrs)
      : by_roots_(attr_float(attrs, "beta") == 0.75),
        slope_(static_cast<float>(attr_float(attrs, "alpha") / static_cast<double>(attr_int(attrs, "size")))),
        bias_(static_cast<float>(attr_float(attrs, "bias"))),
        exponent_(static_cast<float>(-attr_float(attrs, "beta"))) {}

  Packet operator()(const Packet& x, const Packet& squares) const {
    const Packet base = multiply_add(squares, broadcast(slope_), broadcast(bias_));
    if (by_roots_) {  // the usual beta needs two square roots only; any other a logarithm and an exponential
      const Packet root = square_root(base);
      return divide(x, multiply(root, square_root(root)));
    }
    return multiply(x, Eigen::internal::pexp(multiply(broadcast(exponent_), Eigen::internal::plog(base))));
  }

 private:
  bool by_roots_;
  float slope_, bias_, exponent_;
};

}  // namespace nlsplit::inline kernels
