// Graph: a neural network as a value. Nodes in topological order, values in SSA form, weights by reference. docs/ir.md
// is the specification of its text.
//
//   graph "toy"
//   input %x f32[1,3,8,8]
//   weight %w f32[16,3,3,3] content 9c1e04d2a8b1f370
//   state %keys f32[1,3,512,64]
//   %y f32[1,16,8,8] = Conv(%x, %w) {pads=[1,1,1,1]} as "conv1"
//   output %y
//
// A fused node carries an epilogue: element-wise steps applied to its (one) output, each with the name of the node it
// came from:
//   %r … = Conv(%x, %w, %b) {…} as "conv1" + Add(%skip) as "add1" + Relu as "relu1"
//
// Values are never changed after they were made except through functions that return a new Graph
// (graph/passes/passes.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "base/units.h"

namespace nlsplit::inline graph {

// The reference evaluator computes all of them; fast kernels are for f32, f16 and bf16 (kernels/catalogue.h).
//
// Of q8_0 to q6_k neighbours along the last axis share scales, in blocks as in GGUF (block_q8_0 and so on of
// llama.cpp's ggml-common.h). In a block of 32 the scale d comes first, in f16, and then
//   q8_0: 32 signed bytes q; an element is d * q
//   q4_0: 16 bytes: byte i has q of element i in its low half, of element i + 16 in its high half; an element is
//         d * (q - 8)
//   q4_1: an offset m in f16 and bytes as in q4_0; an element is d * q + m
//   q5_0: 32 bits, the highest of each q, and bytes as in q4_0; an element is d * (q - 16)
// In a block of 256
//   q4_k: 32 neighbours share a scale and an offset of 6 bits; q has 4 bits
//   q6_k: 16 neighbours share a scale of 8 bits; q has 6 bits
// (graph/ggml.cc says where the bits are). Of a graph's values only weights have such types; in a Program messages may
// be q8_0 (cost/messages.h). Cast, Gather, Gemm, MatMul and Linear read them (traits::reads_scaled).
enum class DType : uint8_t {
  f32,
  i64,
  i32,
  boolean,
  f16,
  bf16,
  f64,
  i8,
  u8,
  i16,
  u16,
  u32,
  u64,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q4_k,
  q6_k
};

std::string_view name_of(DType type);  // "f32", "i64", …
std::span<const DType> all_dtypes();
Result<DType> parse_dtype(std::string_view name);
int64_t block_of(DType type);  // elements that are stored together: 32 or 256 of those with a scale, else 1
int64_t size_of(DType type);   // bytes of an element; of types without a scale only
int64_t size_of(DType type, int64_t elements);  // of whole blocks
bool is_real(DType type);                       // f32, f16, bf16, f64
bool is_half(DType type);                       // f16, bf16
bool is_whole(DType type);                      // signed and unsigned integers; not bool
bool is_scaled(DType type);                     // q8_0, q4_0, q4_1, q5_0, q4_k, q6_k

using Shape = std::vector<int64_t>;         // [] is a scalar; every extent >= 0 and known
int64_t element_count(const Shape& shape);  // 1 for a scalar

// How elements lie in memory: block 0 is row-major. Block b, of the axes N, C, H, W or N, C, L only: channels innermost
// in blocks of b, [N][ceil(C / b)][H][W][b]; lanes past C have no meaning. Graphs are row-major throughout; kernels
// choose blocks (kernels/assign.h).
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  int block = 0;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};
int64_t stored_elements(const TensorType& type);  // lanes past the last channel included
Bytes size_of(const TensorType& type);            // of what is stored
TensorType with_block(TensorType type, int block);
std::string to_string(const TensorType& type);  // "f32[8,3,224,224]", "f32[8,64,56,56]c16" in blocks of 16
Result<TensorType> parse_tensor_type(std::string_view text);
// No exporter writes nearly as many, but a Gather of a tensor from itself doubles them each time.
inline constexpr size_t most_axes = 64;
// Error: a negative extent, more elements than sums of byte counts can hold (2^40; a zero extent is one), more than
// most_axes, a block no kernel has, a last axis that does not end with a block that shares a scale. Whoever takes
// extents from outside calls it before any arithmetic on them.
Status check_type(const TensorType& type);

