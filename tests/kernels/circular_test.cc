// Sines and their kin against the C library, over all magnitudes of their operands and where they are hard: near
// multiples of π/2, near 1, at the ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "base/random.h"
#include "graph/elements.h"
#include "kernels/generated/interpret.h"
#include "kernels/generated/lower.h"

namespace nlsplit::testing {
namespace {

std::vector<double> operands_of(Op op, DType type) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> all = {0.0, -0.0, 0.5, -0.5, 1, -1, infinity, -infinity, std::nan("")};
  const int largest = type == DType::f64 ? 1023 : 127;
  Random random(static_cast<uint64_t>(op));
  for (int i = 0; i < 4000; ++i) {
    const double sign = random.uniform() < 0.5 ? 1 : -1;
    const double power = random.uniform() * 2 - 1;
    all.push_back(sign * std::exp2(power * largest));
    all.push_back(sign * std::exp2(power * 30));
    all.push_back(sign * (1 - std::exp2(power * 25 - 25)));
    all.push_back(sign * std::numbers::pi / 2 * (1 + std::floor(random.uniform() * 1e5)));
  }
  return reals_of(type, raw_of(type, std::span<const double>(all)));
}

double by_library(Op op, double x) {
  switch (op) {
    case Op::Sin:
      return std::sin(x);
    case Op::Cos:
      return std::cos(x);
    case Op::Tan:
      return std::tan(x);
    case Op::Asin:
      return std::asin(x);
    case Op::Acos:
      return std::acos(x);
    case Op::Atan:
      return std::atan(x);
    case Op::Sinh:
      return std::sinh(x);
    case Op::Cosh:
      return std::cosh(x);
    case Op::Asinh:
      return std::asinh(x);
    case Op::Acosh:
      return std::acosh(x);
    default:
      return std::atanh(x);
  }
}

std::vector<double> computed(Op op, DType type, const std::vector<double>& x) {
  ComputeDesc desc;
  desc.op = op;
  desc.inputs = desc.outputs = {{type, {std::ssize(x)}}};
  const Loops loops = lower(desc);
  EXPECT_TRUE(verify(loops).ok());
  const std::string operand = raw_of(type, std::span<const double>(x));
  std::string result(operand.size(), '\0');
  const void* inputs[] = {operand.data()};
  interpret(loops, inputs, result.data(), 0, rows_of(loops));
  return reals_of(type, result);
}

// Of f64 in units in the last place, of f32 as a share of what one is at least.
void expect_near(Op op, DType type) {
  SCOPED_TRACE(fmt::format("{} of {}", name_of(op), name_of(type)));
  const std::vector<double> x = operands_of(op, type);
  const std::vector<double> made = computed(op, type, x);
  constexpr double units = 4;
  const double share = type == DType::f64 ? units * 0x1p-52 : 0x1p-24 * (1 + 0x1p-20);
  for (size_t i = 0; i < x.size(); ++i) {
    const double wanted = by_library(op, x[i]);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(made[i])) << x[i] << " gives " << made[i];
      continue;
    }
    const double limit = share * std::abs(wanted) + (type == DType::f64 ? 0x1p-1074 : 0x1p-150);
    const bool beyond = type == DType::f32 && std::abs(wanted) >= 0x1.ffffffp127;
    EXPECT_TRUE(made[i] == wanted || std::abs(made[i] - wanted) <= limit || (beyond && std::isinf(made[i])))
        << fmt::format("{} gives {} instead of {}", x[i], made[i], wanted);
    if (x[i] == 0 && wanted == 0) {
      EXPECT_EQ(std::signbit(made[i]), std::signbit(wanted));
    }
  }
}

TEST(CircularFunctions, AreNearTheLibrarys) {
  for (int i = 0; i < op_count; ++i) {
    if (!is_circular(static_cast<Op>(i))) continue;
    for (const DType type : {DType::f32, DType::f64}) expect_near(static_cast<Op>(i), type);
  }
}

// The number of f64 that is nearest to a multiple of π/2 (Muller, "Elementary functions", 2016, chapter 11). The C
// library of Debian 12 is off by eight units there.
TEST(CircularFunctions, ReduceTheHardestNumber) {
  const std::vector<double> hardest = {6381956970095103.0 * 0x1p797};
  const double wanted = -4.68716592425462761112e-19;
  EXPECT_NEAR(computed(Op::Cos, DType::f64, hardest)[0] / wanted, 1, 2 * 0x1p-52);
  EXPECT_EQ(computed(Op::Sin, DType::f64, hardest)[0], 1);
}

}  // namespace
}  // namespace nlsplit::testing
