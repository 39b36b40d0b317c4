#include "cost/kernel_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nlsplit::inline cost {

namespace {

using Known = KernelFit::Known;
using Features = KernelFit::Features;
using Terms = KernelFit::Terms;

constexpr size_t nearest_kernels = 4;
constexpr double softening = 0.1;
constexpr double quantile = 0.9;

// ---- what a kernel is known by

double extent(const TensorType& type, size_t axis) {
  return axis < type.shape.size() ? static_cast<double>(type.shape[axis]) : 1;
}

double product_of(const Attrs& attrs, std::string_view name) {
  const AttrValue* value = find_attr(attrs, name);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  double product = 1;
  if (list != nullptr) {
    for (const int64_t one : *list) product *= static_cast<double>(one);
  }
  return product;
}

Known facts_of(const ComputeDesc& desc) {
  Known known;
  const Work work = work_of(desc);
  double weights = 0;
  for (size_t i = 0; i < desc.inputs.size(); ++i) {
    if (desc.is_weight(i)) weights += static_cast<double>(size_of(desc.inputs[i]).value());
  }
  const double traffic = static_cast<double>((work.bytes_read + work.bytes_written).value());
  known.work = {1, work.flops.value(), std::max(0.0, traffic - weights), weights};
  const TensorType& in = desc.inputs[0];
  const TensorType& out = desc.outputs[0];
  double pixels = 1;
  for (size_t axis = 2; axis < out.shape.size(); ++axis) pixels *= extent(out, axis);
  known.shape = {extent(in, 0),
                 extent(in, 1),
                 extent(out, 1),
                 pixels,
                 product_of(desc.attrs, "kernel_shape"),
                 product_of(desc.attrs, "strides"),
                 traffic,
                 std::exp(static_cast<double>(desc.epilogue.size()))};
  for (double& feature : known.shape) feature = std::log(std::max(1.0, feature));
  // Movements of data have no level; any will do to tell computations apart.
  known.computation = choice_key(desc, Isa::v2);
  return known;
}

// ---- t = a + b * operations + …

double sum_of(const Terms& coefficients, const Terms& terms) {
  return std::inner_product(terms.begin(), terms.end(), coefficients.begin(), 0.0);
}

// A kernel whose only terms have no part in the others' time would take none: its logarithm must be finite all the
// same.
double explained(const Terms& coefficients, const Terms& work) { return std::max(1e-12, sum_of(coefficients, work)); }

// Coordinate descent for min |B c - 1|^2 with c >= 0, where a row of B is the terms of one kernel over its time.
Terms least_squares(const std::vector<Terms>& rows, const std::vector<double>& weights) {
  constexpr int rounds = 200;
  constexpr size_t terms = std::tuple_size_v<Terms>;
  std::array<Terms, terms> gram{};
  Terms right{}, c{};
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < terms; ++i) {
      right[i] += weights[r] * rows[r][i];
      for (size_t j = 0; j < terms; ++j) gram[i][j] += weights[r] * rows[r][i] * rows[r][j];
    }
  }
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < terms; ++i) {
      if (gram[i][i] > 0) c[i] = std::max(0.0, c[i] + (right[i] - sum_of(gram[i], c)) / gram[i][i]);
    }
  }
  return c;
}

// Relative errors, their absolute values summed (so that a few odd kernels do not bend the rest): least squares with
// weights 1 / |error|, again and again.
Terms fit_work(const std::vector<const Known*>& known) {
  constexpr int rounds = 5;
  constexpr double least_error = 0.02;
  Terms largest{};
  std::vector<Terms> rows;
  for (const Known* one : known) {
    Terms& row = rows.emplace_back(one->work);
    for (size_t i = 0; i < row.size(); ++i) largest[i] = std::max(largest[i], row[i] /= one->seconds);
  }
  for (Terms& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) row[i] /= largest[i] > 0 ? largest[i] : 1;
  }
  std::vector<double> weights(rows.size(), 1);
  Terms c{};
  for (int round = 0; round < rounds; ++round) {
    c = least_squares(rows, weights);
    for (size_t r = 0; r < rows.size(); ++r) weights[r] = 1 / std::max(least_error, std::abs(sum_of(c, rows[r]) - 1));
  }
  for (size_t i = 0; i < c.size(); ++i) c[i] /= largest[i] > 0 ? largest[i] : 1;
  return c;
}

// ---- nearest neighbours

