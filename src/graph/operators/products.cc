// Products of matrices and tensors.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/operators/rules.h"

namespace nlsplit::inline graph {
namespace {

constexpr AttrSpec gemm_attrs[] = {real("alpha", 1.0), real("beta", 1.0), integer("transA", 0), integer("transB", 0)};
constexpr AttrSpec einsum_attrs[] = {text("equation")};

// ---- types

Inferred infer_gemm(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(numbers(inputs));
  const Shape &a = inputs[0].shape, &b = inputs[1].shape;
  if (a.size() != 2 || b.size() != 2) return invalid_input("Gemm needs two matrices");
  const bool ta = attr_int(attrs, "transA") != 0, tb = attr_int(attrs, "transB") != 0;
  const int64_t m = ta ? a[1] : a[0], k = ta ? a[0] : a[1], k2 = tb ? b[1] : b[0], n = tb ? b[0] : b[1];
  if (k != k2) return invalid_input(fmt::format("inner extents {} and {} differ", k, k2));
  if (inputs.size() > 2) {
    const auto sum = broadcast_shapes(inputs[2].shape, {m, n});
    if (!sum.ok() || *sum != Shape{m, n})
      return invalid_input(fmt::format("the bias does not broadcast to [{},{}]", m, n));
  }
  return one_result(inputs[0].dtype, {m, n});
}

Inferred infer_matmul(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(numbers(inputs));
  Shape a = inputs[0].shape, b = inputs[1].shape;
  if (a.empty() || b.empty()) return invalid_input("MatMul of a scalar");
  const bool row = a.size() == 1, column = b.size() == 1;
  if (row) a.insert(a.begin(), 1);
  if (column) b.push_back(1);
  const int64_t k = a.back(), k2 = b[b.size() - 2];
  if (k != k2) return invalid_input(fmt::format("inner extents {} and {} differ", k, k2));
  ASSIGN_OR_RETURN(Shape out, broadcast_shapes(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)));
  if (!row) out.push_back(a[a.size() - 2]);
  if (!column) out.push_back(b.back());
  if (inputs.size() > 2 && (column || inputs[2].shape != Shape{b.back()}))
    return invalid_input(
        fmt::format("a bias {} of a product {}", to_string(inputs[2]), to_string(TensorType{inputs[0].dtype, out})));
  return one_result(inputs[0].dtype, std::move(out));
}

// Weights of halves, too, where all else is f32: they are half the bytes.
Inferred infer_linear(Types inputs, const Attrs&) {
  std::vector<TensorType> types(inputs.begin(), inputs.end());
  if (types[0].dtype == DType::f32 && is_half(types[1].dtype)) types[1].dtype = DType::f32;
  RETURN_IF_ERROR(reals(types));
  const Shape &x = types[0].shape, &w = types[1].shape;
  if (x.empty() || w.size() != 2) return invalid_input("Linear needs rows, and a matrix of weights");
  if (x.back() != w[1]) return invalid_input(fmt::format("inner extents {} and {} differ", x.back(), w[1]));
  if (types.size() > 2 && types[2].shape != Shape{w[0]})
    return invalid_input(fmt::format("a bias {} of {} columns", to_string(types[2]), w[0]));
  Shape out = x;
  out.back() = w[0];
  return one_result(types[0].dtype, std::move(out));
}

// "bij" or "b...j": labels from left to right, the ellipsis as ellipsis_axes labels below 0.
Result<std::vector<int>> labels_of(std::string_view term, size_t ellipsis_axes) {
  std::vector<int> labels;
  bool seen = false;
  while (!term.empty()) {
    if (term.starts_with("...")) {
      if (seen) return invalid_input("two ellipses in a term of the equation");
      seen = true;
      for (size_t i = ellipsis_axes; i-- > 0;) labels.push_back(-1 - static_cast<int>(i));
      term.remove_prefix(3);
      continue;
    }
    if (std::isalpha(static_cast<unsigned char>(term[0])) == 0)
      return invalid_input(fmt::format("the equation has a '{}'", term[0]));
    labels.push_back(term[0]);
    term.remove_prefix(1);
  }
  return labels;
}

}  // namespace

