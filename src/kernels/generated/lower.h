// From a computation to loops: one lowering a family of operators. What they compute is what the reference evaluator
// does (graph/reference), to the bit where no exponential or logarithm is in it: numbers in f64, rounded once.
//
//   if (std::string why = refuse_lowering(desc); why.empty()) Loops loops = lower(desc);
#pragma once

#include <string>

#include "kernels/catalogue.h"
#include "kernels/generated/writer.h"

namespace nlsplit::inline kernels {

bool has_loops(Op op);                                 // of some types
bool may_fold(Op op);                                  // some of its loops have folds
std::string refuse_lowering(const ComputeDesc& desc);  // why not, or ""; cheap, nothing is lowered
Loops lower(const ComputeDesc& desc);                  // one that is not refused

// ---- for the families

bool is_function_in_loops(Op op);    // of one operand
bool is_arithmetic_in_loops(Op op);  // of two
bool is_circular(Op op);             // of the functions: sines and their kin
bool is_comparison(Op op);
bool is_along_axes(Op op);  // reductions and what else folds
bool is_chain(Op op);       // Sum, Mean, Max, Min
std::string refuse_function(const ComputeDesc& desc);
std::string refuse_arithmetic(const ComputeDesc& desc);
Element function_in_loops(LoopWriter& w, Op op, const Attrs& attrs, const Element& x, DType result);
// In f64. wide: x may have more digits or larger exponents than f32 has.
int circular_function(LoopWriter& w, Op op, int x, bool wide);
Element arithmetic_in_loops(LoopWriter& w, Op op, const Attrs& attrs, const Element& a, const Element& b, DType result);
bool is_index_in_loops(DType type);
// Negative ones count from the end; outside counts as the nearest inside.
int index_inside(LoopWriter& w, const Element& index, int64_t extent);
// The epilogue, whose operands lie as the result does, at `place`. Its inputs are those behind the operator's own.
Element with_steps(LoopWriter& w, const ComputeDesc& desc, Element x, int place);
void add_inputs(LoopWriter& w, const ComputeDesc& desc);  // all of them, and the result's type
void finish(LoopWriter& w, const ComputeDesc& desc, const Element& x, int place);

Loops lower_elementwise(const ComputeDesc& desc);
Loops lower_quantization(const ComputeDesc& desc);
Loops lower_move(const ComputeDesc& desc);
Loops lower_gather(const ComputeDesc& desc);
Loops lower_scatter(const ComputeDesc& desc);
Loops lower_einsum(const ComputeDesc& desc);
Loops lower_sampling(const ComputeDesc& desc);
Loops lower_windows(const ComputeDesc& desc);
Loops lower_along_axes(const ComputeDesc& desc);
std::string refuse_along_axes(const ComputeDesc& desc);
Loops lower_resize(const ComputeDesc& desc);
std::string refuse_move(const ComputeDesc& desc);
std::string refuse_gather(const ComputeDesc& desc);
std::string refuse_scatter(const ComputeDesc& desc);
std::string refuse_einsum(const ComputeDesc& desc);
std::string refuse_sampling(const ComputeDesc& desc);
std::string refuse_windows(const ComputeDesc& desc);
std::string refuse_resize(const ComputeDesc& desc);

}  // namespace nlsplit::inline kernels
