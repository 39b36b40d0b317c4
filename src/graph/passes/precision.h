// The element type a network computes in, as a rewriting: every float32 tensor becomes float16 or bfloat16, and Casts
// stand where the graph's own inputs and outputs, which stay as they are, begin and end. Behind the passes
// (graph/passes/passes.h), which know float32. Costs, memory and messages follow from the types.
//
//   ASSIGN_OR_RETURN(const DType type, parse_precision("float16"));
//   ASSIGN_OR_RETURN(graph, with_precision(graph, weights, type));
#pragma once

#include <span>
#include <string_view>

#include "graph/graph.h"
#include "graph/operators/operator.h"
#include "graph/passes/passes.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

// f16 or bf16; f32 changes nothing, and is refused if a value has fewer bits. Weights become recipes
// (Derivation::to_f16): nothing is converted until they are read. In float32 stay operators whose operands are
// positions or scales, and what is computed from integers alone; precision.cc says which and why. Tensors of other
// types than f32 stay what they are.
// For training (mixed precision, Micikevicius et al., ICLR 2018, section 3.1): weights stay f32, and each node that
// reads one in bf16 has a Cast of its own, so that gradients reach the weights in f32. Also in float32 stay
// normalizations, sums, powers and logarithms. Error: f16, whose gradients need loss scaling.
Result<Graph> with_precision(const Graph& graph, WeightStore& weights, DType type,
                             Purpose purpose = Purpose::inference);

// Of two types of floats the one with fewer bits of significand; bf16 has the fewest, f32 stands for all wider ones.
DType coarser(DType a, DType b);
DType coarsest_type(const Graph& graph);  // of its values, and of what its nodes round operands to
// What an operator rounds an operand to: bf16 where Linear's weights share scales. Its kernel makes blocks of bytes of
// x, as many bits as bf16 has. Else f32.
DType rounded_operand(Op op, Types inputs);

std::span<const std::string_view> precision_words();   // "float32", "float16", "bfloat16"
Result<DType> parse_precision(std::string_view word);  // error: it has those there are

}  // namespace nlsplit::inline graph
