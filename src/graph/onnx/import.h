// ONNX file → Model. The only room that knows opsets: what leaves here is canonical (graph/ops.h).
#pragma once

#include <map>
#include <string>

#include "graph/weights.h"

namespace nlsplit {

struct ImportOptions {
  // Shapes of the model's inputs by name; needed for those with dynamic extents. A literal batch may be overridden
  // later by with_batch.
  std::map<std::string, Shape> input_shapes;
};

// Errors name the file, and the node, operator and opset where that is the trouble: missing, empty, truncated or no
// ONNX at all; an unsupported operator or attribute; types that do not fit; unbound dynamic extents (all are listed).
// Constant subgraphs are folded; nodes nobody reads are dropped; unsorted graphs are sorted; initializers may also be
// inputs.
Result<Model> import_onnx(const std::string& path, const ImportOptions& options = {});

}  // namespace nlsplit
