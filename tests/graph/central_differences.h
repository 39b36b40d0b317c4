// Gradients held against central differences, in double precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/differentiate/differentiate.h"
#include "graph/reference/wide.h"

namespace nlsplit {

inline reference::Array random_values(const TensorType& type, double low, double high, std::mt19937& random) {
  reference::Array array = reference::zeros(type);
  for (int64_t i = 0; i < array.count(); ++i) {
    if (array.real()) {
      array.reals[static_cast<size_t>(i)] = std::uniform_real_distribution<double>(low, high)(random);
    } else {
      array.wholes[static_cast<size_t>(i)] =
          std::uniform_int_distribution<int64_t>(static_cast<int64_t>(low), static_cast<int64_t>(high) - 1)(random);
    }
  }
  return array;
}

inline double value_at(const Graph& graph, const WeightStore& weights,
                       const std::map<ValueId, reference::Array>& values, ValueId loss) {
  const auto made = evaluate_wide(graph, weights, values, {loss});
  CHECK(made.ok(), made.error().message.c_str());
  return (*made)[0].reals[0];
}

// The largest difference from central differences, relative to the gradient's largest value.
inline double worst_error(const Graph& graph, ValueId loss, const std::vector<ValueId>& trained, WeightStore& weights,
                          std::map<ValueId, reference::Array> values) {
  const auto made = differentiate(graph, loss, trained, weights);
  CHECK(made.ok(), made.error().message.c_str());
  const Status sound = verify(made->graph);
  CHECK(sound.ok(), sound.error().message.c_str());
  const auto gradients = evaluate_wide(made->graph, weights, values, made->gradients);
  CHECK(gradients.ok(), gradients.error().message.c_str());
  double worst = 0;
  for (size_t w = 0; w < trained.size(); ++w) {
    const reference::Array& gradient = (*gradients)[w];
    double largest = 0, difference = 0;
    for (const double g : gradient.reals) largest = std::max(largest, std::abs(g));
    for (size_t i = 0; i < gradient.reals.size(); ++i) {
      double& x = values.at(trained[w]).reals[i];
      const double before = x, step = 1e-5;
      x = before + step;
      const double above = value_at(graph, weights, values, loss);
      x = before - step;
      const double below = value_at(graph, weights, values, loss);
      x = before;
      difference = std::max(difference, std::abs((above - below) / (2 * step) - gradient.reals[i]));
    }
    EXPECT_GT(largest, 0) << "a gradient that is zero everywhere shows nothing";
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

}  // namespace nlsplit
