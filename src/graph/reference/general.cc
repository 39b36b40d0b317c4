// Which function computes an operator on any type of elements.
#include "graph/reference/array.h"

namespace nlsplit::reference {

bool general(Op op, const Attrs& attrs, const Arrays& in, std::vector<Array>& outputs) {
  Array& out = outputs[0];
  // No default: a new op does not compile until it is here.
  switch (op) {
    case Op::Gemm:
      return gemm(attrs, in, out), true;
    case Op::MatMul:
      return matmul(in, out), true;
    case Op::Conv:
      return conv(attrs, in, out), true;
    case Op::ConvTranspose:
      return conv_transpose(attrs, in, out), true;
    case Op::MaxPool:
    case Op::AveragePool:
    case Op::LpPool:
    case Op::MaxPoolIndices:
      return pool(op, attrs, *in[0], out), true;
    case Op::Add:
    case Op::Sub:
    case Op::Mul:
    case Op::Div:
    case Op::Pow:
    case Op::Mod:
    case Op::PRelu:
    case Op::BitShift:
    case Op::BitwiseAnd:
    case Op::BitwiseOr:
    case Op::BitwiseXor:
    case Op::And:
    case Op::Or:
    case Op::Xor:
    case Op::Equal:
    case Op::Greater:
    case Op::GreaterOrEqual:
    case Op::Less:
    case Op::LessOrEqual:
      return binary_function(op, attrs, *in[0], *in[1], out), true;
    case Op::Sum:
    case Op::Max:
    case Op::Mean:
    case Op::Min:
      return variadic(op, in, out), true;
    case Op::Where:
      return where(in, out), true;
    case Op::Relu:
    case Op::Sigmoid:
    case Op::Tanh:
    case Op::HardSwish:
    case Op::Exp:
    case Op::Sqrt:
    case Op::Neg:
    case Op::Erf:
    case Op::Gelu:
    case Op::LeakyRelu:
    case Op::HardSigmoid:
    case Op::Clip:
    case Op::Abs:
    case Op::Acos:
    case Op::Acosh:
    case Op::Asin:
    case Op::Asinh:
    case Op::Atan:
    case Op::Atanh:
    case Op::Ceil:
    case Op::Cos:
    case Op::Cosh:
    case Op::Floor:
    case Op::Log:
    case Op::Mish:
    case Op::Reciprocal:
    case Op::Round:
    case Op::Sign:
    case Op::Sin:
    case Op::Sinh:
    case Op::Softplus:
    case Op::Softsign:
    case Op::Tan:
    case Op::Celu:
    case Op::Elu:
    case Op::Selu:
    case Op::Shrink:
    case Op::ThresholdedRelu:
    case Op::Not:
    case Op::BitwiseNot:
    case Op::IsNaN:
    case Op::IsInf:
      return unary_function(op, attrs, *in[0], out), true;
    case Op::ReluGradient:
    case Op::SigmoidGradient:
    case Op::TanhGradient:
    case Op::HardSwishGradient:
    case Op::ErfGradient:
    case Op::LeakyReluGradient:
    case Op::HardSigmoidGradient:
    case Op::ClipGradient:
    case Op::GeluGradient:
      return function_gradient(op, attrs, in, out), true;
    case Op::ConvWeightGradient:
      return conv_weight_gradient(attrs, in, out), true;
    case Op::MaxPoolGradient:
    case Op::AveragePoolGradient:
      return pool_gradient(op, attrs, in, out), true;
    case Op::BatchNormalizationScaleGradient:
      return batch_norm_scale_gradient(attrs, in, out), true;
    case Op::LayerNormalizationGradient:
      return layer_norm_gradient(attrs, in, out), true;
    case Op::LRNGradient:
      return lrn_gradient(attrs, in, out), true;
    case Op::SoftmaxGradient:
    case Op::LogSoftmaxGradient:
      return softmax_gradient(op, attrs, in, out), true;
    case Op::GatherGradient:
      return gather_gradient(attrs, in, out), true;
    case Op::SoftmaxCrossEntropy:
      return cross_entropy(in, out), true;
    case Op::SoftmaxCrossEntropyGradient:
      return cross_entropy_gradient(in, out), true;
    case Op::SgdUpdate:
      return sgd_update(attrs, in, out), true;
    case Op::MomentumUpdate:
      return momentum_update(attrs, in, out, outputs[1]), true;
    case Op::AdamUpdate:
      return adam_update(attrs, in, outputs), true;
    case Op::Cast:
      return cast(*in[0], out), true;
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
      return reduce(op, attrs, *in[0], out), true;
    case Op::ArgMax:
    case Op::ArgMin:
      return arg_reduce(op, attrs, *in[0], out), true;
    case Op::CumSum:
      return cumsum(attrs, *in[0], out), true;
    case Op::Softmax:
    case Op::LogSoftmax:
      return softmax(op, attrs, *in[0], out), true;
    case Op::TopK:
      return top_k(attrs, *in[0], out, outputs[1]), true;
    case Op::Concat:
      return concat(attrs, in, out), true;
    case Op::Transpose:
      return transpose(attrs, *in[0], out), true;
    case Op::Pad:
      return pad(attrs, *in[0], out), true;
    case Op::Expand:
      return expand(*in[0], out), true;
    case Op::Tile:
      return tile(*in[0], out), true;
    case Op::Slice:
      return slice(attrs, *in[0], out), true;
    case Op::Gather:
      return gather(attrs, in, out), true;
    case Op::GatherElements:
      return gather_elements(attrs, in, out), true;
    case Op::GatherND:
      return gather_nd(attrs, in, out), true;
    case Op::ScatterElements:
      return scatter_elements(attrs, in, out), true;
    case Op::ScatterND:
      return scatter_nd(attrs, in, out), true;
    case Op::OneHot:
      return one_hot(attrs, in, out), true;
    case Op::ReverseSequence:
      return reverse_sequence(attrs, in, out), true;
    case Op::QuantizeLinear:
      return quantize(attrs, in, out), true;
    case Op::DequantizeLinear:
      return dequantize(attrs, in, out), true;
    case Op::Einsum:
      return einsum(attrs, in, out), true;
    case Op::Det:
      return det(*in[0], out), true;
    case Op::Resize:
      return resize(attrs, *in[0], out), true;
    case Op::MaxUnpool:
      return max_unpool(in, out), true;
    case Op::RoiAlign:
      return roi_align(attrs, in, out), true;
    case Op::GridSample:
      return grid_sample(attrs, in, out), true;
    case Op::Reshape:
    case Op::Flatten:
    case Op::Identity:
      out.reals = in[0]->reals, out.wholes = in[0]->wholes;
      return true;
    case Op::GlobalAveragePool:
    case Op::BatchNormalization:
    case Op::LayerNormalization:
    case Op::InstanceNormalization:
    case Op::LRN:
    case Op::LSTM:
    case Op::GRU:
    case Op::RNN:
    case Op::Attention:
      return false;
  }
  CHECK(false, "unknown operator");
}

}  // namespace nlsplit::reference
