#include "partition/split_parts.h"

#include "cost/messages.h"

namespace nlsplit::inline partition {

double bytes_of_message(const Graph& graph, ValueId value, DType messages) {
  const TensorType& type = graph.value(value).type;
  return static_cast<double>(size_of(traveling(type, type.dtype == DType::f32 ? messages : type.dtype)).value());
}

}  // namespace nlsplit::inline partition
