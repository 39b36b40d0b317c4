// Operands of random computations: near-normal numbers, integers of all bits, indices of which some lie outside.
//
//   std::vector<std::string> operands = random_operands(*desc, random, false);   // their bytes
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "graph/elements.h"
#include "kernels/catalogue.h"

namespace nlsplit::testing {

// odd: now and then zeros of both signs, infinities, what is no number, and the greatest and least.
inline std::vector<std::string> random_operands(const ComputeDesc& desc, Random& random, bool odd) {
  std::vector<std::string> operands;
  const bool gathers = desc.op == Op::GatherElements || desc.op == Op::GatherND || desc.op == Op::ReverseSequence ||
                       desc.op == Op::ScatterElements || desc.op == Op::ScatterND || desc.op == Op::MaxUnpool;
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    const TensorType& type = desc.inputs[i];
    const auto count = static_cast<size_t>(element_count(type.shape));
    const bool index = (gathers && i == 1) || (desc.op == Op::OneHot && i == 0) || (desc.op == Op::RoiAlign && i == 2);
    if (is_real(type.dtype)) {
      std::vector<double> values(count);
      for (double& value : values) {
        value = random.normal() * (random.uniform() < 0.2 ? 20 : 1);
        if (index) value = std::floor(value * 5);
        if (!odd || random.uniform() > 0.1) continue;
        const double all[] = {0.0,
                              -0.0,
                              1.0,
                              -1.0,
                              0.5,
                              2.5,
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN(),
                              1e30,
                              -1e30,
                              1e-30,
                              100.0,
                              -100.0,
                              6e4,
                              1e-6};
        value = all[random.below(std::size(all))];
      }
      operands.push_back(raw_of(type.dtype, std::span<const double>(values)));
    } else {
      std::vector<int64_t> values(count);
      for (int64_t& value : values) {
        value = static_cast<int64_t>(random.below(41)) - 20;
        if (desc.op == Op::Resize) continue;  // the reference's are doubles
        if (!index && random.uniform() < 0.3) value = static_cast<int64_t>(random.below(UINT64_MAX));
        if (odd && random.uniform() < 0.05) value = random.uniform() < 0.5 ? INT64_MIN : INT64_MAX;
      }
      operands.push_back(raw_of(type.dtype, std::span<const int64_t>(values)));
    }
  }
  return operands;
}

}  // namespace nlsplit::testing
