// The element-wise functions, one packet at a time: for the unary kernel and for the steps of an epilogue.
#pragma once

#include <cmath>

#include "graph/operators/operator.h"
#include "kernels/module/packets.h"

namespace nlsplit::inline kernels {

// Within 1.2e-7 of erf, two units in the last place of 1, checked densely by the tests. Below 1 it is x times a
// polynomial in x², above 1 - exp(polynomial in |x|); both minimax fits (Lawson's iteration), the first of the relative
// error of erf(x) / x, 4e-8, the second of the absolute error of erf, 2e-8. From 4 on erfc is below half a unit.
inline Packet erf_of(const Packet& x) {
  using namespace Eigen::internal;
  const auto polynomial = [](const Packet& at, const float(&coefficients)[6]) {  // highest power first
    Packet sum = broadcast(coefficients[0]);
    for (int i = 1; i < 6; ++i) sum = multiply_add(sum, at, broadcast(coefficients[i]));
    return sum;
  };
  static constexpr float below_one[] = {-0.0005631460808217525f, 0.00491756247356534f,  -0.026711322367191315f,
                                        0.11280180513858795f,    -0.37612324953079224f, 1.1283791065216064f};
  static constexpr float above_one[] = {-0.0011504212161526084f, 0.01477811485528946f, -0.08863416314125061f,
                                        -0.6544889807701111f,    -1.1174384355545044f, -0.0026717022992670536f};
  const Packet one = broadcast(1.0f), size = at_most(pabs(x), broadcast(4.0f));
  const Packet small = multiply(x, polynomial(multiply(x, x), below_one));
  const Packet large = subtract(one, pexp(polynomial(size, above_one)));
  const Packet signed_large = por(pand(x, broadcast(-0.0f)), large);
  return pselect(pcmp_lt(size, one), small, signed_large);
}

inline Packet sigmoid_of(const Packet& x) {
  using namespace Eigen::internal;
  return divide(broadcast(1.0f), add(broadcast(1.0f), pexp(pnegate(x))));
}

inline Packet tanh_of(const Packet& x) { return Eigen::internal::ptanh(x); }

// x (1 + erf(x / sqrt(2))) / 2, and its approximation x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³))) / 2.
inline Packet gelu_of(const Packet& x) {
  const Packet half = multiply(x, broadcast(0.5f));
  return multiply_add(half, erf_of(multiply(x, broadcast(0.7071067811865476f))), half);
}
inline Packet gelu_by_tanh_of(const Packet& x) {
  constexpr float root = 0.7978845608028654f;  // sqrt(2 / pi)
  const Packet half = multiply(x, broadcast(0.5f));
  const Packet slope = multiply_add(multiply(x, x), broadcast(root * 0.044715f), broadcast(root));
  return multiply_add(half, tanh_of(multiply(x, slope)), half);
}

inline Packet hard_sigmoid_of(const Packet& x, const Packet& slope, const Packet& shift) {
  return at_most(at_least(multiply_add(x, slope, shift), zeros()), broadcast(1.0f));
}

// Calls use(f) with f: Packet → Packet. p, q: the operator's parameters (unary_parameters).
template <class Use>
inline void with_unary(Op op, float p, float q, Use&& use) {
  using namespace Eigen::internal;
  const Packet zero = zeros(), a = broadcast(p), b = broadcast(q);
  if (op == Op::Gelu && p != 0) return use([](const Packet& x) { return gelu_by_tanh_of(x); });
  switch (op) {
#define NLS_UNARY(name, value) \
  case Op::name:               \
    return use([=](const Packet& x) { return value; });
#include "kernels/functions/unary.def"
    default:
      CHECK(false, "not an element-wise function of one operand");
  }
}

struct UnaryParameters {
  float a = 0, b = 0;
};
UnaryParameters unary_parameters(Op op, const Attrs& attrs);

}  // namespace nlsplit::inline kernels
