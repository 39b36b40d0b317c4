// The table of operators: one row each, in the file of its family beside this one. A new operator has a line in
// operators.def and a row; a row with a missing entry does not compile, an operator without a row does not link. Not in
// the row: its form in ONNX files (graph/onnx/), its reference evaluation (graph/reference/), and a fast
// kernel if the reference loops do not suffice (a family of src/kernels/).
//
//   info(Op::Conv).infer(types, attrs)
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/operators/attributes.h"
#include "graph/operators/op.h"
#include "graph/operators/piece.h"

namespace nlsplit::inline graph {

class Backward;  // graph/differentiate/backward.h

// The gradients of an operator's inputs: the rule that makes their nodes, or why there is none.
enum class NoGradient : uint8_t {
  flat,         // results jump or stay as they are when an input changes a little: rounding, comparisons, indices, bits
  of_a_step,    // of a training step: gradients and updates, which are not differentiated again
  of_a_cache,   // of the caches of text generation, which are not trained through
  of_a_choice,  // of the rows' choice of experts: there is no rule yet
};
struct Gradient {
  using Rule = void (*)(Backward& b);
  constexpr Gradient(Rule makes) : rule(makes) {}
  constexpr Gradient(NoGradient reason) : none(reason) {}
  Rule rule = nullptr;
  NoGradient none{};  // where there is no rule
};

// Arithmetic and traffic of one execution. A fused multiply-add is two operations; bytes count every operand and result
// once.
struct Work {
  Flops flops;
  Bytes bytes_read;
  Bytes bytes_written;
  friend bool operator==(const Work&, const Work&) = default;
  Work& operator+=(const Work& other);
};

// How an operator multiplies x (input 0) by weights (input 1), and adds a bias (input 2).
struct WeightProduct {
  int columns = -1;         // the axis of the result that the weights' columns make; a bias has a value for each
  int weight_columns = -1;  // these, in the weights
  int64_t grain = 1;        // columns that are together: of a group
  int summed = -1;          // the axis of x that is summed over; -1: sums are of groups
  int weight_rows = -1;     // that axis, in the weights
};
using ProductRule = WeightProduct (*)(Types inputs, const Attrs& attrs);

// Scalars that an operator reads at run time: lengths, offsets, indices or counts, from 0 on. values[i]: all elements
// of input i; empty: it is no such input, or its values are unknown and count as the largest.
using ScalarValues = std::span<const std::vector<int64_t>>;

struct ScalarInputs {
  // The largest value of input i that is safe; none: it is no such input. Of types that `infer` accepts.
  std::optional<int64_t> (*largest)(Types inputs, const Attrs& attrs, size_t i);
  // The work with these values; nullptr: it does not depend on them.
  Work (*work)(Types inputs, Types outputs, const Attrs& attrs, ScalarValues values);
};

// Facts that are true or not.
namespace traits {
inline constexpr uint32_t none = 0;
inline constexpr uint32_t is_view_of_first = 1 << 0;      // the output is the first input's bytes under another shape
inline constexpr uint32_t maps_elements = 1 << 1;         // one operand; each result is of the element there alone
inline constexpr uint32_t is_step = 1 << 2;               // may be an epilogue step without an operand of its own
inline constexpr uint32_t is_step_with_operand = 1 << 3;  // with one: result first, then the operand
inline constexpr uint32_t takes_steps = 1 << 4;           // its kernels compute an epilogue
inline constexpr uint32_t has_kernels = 1 << 5;           // in f32 it is never left to the reference loops
inline constexpr uint32_t takes_out = 1 << 6;             // of its first input it reads what it writes, not all
// Stays f32 in a network of halves: its operands are places in an image, indices, steps of quantization or sums that
// grow, which 11 bits do not hold (as DEFAULT_OP_BLOCK_LIST of onnxconverter-common's float16.py).
inline constexpr uint32_t stays_f32 = 1 << 7;
// ONNX files have its inputs and attributes as the row has them, with the same usual values, in every opset. Others are
// read by graph/onnx/convert*.cc.
inline constexpr uint32_t plain_in_onnx = 1 << 8;
inline constexpr uint32_t not_in_onnx = 1 << 9;  // an operator of ours alone
// Of one operand, a result of its type is that operand.
inline constexpr uint32_t is_first_alone = 1 << 11;
inline constexpr uint32_t later_in_onnx = 1 << 10;  // not in the opset that export writes, or a part of another there
inline constexpr uint32_t reads_scaled = 1 << 12;   // operands may be weights of q8_0 and q4_0
inline constexpr uint32_t changes_first = 1
                                          << 13;  // the first operand with a part of it written anew: of a state, there
}  // namespace traits

struct Operator {
  Op op;
  std::string_view name;  // ONNX's
  int min_inputs;
  int max_inputs;                   // -1: any number
  std::span<const AttrSpec> attrs;  // exactly these must be there
  // Types of the outputs, or why these inputs or attributes are not acceptable ("kernel 7x7 exceeds the padded input
  // 5x5").
  Result<std::vector<TensorType>> (*infer)(Types inputs, const Attrs& attrs);
  Flops (*flops)(Types inputs, Types outputs, const Attrs& attrs);
  // If input 0 (and every other input whose bit is set in `batched`) has one sample per index of axis 0, does the
  // output too, with each sample's value independent of the other samples? Inputs not in `batched` are the same for all
  // samples.
  bool (*keeps_batch)(Types inputs, uint64_t batched, const Attrs& attrs);
  SplitRule split;  // piece.h; no_split: every axis is mixed, or no rule was written
  Gradient gradient;
  uint32_t traits;
  ProductRule product = nullptr;          // nullptr: it is none
  const ScalarInputs* scalars = nullptr;  // none: it reads none
  // The work where that is not all operands once; nullptr: it is, or the scalars say.
  Work (*work)(Types inputs, Types outputs, const Attrs& attrs) = nullptr;
};

const Operator& info(Op op);
// What its row infers. A row knows nothing of scales: an operand whose elements share them counts as the other floats
// among the operands, else as f32. Error as well: the operator does not read such (traits::reads_scaled).
Result<std::vector<TensorType>> infer(Op op, Types inputs, const Attrs& attrs);
inline std::string_view name_of(Op op) { return info(op).name; }
// By ONNX's name. Error: unknown; suggests a similar one.
Result<Op> parse_op(std::string_view name);

inline bool has(Op op, uint32_t trait) { return (info(op).traits & trait) != 0; }
inline bool is_view(Op op) { return has(op, traits::is_view_of_first); }

// Whole node including its epilogue: bytes of an epilogue's operand count, its intermediate results do not. `values`:
// of its scalars; none: the largest.
Work work_of(Op op, const Attrs& attrs, std::span<const EpilogueStep> epilogue, Types inputs, Types outputs,
             ScalarValues values = {});
Work work_of(const Graph& graph, const Node& node);

// Types of the inputs of a node, in the form `infer` takes.
std::vector<TensorType> input_types(const Graph& graph, const Node& node);

}  // namespace nlsplit::inline graph
