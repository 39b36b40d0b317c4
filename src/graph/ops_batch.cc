#include "graph/ops_batch.h"

#include <algorithm>

#include "graph/ops_infer.h"

namespace nlsplit {
namespace {

bool batch_of_first(uint64_t batched) { return (batched & 1) != 0; }

uint64_t all_of(Types in) { return in.size() >= 64 ? ~uint64_t{0} : (uint64_t{1} << in.size()) - 1; }

bool along_another_axis(const TensorType& type, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), type.shape.size());
  return axis.ok() && *axis != 0;
}

}  // namespace

// Input 0 has samples, the others are parameters.
bool keeps_first(Types, uint64_t batched, const Attrs&) { return batched == 1; }
bool keeps_gemm(Types, uint64_t batched, const Attrs& attrs) { return batched == 1 && attr_int(attrs, "transA") == 0; }
bool keeps_matmul(Types in, uint64_t batched, const Attrs&) {
  if ((batched & 4) != 0) return false;
  if (!batch_of_first(batched) || in[0].shape.size() < 2) return false;
  if ((batched & 2) == 0) {  // b must not add axes in front, nor have a matrix of its own for each sample
    const size_t rank = in[0].shape.size();
    return in[1].shape.size() < rank || (in[1].shape.size() == rank && (rank == 2 || in[1].shape[0] == 1));
  }
  return in[0].shape.size() == in[1].shape.size() && in[0].shape.size() >= 3;
}
// Broadcasting element-wise: axis 0 of the result must be the samples' axis of every operand that has one, and no
// other's.
bool keeps_broadcast(Types in, uint64_t batched, const Attrs&) {
  size_t rank = 0;
  for (const TensorType& type : in) rank = std::max(rank, type.shape.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const bool has_samples = (batched >> i & 1) != 0;
    if (has_samples && in[i].shape.size() != rank) return false;
    if (!has_samples && in[i].shape.size() == rank && in[i].shape[0] != 1) return false;
  }
  return batched != 0;
}
bool keeps_layer_norm(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size());
  return batched == 1 && axis.ok() && *axis != 0;
}
bool keeps_concat(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size());
  const uint64_t all = in.size() >= 64 ? ~uint64_t{0} : (uint64_t{1} << in.size()) - 1;
  return batched == all && axis.ok() && *axis != 0;
}
bool keeps_reshape(Types in, uint64_t batched, const Attrs& attrs) {
  const auto out = infer_reshape(in, attrs);
  return batched == 1 && out.ok() && !(*out)[0].shape.empty() && !in[0].shape.empty() &&
         (*out)[0].shape[0] == in[0].shape[0];
}
bool keeps_flatten(Types in, uint64_t batched, const Attrs& attrs) {
  const int64_t axis = attr_int(attrs, "axis");
  return batched == 1 && (axis < 0 ? axis + static_cast<int64_t>(in[0].shape.size()) : axis) == 1;
}
bool keeps_transpose(Types, uint64_t batched, const Attrs& attrs) {
  const std::vector<int64_t>& perm = attr_ints(attrs, "perm");
  return batched == 1 && !perm.empty() && perm[0] == 0;
}
bool keeps_reduce(Types in, uint64_t batched, const Attrs& attrs) {
  if (batched != 1) return false;
  for (const int64_t given : attr_ints(attrs, "axes")) {
    const auto axis = axis_of(given, in[0].shape.size());
    if (!axis.ok() || *axis == 0) return false;
  }
  return true;
}
bool keeps_pad(Types in, uint64_t batched, const Attrs& attrs) {
  const std::vector<int64_t>& pads = attr_ints(attrs, "pads");
  return batched == 1 && pads[0] == 0 && pads[in[0].shape.size()] == 0;
}
// A mask is each sample's own, or all samples'.
bool keeps_attention(Types in, uint64_t batched, const Attrs&) {
  if ((batched & 7) != 7) return false;
  if (in.size() < 4) return true;
  const bool has_samples = (batched & 8) != 0;
  return in[3].shape.size() < 4 ? !has_samples : has_samples || in[3].shape[0] == 1;
}
// An initial state is each sample's own, or all samples'.
bool keeps_recurrent(Types in, uint64_t batched, const Attrs&) {
  const size_t states = in[1].shape[1] == 4 * in[2].shape[2] ? 2 : 1;
  for (size_t i = 1; i < in.size(); ++i) {
    const bool has_samples = (batched >> i & 1) != 0, is_state = i >= 4 && i < 4 + states;
    if (is_state ? in[i].shape[0] != (has_samples ? in[0].shape[0] : 1) : has_samples) return false;
  }
  return batch_of_first(batched);
}

