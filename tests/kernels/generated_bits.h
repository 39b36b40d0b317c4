// What a generated computation's bits are: those of the interpreter of its loops.
//
//   EXPECT_EQ(other_bits(desc, made, interpreted(desc, operands)), "");
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "graph/elements.h"
#include "kernels/generated/interpret.h"
#include "kernels/generated/lower.h"

namespace nlsplit::testing {

inline std::string interpreted(const ComputeDesc& desc, const std::vector<std::string>& operands) {
  const Loops loops = lower(desc);
  std::vector<const void*> inputs;
  for (const std::string& operand : operands) inputs.push_back(operand.data());
  std::string result(static_cast<size_t>(size_of(desc.outputs[0]).value()), 'x');
  if (loops.output.count > 0) interpret(loops, inputs.data(), result.data(), 0, rows_of(loops));
  return result;
}

// "" for the same bits; what is no number is one.
inline std::string other_bits(const ComputeDesc& desc, std::string_view made, std::string_view expected) {
  const DType type = desc.outputs[0].dtype;
  if (made == expected) return {};
  if (!is_real(type) || made.size() != expected.size()) return "other bytes";
  const std::vector<double> a = reals_of(type, made), b = reals_of(type, expected);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] && std::signbit(a[i]) == std::signbit(b[i]);
    if (!same && !(std::isnan(a[i]) && std::isnan(b[i])))
      return fmt::format("element {} is {} instead of {}", i, a[i], b[i]);
  }
  return {};
}

}  // namespace nlsplit::testing
