// Sums of products of any type, and numbers to integers and back.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "graph/operators/shapes.h"
#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {
namespace {

// Sums in double, or for integers in 64 bits.
struct Sum {
  double real = 0;
  uint64_t whole = 0;

  void add(const Array& a, int64_t i, const Array& b, int64_t j) {
    if (a.real())
      real += a.reals[static_cast<size_t>(i)] * b.reals[static_cast<size_t>(j)];
    else
      whole += static_cast<uint64_t>(a.wholes[static_cast<size_t>(i)]) *
               static_cast<uint64_t>(b.wholes[static_cast<size_t>(j)]);
  }
  void store(Array& out, int64_t at) const {
    if (out.real())
      out.set(at, real);
    else
      out.wholes[static_cast<size_t>(at)] = wrapped(out.type.dtype, static_cast<int64_t>(whole));
  }
};

// Rounded before and after, as an Add would.
void add_to(Array& out, int64_t at, const Array& addend, int64_t i) {
  if (out.real())
    out.set(at, out.number(at) + addend.number(i));
  else
    out.wholes[static_cast<size_t>(at)] =
        wrapped(out.type.dtype, static_cast<int64_t>(static_cast<uint64_t>(out.wholes[static_cast<size_t>(at)]) +
                                                     static_cast<uint64_t>(addend.wholes[static_cast<size_t>(i)])));
}

// The place of a parameter that is one for all elements or one an index of the axis.
int64_t parameter_at(const Array& parameter, const Lines& lines, int64_t element) {
  return parameter.count() == 1 ? 0 : element / lines.inner % lines.extent;
}

void quantize(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &scale = *inputs[1], &zero = *inputs[2];
  const bool one = scale.count() == 1 && zero.count() == 1;
  const Lines lines = one ? Lines{} : lines_of(x.type.shape, attr_int(attrs, "axis"));
  const DType type = out.type.dtype;
  const bool is_signed = wrapped(type, -1) < 0;
  const double span = std::ldexp(1, static_cast<int>(8 * size_of(type)));
  const double low = is_signed ? -span / 2 : 0, high = low + span - 1;
  for (int64_t i = 0; i < x.count(); ++i) {
    const double divisor = scale.number(parameter_at(scale, lines, i));
    // The quotient is of the operand's precision, so that ties are the same ones.
    const DType quotient = x.real() ? x.type.dtype : scale.type.dtype;
    const double rounded_off = std::nearbyint(rounded(quotient, x.number(i) / divisor));
    out.set(i, std::clamp(rounded_off + zero.number(parameter_at(zero, lines, i)), low, high));
  }
}

void dequantize(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &scale = *inputs[1];
  const bool one = scale.count() == 1 && (inputs.size() < 3 || inputs[2]->count() == 1);
  const Lines lines = one ? Lines{} : lines_of(x.type.shape, attr_int(attrs, "axis"));
  for (int64_t i = 0; i < x.count(); ++i) {
    const double zero = inputs.size() < 3 ? 0 : inputs[2]->number(parameter_at(*inputs[2], lines, i));
    out.set(i, (x.number(i) - zero) * scale.number(parameter_at(scale, lines, i)));
  }
}

void matmul(const Arrays& inputs, Array& out) {
  Shape a = inputs[0]->type.shape, b = inputs[1]->type.shape, o = out.type.shape;
  // numpy: a vector on the left is a row, on the right a column; the added axis is not in the result
  if (a.size() == 1) {
    a.insert(a.begin(), 1);
    o.insert(b.size() == 1 ? o.end() : o.end() - 1, 1);
  }
  if (b.size() == 1) {
    b.push_back(1);
    o.push_back(1);
  }
  const Array* bias = inputs.size() > 2 ? inputs[2] : nullptr;
  const int64_t m = o[o.size() - 2], n = o[o.size() - 1], k = a.back();
  const Shape batch(o.begin(), o.end() - 2);
  const std::vector<int64_t> a_strides = broadcast_strides(Shape(a.begin(), a.end() - 2), batch);
  const std::vector<int64_t> b_strides = broadcast_strides(Shape(b.begin(), b.end() - 2), batch);
  int64_t at = 0;
  for_each_index(batch, [&](const Shape& index) {
    const int64_t left = offset_of(index, a_strides) * m * k, right = offset_of(index, b_strides) * k * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        Sum sum;
        for (int64_t p = 0; p < k; ++p) sum.add(*inputs[0], left + i * k + p, *inputs[1], right + p * n + j);
        sum.store(out, at);
        if (bias != nullptr) add_to(out, at, *bias, j);
        ++at;
      }
    }
  });
}

void linear(const Arrays& inputs, Array& out) {
  const Array &x = *inputs[0], &w = *inputs[1];
  const Array* bias = inputs.size() > 2 ? inputs[2] : nullptr;
  const int64_t n = w.type.shape[0], k = w.type.shape[1];
  for (int64_t at = 0; at < out.count(); ++at) {
    const int64_t left = at / n * k, right = at % n * k;
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += x.number(left + p) * w.number(right + p);
    out.set(at, sum);
    if (bias != nullptr) add_to(out, at, *bias, at % n);
  }
}

