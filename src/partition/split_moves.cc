// Pieces of what only moves elements: views, joins, slices, look-ups.
#include <algorithm>

#include "graph/ops.h"
#include "graph/ops_infer.h"
#include "partition/split_rules.h"

namespace nlsplit {

Region broadcast_part(const PieceQuery& q, const TensorType& type) {
  const size_t missing = q.out.size() - type.shape.size();
  if (q.axis < missing || type.shape[q.axis - missing] != q.out[q.axis]) return {};
  return along(q.axis - missing, q.begin, q.end);
}

// The elements are the same in the same order; only the axes between two common boundaries are others. A part along the
// first of such a group of axes is one run of elements of every group, and so a part along the first axis of the
// input's group if it begins and ends where an element of that axis does.
bool view_piece(const PieceQuery& q, NodePiece& piece) {
  const Shape &in = q.inputs[0].shape, &out = q.out;
  if (element_count(in) == 0) return false;
  size_t i = 0, o = 0;
  while (i < in.size() && o < out.size()) {
    const size_t first_in = i, first_out = o;
    int64_t a = in[i++], b = out[o++];
    while (a != b) {
      if (a < b)
        a *= in[i++];
      else
        b *= out[o++];
    }
    if (q.axis >= o) continue;
    size_t axis = first_in, leading = first_out;
    while (leading + 1 < o && out[leading] == 1) ++leading;
    while (axis + 1 < i && in[axis] == 1) ++axis;
    if (q.axis != leading) return false;
    const int64_t out_run = b / out[leading], in_run = a / in[axis];
    if (q.begin * out_run % in_run != 0 || q.end * out_run % in_run != 0) return false;
    piece.inputs[0] = along(axis, q.begin * out_run / in_run, q.end * out_run / in_run);
    return true;
  }
  return false;
}

bool reshape_piece(const PieceQuery& q, NodePiece& piece) {
  if (!view_piece(q, piece)) return false;
  Shape shape = q.out;
  shape[q.axis] = q.end - q.begin;
  set_attr(piece.attrs, "shape", std::move(shape));
  return true;
}

bool concat_piece(const PieceQuery& q, NodePiece& piece) {
  const auto joined = axis_of(attr_int(q.node.attrs, "axis"), q.out.size());
  if (!joined.ok()) return false;
  if (*joined != q.axis) {
    std::ranges::fill(piece.inputs, same_axis(q));
    return true;
  }
  int64_t at = 0;
  for (size_t i = 0; i < q.inputs.size(); ++i) {
    const int64_t extent = q.inputs[i].shape[q.axis];
    const int64_t begin = std::clamp<int64_t>(q.begin - at, 0, extent);
    piece.inputs[i] = along(q.axis, begin, std::max(begin, std::clamp<int64_t>(q.end - at, 0, extent)));
    at += extent;
  }
  return true;
}

bool slice_piece(const PieceQuery& q, NodePiece& piece) {
  const auto cut = sliced_axes(q.inputs[0].shape, q.node.attrs);
  if (!cut.ok()) return false;
  const SlicedAxis at = (*cut)[q.axis];
  if (at.step < 1) return false;
  const int64_t begin = at.start + q.begin * at.step, end = at.start + (q.end - 1) * at.step + 1;
  piece.inputs[0] = along(q.axis, begin, end);
  const std::vector<int64_t>& axes = attr_ints(q.node.attrs, "axes");
  std::vector<int64_t> starts = attr_ints(q.node.attrs, "starts"), ends = attr_ints(q.node.attrs, "ends");
  for (size_t i = 0; i < axes.size(); ++i) {
    if (*axis_of(axes[i], q.out.size()) != q.axis) continue;
    starts[i] = 0;
    ends[i] = end - begin;
  }
  set_attr(piece.attrs, "starts", std::move(starts));
  set_attr(piece.attrs, "ends", std::move(ends));
  return true;
}

bool gather_piece(const PieceQuery& q, NodePiece& piece) {
  const auto axis = axis_of(attr_int(q.node.attrs, "axis"), q.inputs[0].shape.size());
  if (!axis.ok()) return false;
  const size_t indexed = q.inputs[1].shape.size();
  if (q.axis < *axis)
    piece.inputs[0] = same_axis(q);
  else if (q.axis < *axis + indexed)
    piece.inputs[1] = along(q.axis - *axis, q.begin, q.end);
  else
    piece.inputs[0] = along(q.axis + 1 - indexed, q.begin, q.end);
  return true;
}

bool expand_piece(const PieceQuery& q, NodePiece& piece) {
  piece.inputs[0] = broadcast_part(q, q.inputs[0]);
  Shape shape = q.out;
  shape[q.axis] = q.end - q.begin;
  set_attr(piece.attrs, "shape", std::move(shape));
  return true;
}

}  // namespace nlsplit
