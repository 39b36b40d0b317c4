// The element-wise functions, one packet at a time: for the unary kernel and for the steps of an epilogue.
#pragma once

#include <cmath>

#include "exec/kernels/packets.h"
#include "graph/ops.h"

namespace nlsplit {

inline bool is_unary_function(Op op) {
  switch (op) {
    case Op::Relu:
    case Op::Sigmoid:
    case Op::Tanh:
    case Op::HardSwish:
    case Op::Exp:
    case Op::Sqrt:
    case Op::Neg:
    case Op::Erf:
    case Op::LeakyRelu:
    case Op::HardSigmoid:
    case Op::Clip:
      return true;
    default:
      return false;
  }
}

// Calls use(f) with f: Packet → Packet. a, b: the operator's parameters (unary_parameters).
template <class Use>
inline void with_unary(Op op, float a, float b, Use&& use) {
  using namespace Eigen::internal;
  const Packet zero = zeros(), one = broadcast(1.0f), pa = broadcast(a), pb = broadcast(b);
  const auto hard_sigmoid = [=](const Packet& x, const Packet& slope, const Packet& shift) {
    return at_most(at_least(multiply_add(x, slope, shift), zero), one);
  };
  switch (op) {
    case Op::Relu:
      return use([=](const Packet& x) { return at_least(x, zero); });
    case Op::Sigmoid:
      return use([=](const Packet& x) { return divide(one, add(one, pexp(pnegate(x)))); });
    case Op::Tanh:
      return use([](const Packet& x) { return ptanh(x); });
    case Op::HardSwish: {
      const Packet sixth = broadcast(1.0f / 6.0f), half = broadcast(0.5f);
      return use([=](const Packet& x) { return multiply(x, hard_sigmoid(x, sixth, half)); });
    }
    case Op::Exp:
      return use([](const Packet& x) { return pexp(x); });
    case Op::Sqrt:
      return use([](const Packet& x) { return square_root(x); });
    case Op::Neg:
      return use([](const Packet& x) { return pnegate(x); });
    case Op::Erf:
      return use([](const Packet& x) { return each_lane(x, [](float v) { return std::erf(v); }); });
    case Op::LeakyRelu:
      return use([=](const Packet& x) { return pselect(pcmp_lt(x, zero), multiply(x, pa), x); });
    case Op::HardSigmoid:
      return use([=](const Packet& x) { return hard_sigmoid(x, pa, pb); });
    case Op::Clip:
      return use([=](const Packet& x) { return at_most(at_least(x, pa), pb); });
    default:
      CHECK(false, "not an element-wise function of one operand");
  }
}

struct UnaryParameters {
  float a = 0, b = 0;
};
UnaryParameters unary_parameters(Op op, const Attrs& attrs);

}  // namespace nlsplit