void gemm(const Attrs& attrs, const Arrays& inputs, Array& out) {
  const double alpha = attr_float(attrs, "alpha"), beta = attr_float(attrs, "beta");
  const bool trans_a = attr_int(attrs, "transA") != 0, trans_b = attr_int(attrs, "transB") != 0;
  const Array &a = *inputs[0], &b = *inputs[1];
  const int64_t m = out.type.shape[0], n = out.type.shape[1], k = a.type.shape[trans_a ? 0 : 1];
  const Array* c = inputs.size() > 2 ? inputs[2] : nullptr;
  const std::vector<int64_t> from_c = c ? broadcast_strides(c->type.shape, out.type.shape) : std::vector<int64_t>(2, 0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += a.number(trans_a ? p * m + i : i * k + p) * b.number(trans_b ? j * k + p : p * n + j);
      out.set(i * n + j, alpha * sum + (c ? beta * c->number(i * from_c[0] + j * from_c[1]) : 0.0));
    }
  }
}

void einsum(const Attrs& attrs, const Arrays& inputs, Array& out) {
  std::vector<TensorType> types;
  for (const Array* input : inputs) types.push_back(input->type);
  const EinsumTerms terms = einsum_terms(types, attr_string(attrs, "equation")).value();
  std::map<int, int64_t> extents;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t axis = 0; axis < terms.inputs[i].size(); ++axis) {
      int64_t& extent = extents.try_emplace(terms.inputs[i][axis], 1).first->second;
      if (types[i].shape[axis] != 1) extent = types[i].shape[axis];
    }
  }
  std::vector<int> summed;  // labels that are not in the result
  Shape sums;
  for (const auto& [label, extent] : extents) {
    if (std::ranges::find(terms.output, label) != terms.output.end()) continue;
    summed.push_back(label);
    sums.push_back(extent);
  }
  // For each operand its strides along the result's labels, and along the summed ones.
  const auto strides_along = [&](size_t i, const std::vector<int>& labels) {
    const std::vector<int64_t> own = strides_of(types[i].shape);
    std::vector<int64_t> strides(labels.size(), 0);
    for (size_t axis = 0; axis < own.size(); ++axis) {
      const auto at = std::ranges::find(labels, terms.inputs[i][axis]) - labels.begin();
      if (at < std::ssize(labels) && types[i].shape[axis] != 1) strides[static_cast<size_t>(at)] += own[axis];
    }
    return strides;
  };
  std::vector<std::vector<int64_t>> outer, inner;
  for (size_t i = 0; i < inputs.size(); ++i) {
    outer.push_back(strides_along(i, terms.output));
    inner.push_back(strides_along(i, summed));
  }
  int64_t at = 0;
  for_each_index(out.type.shape, [&](const Shape& place) {
    double real = 0;
    uint64_t whole = 0;
    for_each_index(sums, [&](const Shape& index) {
      double real_product = 1;
      uint64_t whole_product = 1;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const int64_t from = offset_of(place, outer[i]) + offset_of(index, inner[i]);
        if (out.real())
          real_product *= inputs[i]->reals[static_cast<size_t>(from)];
        else
          whole_product *= static_cast<uint64_t>(inputs[i]->wholes[static_cast<size_t>(from)]);
      }
      real += real_product;
      whole += whole_product;
    });
    Sum{real, whole}.store(out, at++);
  });
}

void det(const Array& x, Array& out) {
  const int64_t n = x.type.shape.back();
  for (int64_t matrix = 0; matrix < out.count(); ++matrix)
    out.set(matrix, determinant({x.reals.begin() + matrix * n * n, x.reals.begin() + (matrix + 1) * n * n}, n));
}

}  // namespace

double determinant(std::vector<double> a, int64_t n) {
  const auto cell = [&](int64_t row, int64_t column) -> double& { return a[static_cast<size_t>(row * n + column)]; };
  double product = 1;
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t row = k + 1; row < n; ++row) {
      if (std::abs(cell(row, k)) > std::abs(cell(pivot, k))) pivot = row;
    }
    if (pivot != k) {
      for (int64_t column = 0; column < n; ++column) std::swap(cell(k, column), cell(pivot, column));
      product = -product;
    }
    product *= cell(k, k);
    if (cell(k, k) == 0) break;
    for (int64_t row = k + 1; row < n; ++row) {
      const double factor = cell(row, k) / cell(k, k);
      for (int64_t column = k; column < n; ++column) cell(row, column) -= factor * cell(k, column);
    }
  }
  return product;
}

// clang-format off
NLS_REFERENCE(Gemm, gemm(attrs, in, out))
NLS_REFERENCE(MatMul, matmul(in, out))
NLS_REFERENCE(Linear, linear(in, out))
NLS_REFERENCE(QuantizeLinear, quantize(attrs, in, out))
NLS_REFERENCE(DequantizeLinear, dequantize(attrs, in, out))
NLS_REFERENCE(Einsum, einsum(attrs, in, out))
NLS_REFERENCE(Det, det(*in[0], out))
// clang-format on

}  // namespace nlsplit::inline graph::reference
