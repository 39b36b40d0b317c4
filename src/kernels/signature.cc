#include "kernels/signature.h"

#include <fmt/format.h>

#include "base/text_reader.h"
#include "graph/attr_text.h"

namespace nlsplit::inline kernels {
namespace {

constexpr std::string_view arrow = " -> ", weight_mark = "const ";

// "f32[8,3], const f32[16]": commas within a type have no space after them.
Status read_types(std::string_view text, std::string_view between, ComputeDesc* marked,
                  std::vector<TensorType>& types) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(between), text.size());
    std::string_view one = text.substr(0, end);
    if (marked != nullptr && one.starts_with(weight_mark)) {
      one.remove_prefix(weight_mark.size());
      if (types.size() < 64) marked->weights |= uint64_t{1} << types.size();
    }
    ASSIGN_OR_RETURN(TensorType type, parse_tensor_type(one));
    RETURN_IF_ERROR(check_type(type));
    types.push_back(std::move(type));
    text.remove_prefix(std::min(end + between.size(), text.size()));
  }
  return ok_status();
}

// "{axis=1} + Relu + Clip {max=6.0, min=0.0}"
Status read_attrs_and_steps(std::string_view text, ComputeDesc& desc) {
  TextReader in(text, "");
  if (!in.next_line()) return ok_status();
  if (in.peek() == "{") {
    ASSIGN_OR_RETURN(desc.attrs, parse_attrs(in));
  }
  while (in.accept("+")) {
    DescStep step;
    ASSIGN_OR_RETURN(const std::string_view word, in.word("an operator"));
    ASSIGN_OR_RETURN(step.op, parse_op(word));
    if (in.peek() == "{") {
      ASSIGN_OR_RETURN(step.attrs, parse_attrs(in));
    }
    desc.epilogue.push_back(std::move(step));
  }
  RETURN_IF_ERROR(in.end_of_line());
  return in.next_line() ? Status(invalid_input("it has several lines")) : ok_status();
}

Result<ComputeDesc> read(std::string_view text) {
  const size_t open = text.find('('), close = text.find(')'), end = text.rfind(arrow);
  if (open == text.npos || close == text.npos || end == text.npos || close < open || end < close)
    return invalid_input("it is not \"KERNEL OPERATOR(TYPES) -> TYPES\"");
  ComputeDesc desc;
  std::string_view op = text.substr(0, open);
  if (const size_t space = op.find(' '); space != op.npos) {
    ASSIGN_OR_RETURN(desc.kernel, parse_kernel(op.substr(0, space)));
    op.remove_prefix(space + 1);
  }
  ASSIGN_OR_RETURN(desc.op, parse_op(op));
  RETURN_IF_ERROR(read_types(text.substr(open + 1, close - open - 1), ", ", &desc, desc.inputs));
  RETURN_IF_ERROR(read_attrs_and_steps(text.substr(close + 1, end - close - 1), desc));
  RETURN_IF_ERROR(read_types(text.substr(end + arrow.size()), " ", nullptr, desc.outputs));
  return desc;
}

}  // namespace

Result<ComputeDesc> parse_signature(std::string_view text) {
  auto desc = read(text);
  if (desc && signature(*desc) != text) desc = invalid_input(fmt::format("it would be \"{}\"", signature(*desc)));
  if (desc) return desc;
  Error error = invalid_input("this is not a signature of a computation: " + desc.error().message);
  error.fragment = text;
  return error;
}

}  // namespace nlsplit::inline kernels
