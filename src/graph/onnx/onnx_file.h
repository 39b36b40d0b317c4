// An ONNX file as plain values: what is left of protobuf. Only onnx_file.cc (which reads) and onnx_write.cc include
// onnx and protobuf.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "graph/graph.h"

namespace nlsplit::inline graph {

struct OnnxTensor {
  TensorType type;
  std::string raw;  // row-major, as long as the type says; empty if the bytes are mapped: those of large tensors are
  MappedBytes mapped;
};

using OnnxAttr = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                              std::vector<std::string>, OnnxTensor>;

struct OnnxSubgraph;

struct OnnxNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;  // "": left out
  std::map<std::string, OnnxAttr> attrs;
  std::vector<OnnxSubgraph> graphs;     // attributes that are graphs
  std::vector<std::string> unreadable;  // attributes of kinds we do not read (sparse tensors, types)
};

// A branch of an If: reads values of the graph around it by their names.
struct OnnxSubgraph {
  std::string attr;  // whose value it is
  std::vector<OnnxNode> nodes;
  std::map<std::string, OnnxTensor> initializers;
  std::vector<std::string> inputs, outputs;
};

struct OnnxInput {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;        // -1: dynamic
  bool ranked = true;                // false: the file does not even say how many axes it has
  std::vector<std::string> symbols;  // the dynamic extents' names, "" elsewhere
};

// An initializer whose bytes are asked for when they are written, one after the other.
struct OnnxWeight {
  std::string name;
  TensorType type;
  std::function<Result<std::string>()> bytes;
};

struct OnnxModel {
  int64_t opset = 0;  // of the default domain
  std::string name;
  std::vector<OnnxNode> nodes;  // in the file's order
  std::map<std::string, OnnxTensor> initializers;
  std::vector<OnnxWeight> weights;  // further initializers, for write_onnx
  std::vector<OnnxInput> inputs;
  std::vector<std::string> outputs;
  std::vector<TensorType> output_types;  // one an output, for write_onnx; read_onnx does not need what files say there
};

// Protobuf counts the bytes of a message in a signed 32-bit integer.
inline constexpr int64_t largest_onnx_file = (int64_t{1} << 31) - 1;

// Errors name the file and the tensor or node: missing, empty, truncated, no ONNX; a tensor whose bytes do not fit its
// shape, negative extents, an element type we do not have, external data that is not in the model's folder or below.
Result<OnnxModel> read_onnx(const std::string& path);

struct OnnxWriteOptions {
  bool external_data = false;           // the weights in FILE.data beside FILE, which names it
  int64_t largest = largest_onnx_file;  // bytes; above them external_data is true
};

// IR version 8, whole or not at all; holds one weight at a time. Errors: one of OnnxWeight::bytes; a message above
// 2 GiB even without weights; a file cannot be written.
Status write_onnx(const std::string& path, const OnnxModel& model, const OnnxWriteOptions& options = {});

}  // namespace nlsplit::inline graph
