// Einsum of one or two operands in floats, as what has fast kernels: sums, transpositions and one product of matrices.
// The samples' axis stays the first throughout: it is the first label of the result wherever that stands.
#include <algorithm>
#include <map>
#include <numeric>

#include "graph/onnx/convert_chain.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

using Labels = std::vector<int>;

bool contains(const Labels& labels, int label) { return std::ranges::find(labels, label) != labels.end(); }

// A value whose axes have labels, each once.
struct Labelled {
  ValueId value;
  Labels labels;
};

class EinsumParts {
 public:
  EinsumParts(const ConvertContext& c, const EinsumTerms& terms) : c_(c), chain_(c), output_(terms.output) {
    for (size_t i = 0; i < terms.inputs.size(); ++i) {
      for (size_t axis = 0; axis < terms.inputs[i].size(); ++axis) {
        int64_t& extent = extents_.try_emplace(terms.inputs[i][axis], 1).first->second;
        extent = std::max(extent, c.type(i).shape[axis]);
      }
    }
  }

  Converted of_one(Labelled x) {
    if (x.labels == output_) return chain_.result(chain_.last(Op::Identity, {x.value}));
    x = summed(x, output_, ".sum", true);
    return chain_.result(ordered(x, output_, "", true).value);
  }

  Converted of_two(Labelled a, Labelled b) {
    a = squeezed(a, ".narrow_a"), b = squeezed(b, ".narrow_b");
    const auto kept = [&](const Labelled& other) {
      Labels labels = output_;
      labels.insert(labels.end(), other.labels.begin(), other.labels.end());
      return labels;
    };
    const Labels by_a = kept(b), by_b = kept(a);
    a = summed(a, by_a, ".sum_a"), b = summed(b, by_b, ".sum_b");
    // The samples are the left operand's, where only one has them.
    if (!output_.empty() && !contains(a.labels, output_[0])) std::swap(a, b);
    const bool contracts = std::ranges::any_of(a.labels, [&](int label) { return !contains(output_, label); });
    return contracts ? product(a, b) : multiplied(a, b);
  }

 private:
  int64_t extent(int label) const { return extents_.at(label); }
  int64_t count(const Labels& labels) const {
    int64_t all = 1;
    for (const int label : labels) all *= extent(label);
    return all;
  }

  ValueId made(bool is_last, const std::string& suffix, Op op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    return is_last ? chain_.last(op, std::move(inputs), std::move(attrs))
                   : chain_.step(suffix, op, std::move(inputs), std::move(attrs));
  }

