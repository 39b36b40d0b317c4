#include "program/text_fields.h"

#include <fmt/format.h>

#include <limits>

namespace nlsplit::inline program {

Result<std::string> read_name(TextReader& in, std::string_view what) {
  if (in.peek().starts_with('"')) return in.quoted(what);
  ASSIGN_OR_RETURN(const std::string_view word, in.word(what));
  return std::string(word);
}

Result<int64_t> read_integer(TextReader& in, std::string_view what, int64_t low, int64_t high) {
  ASSIGN_OR_RETURN(const int64_t value, in.integer(what));
  if (value < low || value > high) return in.error(fmt::format("{} must be {} … {}", what, low, high));
  return value;
}

Result<int> read_small(TextReader& in, std::string_view what, int low) {
  ASSIGN_OR_RETURN(const int64_t value, read_integer(in, what, low, std::numeric_limits<int>::max() / 2));
  return static_cast<int>(value);
}

Result<int64_t> read_keyed(TextReader& in, std::string_view key) {
  RETURN_IF_ERROR(in.expect(key));
  return read_integer(in, key, 0, std::numeric_limits<int64_t>::max());
}

Result<KernelId> read_kernel(TextReader& in) {
  ASSIGN_OR_RETURN(const std::string_view word, in.word("a kernel"));
  const auto kernel = parse_kernel(word);
  if (!kernel) return in.error(kernel.error().message);
  return *kernel;
}

Error unknown_name(const TextReader& in, std::string_view what, std::string_view name, const std::string& hint) {
  return in.error(
      fmt::format("unknown {} {}{}", what, name, hint.empty() ? "" : fmt::format("; did you mean {}?", hint)));
}

Result<TensorType> read_type(TextReader& in) {
  ASSIGN_OR_RETURN(const std::string_view dtype, in.word("a tensor type such as f32[8,3]"));
  std::string text(dtype);
  RETURN_IF_ERROR(in.expect("["));
  text += "[";
  while (!in.accept("]")) {
    if (in.at_end_of_line()) return in.error("the type's ] is missing");
    text += in.peek();
    (void)in.accept(in.peek());
  }
  text += "]";
  for (const std::string_view block : {"c4", "c8", "c16"}) {
    if (in.accept(block)) text += block;
  }
  auto parsed = parse_tensor_type(text);
  if (!parsed) return in.error(parsed.error().message);
  return std::move(parsed).value();
}

}  // namespace nlsplit::inline program
