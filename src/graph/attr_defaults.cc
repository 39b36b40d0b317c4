#include "graph/attr_defaults.h"

#include <algorithm>
#include <limits>

namespace nlsplit {
namespace {

using Ints = std::vector<int64_t>;

// ONNX's attributes are 32-bit floats.
double f32(float value) { return static_cast<double>(value); }

// Of x[batch, channels, …].
size_t spatial_axes(Types inputs) {
  return inputs.empty() || inputs[0].shape.size() < 2 ? 0 : inputs[0].shape.size() - 2;
}

Attrs window_defaults(Types inputs) {
  const size_t axes = spatial_axes(inputs);
  return {
      {"ceil_mode", int64_t{0}}, {"dilations", Ints(axes, 1)}, {"pads", Ints(2 * axes, 0)}, {"strides", Ints(axes, 1)}};
}

Attrs conv_defaults(Types inputs) {
  const size_t axes = spatial_axes(inputs);
  Attrs attrs = {{"dilations", Ints(axes, 1)}, {"group", int64_t{1}}};
  if (inputs.size() > 1 && inputs[1].shape.size() >= 2)
    set_attr(attrs, "kernel_shape", Ints(inputs[1].shape.begin() + 2, inputs[1].shape.end()));
  set_attr(attrs, "pads", Ints(2 * axes, 0));
  set_attr(attrs, "strides", Ints(axes, 1));
  return attrs;
}

// Of the whole operand, which keeps its extents.
Attrs resize_defaults(Types inputs) {
  const size_t rank = inputs.empty() ? 0 : inputs[0].shape.size();
  std::vector<double> roi(2 * rank, 0);
  std::fill_n(roi.begin() + static_cast<std::ptrdiff_t>(rank), rank, 1);
  return {{"antialias", int64_t{0}},
          {"coordinate_transformation_mode", std::string("half_pixel")},
          {"cubic_coeff_a", -0.75},
          {"exclude_outside", int64_t{0}},
          {"extrapolation_value", 0.0},
          {"mode", std::string("nearest")},
          {"nearest_mode", std::string("round_prefer_floor")},
          {"roi", std::move(roi)},
          {"scales", std::vector<double>(rank, 1)},
          {"sizes", Ints(rank, 0)}};
}

// By the name of the attribute; an operator that has no such attribute is asked in vain.
Attrs usual_attrs(Op op, Types inputs) {
  switch (op) {
    case Op::Conv:
      return conv_defaults(inputs);
    case Op::ConvTranspose: {
      Attrs attrs = conv_defaults(inputs);
      set_attr(attrs, "output_padding", Ints(spatial_axes(inputs), 0));
      return attrs;
    }
    case Op::Gemm:
      return {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{0}}, {"transB", int64_t{0}}};
    case Op::LeakyRelu:
      return {{"alpha", f32(0.01f)}};
    case Op::Gelu:
      return {{"approximate", std::string("none")}};
    case Op::HardSigmoid:
      return {{"alpha", f32(0.2f)}, {"beta", 0.5}};
    case Op::Clip:
      return {{"max", f32(std::numeric_limits<float>::max())}, {"min", f32(std::numeric_limits<float>::lowest())}};
    case Op::MaxPool:
    case Op::LpPool:
    case Op::MaxPoolIndices:
    case Op::AveragePool: {
      Attrs attrs = window_defaults(inputs);
      set_attr(attrs, "count_include_pad", int64_t{0});
      set_attr(attrs, "p", int64_t{2});
      set_attr(attrs, "storage_order", int64_t{0});
      return attrs;
    }
    case Op::BatchNormalization:
      return {{"epsilon", 1e-5}};
    case Op::LayerNormalization:
      return {{"axis", int64_t{-1}}, {"epsilon", f32(1e-5f)}};
    case Op::InstanceNormalization:
      return {{"epsilon", f32(1e-5f)}};
    case Op::LRN:
      return {{"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}};
    case Op::Softmax:
    case Op::LogSoftmax:
    case Op::OneHot:
      return {{"axis", int64_t{-1}}};
    case Op::Flatten:
    case Op::QuantizeLinear:
    case Op::DequantizeLinear:
      return {{"axis", int64_t{1}}};
    case Op::ReduceMean:
    case Op::ReduceL1:
    case Op::ReduceL2:
    case Op::ReduceLogSum:
    case Op::ReduceLogSumExp:
    case Op::ReduceMax:
    case Op::ReduceMin:
    case Op::ReduceProd:
    case Op::ReduceSum:
    case Op::ReduceSumSquare:
      return {{"keepdims", int64_t{1}}};
    case Op::ArgMax:
    case Op::ArgMin:
      return {{"axis", int64_t{0}}, {"keepdims", int64_t{1}}, {"select_last_index", int64_t{0}}};
    case Op::CumSum:
      return {{"exclusive", int64_t{0}}, {"reverse", int64_t{0}}};
    case Op::TopK:
      return {{"axis", int64_t{-1}}, {"largest", int64_t{1}}, {"sorted", int64_t{1}}};
    case Op::Pad:
      return {{"value", 0.0}};
    case Op::Attention:
      return {{"causal", int64_t{0}}};
    case Op::LSTM:
    case Op::RNN:
      return {{"direction", std::string("forward")}};
    case Op::GRU:
      return {{"direction", std::string("forward")}, {"linear_before_reset", int64_t{0}}};
    case Op::Celu:
    case Op::Elu:
    case Op::ThresholdedRelu:
      return {{"alpha", 1.0}};
    case Op::Selu:
      return {{"alpha", f32(1.67326319217681884765625f)}, {"gamma", f32(1.05070102214813232421875f)}};
    case Op::Shrink:
      return {{"bias", 0.0}, {"lambd", 0.5}};
    case Op::IsInf:
      return {{"detect_negative", int64_t{1}}, {"detect_positive", int64_t{1}}};
    case Op::Mod:
      return {{"fmod", int64_t{0}}};
    case Op::Gather:
    case Op::GatherElements:
      return {{"axis", int64_t{0}}};
    case Op::GatherND:
      return {{"batch_dims", int64_t{0}}};
    case Op::ScatterElements:
      return {{"axis", int64_t{0}}, {"reduction", std::string("none")}};
    case Op::ScatterND:
      return {{"reduction", std::string("none")}};
    case Op::ReverseSequence:
      return {{"batch_axis", int64_t{1}}, {"time_axis", int64_t{0}}};
    case Op::Resize:
      return resize_defaults(inputs);
    case Op::RoiAlign:
      return {{"coordinate_transformation_mode", std::string("half_pixel")},
              {"mode", std::string("avg")},
              {"output_height", int64_t{1}},
              {"output_width", int64_t{1}},
              {"sampling_ratio", int64_t{0}},
              {"spatial_scale", 1.0}};
    case Op::GridSample:
      return {{"align_corners", int64_t{0}}, {"mode", std::string("linear")}, {"padding_mode", std::string("zeros")}};
    default:
      return {};  // every attribute it has must be written
  }
}

// As they are written: 0.0 and -0.0 are not the same.
bool same_text(const Attr& a, const Attr& b) { return to_string(Attrs{a}) == to_string(Attrs{b}); }

}  // namespace

Attrs default_attrs(Op op, Types inputs) {
  Attrs attrs = usual_attrs(op, inputs);
  std::erase_if(attrs, [&](const Attr& attr) {
    for (const AttrSpec& spec : info(op).attrs) {
      if (spec.name == attr.name) return false;
    }
    return true;
  });
  return attrs;
}

Attrs without_defaults(Op op, const Attrs& attrs, Types inputs) {
  const Attrs defaults = default_attrs(op, inputs);
  Attrs rest = attrs;
  std::erase_if(rest, [&](const Attr& attr) {
    for (const Attr& usual : defaults) {
      if (usual.name == attr.name) return usual.value.index() == attr.value.index() && same_text(usual, attr);
    }
    return false;
  });
  return rest;
}

void add_defaults(Op op, Types inputs, Attrs& attrs) {
  for (Attr& usual : default_attrs(op, inputs)) {
    if (find_attr(attrs, usual.name) == nullptr) set_attr(attrs, usual.name, std::move(usual.value));
  }
}

}  // namespace nlsplit
