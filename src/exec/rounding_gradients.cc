#include "exec/rounding_gradients.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "graph/optimizer.h"

namespace nlsplit::inline exec {
namespace {

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

// By name.
std::map<std::string_view, double> norms_of(const std::vector<OutputTensor>& outputs) {
  std::map<std::string_view, double> norms;
  for (const OutputTensor& output : outputs) norms[output.tensor.name] = norm(output.tensor.values);
  return norms;
}

}  // namespace

std::set<std::string> only_roundings(const std::vector<OutputTensor>& got, const std::vector<OutputTensor>& wanted) {
  const std::map<std::string_view, double> found = norms_of(got), want = norms_of(wanted);
  std::set<std::string> names;
  for (const Optimizer optimizer : {Optimizer::momentum, Optimizer::adam}) {
    const std::span<const std::string_view> suffixes = state_names(optimizer);
    std::vector<std::string_view> weights;
    double squares = 0;
    for (const auto& [name, of] : want) {
      if (!name.ends_with(suffixes[0])) continue;
      const std::string_view weight = name.substr(0, name.size() - suffixes[0].size());
      if (!want.contains(weight)) continue;
      weights.push_back(weight);
      squares += of * of;
    }
    const double least = least_gradient_norm * std::sqrt(squares);
    for (const std::string_view weight : weights) {
      const std::string mean = std::string(weight) + std::string(suffixes[0]);
      const auto same = found.find(mean);
      // Not below: NaN is not either.
      if (same == found.end() || !(same->second < least) || !(want.at(mean) < least)) continue;
      for (const std::string_view suffix : suffixes) names.insert(std::string(weight) + std::string(suffix));
      if (suffixes.size() > 1) names.insert(std::string(weight));
    }
  }
  return names;
}

}  // namespace nlsplit::inline exec
