// What an operator's attributes are called, which type they have, and what leaving one out means.
//
//   constexpr AttrSpec pool_attrs[] = {integer("ceil_mode", 0), integers("kernel_shape"), integers("strides", ones)};
//
// A text or a file may leave out an attribute that has a usual value (ONNX's default; for a window the extents that its
// weights have). A Graph has all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline graph {

using Types =
    std::span<const TensorType>;  // of the inputs; an absent optional input is a type with no shape and is last

// Asked for as many types as there are, before anything is checked. None: the attribute must be given.
using UsualValue = std::optional<AttrValue>;

struct AttrSpec {
  std::string_view name;
  char kind;                            // i integer, f float, s string, l list of integers, d list of floats
  bool has_usual = false;               // one of the following
  int64_t integer = 0;                  // of kind i
  double real = 0;                      // of kind f
  std::string_view text = {};           // of kind s
  UsualValue (*list)(Types) = nullptr;  // of kinds l and d
  int onnx_input = -1;                  // in ONNX since opset 13 no attribute but this input, a constant
  bool onnx_list = false;               // there a list, of one element
};

constexpr AttrSpec integer(std::string_view name) { return {name, 'i'}; }
constexpr AttrSpec integer(std::string_view name, int64_t usual) { return {name, 'i', true, usual}; }
constexpr AttrSpec real(std::string_view name) { return {name, 'f'}; }
constexpr AttrSpec real(std::string_view name, double usual) { return {name, 'f', true, 0, usual}; }
constexpr AttrSpec text(std::string_view name) { return {name, 's'}; }
constexpr AttrSpec text(std::string_view name, std::string_view usual) { return {name, 's', true, 0, 0, usual}; }
constexpr AttrSpec integers(std::string_view name) { return {name, 'l'}; }
constexpr AttrSpec integers(std::string_view name, UsualValue (*usual)(Types)) {
  return {name, 'l', true, 0, 0, {}, usual};
}
constexpr AttrSpec reals(std::string_view name, UsualValue (*usual)(Types)) {
  return {name, 'd', true, 0, 0, {}, usual};
}
constexpr AttrSpec as_input(AttrSpec spec, int onnx_input, bool onnx_list = false) {
  spec.onnx_input = onnx_input;
  spec.onnx_list = onnx_list;
  return spec;
}
constexpr double onnx_float(float value) { return static_cast<double>(value); }  // ONNX's attributes are 32-bit floats

// Those with a usual value, given the types of the node's inputs.
Attrs default_attrs(Op op, Types inputs);

// Without those that have exactly their usual value; and with those that are missing. The second undoes the first.
Attrs without_defaults(Op op, const Attrs& attrs, Types inputs);
void add_defaults(Op op, Types inputs, Attrs& attrs);

// Exactly the attributes of `specs`, each of its type; no float is NaN. `op`: for the message.
Status check_attrs(std::string_view op, std::span<const AttrSpec> specs, const Attrs& attrs);

}  // namespace nlsplit::inline graph
