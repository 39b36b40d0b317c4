#include "graph/formula.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace nlsplit::inline graph {
namespace {

// f(first index, last index), whatever is between.
std::string filled(const Shape& shape, const std::function<double(int64_t, int64_t)>& f) {
  CHECK(shape.size() >= 2, "a table has positions and columns");
  const int64_t columns = shape.back();
  const int64_t between = element_count(shape) / std::max<int64_t>(shape[0] * columns, 1);
  std::string out(static_cast<size_t>(element_count(shape)) * sizeof(float), '\0');
  auto* to = reinterpret_cast<float*>(out.data());
  for (int64_t p = 0; p < shape[0]; ++p) {
    for (int64_t repeat = 0; repeat < between; ++repeat) {
      for (int64_t column = 0; column < columns; ++column) *to++ = static_cast<float>(f(p, column));
    }
  }
  return out;
}

double angle(int64_t position, int64_t column, int64_t columns, double base, std::span<const float> factors) {
  const int64_t pair = column % (columns / 2);
  const double turned =
      static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(columns));
  return factors.empty() ? turned : turned / static_cast<double>(factors[static_cast<size_t>(pair)]);
}

}  // namespace

std::string_view name_of(Formula formula) {
  switch (formula) {
    case Formula::causal_mask:
      return "causal_mask";
    case Formula::rotary_cos:
      return "rotary_cos";
    case Formula::rotary_sin:
      return "rotary_sin";
  }
  CHECK(false, "unknown formula");
}

std::string values_of(Formula formula, const Shape& shape, double parameter, std::span<const float> factors) {
  const int64_t columns = shape.back();
  CHECK(factors.empty() || static_cast<int64_t>(factors.size()) == (formula == Formula::causal_mask ? 1 : columns / 2),
        "a factor for each pair of columns, or the window of a mask");
  switch (formula) {
    case Formula::causal_mask:
      return filled(shape, [&](int64_t row, int64_t column) {
        const bool in_window = factors.empty() || static_cast<double>(row - column) < static_cast<double>(factors[0]);
        return column <= row && in_window ? 0 : parameter;
      });
    case Formula::rotary_cos:
      return filled(shape, [&](int64_t p, int64_t c) { return std::cos(angle(p, c, columns, parameter, factors)); });
    case Formula::rotary_sin:
      return filled(shape, [&](int64_t p, int64_t c) {
        const double sine = std::sin(angle(p, c, columns, parameter, factors));
        return c < columns / 2 ? -sine : sine;
      });
  }
  CHECK(false, "unknown formula");
}

}  // namespace nlsplit::inline graph
