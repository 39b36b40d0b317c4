#include "traces/torch_kinds.h"

#include <algorithm>
#include <array>

namespace nlsplit::inline traces {
namespace {

struct KindRow {
  std::string_view torch;
  std::array<std::string_view, 3> nodes;
  Beside beside = Beside::none;
  bool fused = false;
};

// Exporters fold normalisations into the convolutions before them, and leave out what does nothing in inference.
constexpr std::array rows = {
    KindRow{"conv1d", {"Conv"}},
    KindRow{"conv2d", {"Conv"}},
    KindRow{"conv3d", {"Conv"}},
    KindRow{"convolution", {"Conv", "ConvTranspose"}},
    KindRow{"conv_transpose1d", {"ConvTranspose"}},
    KindRow{"conv_transpose2d", {"ConvTranspose"}},
    KindRow{"batch_norm", {"BatchNormalization"}, Beside::after},
    KindRow{"layer_norm", {"LayerNormalization"}},
    KindRow{"group_norm", {"InstanceNormalization"}},
    KindRow{"instance_norm", {"InstanceNormalization"}},
    KindRow{"linear", {"Gemm", "MatMul", "Linear"}},
    KindRow{"addmm", {"Gemm", "MatMul", "Linear"}},
    KindRow{"mm", {"MatMul", "Gemm"}},
    KindRow{"bmm", {"MatMul"}},
    KindRow{"matmul", {"MatMul", "Gemm"}},
    KindRow{"scaled_dot_product_attention", {"Attention", "Softmax"}, Beside::none, true},
    KindRow{"softmax", {"Softmax"}},
    KindRow{"log_softmax", {"LogSoftmax"}},
    KindRow{"embedding", {"Gather"}},
    KindRow{"index_select", {"Gather"}},
    KindRow{"gather", {"GatherElements"}},
    KindRow{"max_pool1d", {"MaxPool"}},
    KindRow{"max_pool2d", {"MaxPool"}},
    KindRow{"avg_pool1d", {"AveragePool"}},
    KindRow{"avg_pool2d", {"AveragePool"}},
    KindRow{"adaptive_avg_pool1d", {"GlobalAveragePool", "AveragePool", "ReduceMean"}},
    KindRow{"adaptive_avg_pool2d", {"GlobalAveragePool", "AveragePool", "ReduceMean"}},
    KindRow{"mean", {"ReduceMean", "GlobalAveragePool"}},
    KindRow{"sum", {"ReduceSum"}},
    KindRow{"amax", {"ReduceMax"}},
    KindRow{"argmax", {"ArgMax"}},
    KindRow{"relu", {"Relu"}},
    KindRow{"relu6", {"Clip"}},
    KindRow{"hardtanh", {"Clip"}},
    KindRow{"clamp", {"Clip"}},
    KindRow{"clamp_min", {"Clip", "Relu", "Max"}},
    KindRow{"leaky_relu", {"LeakyRelu"}},
    KindRow{"prelu", {"PRelu"}},
    KindRow{"elu", {"Elu"}},
    KindRow{"gelu", {"Gelu", "Erf", "Tanh"}},
    KindRow{"silu", {"Sigmoid"}},
    KindRow{"hardswish", {"HardSwish", "HardSigmoid", "Clip"}},
    KindRow{"hardsigmoid", {"HardSigmoid", "Clip"}},
    KindRow{"mish", {"Mish", "Softplus"}},
    KindRow{"softplus", {"Softplus"}},
    KindRow{"sigmoid", {"Sigmoid"}},
    KindRow{"tanh", {"Tanh"}},
    KindRow{"add", {"Add"}},
    KindRow{"sub", {"Sub"}},
    KindRow{"rsub", {"Sub"}},
    KindRow{"mul", {"Mul"}},
    KindRow{"div", {"Div", "Mul"}},
    KindRow{"pow", {"Pow"}},
    KindRow{"exp", {"Exp"}},
    KindRow{"sqrt", {"Sqrt"}},
    KindRow{"rsqrt", {"Sqrt", "Reciprocal"}},
    KindRow{"erf", {"Erf"}},
    KindRow{"neg", {"Neg"}},
    KindRow{"where", {"Where"}},
    KindRow{"masked_fill", {"Where"}},
    KindRow{"cat", {"Concat"}, Beside::none, true},
    KindRow{"stack", {"Concat"}, Beside::none, true},
    KindRow{"pad", {"Pad"}},
    KindRow{"upsample_nearest2d", {"Resize"}},
    KindRow{"upsample_bilinear2d", {"Resize"}},
    KindRow{"pixel_shuffle", {"DepthToSpace"}},
    KindRow{"lstm", {"LSTM"}, Beside::none, true},
    KindRow{"gru", {"GRU"}, Beside::none, true},
    KindRow{"flatten", {"Flatten", "Reshape"}, Beside::before},
};

// They change a view of a tensor, its layout or its type, or do nothing.
constexpr std::array<std::string_view, 36> light = {
    "view",   "reshape", "transpose", "permute",   "t",        "contiguous", "to",           "_to_copy",    "clone",
    "copy",   "expand",  "squeeze",   "unsqueeze", "slice",    "select",     "narrow",       "chunk",       "split",
    "unbind", "alias",   "detach",    "dropout",   "identity", "unflatten",  "empty",        "zeros",       "ones",
    "arange", "full",    "type_as",   "expand_as", "view_as",  "unfold",     "resolve_conj", "resolve_neg", "item",
};

}  // namespace

std::string_view torch_kind(std::string_view name) {
  constexpr std::string_view library = "aten::";
  if (!name.starts_with(library)) return {};
  name.remove_prefix(library.size());
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
}

TorchKind network_kinds(std::string_view kind) {
  TorchKind found;
  if (std::ranges::find(light, kind) != light.end()) found.beside = Beside::before;
  const auto row = std::ranges::find(rows, kind, &KindRow::torch);
  if (row == rows.end()) return found;
  for (const std::string_view node : row->nodes) {
    if (!node.empty()) found.nodes.emplace_back(node);
  }
  found.beside = row->beside;
  found.fused = row->fused;
  return found;
}

}  // namespace nlsplit::inline traces
