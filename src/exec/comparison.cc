#include "exec/comparison.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

namespace nlsplit::inline exec {

OutputComparison compare(const std::vector<float>& got, const std::vector<float>& want, std::string name) {
  CHECK(got.size() == want.size(), "outputs of one type have as many values");
  OutputComparison c;
  c.name = std::move(name);
  c.values = static_cast<int64_t>(want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const float a = got[i], b = want[i];
    if (std::isfinite(b)) c.largest_value = std::max(c.largest_value, std::abs(static_cast<double>(b)));
    if (std::memcmp(&a, &b, sizeof(float)) == 0) continue;
    ++c.different;
    if (std::isfinite(a) && std::isfinite(b)) {
      c.largest_difference = std::max(c.largest_difference, std::abs(static_cast<double>(a) - static_cast<double>(b)));
    } else if (!(std::isnan(a) && std::isnan(b))) {
      if (c.not_finite++ == 0) c.first_not_finite = static_cast<int64_t>(i);
    }
  }
  return c;
}

Status check_tolerance(double tolerance) {
  if (tolerance <= largest_tolerance) return ok_status();  // below 0: what the plan promises
  return invalid_input(fmt::format(
      "--tolerance {:g}: at most {:g} of an output's largest value; within more than that almost any wrong result lies "
      "as well",
      tolerance, largest_tolerance));
}

namespace {

std::string line_of(const OutputComparison& c, double tolerance) {
  std::string line = fmt::format("{}: {} of {} values differ from the unsplit run", c.name, c.different, c.values);
  if (c.not_finite > 0) {
    line += fmt::format("; {} of them {} NaN or infinite in one run only, the first at place {}", c.not_finite,
                        c.not_finite == 1 ? "is" : "are", c.first_not_finite);
  }
  if (c.largest_difference > 0 || c.not_finite == 0)
    line +=
        fmt::format(", the largest difference is {:.3g} (largest value {:.3g})", c.largest_difference, c.largest_value);
  if (tolerance == 0) return line + "; equal bits were expected";
  if (c.is_roundings && c.not_finite == 0) return line + "; its gradient is roundings alone in both: not compared";
  return fmt::format("{}; {} the tolerance of {:g} of its largest value", line,
                     c.equal(tolerance) ? "within" : "beyond", tolerance);
}

}  // namespace

std::string to_string(const Comparison& comparison) {
  int64_t values = 0, same = 0;
  std::string lines;
  for (const OutputComparison& output : comparison.outputs) {
    values += output.values;
    if (output.different == 0) {
      ++same;
      continue;
    }
    lines += (lines.empty() ? "" : "\n            ") + line_of(output, comparison.tolerance);
  }
  if (lines.empty()) return fmt::format("equal to the unsplit run, bit for bit ({} values)", values);
  if (!comparison.why.empty()) lines += fmt::format(" ({})", comparison.why);
  if (same > 0)
    lines += fmt::format("\n            {} of {} outputs are equal bit for bit", same, comparison.outputs.size());
  return lines;
}

}  // namespace nlsplit::inline exec