  // Axes of one position that stand for more are not there: the operand is the same along them.
  Labelled squeezed(const Labelled& x, const std::string& suffix) {
    const Shape shape = c_.graph.type(x.value).shape;
    Labels labels;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == extent(x.labels[axis])) labels.push_back(x.labels[axis]);
    }
    if (labels == x.labels) return x;
    Shape narrow;
    for (const int label : labels) narrow.push_back(extent(label));
    if (!labels.empty() && labels[0] == x.labels[0]) narrow[0] = 0;
    return {chain_.step(suffix, Op::Reshape, {x.value}, {{"shape", narrow}}), labels};
  }

  // Without the labels that nothing else reads. is_last: where they are the result's then.
  Labelled summed(const Labelled& x, const Labels& kept, const std::string& suffix, bool is_last = false) {
    Labels labels;
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < x.labels.size(); ++axis) {
      if (contains(kept, x.labels[axis]))
        labels.push_back(x.labels[axis]);
      else
        axes.push_back(static_cast<int64_t>(axis));
    }
    if (axes.empty()) return x;
    Attrs attrs = {{"axes", axes}, {"keepdims", int64_t{0}}};
    return {made(is_last && labels == output_, suffix, Op::ReduceSum, {x.value}, std::move(attrs)), labels};
  }

  // Axis 0 is as long as it was: the samples may become more.
  Shape shape_of(const Labels& labels) const {
    Shape shape;
    for (const int label : labels) shape.push_back(extent(label));
    if (!labels.empty() && !output_.empty() && labels[0] == output_[0]) shape[0] = 0;
    return shape;
  }

  Labelled ordered(const Labelled& x, const Labels& labels, const std::string& suffix, bool is_last = false) {
    if (x.labels == labels) return x;
    std::vector<int64_t> perm;
    for (const int label : labels) perm.push_back(std::ranges::find(x.labels, label) - x.labels.begin());
    if (const auto constant = is_last ? std::nullopt : turned_constant(x.value, perm, suffix))
      return {*constant, labels};
    return {made(is_last, suffix, Op::Transpose, {x.value}, {{"perm", perm}}), labels};
  }

  // A constant in the order of other axes; none: it is no constant, or too large to be held twice.
  std::optional<ValueId> turned_constant(ValueId x, const std::vector<int64_t>& perm, const std::string& suffix) {
    const Value& value = c_.graph.graph().value(x);
    constexpr int64_t most = 1 << 26;
    const int64_t elements = element_count(value.type.shape);
    if (value.kind != ValueKind::weight || elements > most || !c_.spend(static_cast<double>(elements)).ok()) return {};
    const auto raw = c_.weights.materialise(value.content);
    if (!raw.ok()) return {};
    TensorType type = value.type;
    std::vector<int64_t> strides(perm.size());
    const Shape& shape = value.type.shape;
    for (size_t axis = 0; axis < perm.size(); ++axis) {
      const auto from = static_cast<std::ptrdiff_t>(perm[axis]);
      type.shape[axis] = shape[static_cast<size_t>(from)];
      strides[axis] = element_count(Shape(shape.begin() + from + 1, shape.end()));
    }
    const auto bytes = static_cast<size_t>(size_of(type.dtype));
    std::string turned;
    turned.reserve(raw->size());
    Shape place(perm.size(), 0);
    for (int64_t at = 0, from = 0; at < elements; ++at) {
      turned.append(*raw, static_cast<size_t>(from) * bytes, bytes);
      for (size_t axis = place.size(); axis-- > 0;) {
        from += strides[axis];
        if (++place[axis] < type.shape[axis]) break;
        from -= place[axis] * strides[axis];
        place[axis] = 0;
      }
    }
    const ContentId content = c_.weights.add_bytes(type, std::move(turned));
    return c_.graph.weight(c_.name + suffix, std::move(type), content);
  }

  // Transposed to (lead, rows, columns), the rows as one axis and the columns as one.
  ValueId matrices(const Labelled& x, const Labels& lead, const Labels& rows, const Labels& columns,
                   const std::string& suffix) {
    Labels all = lead;
    all.insert(all.end(), rows.begin(), rows.end());
    all.insert(all.end(), columns.begin(), columns.end());
    const ValueId turned = ordered(x, all, suffix + "_turned").value;
    if (rows.size() == 1 && columns.size() == 1) return turned;
    Shape shape = shape_of(lead);
    if (lead.empty() && rows.size() == 1 && !output_.empty() && rows[0] == output_[0])
      shape.push_back(0);
    else
      shape.push_back(count(rows));
    shape.push_back(count(columns));
    return chain_.step(suffix + "_matrices", Op::Reshape, {turned}, {{"shape", shape}});
  }

  Converted product(const Labelled& a, const Labelled& b) {
    Labels lead, both, rows, columns, inner;
    for (const int label : output_) {
      const bool in_a = contains(a.labels, label), in_b = contains(b.labels, label);
      if (in_a && in_b) both.push_back(label);
      (in_a ? in_b ? lead : rows : columns).push_back(label);
    }
    for (const int label : a.labels) {
      if (!contains(output_, label)) inner.push_back(label);
    }
    // Samples of the left operand alone come first, and are rows only where there are no others.
    const bool own_samples = !rows.empty() && rows[0] == output_[0];
    if (own_samples && (rows.size() > 1 || !lead.empty())) {
      lead.insert(lead.begin(), rows[0]);
      rows.erase(rows.begin());
    }
    const ValueId left = matrices(a, lead, rows, inner, ".left"), right = matrices(b, both, inner, columns, ".right");
    Labels labels = lead;
    labels.insert(labels.end(), rows.begin(), rows.end());
    labels.insert(labels.end(), columns.begin(), columns.end());
    const bool is_apart = rows.size() == 1 && columns.size() == 1, is_turned = labels != output_;
    Labelled y{made(is_apart && !is_turned, ".product", Op::MatMul, {left, right}), labels};
    if (!is_apart) y.value = made(!is_turned, ".apart", Op::Reshape, {y.value}, {{"shape", shape_of(labels)}});
    return chain_.result(ordered(y, output_, "", true).value);
  }

  // Nothing is summed over: each operand with one position along what it does not have.
  Converted multiplied(const Labelled& a, const Labelled& b) {
    const auto wide = [&](const Labelled& x, const std::string& suffix) {
      Labels labels;
      for (const int label : output_) {
        if (contains(x.labels, label)) labels.push_back(label);
      }
      const Labelled turned = ordered(x, labels, suffix + "_turned");
      Shape shape;
      for (const int label : output_) {
        const bool there = contains(labels, label);
        if (there || !shape.empty()) shape.push_back(there ? extent(label) : 1);
      }
      if (shape.size() == labels.size()) return turned.value;
      if (labels[0] == output_[0]) shape[0] = 0;
      return chain_.step(suffix + "_wide", Op::Reshape, {turned.value}, {{"shape", shape}});
    };
    const ValueId left = wide(a, ".left"), right = wide(b, ".right");
    return chain_.result(chain_.last(Op::Mul, {left, right}));
  }

  const ConvertContext& c_;
  Chain chain_;
  const Labels output_;
  std::map<int, int64_t> extents_;
};

// The equation, if it can be taken to parts: each label once in an operand, and no axis without elements.
std::optional<EinsumTerms> terms_of_parts(const ConvertContext& c) {
  std::vector<TensorType> types;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.given(i)) return {};
    types.push_back(c.type(i));
  }
  const std::string equation = string_attr(c.node, "equation", "");
  const bool known =
      (types.size() == 1 || types.size() == 2) && (types[0].dtype == DType::f32 || is_half(types[0].dtype));
  if (!known || !infer(Op::Einsum, types, {{"equation", equation}}).ok()) return {};
  EinsumTerms terms = einsum_terms(types, equation).value();
  for (size_t i = 0; i < types.size(); ++i) {
    Labels sorted = terms.inputs[i];
    std::ranges::sort(sorted);
    if (std::ranges::adjacent_find(sorted) != sorted.end() || element_count(types[i].shape) == 0) return {};
  }
  return terms;
}

Converted einsum(const ConvertContext& c, const EinsumTerms& terms) {
  EinsumParts parts(c, terms);
  ASSIGN_OR_RETURN(const ValueId a, c.value(0));
  if (c.inputs.size() == 1) return parts.of_one({a, terms.inputs[0]});
  ASSIGN_OR_RETURN(const ValueId b, c.value(1));
  return parts.of_two({a, terms.inputs[0]}, {b, terms.inputs[1]});
}

}  // namespace

MaybeConverted convert_einsum(const ConvertContext& c) {
  if (c.node.op != "Einsum") return std::optional<std::vector<ValueId>>();
  const std::optional<EinsumTerms> terms = terms_of_parts(c);
  return terms ? one(einsum(c, *terms)) : std::optional<std::vector<ValueId>>();
}

}  // namespace nlsplit::inline graph
