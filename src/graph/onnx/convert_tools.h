// What the conversions of operators are written in.
#pragma once

#include <optional>

#include "graph/onnx/convert.h"

namespace nlsplit::inline graph {

using Converted = Result<ValueId>;

// The node that makes the ONNX node's first output, under its name.
Converted emit(const ConvertContext& c, Op op, std::vector<ValueId> inputs, Attrs attrs = {});
// An extra node in front of or behind the main one.
Converted emit_helper(const ConvertContext& c, Op op, const std::string& suffix, std::vector<ValueId> inputs,
                      Attrs attrs = {});
// All inputs as they are, up to the first that is left out.
Converted one_to_one(const ConvertContext& c, Op op, Attrs attrs = {});
Converted reshape_to(const ConvertContext& c, Shape shape);  // input 0, as the first output

// kernel_shape, strides, pads, dilations with their defaults, auto_pad resolved (ONNX: SAME_UPPER puts the odd one at
// the end).
Result<Attrs> window_attrs(const ConvertContext& c, const Shape& kernel, bool dilated);
// A list of one integer a spatial axis.
Result<std::vector<int64_t>> spatial_list(const ConvertContext& c, const std::string& name, size_t spatial,
                                          int64_t otherwise);

// Given as an attribute by older opsets and as input `i` by newer ones. Error: an input that is not constant.
Result<std::optional<std::vector<int64_t>>> integers(const ConvertContext& c, const std::string& attr, size_t i);
Result<std::optional<double>> number(const ConvertContext& c, const std::string& attr, size_t i);
// The same cut off to an integer. Error: beyond 2^53, or no number at all.
Result<std::optional<int64_t>> whole_number(const ConvertContext& c, const std::string& attr, size_t i);

// New constants, called like the node with the suffix.
ValueId filled(const ConvertContext& c, const std::string& suffix, TensorType type, double value);
ValueId listed(const ConvertContext& c, const std::string& suffix, const std::vector<int64_t>& values, Shape shape,
               DType type = DType::i64);

// [rows, columns] of bool, row after row; counted as effort of the import.
Result<ValueId> mask(const ConvertContext& c, const std::string& suffix, int64_t rows, int64_t columns,
                     const std::function<bool(int64_t row, int64_t column)>& is_set);

std::string output_name(const ConvertContext& c, size_t i);  // "" if nobody asked for it
bool wants_output(const ConvertContext& c, size_t i);

// The families. All outputs that could be made, or nothing where the operator is not of the family.
using MaybeConverted = Result<std::optional<std::vector<ValueId>>>;
MaybeConverted convert_arrangement(const ConvertContext& c);  // Concat, Reshape, Transpose, Pad, …
MaybeConverted convert_shapes(const ConvertContext& c);       // what else moves elements
MaybeConverted convert_composite(const ConvertContext& c);    // operators that are several of ours
MaybeConverted convert_attention(const ConvertContext& c);    // Attention, RotaryEmbedding
MaybeConverted convert_einsum(const ConvertContext& c);       // of one or two operands in floats
MaybeConverted convert_recurrent(const ConvertContext& c);    // LSTM, GRU, RNN
MaybeConverted convert_quantized(const ConvertContext& c);
MaybeConverted convert_images(const ConvertContext& c);  // Resize, RoiAlign, further outputs of MaxPool, …
Converted convert_reduction(const ConvertContext& c, Op op);
// What a conversion of one or of several outputs answers, in that form.
MaybeConverted one(Converted made);
MaybeConverted all(Result<std::vector<ValueId>> made);

}  // namespace nlsplit::inline graph
