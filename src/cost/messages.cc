#include "cost/messages.h"

#include "graph/operators/op.h"

namespace nlsplit::inline cost {

bool may_travel_as(DType type) { return type == DType::f32 || is_half(type); }

DType travels_as(const Graph& graph, ValueId root, bool is_output, DType messages) {
  const Value& value = graph.value(root);
  const bool as_it_is = value.type.dtype != DType::f32 || value.kind != ValueKind::node || is_output ||
                        graph.node(value.producer).op == Op::TopK;
  return as_it_is ? value.type.dtype : messages;
}

TensorType traveling(TensorType type, DType as) {
  type.dtype = as;
  return type;
}

}  // namespace nlsplit::inline cost
