#include <algorithm>

#include "graph/pass_list.h"
#include "graph/rewrite.h"

namespace nlsplit {
namespace {

// One value a channel: [C,1,1] or [1,C,1,1].
bool is_channel_bias(const TensorType& type, int64_t channels) {
  return type.dtype == DType::f32 && (type.shape == Shape{channels, 1, 1} || type.shape == Shape{1, channels, 1, 1});
}

}  // namespace

// Conv(x, w) + b with a constant b for each channel becomes Conv(x, w, b). PaddleOCR's exporter writes biases so.
Result<Graph> fuse_bias(const Graph& graph, WeightStore&) {
  Graph out = graph;
  const std::vector<int> uses = use_counts(out);
  std::vector<bool> removed(out.nodes.size(), false);
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    const Node add = out.nodes[i];
    if (add.op != Op::Add || !add.epilogue.empty()) continue;
    for (const size_t side : {0, 1}) {
      const ValueId from = add.inputs[side], bias = add.inputs[1 - side];
      const Value& value = out.value(from);
      if (value.kind != ValueKind::node || uses[from.index()] != 1 || out.value(bias).kind != ValueKind::weight)
        continue;
      Node& conv = out.nodes[value.producer.index()];
      const bool has_bias = conv.inputs.size() > 2 && conv.inputs[2].valid();
      if (conv.op != Op::Conv || has_bias || !conv.epilogue.empty()) continue;
      const int64_t channels = out.value(conv.inputs[1]).type.shape[0];
      if (!is_channel_bias(out.value(bias).type, channels)) continue;
      // The same bytes under another shape.
      Value flat = out.value(bias);
      flat.name += ".flat";
      flat.type.shape = {channels};
      for (int n = 2;
           std::any_of(out.values.begin(), out.values.end(), [&](const Value& v) { return v.name == flat.name; });
           ++n) {
        flat.name = out.value(bias).name + ".flat" + std::to_string(n);
      }
      conv.inputs.resize(2);
      conv.inputs.push_back(ValueId(out.values.size()));
      conv.outputs = add.outputs;
      out.values[add.outputs[0].index()].producer = out.value(from).producer;
      out.values.push_back(std::move(flat));
      removed[i] = true;
      break;
    }
  }
  return compacted(out, removed);
}

}  // namespace nlsplit
