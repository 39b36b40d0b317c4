// Model → ONNX file, so that other runtimes can run the very network that was split. The way back of import.h.
//
//   ASSIGN_OR_RETURN(const Model model, zoo_model("resnet50"));
//   RETURN_IF_ERROR(export_onnx(model.graph, model.weights, "resnet50.onnx"));
#pragma once

#include <string>

#include "graph/onnx/onnx_file.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

// Opset 17, IR version 8; weights as initializers, under their own names, as are all nodes and values. A fused node is
// written as the nodes it was made of, so passes may have run before. Floating-point attributes become 32-bit, as ONNX
// has them; import_onnx of the file otherwise gives the same graph, weights now by the hash of their bytes.
// Weights are made one at a time. Above 2 GiB, where ONNX files end, they are in PATH.data beside the file.
// Errors: weights that are not in the store; the file cannot be written (it is then as it was).
Status export_onnx(const Graph& graph, const WeightStore& weights, const std::string& path,
                   const OnnxWriteOptions& options = {});

}  // namespace nlsplit::inline graph