// Attributes of a node, sorted by name. After import every attribute the operator's semantics need is present
// (graph/operators/operators.def lists them), so no later code needs defaults or opsets.
using AttrValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;
struct Attr {
  std::string name;
  AttrValue value;
  friend bool operator==(const Attr&, const Attr&) = default;
};
using Attrs = std::vector<Attr>;

const AttrValue* find_attr(const Attrs& attrs, std::string_view name);
void set_attr(Attrs& attrs, std::string_view name, AttrValue value);  // inserts or replaces, keeps the order
// Of the named type, or CHECK-fails: the type rules of graph/operators/ have seen to it that it is there.
int64_t attr_int(const Attrs& attrs, std::string_view name);
double attr_float(const Attrs& attrs, std::string_view name);
const std::string& attr_string(const Attrs& attrs, std::string_view name);
const std::vector<int64_t>& attr_ints(const Attrs& attrs, std::string_view name);
const std::vector<double>& attr_floats(const Attrs& attrs, std::string_view name);
std::string to_string(const Attrs& attrs);  // "{axis=1, pads=[0,0,0,0]}", "" if there are none

// What a weight's bytes are, whatever their shape: equal ids, equal bytes. graph/weights.h makes and resolves them.
struct ContentId {
  uint64_t value = 0;
  friend auto operator<=>(const ContentId&, const ContentId&) = default;
};

enum class Op : uint8_t;  // graph/operators/op.h

using ValueId = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;

enum class ValueKind : uint8_t { input, weight, node };

struct Value {
  std::string name;  // unique in the graph
  TensorType type;
  ValueKind kind = ValueKind::node;
  NodeId producer;     // kind == node
  ContentId content;   // kind == weight, but of a state
  bool state = false;  // a weight that lasts: zeros at first, then what the last execution has left (state_updates)
  friend bool operator==(const Value&, const Value&) = default;
};

// One element-wise step on a node's only output, in order: out = op(out) or out = op(out, operand).
// Unary: Relu, Clip, Sigmoid, HardSigmoid, HardSwish, Tanh, LeakyRelu, Gelu. Binary (operand of the output's own
// shape): Add, Mul.
struct EpilogueStep {
  Op op{};
  ValueId operand;  // none for a unary step
  Attrs attrs;
  std::string name;  // of the node it was
  friend bool operator==(const EpilogueStep&, const EpilogueStep&) = default;
};

struct Node {
  Op op{};
  std::string name;             // the model's own, unique; layers are named by it ("layer2.3.conv1")
  std::vector<ValueId> inputs;  // an optional input left out is ValueId()
  std::vector<ValueId> outputs;
  Attrs attrs;
  std::vector<EpilogueStep> epilogue;
  friend bool operator==(const Node&, const Node&) = default;
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;      // topological: a node's inputs are made by earlier nodes
  std::vector<ValueId> inputs;  // weights are not inputs
  std::vector<ValueId> outputs;

  const Value& value(ValueId id) const { return values[id.index()]; }
  const Node& node(NodeId id) const { return nodes[id.index()]; }
  friend bool operator==(const Graph&, const Graph&) = default;
};

// A node that changes a state: its first result is what the state holds afterwards. It writes there, and copies
// nothing.
struct StateUpdate {
  ValueId state;
  ValueId value;  // of the node that changes it
  friend bool operator==(const StateUpdate&, const StateUpdate&) = default;
};
// Of the graph's states, by node. An operator changes its first operand if it has traits::changes_first and that is a
// state.
std::vector<StateUpdate> state_updates(const Graph& graph);

// All values a node reads: its inputs that are present, then its epilogue's operands.
std::vector<ValueId> reads_of(const Node& node);

// Names unique, ids in range and in the order of the text form (so topological), types as the op table infers them;
// a state is read once, by the node that changes it.
// The message names the node or value.
Status verify(const Graph& graph);

// The text form shown above, attributes only where they are not the default (graph/operators/attributes.h).
// to_string(with_costs) adds "# 7.1 MFLOP, 1.2 MiB" comments; parse ignores comments. parse_graph(to_string(g)) == g.
std::string to_string(const Graph& graph, bool with_costs = false);
Result<Graph> parse_graph(std::string_view text, const std::string& file);

}  // namespace nlsplit::inline graph
