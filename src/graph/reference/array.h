// A tensor of any element type, as numbers: floats of every width as double, all else as int64_t (u64 as its bits).
#pragma once

#include "graph/elements.h"
#include "graph/reference/loops.h"

namespace nlsplit::inline graph::reference {

struct Array {
  TensorType type;
  std::vector<double> reals;
  std::vector<int64_t> wholes;

  bool real() const { return is_real(type.dtype) || is_scaled(type.dtype); }
  int64_t count() const { return element_count(type.shape); }
  // Element i, whatever its type.
  double number(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    if (real()) return reals[at];
    return type.dtype == DType::u64 ? static_cast<double>(static_cast<uint64_t>(wholes[at]))
                                    : static_cast<double>(wholes[at]);
  }
  // Rounded to the type; a fraction is cut off where it is an integer's, as Cast does it.
  void set(int64_t i, double value);
  void copy(int64_t to, const Array& from, int64_t i) {
    if (real())
      reals[static_cast<size_t>(to)] = from.reals[static_cast<size_t>(i)];
    else
      wholes[static_cast<size_t>(to)] = from.wholes[static_cast<size_t>(i)];
  }
};

using Arrays = std::vector<const Array*>;  // nullptr: left out

Array zeros(const TensorType& type);
Array to_array(const Tensor& tensor);
Tensor to_tensor(const Array& array);

// The elements along one axis, `inner` apart, for each of outer × inner places.
struct Lines {
  int64_t outer = 1, extent = 1, inner = 1;
  int64_t at(int64_t o, int64_t i, int64_t k) const { return (o * extent + k) * inner + i; }
};
Lines lines_of(const Shape& shape, int64_t axis);  // -1: the last

// Every index of `out`, with the offset that `strides` give it and its place in row-major order.
void walk(const Shape& shape, const std::vector<int64_t>& strides,
          const std::function<void(int64_t at, int64_t offset)>& visit);

double determinant(std::vector<double> matrix, int64_t n);  // by elimination; the pivot is the largest of its column

// ---- how each operator is evaluated: NLS_REFERENCE beside its loops. An operator without it does not link.

template <Op op>
void evaluate_as(const Attrs& attrs, const Arrays& in, std::vector<Array>& outputs);
#define NLS_OPERATOR(name) \
  template <>              \
  void evaluate_as<Op::name>(const Attrs& attrs, const Arrays& in, std::vector<Array>& outputs);
#include "graph/operators/operators.def"
#undef NLS_OPERATOR

// EXPRESSION may use op, attrs, in, outputs, and out, the first of them.
#define NLS_REFERENCE(name, ...)                                                                                   \
  template <>                                                                                                      \
  void evaluate_as<Op::name>([[maybe_unused]] const Attrs& attrs, const Arrays& in, std::vector<Array>& outputs) { \
    [[maybe_unused]] constexpr Op op = Op::name;                                                                   \
    [[maybe_unused]] Array& out = outputs[0];                                                                      \
    __VA_ARGS__;                                                                                                   \
  }

void general(Op op, const Attrs& attrs, const Arrays& in, std::vector<Array>& outputs);

}  // namespace nlsplit::inline graph::reference
