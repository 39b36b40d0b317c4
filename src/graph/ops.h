// The one table of operators. One row an op: arity, attributes, type inference, work, and how it treats the batch axis.
// Adding an op: one enumerator, one row in ops.cc (a static_assert counts them), a case in the reference evaluator, and
// a kernel unless the reference loops suffice. The semantics are ONNX's (https://onnx.ai/onnx/operators/) in the
// canonical form below, whatever opset the file was.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace nlsplit {

// Canonical attributes (all required unless marked ?). i = int, f = float, s = string, [i] = ints, [f] = floats.
enum class Op : uint8_t {
  Conv,  // (x, w, b?) dilations[i] group i kernel_shape[i] pads[i] (begins then ends) strides[i]; 2 spatial axes
  // (x, w[channels, filters of a group, h, w], b?) Conv's, and output_padding[i]: rows and columns more at the end
  ConvTranspose,
  Gemm,    // (a, b, c?) alpha f beta f transA i transB i
  MatMul,  // (a, b, bias[columns of b]?) numpy semantics, batched
  Add,
  Sub,
  Mul,
  Div,  // (a, b) numpy broadcasting
  Sum,  // (a, b, …) same shapes
  Relu,
  Sigmoid,
  Tanh,
  HardSwish,
  Exp,
  Sqrt,
  Neg,
  Erf,                 // (x)
  LeakyRelu,           // alpha f
  HardSigmoid,         // alpha f beta f
  Clip,                // min f max f
  MaxPool,             // (x) ceil_mode i dilations[i] kernel_shape[i] pads[i] strides[i]
  AveragePool,         // (x) ceil_mode i count_include_pad i kernel_shape[i] pads[i] strides[i]
  GlobalAveragePool,   // (x)
  BatchNormalization,  // (x, scale, bias, mean, var) epsilon f; inference
  // (x, scale, bias?) axis i epsilon f; over all axes from that one on, whose shape the parameters have
  LayerNormalization,
  InstanceNormalization,  // (x, scale, bias) epsilon f; over the spatial axes, parameters one a channel
  LRN,                    // (x) alpha f beta f bias f size i
  Softmax,                // (x) axis i; over that axis alone (opset < 13 is rewritten with Flatten at import)
  Concat,                 // (a, …) axis i
  Reshape,                // (x) shape[i]: 0 copies the input's extent, one -1 is inferred
  Flatten,                // (x) axis i
  Transpose,              // (x) perm[i]
  ReduceMean,             // (x) axes[i] keepdims i
  Pad,                    // (x) pads[i] value f; constant mode
  // (x[batch, steps, in], w[directions, gates * hidden, in], r[directions, gates * hidden, hidden],
  //  b[directions, 2 * gates * hidden], state?[batch or 1, directions, hidden], …) direction s ("forward", "reverse",
  // "bidirectional") -> (every step's state [batch, steps, directions, hidden], the last state [batch, directions,
  // hidden], …): batch-first, as ONNX's layout 1. Gates in ONNX's order, default activations; a state left out is zero,
  // one of extent 1 is every sample's.
  LSTM,  // (…, state?, cell?, p?[directions, 3 * hidden]) -> (…, the last cell like the last state)
  GRU,   // … linear_before_reset i
  RNN,
  Gelu,  // (x) approximate s: "none" (x Φ(x), Φ by erf), "tanh"
  // (q[batch, heads, queries, size], k[batch, kv_heads, keys, size], v[batch, kv_heads, keys, width], mask?) causal i
  // scale f -> [batch, heads, queries, width]: softmax(scale q kᵀ + mask) v, head by head; a head of k and v serves
  // heads / kv_heads of q, one behind the other. The mask broadcasts to [batch, heads, queries, keys] along the axes in
  // front of its last. causal 1: query i sees the keys up to i + keys - queries only. One that sees none gives zeros.
  Attention,
  Identity,  // (x); Dropout in inference

