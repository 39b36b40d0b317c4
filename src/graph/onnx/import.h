// ONNX file → Model. The only module that knows opsets: what leaves here is canonical (graph/operators/operators.def).
#pragma once

#include <map>
#include <string>

#include "graph/weights.h"

namespace nlsplit::inline graph {

struct ImportedConstant {
  TensorType type;
  std::string raw;  // row-major bytes
};

struct ImportOptions {
  // Shapes of the model's inputs by name; needed for those with dynamic extents. A literal batch may be overridden
  // later by with_batch.
  std::map<std::string, Shape> input_shapes = {};
  // Dynamic extents by the names the file gives them: {"batch": 8, "width": 192}.
  std::map<std::string, int64_t> dims = {};
  // Inputs that are constants of this network: what depends on their values (shapes, axes) is then known.
  std::map<std::string, ImportedConstant> constants = {};
  // Elements and arithmetic operations that import may spend on constants, beside 16 an element of those in the file.
  // Less: more of them stay nodes; more: a hostile file takes longer and more memory before it is refused.
  double effort = 0x1p28;
};

// Errors name the file, and the node, operator and opset where that is the trouble: missing, empty, truncated or no
// ONNX at all; an unsupported operator or attribute; types that do not fit; unbound dynamic extents (all are listed).
// Extents from a file never become memory or work beyond ImportOptions::effort: that is an error, too.
// Constant subgraphs are folded, an If of a constant condition is its branch; nodes nobody reads are dropped; unsorted
// graphs are sorted; initializers may also be inputs. An output that is constant is a weight of the graph.
Result<Model> import_onnx(const std::string& path, const ImportOptions& options = {});

}  // namespace nlsplit::inline graph
