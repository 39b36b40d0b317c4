#include "kernels/generated/encode.h"

#include <type_traits>

namespace nlsplit::inline kernels {
namespace {

// The bindings below name every member: one more does not compile until it is written too.
class Encoder {
 public:
  std::string bytes;

  template <class T>
  void add(const T& value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <class... T>
  void add_all(const T&... values) {
    (add(values), ...);
  }
  template <class T>
  void add(const std::vector<T>& values) {
    add(static_cast<uint64_t>(values.size()));
    for (const T& value : values) add(value);
  }
  void add(const LoopOperand& operand) {
    const auto& [dtype, count] = operand;
    add_all(dtype, count);
  }
  void add(const LoopTable& table) {
    const auto& [integers, numbers] = table;
    add_all(integers, numbers);
  }
  void add(const Term& term) {
    const auto& [code, type, x, y, z, which, dtype, number, integer] = term;
    add_all(code, type, x, y, z, which, dtype, number, integer);
  }
  void add(const Accumulator& accumulator) {
    const auto& [first, next] = accumulator;
    add_all(first, next);
  }
  void add(const Fold& fold) {
    const auto& [first_axis, end_axis, first_accumulator, end_accumulator, stored, place] = fold;
    add_all(first_axis, end_axis, first_accumulator, end_accumulator, stored, place);
  }
  void add(const Loops& loops) {
    const auto& [extents, axes, rows, inputs, output, tables, terms, accumulators, folds, result, place] = loops;
    add_all(extents, axes, rows, inputs, output, tables, terms, accumulators, folds, result, place);
  }
};

}  // namespace

std::string encode(const Loops& loops) {
  Encoder encoder;
  encoder.add(loops);
  return std::move(encoder.bytes);
}

}  // namespace nlsplit::inline kernels