Result<EinsumTerms> einsum_terms(Types inputs, const std::string& equation) {
  std::string text;
  for (const char c : equation) {
    if (c != ' ') text += c;
  }
  const size_t arrow = text.find("->");
  std::string_view left = std::string_view(text).substr(0, std::min(arrow, text.size()));
  EinsumTerms terms;
  size_t widest = 0;  // ellipsis
  for (size_t i = 0; i < inputs.size(); ++i) {
    const size_t comma = std::min(left.find(','), left.size());
    if ((i + 1 == inputs.size()) != (comma == left.size()))
      return invalid_input(fmt::format("the equation is not for {} operands", inputs.size()));
    const std::string_view term = left.substr(0, comma);
    ASSIGN_OR_RETURN(const std::vector<int> letters, labels_of(term, 0));
    const size_t rank = inputs[i].shape.size();
    const bool open = term.find("...") != term.npos;
    if (letters.size() > rank || (!open && letters.size() != rank))
      return invalid_input(fmt::format("operand {} is {}, its term \"{}\"", i + 1, to_string(inputs[i]), term));
    if (open) widest = std::max(widest, rank - letters.size());
    ASSIGN_OR_RETURN(terms.inputs.emplace_back(), labels_of(term, rank - letters.size()));
    left.remove_prefix(std::min(comma + 1, left.size()));
  }
  if (arrow != text.npos) {
    ASSIGN_OR_RETURN(terms.output, labels_of(std::string_view(text).substr(arrow + 2), widest));
  } else {  // the ellipsis, then the letters that stand once, in alphabetical order
    std::map<int, int> uses;
    for (const auto& labels : terms.inputs) {
      for (const int label : labels) ++uses[label];
    }
    for (size_t i = widest; i-- > 0;) terms.output.push_back(-1 - static_cast<int>(i));
    for (const auto& [label, count] : uses) {
      if (label > 0 && count == 1) terms.output.push_back(label);
    }
  }
  return terms;
}

namespace {

Inferred infer_einsum(Types inputs, const Attrs& attrs) {
  RETURN_IF_ERROR(same_type(
      inputs, [](DType type) { return type != DType::boolean; }, "numbers"));
  ASSIGN_OR_RETURN(const EinsumTerms terms, einsum_terms(inputs, attr_string(attrs, "equation")));
  std::map<int, int64_t> extents;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t axis = 0; axis < terms.inputs[i].size(); ++axis) {
      const int64_t here = inputs[i].shape[axis];
      const auto [known, added] = extents.emplace(terms.inputs[i][axis], here);
      if (known->second == 1) known->second = here;
      if (here != 1 && here != known->second)
        return invalid_input(fmt::format("extents {} and {} for one label", known->second, here));
    }
  }
  Shape out;
  for (size_t i = 0; i < terms.output.size(); ++i) {
    const auto known = extents.find(terms.output[i]);
    if (known == extents.end()) return invalid_input("the result has a label that no operand has");
    if (std::count(terms.output.begin(), terms.output.end(), terms.output[i]) > 1)
      return invalid_input("the result has a label twice");
    out.push_back(known->second);
  }
  return one_result(inputs[0].dtype, std::move(out));
}

Inferred infer_det(Types inputs, const Attrs&) {
  RETURN_IF_ERROR(same_type(inputs, is_real, "floats"));
  const Shape& x = inputs[0].shape;
  if (x.size() < 2 || x[x.size() - 1] != x[x.size() - 2])
    return invalid_input(fmt::format("{} is not a square matrix", to_string(inputs[0])));
  return one_result(inputs[0].dtype, Shape(x.begin(), x.end() - 2));
}

// ---- work: a multiplication and an addition are two operations

Flops flops_gemm(Types in, Types out, const Attrs& attrs) {
  const Shape& a = in[0].shape;
  const double k = static_cast<double>(attr_int(attrs, "transA") != 0 ? a[0] : a[1]);
  return flops(2 * k * count(out[0]));
}

Flops flops_matmul(Types in, Types out, const Attrs&) {
  return flops(2 * static_cast<double>(in[0].shape.back()) * count(out[0]));
}

// Every combination of the labels is one multiply-add for each operand after the first.
Flops flops_einsum(Types in, Types, const Attrs& attrs) {
  const auto terms = einsum_terms(in, attr_string(attrs, "equation"));
  std::map<int, double> extents;
  for (size_t i = 0; terms.ok() && i < in.size(); ++i) {
    for (size_t axis = 0; axis < terms->inputs[i].size(); ++axis) {
      double& extent = extents[terms->inputs[i][axis]];
      extent = std::max(extent, static_cast<double>(in[i].shape[axis]));
    }
  }
  double all = 2 * static_cast<double>(std::max<size_t>(in.size() - 1, 1));
  for (const auto& [label, extent] : extents) all *= extent;
  return flops(all);
}

// Gaussian elimination of n × n.
Flops flops_det(Types in, Types out, const Attrs&) {
  const auto n = static_cast<double>(in[0].shape.back());
  return flops(2.0 / 3.0 * n * n * n * count(out[0]));
}