double distance(const Features& a, const Features& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

std::vector<double> ratios_of(const std::vector<const Known*>& known, const Terms& coefficients) {
  std::vector<double> ratios;
  for (const Known* one : known) ratios.push_back(std::log(one->seconds / explained(coefficients, one->work)));
  return ratios;
}

struct Neighbour {
  double weight = 0;  // they sum to 1
  size_t index = 0;
};

std::vector<Neighbour> neighbours_of(const std::vector<const Known*>& known, const Known& asked) {
  std::vector<std::pair<double, size_t>> near;
  for (size_t i = 0; i < known.size(); ++i) near.emplace_back(distance(known[i]->shape, asked.shape), i);
  const auto end = near.begin() + static_cast<std::ptrdiff_t>(std::min(nearest_kernels, near.size()));
  std::partial_sort(near.begin(), end, near.end());
  std::vector<Neighbour> neighbours;
  double total = 0;
  for (auto at = near.begin(); at != end; ++at) {
    neighbours.push_back({1 / ((at->first + softening) * (at->first + softening)), at->second});
    total += neighbours.back().weight;
  }
  for (Neighbour& neighbour : neighbours) neighbour.weight /= total;
  return neighbours;
}

double predicted_seconds(const std::vector<Neighbour>& neighbours, const Terms& coefficients,
                         const std::vector<double>& ratios, const Known& asked) {
  double ratio = 0;
  for (const Neighbour& near : neighbours) ratio += near.weight * ratios[near.index];
  return explained(coefficients, asked.work) * std::exp(ratio);
}

double predicted_seconds(const std::vector<const Known*>& known, const Known& asked) {
  const Terms coefficients = fit_work(known);
  return predicted_seconds(neighbours_of(known, asked), coefficients, ratios_of(known, coefficients), asked);
}

FitErrors summary_of(std::vector<double> errors) {
  if (errors.empty()) return {};
  std::ranges::sort(errors);
  const size_t n = errors.size();
  FitErrors summary{n, errors[n / 2], std::nullopt};
  const auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(n + 1)));
  if (n >= least_errors) summary.p90 = errors[std::min(rank, n) - 1];
  return summary;
}

// Each kernel predicted from the others. They are at least two.
void leave_out(const std::vector<Known>& all, FitQuality& quality) {
  std::vector<double> other_sizes, other_shapes;
  for (const Known& asked : all) {
    std::vector<const Known*> others, strangers;
    for (const Known& one : all) {
      if (&one != &asked) others.push_back(&one);
      if (one.computation != asked.computation) strangers.push_back(&one);
    }
    const auto error = [&](const std::vector<const Known*>& from) {
      return std::abs(predicted_seconds(from, asked) / asked.seconds - 1);
    };
    if (others.size() > strangers.size() && others.size() >= least_errors) other_sizes.push_back(error(others));
    if (strangers.size() >= least_errors) other_shapes.push_back(error(strangers));
  }
  quality.other_sizes = summary_of(std::move(other_sizes));
  quality.other_shapes = summary_of(std::move(other_shapes));
}

std::vector<const Known*> pointers_to(const std::vector<Known>& known) {
  std::vector<const Known*> pointers;
  for (const Known& one : known) pointers.push_back(&one);
  return pointers;
}

}  // namespace

std::string KernelFit::kind_of(const ComputeDesc& desc, int cores) {
  return fmt::format("{} {} {}", to_string(desc.kernel), name_of(desc.op), cores);
}

KernelFit::KernelFit(const Profile& profile) {
  for (const auto& [key, cost] : profile.kernels) {
    const auto parsed = parse_profile_key(key);
    if (!parsed || cost.median.value() <= 0) {
      ++left_out_;
      continue;
    }
    if (parsed->moved) continue;  // what is predicted is at the largest scalars
    Kind& kind = kinds_[kind_of(parsed->desc, parsed->cores)];
    kind.quality.kernel = parsed->desc.kernel;
    kind.quality.op = parsed->desc.op;
    kind.quality.cores = parsed->cores;
    Known& known = kind.known.emplace_back(facts_of(parsed->desc));
    known.seconds = usual(cost).value();
    if (cost.beside.value() > 0) known.beside = cost.beside / usual(cost);
    kind.computations.insert(known.computation);
  }
  for (auto& [name, kind] : kinds_) {
    kind.quality.kernels = kind.known.size();
    kind.quality.computations = kind.computations.size();
    const std::vector<const Known*> all = pointers_to(kind.known);
    kind.coefficients = fit_work(all);
    kind.ratios = ratios_of(all, kind.coefficients);
    leave_out(kind.known, kind.quality);
  }
}

std::optional<KernelPrediction> KernelFit::predict(const ComputeDesc& desc, int cores) const {
  const auto found = kinds_.find(kind_of(desc, cores));
  if (found == kinds_.end() || desc.inputs.empty() || desc.outputs.empty()) return std::nullopt;
  const Kind& kind = found->second;
  const Known asked = facts_of(desc);
  const bool known = kind.computations.contains(asked.computation);
  const std::optional<double> spread = known ? kind.quality.other_sizes.p90 : kind.quality.other_shapes.p90;
  if (!spread) return std::nullopt;
  const std::vector<Neighbour> neighbours = neighbours_of(pointers_to(kind.known), asked);
  const double time = predicted_seconds(neighbours, kind.coefficients, kind.ratios, asked);
  double beside = 0;
  for (const Neighbour& near : neighbours) beside += near.weight * kind.known[near.index].beside;
  return KernelPrediction{seconds(time), *spread, seconds(time * beside)};
}

std::vector<FitQuality> KernelFit::quality() const {
  std::vector<FitQuality> all;
  for (const auto& [name, kind] : kinds_) all.push_back(kind.quality);
  return all;
}

}  // namespace nlsplit::inline cost
