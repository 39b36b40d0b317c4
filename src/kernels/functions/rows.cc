// Element-wise operators: what their kernels accept.
#include "kernels/rows.h"

namespace nlsplit::inline kernels {
namespace {

constexpr Op unary_functions[] = {
#define NLS_UNARY(name, value) Op::name,
#include "kernels/functions/unary.def"
};

constexpr Op unary_gradients[] = {
#define NLS_UNARY_GRADIENT(name, value) Op::name,
#include "kernels/functions/unary_gradient.def"
};

// Blocked ones broadcast nothing.
std::string refuse_binary(const ComputeDesc& desc) {
  if (std::string why = refuse_many_axes(desc); !why.empty()) return why;
  if (desc.outputs[0].block == 0 || desc.inputs[0].shape == desc.inputs[1].shape) return {};
  return "it broadcasts only row-major tensors";
}

// Beside the samples there are whole numbers.
std::string refuse_dropout(const ComputeDesc& desc) {
  if (!desc.epilogue.empty()) return "there are steps after it";
  return desc.inputs[0].dtype == DType::f32 ? "" : "it is not of f32";
}

}  // namespace

const KernelInfo rows::binary = {.what = "element-wise on two operands, numpy broadcasting",
                                 .ops = computes<Op::Add, Op::Sub, Op::Mul, Op::Div>,
                                 .layouts = Layouts::one,
                                 .refuses = refuse_binary,
                                 .exact_axes = exact::all,
                                 .in_place = over_either};

const KernelInfo rows::sum = {.what = "element-wise sum of any number of operands, in their order",
                              .ops = computes<Op::Sum>,
                              .layouts = Layouts::one,
                              .exact_axes = exact::all,
                              .in_place = over_first};

const KernelInfo rows::unary_gradient = {.what = "dy times the slope of an element-wise function",
                                         .ops = unary_gradients,
                                         .layouts = Layouts::one,
                                         .exact_axes = exact::all,
                                         .in_place = over_either};

const KernelInfo rows::dropout = {.what = "dropout in training, by numbers of the element's place",
                                  .ops = computes<Op::DropoutTraining>,
                                  .refuses = refuse_dropout,
                                  .any_type = true,
                                  .in_place = over_first};

const KernelInfo rows::unary = {.what = "element-wise on one operand",
                                .ops = unary_functions,
                                .layouts = Layouts::one,
                                .exact_axes = exact::all,
                                .in_place = over_first};

}  // namespace nlsplit::inline kernels