// ---- the batch axis

bool keeps_gemm(Types, uint64_t batched, const Attrs& attrs) { return batched == 1 && attr_int(attrs, "transA") == 0; }

bool keeps_linear(Types in, uint64_t batched, const Attrs&) { return batched == 1 && in[0].shape.size() > 1; }

bool keeps_matmul(Types in, uint64_t batched, const Attrs&) {
  if ((batched & 4) != 0) return false;
  if (!batch_of_first(batched) || in[0].shape.size() < 2) return false;
  if ((batched & 2) == 0) {  // b must not add axes in front, nor have a matrix of its own for each sample
    const size_t rank = in[0].shape.size();
    return in[1].shape.size() < rank || (in[1].shape.size() == rank && (rank == 2 || in[1].shape[0] == 1));
  }
  return in[0].shape.size() == in[1].shape.size() && in[0].shape.size() >= 3;
}

// The samples' label is the first axis of every operand that has them and of the result, and stands nowhere else.
bool keeps_einsum(Types in, uint64_t batched, const Attrs& attrs) {
  const auto terms = einsum_terms(in, attr_string(attrs, "equation"));
  if (!terms.ok() || terms->output.empty()) return false;
  const int label = terms->output[0];
  for (size_t i = 0; i < in.size(); ++i) {
    const std::vector<int>& labels = terms->inputs[i];
    const auto uses = std::ranges::count(labels, label);
    const bool first = !labels.empty() && labels[0] == label;
    const bool has_samples = (batched >> i & 1) != 0;
    if (has_samples ? uses != 1 || !first : uses != 0) return false;
  }
  return batched != 0;
}

bool keeps_det(Types in, uint64_t batched, const Attrs&) { return batched == 1 && in[0].shape.size() > 2; }

// ---- products (WeightProduct)

WeightProduct gemm_product(Types, const Attrs& attrs) {
  const bool ta = attr_int(attrs, "transA") != 0, tb = attr_int(attrs, "transB") != 0;
  return {1, tb ? 0 : 1, 1, ta ? 0 : 1, tb ? 1 : 0};
}
WeightProduct matmul_product(Types in, const Attrs&) {
  const auto a = static_cast<int>(in[0].shape.size()), w = static_cast<int>(in[1].shape.size());
  if (w < 2) return {};  // a vector has no columns
  return {a < 2 ? w - 2 : std::max(a, w) - 1, w - 1, 1, a < 2 ? -1 : a - 1, w - 2};
}

WeightProduct linear_product(Types in, const Attrs&) {
  const auto last = static_cast<int>(in[0].shape.size()) - 1;
  return {last, 0, 1, last, 1};
}

// ---- pieces (pieces.h)

bool gemm_piece(const PieceQuery& q, NodePiece& piece) {
  const bool ta = attr_int(q.node.attrs, "transA") != 0, tb = attr_int(q.node.attrs, "transB") != 0;
  if (q.axis == 0)
    piece.inputs[0] = along(ta ? 1 : 0, q.begin, q.end);
  else
    piece.inputs[1] = along(tb ? 0 : 1, q.begin, q.end);
  if (q.inputs.size() > 2) piece.inputs[2] = broadcast_part(q, q.inputs[2]);
  return true;
}

bool matmul_piece(const PieceQuery& q, NodePiece& piece) {
  const size_t rank = q.out.size();
  const Shape &a = q.inputs[0].shape, &b = q.inputs[1].shape;
  if (a.size() < 2 || b.size() < 2) return false;
  if (q.axis + 1 == rank) {
    piece.inputs[1] = along(b.size() - 1, q.begin, q.end);
    if (q.inputs.size() > 2) piece.inputs[2] = along(0, q.begin, q.end);
    return true;
  }
  if (q.axis + 2 == rank) {
    piece.inputs[0] = along(a.size() - 2, q.begin, q.end);
    return true;
  }
  for (size_t i = 0; i < 2; ++i) piece.inputs[i] = broadcast_part(q, q.inputs[i]);
  return true;
}

bool linear_piece(const PieceQuery& q, NodePiece& piece) {
  if (q.axis + 1 < q.out.size()) {
    piece.inputs[0] = same_axis(q);
    return true;
  }
  piece.inputs[1] = along(0, q.begin, q.end);
  if (q.inputs.size() > 2) piece.inputs[2] = along(0, q.begin, q.end);
  return true;
}

// ---- gradients