bool keeps_none(Types, uint64_t, const Attrs&) { return false; }
bool keeps_pairs(Types in, uint64_t batched, const Attrs&) { return batched == all_of(in); }
bool keeps_axis(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == 1 && along_another_axis(in[0], attrs);
}
bool keeps_all(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == all_of(in) && along_another_axis(in[0], attrs);
}
// A literal extent of the batch would not follow it.
bool keeps_expand(Types in, uint64_t batched, const Attrs& attrs) {
  const Shape& to = attr_ints(attrs, "shape");
  return batched == 1 && (to.size() < in[0].shape.size() || (to.size() == in[0].shape.size() && to[0] == 1));
}
bool keeps_tile(Types, uint64_t batched, const Attrs& attrs) {
  return batched == 1 && attr_ints(attrs, "repeats")[0] == 1;
}
bool keeps_slice(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == 1 && std::ranges::none_of(attr_ints(attrs, "axes"), [&](int64_t given) {
           const auto axis = axis_of(given, in[0].shape.size());
           return !axis.ok() || *axis == 0;
         });
}
// Of a table that is the same for all samples at each sample's indices, or at indices that are the same for all along
// another axis.
bool keeps_gather(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size());
  if (!axis.ok()) return false;
  return batched == 1 ? *axis != 0 : batched == 2 && *axis == 0 && !in[1].shape.empty();
}
bool keeps_gather_nd(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == 3 ? attr_int(attrs, "batch_dims") >= 1 : batched == 2 && in[1].shape.size() >= 2;
}
bool keeps_one_hot(Types in, uint64_t batched, const Attrs& attrs) {
  const auto axis = axis_of(attr_int(attrs, "axis"), in[0].shape.size() + 1);
  return batched == 1 && axis.ok() && *axis != 0;
}
bool keeps_quantize(Types in, uint64_t batched, const Attrs& attrs) {
  const bool one_for_all =
      std::ranges::all_of(in.subspan(1), [](const TensorType& type) { return element_count(type.shape) == 1; });
  return batched == 1 && (one_for_all || along_another_axis(in[0], attrs));
}
bool keeps_resize(Types in, uint64_t batched, const Attrs& attrs) {
  return batched == 1 && !in[0].shape.empty() && attr_floats(attrs, "scales")[0] == 1 &&
         attr_ints(attrs, "sizes")[0] == 0;
}
// The samples' label is the first axis of every operand that has them and of the result, and stands nowhere else.
bool keeps_einsum(Types in, uint64_t batched, const Attrs& attrs) {
  const auto terms = einsum_terms(in, attr_string(attrs, "equation"));
  if (!terms.ok() || terms->output.empty()) return false;
  const int label = terms->output[0];
  for (size_t i = 0; i < in.size(); ++i) {
    const std::vector<int>& labels = terms->inputs[i];
    const auto uses = std::ranges::count(labels, label);
    const bool first = !labels.empty() && labels[0] == label;
    const bool has_samples = (batched >> i & 1) != 0;
    if (has_samples ? uses != 1 || !first : uses != 0) return false;
  }
  return batched != 0;
}
bool keeps_det(Types in, uint64_t batched, const Attrs&) { return batched == 1 && in[0].shape.size() > 2; }

}  // namespace nlsplit
