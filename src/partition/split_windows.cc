// Windows that slide over an axis: which rows of the input some rows of the result need, and the padding that is left.
#include <algorithm>

#include "graph/ops.h"
#include "partition/split_rules.h"

namespace nlsplit {
namespace {

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
int64_t ceil_div(int64_t a, int64_t b) { return -floor_div(-a, b); }

// One spatial axis of a window.
struct AxisWindow {
  size_t index = 0;  // among the spatial axes
  size_t spatial = 0;
  int64_t kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;
  int64_t reach() const { return (kernel - 1) * dilation + 1; }
};

AxisWindow window_at(const Attrs& attrs, size_t axis) {
  AxisWindow w;
  w.index = axis - 2;
  w.spatial = attr_ints(attrs, "kernel_shape").size();
  w.kernel = attr_ints(attrs, "kernel_shape")[w.index];
  w.stride = attr_ints(attrs, "strides")[w.index];
  if (find_attr(attrs, "dilations") != nullptr) w.dilation = attr_ints(attrs, "dilations")[w.index];
  w.pad_begin = attr_ints(attrs, "pads")[w.index];
  w.pad_end = attr_ints(attrs, "pads")[w.index + w.spatial];
  return w;
}

void set_pads(Attrs& attrs, const AxisWindow& w, int64_t begin, int64_t end) {
  std::vector<int64_t> pads = attr_ints(attrs, "pads");
  pads[w.index] = begin;
  pads[w.index + w.spatial] = end;
  set_attr(attrs, "pads", std::move(pads));
}

}  // namespace

// Rows [o, p) of the result begin at row o * stride - pad of the input and end behind the last tap of window p - 1.
// What lies in front of the input or behind it is padding, and stays padding: only there are pads left, so an average
// that does not count padding, and a maximum, see exactly what they saw. Behind the input no more than the pads there
// were: a window of ceil_mode that runs past them still does, and the same number of windows fit as did.
bool window_piece(const PieceQuery& query, NodePiece& piece) {
  const AxisWindow w = window_at(query.node.attrs, query.axis);
  const int64_t extent = query.inputs[0].shape[query.axis];
  const int64_t first = query.begin * w.stride - w.pad_begin;
  const int64_t last = (query.end - 1) * w.stride - w.pad_begin + w.reach();
  const int64_t begin = std::max<int64_t>(first, 0), end = std::min(last, extent);
  if (begin >= end) return false;  // nothing but padding
  piece.inputs[0] = {static_cast<int>(query.axis), begin, end};
  set_pads(piece.attrs, w, begin - first, std::clamp<int64_t>(last - extent, 0, w.pad_end));
  return true;
}

// Input row i is added to rows i * stride - pad + tap * dilation of the result. Where strides are wider than windows a
// piece may begin with rows that nothing reaches: then it takes the input row in front of them.
bool transposed_window_piece(const PieceQuery& query, NodePiece& piece) {
  const AxisWindow w = window_at(query.node.attrs, query.axis);
  const int64_t extent = query.inputs[0].shape[query.axis];
  const int64_t lowest = std::min(ceil_div(query.begin + w.pad_begin - (w.reach() - 1), w.stride),
                                  floor_div(query.begin + w.pad_begin, w.stride));
  const int64_t begin = std::max<int64_t>(lowest, 0);
  const int64_t end = std::min(extent, floor_div(query.end - 1 + w.pad_begin, w.stride) + 1);
  if (begin >= end) return false;
  const int64_t pad = query.begin + w.pad_begin - begin * w.stride;
  const int64_t behind = (end - begin - 1) * w.stride + w.reach() - pad - (query.end - query.begin);
  if (pad < 0) return false;
  piece.inputs[0] = {static_cast<int>(query.axis), begin, end};
  set_pads(piece.attrs, w, pad, std::max<int64_t>(behind, 0));
  std::vector<int64_t> more = attr_ints(piece.attrs, "output_padding");
  more[w.index] = std::max<int64_t>(-behind, 0);
  set_attr(piece.attrs, "output_padding", std::move(more));
  return true;
}

// An axis that keeps its extent is cut as it is. One that is repeated a whole number of times, by the nearest element,
// is cut between the repetitions: there element x of the result is element x / factor of the input, without rounding
// that could depend on where a piece begins.
bool resize_piece(const PieceQuery& query, NodePiece& piece) {
  const Attrs& attrs = query.node.attrs;
  const int64_t extent = query.inputs[0].shape[query.axis], out = query.out[query.axis];
  const double scale = attr_floats(attrs, "scales")[query.axis];
  const int axis = static_cast<int>(query.axis);
  std::vector<int64_t> sizes = attr_ints(attrs, "sizes");
  const std::string& mode = attr_string(attrs, "mode");
  const std::string& place = attr_string(attrs, "coordinate_transformation_mode");
  const std::string& rounding = attr_string(attrs, "nearest_mode");
  if (place == "tf_crop_and_resize" || extent == 0 || out % extent != 0) return false;
  const int64_t factor = out / extent;
  if (scale != static_cast<double>(factor)) return false;
  if (factor > 1) {
    const bool between = place == "asymmetric" && rounding == "floor";
    const bool centred = place == "half_pixel" && (rounding == "round_prefer_floor" || rounding == "round_prefer_ceil");
    if (mode != "nearest" || (!between && !centred)) return false;
    if (attr_int(attrs, "antialias") != 0) return false;
  }
  if (query.begin % factor != 0 || query.end % factor != 0) return false;
  piece.inputs[0] = {axis, query.begin / factor, query.end / factor};
  if (sizes[query.axis] != 0) sizes[query.axis] = query.end - query.begin;
  set_attr(piece.attrs, "sizes", std::move(sizes));
  return true;
}

// Negative pads crop.
bool pad_piece(const PieceQuery& query, NodePiece& piece) {
  std::vector<int64_t> pads = attr_ints(query.node.attrs, "pads");
  const int64_t extent = query.inputs[0].shape[query.axis];
  const int64_t first = query.begin - pads[query.axis], last = query.end - pads[query.axis];
  const int64_t begin = std::clamp<int64_t>(first, 0, extent), end = std::clamp<int64_t>(last, 0, extent);
  if (begin >= end) return false;
  piece.inputs[0] = {static_cast<int>(query.axis), begin, end};
  pads[query.axis] = begin - first;
  pads[query.axis + query.out.size()] = last - end;
  set_attr(piece.attrs, "pads", std::move(pads));
  return true;
}

}  // namespace nlsplit