// Y = alpha op(A) op(B) + beta C.
void back_gemm(Backward& b) {
  const int64_t ta = attr_int(b.attrs(), "transA"), tb = attr_int(b.attrs(), "transB");
  const auto product = [&](ValueId left, ValueId right, int64_t turn_left, int64_t turn_right) {
    return b.add(
        Op::Gemm, {left, right},
        {{"alpha", attr_float(b.attrs(), "alpha")}, {"beta", 1.0}, {"transA", turn_left}, {"transB", turn_right}});
  };
  if (b.wants(0)) b.give(0, ta != 0 ? product(b.x(1), b.dy(), tb, 1) : product(b.dy(), b.x(1), 0, 1 - tb));
  if (b.wants(1)) b.give(1, tb != 0 ? product(b.dy(), b.x(0), 1, ta) : product(b.x(0), b.dy(), 1 - ta, 0));
  if (b.wants(2)) b.give(2, b.sum_to(b.scaled(b.dy(), attr_float(b.attrs(), "beta")), b.shape(b.x(2))));
}
// A vector is a matrix of one row, or of one column.
void back_by_vector(Backward& b, Shape a, Shape w) {
  const Shape a_own = a, w_own = w;
  Shape dy = b.shape(b.dy());
  if (w.size() == 1) {
    w.push_back(1);
    dy.push_back(1);
  }
  if (a.size() == 1) {
    a.insert(a.begin(), 1);
    dy.insert(dy.end() - 1, 1);
  }
  const ValueId of_matrices = b.reshaped(b.dy(), std::move(dy));
  const auto give = [&](size_t i, ValueId left, ValueId right, const Shape& matrix, const Shape& own) {
    b.give(i, b.reshaped(b.sum_to(b.add(Op::MatMul, {left, right}), matrix), own));
  };
  if (b.wants(0)) give(0, of_matrices, b.transposed(b.reshaped(b.x(1), w)), a, a_own);
  if (b.wants(1)) give(1, b.transposed(b.reshaped(b.x(0), a)), of_matrices, w, w_own);
  if (b.wants(2)) b.give(2, b.sum_to(b.dy(), b.shape(b.x(2))));
}
// dA = dY Bᵀ, dB = Aᵀ dY. A matrix that all samples share meets all their rows at once, so one Gemm turns it.
void back_matmul(Backward& b) {
  const Shape a = b.shape(b.x(0)), w = b.shape(b.x(1));
  if (a.size() < 2 || w.size() < 2) return back_by_vector(b, a, w);
  const bool shared = w.size() == 2;
  const auto rows_of = [&](ValueId value, int64_t width) {
    return shared ? b.reshaped(value, {element_count(a) / a.back(), width}) : value;
  };
  const auto gemm = [&](ValueId left, ValueId right, int64_t turn_left, int64_t turn_right) {
    return b.add(Op::Gemm, {left, right},
                 {{"alpha", 1.0}, {"beta", 1.0}, {"transA", turn_left}, {"transB", turn_right}});
  };
  const ValueId dy = rows_of(b.dy(), w.back());
  if (b.wants(0)) {
    b.give(0,
           shared ? b.reshaped(gemm(dy, b.x(1), 0, 1), a) : b.sum_to(b.add(Op::MatMul, {dy, b.transposed(b.x(1))}), a));
  }
  if (b.wants(1)) {
    b.give(1, shared ? gemm(rows_of(b.x(0), a.back()), dy, 1, 0)
                     : b.sum_to(b.add(Op::MatMul, {b.transposed(b.x(0)), dy}), w));
  }
  if (b.wants(2)) b.give(2, b.sum_to(b.dy(), b.shape(b.x(2))));
}

// dx = dY W, dW = dYᵀ x, over all rows at once.
void back_linear(Backward& b) {
  const Shape x = b.shape(b.x(0)), w = b.shape(b.x(1));
  if (b.wants(0)) b.give(0, b.add(Op::MatMul, {b.dy(), b.x(1)}));
  if (b.wants(1)) {
    const int64_t rows = x.back() == 0 ? 0 : element_count(x) / x.back();
    b.give(1, b.add(Op::Gemm, {b.reshaped(b.dy(), {rows, w[0]}), b.reshaped(b.x(0), {rows, w[1]})},
                    {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{1}}, {"transB", int64_t{0}}}));
  }
  if (b.wants(2)) b.give(2, b.sum_to(b.dy(), b.shape(b.x(2))));
}

// "…, → …" as letters, for equations made of others.
class EinsumText {
 public:
  explicit EinsumText(Backward& b) : b_(b) {}
  void add(ValueId operand, const std::vector<int>& labels) {
    if (!operands_.empty()) text_ += ',';
    operands_.push_back(operand);
    write(labels);
  }
  ValueId result(const std::vector<int>& labels) {
    text_ += "->";
    write(labels);
    return b_.add(Op::Einsum, operands_, {{"equation", text_}});
  }

