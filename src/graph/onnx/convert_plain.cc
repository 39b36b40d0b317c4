// Operators whose inputs and attributes are ours: a row has the attributes' defaults.
#include <algorithm>
#include <span>

#include "graph/onnx/convert_tools.h"

namespace nlsplit {
namespace {

struct Param {
  std::string_view name;
  char kind;  // i, f, s as in the op table
  double number = 0;
  std::string_view text = {};
};
struct Row {
  Op op;
  std::span<const Param> params;
};

// ONNX's defaults are 32-bit floats.
constexpr double f32(float value) { return static_cast<double>(value); }

constexpr Param alpha_one[] = {{"alpha", 'f', 1}};
constexpr Param selu[] = {{"alpha", 'f', f32(1.67326319217681884765625f)},
                          {"gamma", 'f', f32(1.05070102214813232421875f)}};
constexpr Param shrink[] = {{"bias", 'f', 0}, {"lambd", 'f', 0.5}};
constexpr Param is_inf[] = {{"detect_negative", 'i', 1}, {"detect_positive", 'i', 1}};
constexpr Param mod[] = {{"fmod", 'i', 0}};
constexpr Param shift[] = {{"direction", 's', 0, ""}};
constexpr Param arg[] = {{"axis", 'i', 0}, {"keepdims", 'i', 1}, {"select_last_index", 'i', 0}};
constexpr Param axis_zero[] = {{"axis", 'i', 0}};
constexpr Param gather_nd[] = {{"batch_dims", 'i', 0}};
constexpr Param scatter[] = {{"axis", 'i', 0}, {"reduction", 's', 0, "none"}};
constexpr Param scatter_nd[] = {{"reduction", 's', 0, "none"}};
constexpr Param reverse[] = {{"batch_axis", 'i', 1}, {"time_axis", 'i', 0}};
constexpr Param einsum[] = {{"equation", 's', 0, ""}};

constexpr Row rows[] = {
    {Op::Celu, alpha_one},
    {Op::Elu, alpha_one},
    {Op::Selu, selu},
    {Op::Shrink, shrink},
    {Op::ThresholdedRelu, alpha_one},
    {Op::IsInf, is_inf},
    {Op::Mod, mod},
    {Op::BitShift, shift},
    {Op::ArgMax, arg},
    {Op::ArgMin, arg},
    {Op::Gather, axis_zero},
    {Op::GatherElements, axis_zero},
    {Op::GatherND, gather_nd},
    {Op::ScatterElements, scatter},
    {Op::ScatterND, scatter_nd},
    {Op::ReverseSequence, reverse},
    {Op::Einsum, einsum},
};

// Without attributes, and the same in every opset.
constexpr Op bare[] = {
    Op::Abs,        Op::Acos,        Op::Acosh, Op::Asin,  Op::Asinh,    Op::Atan,       Op::Atanh,
    Op::Ceil,       Op::Cos,         Op::Cosh,  Op::Floor, Op::Log,      Op::Mish,       Op::Reciprocal,
    Op::Round,      Op::Sign,        Op::Sin,   Op::Sinh,  Op::Softplus, Op::Softsign,   Op::Tan,
    Op::Not,        Op::BitwiseNot,  Op::IsNaN, Op::Pow,   Op::PRelu,    Op::BitwiseAnd, Op::BitwiseOr,
    Op::BitwiseXor, Op::And,         Op::Or,    Op::Xor,   Op::Equal,    Op::Greater,    Op::GreaterOrEqual,
    Op::Less,       Op::LessOrEqual, Op::Where, Op::Max,   Op::Mean,     Op::Min,        Op::Det,
};

Attrs attrs_of(const ConvertContext& c, std::span<const Param> params) {
  Attrs attrs;
  for (const Param& param : params) {
    const std::string name(param.name);
    if (param.kind == 'i')
      set_attr(attrs, name, int_attr(c.node, name, static_cast<int64_t>(param.number)));
    else if (param.kind == 'f')
      set_attr(attrs, name, float_attr(c.node, name, param.number));
    else
      set_attr(attrs, name, string_attr(c.node, name, std::string(param.text)));
  }
  return attrs;
}

}  // namespace

MaybeConverted convert_plain(const ConvertContext& c) {
  const std::string_view op = c.node.op == "Scatter" ? "ScatterElements" : std::string_view(c.node.op);  // before 11
  for (const Op known : bare) {
    if (name_of(known) == op) return one(one_to_one(c, known));
  }
  for (const Row& row : rows) {
    if (name_of(row.op) == op) return one(one_to_one(c, row.op, attrs_of(c, row.params)));
  }
  return std::optional<std::vector<ValueId>>();
}

}  // namespace nlsplit
