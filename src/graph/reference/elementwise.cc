// Ops on elements of equal or broadcast position.
#include "graph/reference/loops.h"

namespace nlsplit::reference {

void unary(const Inputs& inputs, Tensor& out, const std::function<double(double)>& f) {
  for (size_t i = 0; i < out.values.size(); ++i) out.values[i] = static_cast<float>(f(inputs[0]->values[i]));
}

void binary(const Inputs& inputs, Tensor& out, const std::function<double(double, double)>& f) {
  const std::vector<int64_t> a = broadcast_strides(inputs[0]->type.shape, out.type.shape);
  const std::vector<int64_t> b = broadcast_strides(inputs[1]->type.shape, out.type.shape);
  size_t at = 0;
  for_each_index(out.type.shape, [&](const Shape& index) {
    out.values[at++] =
        static_cast<float>(f(inputs[0]->values[offset_of(index, a)], inputs[1]->values[offset_of(index, b)]));
  });
}

void sum(const Inputs& inputs, Tensor& out) {
  for (size_t i = 0; i < out.values.size(); ++i) {
    double total = 0;
    for (const Tensor* input : inputs) total += input->values[i];
    out.values[i] = static_cast<float>(total);
  }
}

}  // namespace nlsplit::reference
