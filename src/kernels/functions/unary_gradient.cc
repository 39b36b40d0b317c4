// Gradients of element-wise functions: dy times the function's slope.
#include <algorithm>

#include "kernels/functions/epilogue.h"
#include "kernels/functions/unary.h"
#include "kernels/module/packets.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

// 0 below -3, 1 above 3, between them x / 3 + 1 / 2.
inline Packet hard_swish_slope(const Packet& x) {
  using namespace Eigen::internal;
  const Packet inner = multiply_add(x, broadcast(1.0f / 3.0f), broadcast(0.5f));
  const Packet above = pselect(pcmp_lt(x, broadcast(3.0f)), inner, broadcast(1.0f));
  return pand(above, pcmp_lt(broadcast(-3.0f), x));
}

// Φ(x) + x φ(x)
inline Packet gelu_slope(const Packet& x) {
  const Packet half = broadcast(0.5f);
  const Packet phi = multiply_add(half, erf_of(multiply(x, broadcast(0.7071067811865476f))), half);
  const Packet density = multiply(broadcast(0.3989422804014327f),  // 1 / sqrt(2 pi)
                                  Eigen::internal::pexp(multiply(multiply(x, x), broadcast(-0.5f))));
  return multiply_add(x, density, phi);
}

// With t = tanh(u), u = sqrt(2 / pi) (x + 0.044715 x³): (1 + t) / 2 + x (1 - t²) u' / 2.
inline Packet gelu_by_tanh_slope(const Packet& x) {
  constexpr float root = 0.7978845608028654f;  // sqrt(2 / pi)
  const Packet half = broadcast(0.5f), square = multiply(x, x);
  const Packet inner = multiply_add(square, broadcast(root * 0.044715f), broadcast(root));
  const Packet slope = multiply_add(square, broadcast(3 * root * 0.044715f), broadcast(root));
  const Packet t = tanh_of(multiply(x, inner));
  const Packet rest = multiply(multiply(half, x), multiply(subtract(broadcast(1.0f), multiply(t, t)), slope));
  return add(multiply_add(half, t, half), rest);
}

UnaryParameters gradient_parameters(const ComputeDesc& desc) {
  const auto number = [&](std::string_view name) { return static_cast<float>(attr_float(desc.attrs, name)); };
  switch (desc.op) {
    case Op::LeakyReluGradient:
    case Op::HardSigmoidGradient:
      return {number("alpha"), 0};
    case Op::ClipGradient:
      return {number("min"), number("max")};
    default:
      return {};
  }
}

// Calls use(f) with f: (dy, v) → dx.
template <class Use>
void with_gradient(const ComputeDesc& desc, Use&& use) {
  using namespace Eigen::internal;
  const UnaryParameters p = gradient_parameters(desc);
  const Packet zero = zeros(), one = broadcast(1.0f), a = broadcast(p.a), b = broadcast(p.b);
  if (desc.op == Op::GeluGradient && attr_string(desc.attrs, "approximate") == "tanh")
    return use([](const Packet& dy, const Packet& v) { return multiply(dy, gelu_by_tanh_slope(v)); });
  switch (desc.op) {
#define NLS_UNARY_GRADIENT(name, value) \
  case Op::name:                        \
    return use([=](const Packet& dy, const Packet& v) { return value; });
#include "kernels/functions/unary_gradient.def"
    default:
      CHECK(false, "not the gradient of an element-wise function");
  }
}

void run(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  const int64_t n = stored_elements(desc.outputs[0]);
  constexpr int64_t piece_floats = 4096;  // stay in a first-level cache while the epilogue goes over them
  with_gradient(desc, [&](auto f) {
    parallel_for(call, (n + piece_floats - 1) / piece_floats, [&](int64_t piece) {
      const int64_t at = piece * piece_floats, count = std::min(piece_floats, n - at);
      map_row(output(call) + at, count, f, input(call, 0) + at, input(call, 1) + at);
      epilogue.apply(output(call), at, count);
    });
  });
}

}  // namespace

const KernelCode code::unary_gradient = {run};

}  // namespace nlsplit::inline kernels
