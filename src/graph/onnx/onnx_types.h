// Element types by ONNX's numbers: TensorProto's, which Cast's attribute `to` has, too.
#pragma once

#include <optional>

#include "graph/graph.h"

namespace nlsplit::inline graph {

std::optional<DType> dtype_of_onnx(int64_t number);  // none: a type we do not have
int32_t onnx_type_of(DType type);

}  // namespace nlsplit::inline graph