  // From here on: computed by the reference evaluator, on any device (kernel "reference"; Slice and Gather have their
  // own), for every element type the operator has in ONNX. (x) with one result of x's shape:
  Abs,
  Acos,
  Acosh,
  Asin,
  Asinh,
  Atan,
  Atanh,
  Ceil,
  Cos,
  Cosh,
  Floor,
  Log,
  Mish,
  Reciprocal,
  Round,  // halves to even
  Sign,
  Sin,
  Sinh,
  Softplus,
  Softsign,
  Tan,
  Celu,             // alpha f
  Elu,              // alpha f
  Selu,             // alpha f gamma f
  Shrink,           // bias f lambd f
  ThresholdedRelu,  // alpha f
  Not,
  BitwiseNot,
  IsNaN,
  IsInf,  // detect_negative i detect_positive i
  Cast,   // to s, a type's name: "f16"
  // (a, b), numpy broadcasting:
  Pow,       // the result has a's type
  Mod,       // fmod i: 1: the sign is a's, else b's
  PRelu,     // (x, slope)
  BitShift,  // direction s: "LEFT", "RIGHT"
  BitwiseAnd,
  BitwiseOr,
  BitwiseXor,
  And,
  Or,
  Xor,
  Equal,
  Greater,
  GreaterOrEqual,
  Less,
  LessOrEqual,
  Where,  // (condition, a, b)
  Max,
  Mean,
  Min,  // (a, …)
  // (x) axes[i] keepdims i:
  ReduceL1,
  ReduceL2,
  ReduceLogSum,
  ReduceLogSumExp,
  ReduceMax,
  ReduceMin,
  ReduceProd,
  ReduceSum,
  ReduceSumSquare,
  ArgMax,            // (x) axis i keepdims i select_last_index i
  ArgMin,            // likewise
  CumSum,            // (x) axis i exclusive i reverse i
  LogSoftmax,        // (x) axis i; as Softmax
  TopK,              // (x) axis i k i largest i sorted i -> (values, their indices)
  Expand,            // (x) shape[i], numpy broadcasting both ways
  Tile,              // (x) repeats[i]
  Slice,             // (x) axes[i] ends[i] starts[i] steps[i]
  Gather,            // (x, indices) axis i
  GatherElements,    // (x, indices) axis i
  GatherND,          // (x, indices) batch_dims i
  ScatterElements,   // (x, indices, updates) axis i reduction s: "none", "add", "mul", "max", "min"
  ScatterND,         // (x, indices, updates) reduction s
  OneHot,            // (indices, values[2]) axis i depth i
  ReverseSequence,   // (x, lengths) batch_axis i time_axis i
  QuantizeLinear,    // (x, scale, zero) axis i; the result has zero's type
  DequantizeLinear,  // (x, scale, zero?) axis i; the result has scale's type
  Einsum,            // (a, …) equation s
  Det,               // (x[…, n, n])
  // (x) … as ONNX has them; sizes[i]: the extents of the result, 0 is x's own; scales[f]: result over operand; roi[f]:
  // starts, then ends
  Resize,
  LpPool,          // (x) ceil_mode i kernel_shape[i] p i pads[i] strides[i]
  MaxPoolIndices,  // (x) MaxPool's and storage_order i: ONNX's second result of MaxPool alone
  MaxUnpool,       // (x, indices) shape[i]: of the result, its first two extents 0: x's own
  RoiAlign,        // (x, rois[n, 4], batch_indices[n]) … as ONNX has them
  GridSample,      // (x, grid) align_corners i mode s padding_mode s
};
inline constexpr int op_count = static_cast<int>(Op::GridSample) + 1;
// The operators in front of this one have kernels of their own, the others the reference evaluator only.
inline constexpr int first_general_op = static_cast<int>(Op::Abs);
inline bool is_general(Op op) { return static_cast<int>(op) >= first_general_op; }

// Arithmetic and traffic of one execution. A fused multiply-add is two operations; bytes count every operand and result
// once.
struct Work {
  Flops flops;
  Bytes bytes_read;
  Bytes bytes_written;
  friend bool operator==(const Work&, const Work&) = default;
  Work& operator+=(const Work& other);
};

using Types =
    std::span<const TensorType>;  // of the inputs; an absent optional input is a type with no shape and is last

struct AttrSpec {
  std::string_view name;
  char kind;  // i integer, f float, s string, l list of integers, d list of floats
};

// What the gradient computation of an operator is asked for.
struct GradientQuery {
  Types inputs, outputs;  // of the operator
  const Attrs& attrs;
  uint64_t by = 0;  // bit i: the gradient by input i is wanted
};

// What takes the gradient of the loss from an operator's outputs to its inputs.
struct Gradient {
  Flops flops = nlsplit::flops(0);
  uint64_t keeps_inputs = 0;  // bit i: it reads input i's value, so that must be kept since the forward pass
  bool keeps_output = false;  // it reads the output's value
  uint64_t passes = 0;        // bit i: the gradient by input i is the output's, unchanged: nothing to compute
};

struct OpInfo {
  Op op;
  std::string_view name;  // ONNX's
  int min_inputs;
  int max_inputs;                   // -1: any number
  bool is_view;                     // the output is the first input's bytes under another shape
  std::span<const AttrSpec> attrs;  // exactly these must be there
  // Types of the outputs, or why these inputs or attributes are not acceptable ("kernel 7x7 exceeds the padded input
  // 5x5").
  Result<std::vector<TensorType>> (*infer)(Types inputs, const Attrs& attrs);
  Flops (*flops)(Types inputs, Types outputs, const Attrs& attrs);
  // If input 0 (and every other input whose bit is set in `batched`) has one sample per index of axis 0, does the
  // output too, with each sample's value independent of the other samples? Inputs not in `batched` are the same for all
  // samples.
  bool (*keeps_batch)(Types inputs, uint64_t batched, const Attrs& attrs);
  Result<Gradient> (*gradient)(const GradientQuery& query);  // nullptr: none is known
};

const OpInfo& info(Op op);
inline std::string_view name_of(Op op) { return info(op).name; }
// ONNX's name, or nullopt-like none.
Result<Op> parse_op(std::string_view name);
bool is_view(Op op);
bool is_unary_elementwise(Op op);   // may be an epilogue step without operand
bool is_binary_elementwise(Op op);  // Add, Sub, Mul, Div

// Whole node including its epilogue: bytes of an epilogue's operand count, its intermediate results do not.
Work work_of(Op op, const Attrs& attrs, std::span<const EpilogueStep> epilogue, Types inputs, Types outputs);
Work work_of(const Graph& graph, const Node& node);

// The gradients by the inputs in `by`, given those of the outputs. Error: none is known ("no gradient of LSTM is
// known").
Result<Gradient> gradient_of(Op op, const GradientQuery& query);
// Its arithmetic and traffic: it reads the outputs' gradients and what was kept, and writes the inputs' gradients that
// do not just pass. Expects what gradient_of accepts.
Work gradient_work(Op op, const GradientQuery& query);

// Types of the inputs of a node, in the form `infer` takes.
std::vector<TensorType> input_types(const Graph& graph, const Node& node);

}  // namespace nlsplit
