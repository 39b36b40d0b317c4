// Products of matrices of f32.
#include "graph/reference/loops.h"

namespace nlsplit::inline graph::reference {

void gemm(const Attrs& attrs, const Inputs& inputs, Tensor& out) {
  const double alpha = attr_float(attrs, "alpha"), beta = attr_float(attrs, "beta");
  const bool trans_a = attr_int(attrs, "transA") != 0, trans_b = attr_int(attrs, "transB") != 0;
  const Tensor& a = *inputs[0];
  const Tensor& b = *inputs[1];
  const Tensor* c = inputs.size() > 2 ? inputs[2] : nullptr;
  const int64_t m = out.type.shape[0], n = out.type.shape[1], k = a.type.shape[trans_a ? 0 : 1];
  const std::vector<int64_t> c_strides =
      c ? broadcast_strides(c->type.shape, out.type.shape) : std::vector<int64_t>{0, 0};
  parallel_for(n, [&](int64_t j) {
    for (int64_t i = 0; i < m; ++i) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        const double left = a.values[trans_a ? p * m + i : i * k + p];
        const double right = b.values[trans_b ? j * k + p : p * n + j];
        sum += left * right;
      }
      const double added = c ? beta * c->values[i * c_strides[0] + j * c_strides[1]] : 0.0;
      out.values[i * n + j] = static_cast<float>(alpha * sum + added);
    }
  });
}

void matmul(const Inputs& inputs, Tensor& out) {
  Shape a = inputs[0]->type.shape, b = inputs[1]->type.shape, o = out.type.shape;
  if (a.size() ==
      1) {  // numpy: a vector on the left is a row, on the right a column; the added axis is not in the result
    a.insert(a.begin(), 1);
    o.insert(b.size() == 1 ? o.end() : o.end() - 1, 1);
  }
  if (b.size() == 1) {
    b.push_back(1);
    o.push_back(1);
  }
  const Tensor* bias = inputs.size() > 2 ? inputs[2] : nullptr;  // added to the rounded sum, as an Add would
  const int64_t m = o[o.size() - 2], n = o[o.size() - 1], k = a.back();
  const Shape batch(o.begin(), o.end() - 2);
  const std::vector<int64_t> a_strides = broadcast_strides(Shape(a.begin(), a.end() - 2), batch);
  const std::vector<int64_t> b_strides = broadcast_strides(Shape(b.begin(), b.end() - 2), batch);
  int64_t matrix = 0;
  for_each_index(batch, [&](const Shape& index) {
    const float* left = inputs[0]->values.data() + offset_of(index, a_strides) * m * k;
    const float* right = inputs[1]->values.data() + offset_of(index, b_strides) * k * n;
    float* to = out.values.data() + matrix++ * m * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += static_cast<double>(left[i * k + p]) * right[p * n + j];
        to[i * n + j] = static_cast<float>(sum);
        if (bias != nullptr) to[i * n + j] += bias->values[j];
      }
    }
  });
}

}  // namespace nlsplit::inline graph::reference
