#include "graph/operators/attributes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/operators/operator.h"

namespace nlsplit::inline graph {
namespace {

UsualValue usual_value(const AttrSpec& spec, Types inputs) {
  if (!spec.has_usual) return std::nullopt;
  switch (spec.kind) {
    case 'i':
      return spec.integer;
    case 'f':
      return spec.real;
    case 's':
      return std::string(spec.text);
    default:
      return spec.list(inputs);
  }
}

bool is_kind(const AttrValue& value, char kind) {
  switch (kind) {
    case 'i':
      return std::holds_alternative<int64_t>(value);
    case 'f':
      return std::holds_alternative<double>(value);
    case 's':
      return std::holds_alternative<std::string>(value);
    case 'd':
      return std::holds_alternative<std::vector<double>>(value);
    case 'l':
      return std::holds_alternative<std::vector<int64_t>>(value);
    default:
      return false;
  }
}

// As they are written: 0.0 and -0.0 are not the same.
bool same_text(const Attr& a, const Attr& b) { return to_string(Attrs{a}) == to_string(Attrs{b}); }

}  // namespace

Status check_attrs(std::string_view op, std::span<const AttrSpec> specs, const Attrs& attrs) {
  for (const AttrSpec& spec : specs) {
    const AttrValue* value = find_attr(attrs, spec.name);
    if (value == nullptr) return invalid_input(fmt::format("attribute {} is missing", spec.name));
    if (!is_kind(*value, spec.kind)) return invalid_input(fmt::format("attribute {} has the wrong type", spec.name));
    if (spec.kind == 'f' && std::isnan(std::get<double>(*value)))
      return invalid_input(fmt::format("attribute {} is not a number", spec.name));
  }
  if (attrs.size() != specs.size()) {
    for (const Attr& attr : attrs) {
      const bool known = std::ranges::any_of(specs, [&](const AttrSpec& spec) { return spec.name == attr.name; });
      if (!known) return invalid_input(fmt::format("{} has no attribute {}", op, attr.name));
    }
  }
  return ok_status();
}

Attrs default_attrs(Op op, Types inputs) {
  Attrs attrs;
  for (const AttrSpec& spec : info(op).attrs) {
    if (UsualValue usual = usual_value(spec, inputs)) set_attr(attrs, std::string(spec.name), std::move(*usual));
  }
  return attrs;
}

Attrs without_defaults(Op op, const Attrs& attrs, Types inputs) {
  const Attrs defaults = default_attrs(op, inputs);
  Attrs rest = attrs;
  std::erase_if(rest, [&](const Attr& attr) {
    for (const Attr& usual : defaults) {
      if (usual.name == attr.name) return usual.value.index() == attr.value.index() && same_text(usual, attr);
    }
    return false;
  });
  return rest;
}

void add_defaults(Op op, Types inputs, Attrs& attrs) {
  for (Attr& usual : default_attrs(op, inputs)) {
    if (find_attr(attrs, usual.name) == nullptr) set_attr(attrs, usual.name, std::move(usual.value));
  }
}

}  // namespace nlsplit::inline graph
