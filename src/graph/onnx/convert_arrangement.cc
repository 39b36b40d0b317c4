// Operators that only arrange elements anew: joined, under another shape, transposed, padded.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "graph/onnx/convert_tools.h"
#include "graph/onnx/transposes.h"
#include "graph/operators/shapes.h"

namespace nlsplit::inline graph {
namespace {

Converted concat(const ConvertContext& c) {
  Attrs attrs;
  set_attr(attrs, "axis", int_attr(c.node, "axis", 1));
  return one_to_one(c, Op::Concat, std::move(attrs));
}

Converted transpose(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  std::vector<int64_t> reversed(c.type(0).shape.size());
  std::iota(reversed.rbegin(), reversed.rend(), int64_t{0});
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  Transposed whole = seen_through(c.graph, {x, ints_attr(c.node, "perm").value_or(reversed)});
  // One that names fewer axes, in order, would change nothing either: the type rules refuse it.
  if (whole.perm == order_of(reversed.size())) return emit(c, Op::Identity, {whole.of});
  Attrs attrs;
  set_attr(attrs, "perm", std::move(whole.perm));
  return emit(c, Op::Transpose, {whole.of}, std::move(attrs));
}

// The same where the input is transposed: first to `shape`, then transposed.
Converted reshape_under(const ConvertContext& c, Transposed input, Shape shape) {
  Attrs attrs, turned;
  set_attr(attrs, "shape", std::move(shape));
  if (changes_nothing(input.perm)) return emit(c, Op::Reshape, {input.of}, std::move(attrs));
  ASSIGN_OR_RETURN(const ValueId shaped, emit_helper(c, Op::Reshape, ".reshape", {input.of}, std::move(attrs)));
  set_attr(turned, "perm", std::move(input.perm));
  return emit(c, Op::Transpose, {shaped}, std::move(turned));
}

Converted reshape(const ConvertContext& c) {
  ASSIGN_OR_RETURN(const auto shape, integers(c, "shape", 1));
  if (!shape) return invalid_input("shape is missing");
  if (int_attr(c.node, "allowzero", 0) != 0 && std::ranges::find(*shape, 0) != shape->end()) {
    // No elements, whatever the operand.
    if (element_count(c.type(0).shape) != 0 || std::ranges::find(*shape, -1) != shape->end())
      return invalid_input("a shape without elements");
    RETURN_IF_ERROR(check_type({c.type(0).dtype, *shape}));
    return filled(c, ".empty", {c.type(0).dtype, *shape}, 0);
  }
  // Only the axes that `shape` copies are transposed: the others merge or split as well before.
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  const Transposed input = seen_through(c.graph, {x, order_of(c.type(0).shape.size())});
  const auto copied = static_cast<size_t>(std::ranges::find_if(*shape, [](auto e) { return e != 0; }) - shape->begin());
  if (!changes_nothing(input.perm) && copied <= input.perm.size()) {
    bool rest_stays = true;
    for (size_t i = copied; i < input.perm.size(); ++i)
      rest_stays = rest_stays && input.perm[i] == static_cast<int64_t>(i);
    std::vector<int64_t> perm = order_of(shape->size());
    std::copy_n(input.perm.begin(), copied, perm.begin());
    if (rest_stays) return reshape_under(c, {input.of, std::move(perm)}, *shape);
  }
  return reshape_to(c, *shape);
}

Converted squeeze(const ConvertContext& c, bool inserts) {
  if (!c.given(0)) return invalid_input("an input is missing");
  ASSIGN_OR_RETURN(const auto axes, integers(c, "axes", 1));
  const Shape x = c.type(0).shape;
  Shape out;
  if (inserts) {
    if (!axes) return invalid_input("axes are missing");
    std::vector<bool> added(x.size() + axes->size(), false);
    for (const int64_t given : *axes) {
      ASSIGN_OR_RETURN(const size_t axis, axis_of(given, added.size()));
      if (added[axis]) return invalid_input("an axis twice");
      added[axis] = true;
    }
    size_t next = 0;
    for (const bool is_new : added) out.push_back(is_new ? 1 : x[next++]);
    if (!added.empty() && !added[0] && !x.empty()) out[0] = 0;  // the samples' axis stays, whatever the batch
  } else {
    std::vector<bool> dropped(x.size(), false);
    for (size_t i = 0; !axes && i < x.size(); ++i) dropped[i] = x[i] == 1;  // without axes: all ones, the samples' too
    for (const int64_t given : axes.value_or(std::vector<int64_t>{})) {
      ASSIGN_OR_RETURN(const size_t axis, axis_of(given, x.size()));
      if (x[axis] != 1) return invalid_input(fmt::format("squeezes an extent of {}", x[axis]));
      dropped[axis] = true;
    }
    ASSIGN_OR_RETURN(const ValueId value, c.value(0));
    const Transposed input = seen_through(c.graph, {value, order_of(x.size())});
    std::vector<bool> absent(x.size());  // of what is transposed
    for (size_t i = 0; i < x.size(); ++i) absent[static_cast<size_t>(input.perm[i])] = dropped[i];
    for (size_t i = 0; i < x.size(); ++i) {
      if (!absent[i]) out.push_back(i == 0 ? 0 : c.graph.type(input.of).shape[i]);
    }
    return reshape_under(c, {input.of, without_axes(input.perm, dropped)}, std::move(out));
  }
  return reshape_to(c, std::move(out));
}

// Other fills than one value: elements of x again, axis after axis.
Converted pad_by_elements(const ConvertContext& c, const std::string& mode, const std::vector<int64_t>& pads) {
  ASSIGN_OR_RETURN(ValueId x, c.value(0));
  const Shape shape = c.type(0).shape;
  const size_t rank = shape.size();
  size_t last = rank;  // axis that changes
  for (size_t axis = 0; axis < rank; ++axis) {
    if (pads[axis] != 0 || pads[axis + rank] != 0) last = axis;
  }
  if (last == rank) return emit(c, Op::Identity, {x});
  for (size_t axis = 0; axis <= last; ++axis) {
    if (pads[axis] == 0 && pads[axis + rank] == 0) continue;
    const int64_t extent = shape[axis], turn = std::max<int64_t>(2 * (extent - 1), 1);
    if (extent < 1) return invalid_input("it pads an empty axis with its elements");
    if (extent > int64_t{1} << 24) return unsupported(fmt::format("mode {} along an extent of {}", mode, extent));
    RETURN_IF_ERROR(c.spend(static_cast<double>(extent + std::abs(pads[axis]) + std::abs(pads[axis + rank]))));
    std::vector<int64_t> from;
    for (int64_t i = -pads[axis]; i < extent + pads[axis + rank]; ++i) {
      const int64_t around = (i % turn + turn) % turn;
      from.push_back(mode == "edge"   ? std::clamp<int64_t>(i, 0, extent - 1)
                     : mode == "wrap" ? (i % extent + extent) % extent
                     : extent == 1    ? 0
                                      : std::min(around, turn - around));
    }
    const ValueId indices = listed(c, fmt::format(".indices{}", axis), from, {static_cast<int64_t>(from.size())});
    Attrs attrs;
    set_attr(attrs, "axis", static_cast<int64_t>(axis));
    ASSIGN_OR_RETURN(x, axis == last
                            ? emit(c, Op::Gather, {x, indices}, std::move(attrs))
                            : emit_helper(c, Op::Gather, fmt::format(".axis{}", axis), {x, indices}, std::move(attrs)));
  }
  return x;
}

Converted pad(const ConvertContext& c) {
  if (!c.given(0)) return invalid_input("an input is missing");
  const std::string mode = string_attr(c.node, "mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap")
    return unsupported(fmt::format("mode {}", mode));
  ASSIGN_OR_RETURN(const auto given, integers(c, "pads", 1));
  if (!given) return invalid_input("pads are missing");
  std::vector<int64_t> pads = *given;
  const size_t rank = c.type(0).shape.size();
  if (c.given(3)) {  // those of some axes
    ASSIGN_OR_RETURN(const auto axes, integers(c, "axes", 3));
    if (pads.size() != 2 * axes->size()) return invalid_input("pads are not a begin and an end for every axis");
    pads.assign(2 * rank, 0);
    for (size_t i = 0; i < axes->size(); ++i) {
      ASSIGN_OR_RETURN(const size_t axis, axis_of((*axes)[i], rank));
      pads[axis] = (*given)[i];
      pads[axis + rank] = (*given)[i + axes->size()];
    }
  }
  if (pads.size() != 2 * rank) return invalid_input("pads are not a begin and an end for every axis");
  if (mode != "constant") {
    constexpr int64_t most = int64_t{1} << 20;
    for (const int64_t pad : pads) {
      if (pad > most || pad < -most) return invalid_input(fmt::format("a pad of {}", pad));
    }
    return pad_by_elements(c, mode, pads);
  }
  ASSIGN_OR_RETURN(const auto value, number(c, "value", 2));
  Attrs attrs;
  set_attr(attrs, "pads", std::move(pads));
  set_attr(attrs, "value", value.value_or(0));
  ASSIGN_OR_RETURN(const ValueId x, c.value(0));
  return emit(c, Op::Pad, {x}, std::move(attrs));
}

}  // namespace

MaybeConverted convert_arrangement(const ConvertContext& c) {
  const std::string& op = c.node.op;
  if (op == "Concat") return one(concat(c));
  if (op == "Transpose") return one(transpose(c));
  if (op == "Reshape") return one(reshape(c));
  if (op == "Squeeze") return one(squeeze(c, false));
  if (op == "Unsqueeze") return one(squeeze(c, true));
  if (op == "Pad") return one(pad(c));
  return std::optional<std::vector<ValueId>>();
}

}  // namespace nlsplit::inline graph
