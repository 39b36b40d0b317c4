#include <cmath>
#include <numbers>

#include "graph/passes/pass_list.h"
#include "graph/passes/pattern.h"

namespace nlsplit::inline graph {
namespace {

using Parts = std::vector<const Node*>;

// Constants are written as floats, some of them rounded once more.
bool near(double value, double to) { return std::abs(value - to) <= 1e-6 * std::abs(to); }

// A product taken apart: the numbers in it multiplied, and its other factors.
struct Product {
  double number = 1;
  std::vector<ValueId> factors;
  int opened = 0;  // products that were taken apart
};
constexpr int most_opened = 8;  // nothing that is looked for has more; a model's own chain of products may be long

void multiply(const Pattern& pattern, ValueId value, Product& product, Parts& parts);

void multiply(const Pattern& pattern, const Node& mul, Product& product, Parts& parts) {
  ++product.opened;
  parts.push_back(&mul);
  for (const ValueId input : mul.inputs) multiply(pattern, input, product, parts);
}

void multiply(const Pattern& pattern, ValueId value, Product& product, Parts& parts) {
  if (const auto number = pattern.number(value)) {
    product.number *= *number;
  } else if (const Node* mul = pattern.made_for_one(value, Op::Mul); mul != nullptr && product.opened < most_opened) {
    multiply(pattern, *mul, product, parts);
  } else {
    product.factors.push_back(value);
  }
}

// coefficient * x^exponent
struct Monomial {
  double coefficient = 1, exponent = 0;
};

std::optional<Monomial> monomial_of(const Pattern& pattern, ValueId value, ValueId x, Parts& parts) {
  Product product;
  multiply(pattern, value, product, parts);
  Monomial monomial{product.number, 0};
  for (const ValueId factor : product.factors) {
    const Node* power = pattern.made_for_one(factor, Op::Pow);
    if (factor == x) {
      monomial.exponent += 1;
    } else if (power != nullptr && power->inputs[0] == x && pattern.number(power->inputs[1])) {
      monomial.exponent += *pattern.number(power->inputs[1]);
      parts.push_back(power);
    } else {
      return std::nullopt;
    }
  }
  return monomial;
}

bool is_root_half_of(const Pattern& pattern, ValueId value, ValueId x, Parts& parts) {
  if (const Node* ratio = pattern.made_for_one(value, Op::Div)) {
    const auto divisor = pattern.number(ratio->inputs[1]);
    parts.push_back(ratio);
    return ratio->inputs[0] == x && divisor && near(*divisor, std::numbers::sqrt2);
  }
  const auto scaled = monomial_of(pattern, value, x, parts);
  return scaled && scaled->exponent == 1 && near(scaled->coefficient, std::sqrt(0.5));
}

// sqrt(2 / pi) (x + 0.044715 x³), whatever is multiplied first.
bool is_tanh_argument(const Pattern& pattern, ValueId value, ValueId x, Parts& parts) {
  Product product;
  multiply(pattern, value, product, parts);
  const Node* sum = nullptr;
  double power = 0;
  for (const ValueId factor : product.factors) {
    if (factor == x)
      power += 1;
    else if (sum == nullptr)
      sum = pattern.made_for_one(factor, Op::Add);
    else
      return false;
  }
  if (sum == nullptr) return false;
  parts.push_back(sum);
  const double root = std::sqrt(2 / std::numbers::pi);
  bool linear = false, cubic = false;
  for (const ValueId addend : sum->inputs) {
    const auto monomial = monomial_of(pattern, addend, x, parts);
    if (!monomial) return false;
    const double exponent = monomial->exponent + power, coefficient = monomial->coefficient * product.number;
    linear = linear || (exponent == 1 && near(coefficient, root));
    cubic = cubic || (exponent == 3 && near(coefficient, root * 0.044715));
  }
  return linear && cubic;
}

// 1 + erf(x / sqrt(2)), or its approximation: what the attribute calls it.
std::optional<std::string> curve_of(const Pattern& pattern, ValueId value, ValueId x, Parts& parts) {
  const Node* sum = pattern.made_for_one(value, Op::Add);
  if (sum == nullptr) return std::nullopt;
  const size_t side = pattern.number(sum->inputs[0]) ? 0 : 1;
  if (pattern.number(sum->inputs[side]) != 1.0) return std::nullopt;
  const ValueId curve = sum->inputs[1 - side];
  parts.push_back(sum);
  if (const Node* erf = pattern.made_for_one(curve, Op::Erf)) {
    parts.push_back(erf);
    return is_root_half_of(pattern, erf->inputs[0], x, parts) ? std::optional<std::string>("none") : std::nullopt;
  }
  if (const Node* tanh = pattern.made_for_one(curve, Op::Tanh)) {
    parts.push_back(tanh);
    return is_tanh_argument(pattern, tanh->inputs[0], x, parts) ? std::optional<std::string>("tanh") : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

// x (1 + erf(x / sqrt(2))) / 2, the factors in any order, or with tanh: Hendrycks and Gimpel, "Gaussian error linear
// units", 2016.
Result<Graph> recognize_gelu(const Graph& graph, WeightStore& weights) {
  const Pattern pattern(graph, weights);
  Recognized out(graph);
  for (const Node& node : graph.nodes) {
    if (node.op != Op::Mul || !node.epilogue.empty()) continue;
    Product product;
    Parts product_parts;
    multiply(pattern, node, product, product_parts);
    if (product.factors.size() != 2 || !near(product.number, 0.5)) continue;
    for (const size_t side : {0, 1}) {
      const ValueId x = product.factors[side];
      if (graph.value(x).type.dtype != DType::f32) continue;        // others are rounded after every part
      Parts parts(product_parts.begin() + 1, product_parts.end());  // the node itself stays, as the new one
      const auto approximate = curve_of(pattern, product.factors[1 - side], x, parts);
      if (!approximate) continue;
      Node gelu;
      gelu.op = Op::Gelu;
      gelu.inputs = {x};
      set_attr(gelu.attrs, "approximate", *approximate);
      if (out.replace(node, std::move(gelu), parts)) break;
    }
  }
  return out.done();
}

}  // namespace nlsplit::inline graph