 private:
  void write(const std::vector<int>& labels) {
    constexpr std::string_view all = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    for (const int label : labels) {
      const size_t at = letters_.try_emplace(label, letters_.size()).first->second;
      if (at >= all.size()) return b_.fail(unsupported("an equation of more labels than there are letters"));
      text_ += all[at];
    }
  }
  Backward& b_;
  std::vector<ValueId> operands_;
  std::string text_;
  std::map<int, size_t> letters_;  // in the order in which they come
};

// The gradient by an operand is an Einsum of dy and the other operands. A label that no other has, or only with
// an extent of 1, was summed: ones stand for it. A second place of a label in the operand, a diagonal, gets a label of
// its own and the unit matrix. Where the operand was broadcast its gradient is summed.
ValueId einsum_gradient(Backward& b, const EinsumTerms& terms, size_t operand) {
  const ValueId x = b.x(operand);
  std::map<int, int64_t> extents;
  for (size_t i = 0; i < terms.inputs.size(); ++i) {
    for (size_t axis = 0; axis < terms.inputs[i].size(); ++axis) {
      int64_t& extent = extents.try_emplace(terms.inputs[i][axis], 1).first->second;
      extent = std::max(extent, b.shape(b.x(i))[axis]);
    }
  }
  EinsumText einsum(b);
  std::set<int> known(terms.output.begin(), terms.output.end());  // with their whole extent
  einsum.add(b.dy(), terms.output);
  for (size_t i = 0; i < terms.inputs.size(); ++i) {
    if (i == operand) continue;
    einsum.add(b.x(i), terms.inputs[i]);
    for (size_t axis = 0; axis < terms.inputs[i].size(); ++axis) {
      if (b.shape(b.x(i))[axis] == extents.at(terms.inputs[i][axis])) known.insert(terms.inputs[i][axis]);
    }
  }
  constexpr int first_of_own = 1 << 8;  // above all letters
  std::vector<int> labels;
  Shape wide;
  for (const int label : terms.inputs[operand]) {
    const int64_t extent = extents.at(label);
    wide.push_back(extent);
    if (std::ranges::find(labels, label) == labels.end()) {
      if (!known.contains(label)) einsum.add(b.constant({extent}, 1), {label});
      labels.push_back(label);
      continue;
    }
    std::vector<double> unit(static_cast<size_t>(extent * extent), 0);
    for (int64_t i = 0; i < extent; ++i) unit[static_cast<size_t>(i * (extent + 1))] = 1;
    const int own = first_of_own + static_cast<int>(labels.size());
    einsum.add(b.constant({b.type(x).dtype, {extent, extent}}, unit), {label, own});
    labels.push_back(own);
  }
  return b.sum_to(einsum.result(labels), b.shape(x));
}
void back_einsum(Backward& b) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < b.inputs(); ++i) types.push_back(b.type(b.x(i)));
  const EinsumTerms terms = einsum_terms(types, attr_string(b.attrs(), "equation")).value();
  for (size_t i = 0; i < b.inputs(); ++i) {
    if (b.wants(i)) b.give(i, einsum_gradient(b, terms, i));
  }
}
void back_det(Backward& b) { b.give(0, b.add(Op::DetGradient, {b.dy(), b.x(0)})); }

}  // namespace

// clang-format off
//  operator inputs attributes    types         work          batch         split         gradient     traits
PRODUCT_ROW(Gemm,    2, 3,  gemm_attrs,   infer_gemm,   flops_gemm,   keeps_gemm,   gemm_piece,   back_gemm,   takes_steps | has_kernels | plain_in_onnx | reads_scaled, gemm_product)
PRODUCT_ROW(MatMul,  2, 3,  no_attrs,     infer_matmul, flops_matmul, keeps_matmul, matmul_piece, back_matmul, takes_steps | has_kernels | reads_scaled, matmul_product)
PRODUCT_ROW(Linear,  2, 3,  no_attrs,     infer_linear, flops_matmul, keeps_linear, linear_piece, back_linear, takes_steps | has_kernels | not_in_onnx | reads_scaled, linear_product)
ROW(Einsum,  1, -1, einsum_attrs, infer_einsum, flops_einsum, keeps_einsum, no_split,     back_einsum, plain_in_onnx)
ROW(Det,     1, 1,  no_attrs,     infer_det,    flops_det,    keeps_det,    no_split,     back_det,    plain_in_onnx)
// clang-format on

}  // namespace nlsplit::inline graph
