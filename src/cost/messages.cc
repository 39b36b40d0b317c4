#include "cost/messages.h"

#include "graph/operators/op.h"

namespace nlsplit::inline cost {

bool may_travel_as(DType type) { return type == DType::f32 || is_half(type) || type == DType::q8_0; }

DType travels_as(const Graph& graph, ValueId root, bool is_output, DType messages) {
  const Value& value = graph.value(root);
  const bool as_it_is = value.type.dtype != DType::f32 || value.kind != ValueKind::node || is_output ||
                        graph.node(value.producer).op == Op::TopK;
  if (as_it_is) return value.type.dtype;
  const Shape& shape = value.type.shape;
  const bool whole_blocks = !shape.empty() && shape.back() % block_of(messages) == 0;
  return whole_blocks || !is_scaled(messages) ? messages : DType::f16;
}

double least_message_bytes(const TensorType& type, DType messages) {
  if (type.dtype != DType::f32) return static_cast<double>(size_of(type).value());
  if (!is_scaled(messages)) return static_cast<double>(size_of(traveling(type, messages)).value());
  const int64_t block = block_of(messages);
  return static_cast<double>(element_count(type.shape) * size_of(messages, block)) / static_cast<double>(block);
}

double least_message_bytes(const Graph& graph, ValueId root, DType messages) {
  const TensorType& type = graph.value(root).type;
  const bool as_it_is = travels_as(graph, root, false, messages) == type.dtype;
  return as_it_is ? static_cast<double>(size_of(type).value()) : least_message_bytes(type, messages);
}

DType rounds_as(DType travels_as) { return is_scaled(travels_as) ? DType::bf16 : travels_as; }

TensorType traveling(TensorType type, DType as) {
  type.dtype = as;
  return type;
}

}  // namespace nlsplit::inline cost
