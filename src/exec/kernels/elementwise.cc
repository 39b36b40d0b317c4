// Unary functions, Sum, and the four arithmetic operators with numpy broadcasting.
#include <array>

#include "exec/kernels/epilogue.h"
#include "exec/kernels/packets.h"
#include "exec/kernels/run.h"
#include "exec/kernels/unary.h"

namespace nlsplit {
namespace {

// Runs that stay in a first-level cache while the epilogue goes over them.
constexpr int64_t run_floats = 2048;

template <class F>
void in_runs(int64_t n, F f) {
  for (int64_t begin = 0; begin < n; begin += run_floats) f(begin, std::min(run_floats, n - begin));
}

// The same, several at a time by whoever is free.
template <class F>
void in_runs(const KernelCall& call, int64_t n, F f) {
  constexpr int64_t piece = 4 * run_floats;
  parallel_for(call, (n + piece - 1) / piece, [&](int64_t i) {
    in_runs(std::min(piece, n - i * piece), [&](int64_t begin, int64_t count) { f(i * piece + begin, count); });
  });
}

void run_unary(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  const UnaryParameters p = unary_parameters(desc.op, desc.attrs);
  const float* from = input(call, 0);
  float* to = output(call);
  with_unary(desc.op, p.a, p.b, [&](auto f) {
    in_runs(call, stored_elements(desc.outputs[0]), [&](int64_t begin, int64_t count) {
      map_row(to + begin, count, f, from + begin);
      epilogue.apply(to, begin, count);
    });
  });
}

void run_sum(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  const Epilogue epilogue(call);
  float* to = output(call);
  in_runs(call, stored_elements(desc.outputs[0]), [&](int64_t begin, int64_t count) {
    std::memcpy(to + begin, input(call, 0) + begin, static_cast<size_t>(count) * sizeof(float));
    for (size_t i = 1; i < desc.own_inputs(); ++i) map_row(to + begin, count, add, to + begin, input(call, i) + begin);
    epilogue.apply(to, begin, count);
  });
}

// The output's axes, outermost first, with each operand's stride (0: it is repeated), merged where both operands allow.
struct Loops {
  static constexpr size_t most = 8;
  size_t axes = 0;
  std::array<int64_t, most> extent{}, a{}, b{};
};

Loops loops_of(const Shape& out, const Shape& a, const Shape& b) {
  Loops loops;
  int64_t stride_a = 1, stride_b = 1;
  // From the last axis on; reversed at the end.
  for (size_t back = 0; back < out.size(); ++back) {
    const int64_t extent = out[out.size() - 1 - back];
    const int64_t in_a = back < a.size() ? a[a.size() - 1 - back] : 1;
    const int64_t in_b = back < b.size() ? b[b.size() - 1 - back] : 1;
    const int64_t own_a = in_a == 1 ? 0 : stride_a, own_b = in_b == 1 ? 0 : stride_b;
    stride_a *= in_a, stride_b *= in_b;
    if (extent == 1) continue;
    if (loops.axes > 0) {
      const size_t last = loops.axes - 1;
      if (own_a == loops.a[last] * loops.extent[last] && own_b == loops.b[last] * loops.extent[last]) {
        loops.extent[last] *= extent;
        continue;
      }
    }
    loops.extent[loops.axes] = extent, loops.a[loops.axes] = own_a, loops.b[loops.axes] = own_b;
    ++loops.axes;
  }
  for (size_t i = 0; i < loops.axes / 2; ++i) {
    std::swap(loops.extent[i], loops.extent[loops.axes - 1 - i]);
    std::swap(loops.a[i], loops.a[loops.axes - 1 - i]);
    std::swap(loops.b[i], loops.b[loops.axes - 1 - i]);
  }
  return loops;
}

template <class F>
void combine(float* to, int64_t n, const float* a, bool repeat_a, const float* b, bool repeat_b, F f) {
  if (repeat_a) {
    const Packet one = broadcast(*a);
    map_row(
        to, n, [&](const Packet& y) { return f(one, y); }, b);
  } else if (repeat_b) {
    const Packet one = broadcast(*b);
    map_row(
        to, n, [&](const Packet& x) { return f(x, one); }, a);
  } else {
    map_row(to, n, f, a, b);
  }
}

template <class F>
void walk(const Loops& loops, const float* a, const float* b, float* to, const Epilogue& epilogue, F f) {
  if (loops.axes == 0) {
    store_part(to, f(broadcast(*a), broadcast(*b)), 1);
    return epilogue.apply(to, 0, 1);
  }
  const size_t inner = loops.axes - 1;
  const int64_t n = loops.extent[inner];
  int64_t rows = 1;
  for (size_t i = 0; i < inner; ++i) rows *= loops.extent[i];
  std::array<int64_t, Loops::most> at{};
  for (int64_t row = 0; row < rows; ++row) {
    in_runs(n, [&](int64_t begin, int64_t count) {
      combine(to + row * n + begin, count, a + begin * loops.a[inner], loops.a[inner] == 0, b + begin * loops.b[inner],
              loops.b[inner] == 0, f);
      epilogue.apply(to, row * n + begin, count);
    });
    for (size_t i = inner; i-- > 0;) {
      a += loops.a[i], b += loops.b[i];
      if (++at[i] < loops.extent[i]) break;
      a -= loops.a[i] * loops.extent[i], b -= loops.b[i] * loops.extent[i];
      at[i] = 0;
    }
  }
}

void run_binary(const KernelCall& call) {
  const ComputeDesc& desc = *call.desc;
  if (element_count(desc.outputs[0].shape) == 0) return;
  const Epilogue epilogue(call);
  const Shape stored = {stored_elements(desc.outputs[0])};  // in blocks nothing is broadcast
  const Loops loops = desc.outputs[0].block > 0
                          ? loops_of(stored, stored, stored)
                          : loops_of(desc.outputs[0].shape, desc.inputs[0].shape, desc.inputs[1].shape);
  const auto go = [&](auto f) {
    if (loops.axes == 1 && loops.a[0] == 1 && loops.b[0] == 1) {  // nothing is repeated
      return in_runs(call, loops.extent[0], [&](int64_t begin, int64_t count) {
        map_row(output(call) + begin, count, f, input(call, 0) + begin, input(call, 1) + begin);
        epilogue.apply(output(call), begin, count);
      });
    }
    walk(loops, input(call, 0), input(call, 1), output(call), epilogue, f);
  };
  switch (desc.op) {
    case Op::Add:
      return go([](const Packet& a, const Packet& b) { return add(a, b); });
    case Op::Sub:
      return go([](const Packet& a, const Packet& b) { return subtract(a, b); });
    case Op::Mul:
      return go([](const Packet& a, const Packet& b) { return multiply(a, b); });
    case Op::Div:
      return go([](const Packet& a, const Packet& b) { return divide(a, b); });
    default:
      CHECK(false, "not a binary operator");
  }
}

}  // namespace

const KernelEntry unary = {"unary", run_unary, nullptr};
const KernelEntry sum = {"sum", run_sum, nullptr};
const KernelEntry binary = {"binary", run_binary, nullptr};

}  // namespace nlsplit
