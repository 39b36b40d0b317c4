#include "graph/attr_text.h"

#include <fmt/format.h>

namespace nlsplit::inline graph {
namespace {

constexpr size_t most_attrs = 256;  // they are kept sorted, each where it belongs

// A number with a point, an exponent, or inf is a float.
bool floats_follow(TextReader& in) { return in.peek().find_first_of(".einf") != std::string_view::npos; }

template <class T, class Read>
Result<AttrValue> parse_list(TextReader& in, Read read) {
  std::vector<T> list;
  while (true) {
    ASSIGN_OR_RETURN(list.emplace_back(), read());
    if (in.accept("]")) return AttrValue(std::move(list));
    RETURN_IF_ERROR(in.expect(","));
  }
}

Result<AttrValue> parse_value(TextReader& in) {
  if (in.peek().starts_with('"')) {
    ASSIGN_OR_RETURN(std::string text, in.quoted("a string"));
    return AttrValue(std::move(text));
  }
  if (in.accept("[")) {
    if (in.accept("]")) return AttrValue(std::vector<int64_t>{});
    if (floats_follow(in)) return parse_list<double>(in, [&] { return in.number("a number"); });
    return parse_list<int64_t>(in, [&] { return in.integer("an integer"); });
  }
  if (floats_follow(in)) {
    ASSIGN_OR_RETURN(const double value, in.number("a number"));
    return AttrValue(value);
  }
  ASSIGN_OR_RETURN(const int64_t value, in.integer("a value"));
  return AttrValue(value);
}

}  // namespace

Result<Attrs> parse_attrs(TextReader& in) {
  Attrs attrs;
  RETURN_IF_ERROR(in.expect("{"));
  if (in.accept("}")) return attrs;
  while (true) {
    ASSIGN_OR_RETURN(const std::string_view word, in.word("an attribute's name"));
    const std::string name(word);
    if (attrs.size() == most_attrs) return in.error(fmt::format("more than {} attributes", most_attrs));
    if (find_attr(attrs, name) != nullptr) return in.error(fmt::format("attribute {} stands twice", name));
    RETURN_IF_ERROR(in.expect("="));
    ASSIGN_OR_RETURN(AttrValue value, parse_value(in));
    set_attr(attrs, name, std::move(value));
    if (in.accept("}")) return attrs;
    RETURN_IF_ERROR(in.expect(","));
  }
}

}  // namespace nlsplit::inline graph
