// ONNX files for tests, written in the textual form of the onnx library:
//
//   import_text({.inputs = "float[1,4] x, int64[1] k = {2}", .nodes = "y, i = TopK <axis = -1> (x, k)"})
//
// An input with values is an initializer. An operand called "none" is left out. The output is y.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <onnx/defs/parser.h>

#include <string>

#include "onnx_file.h"

namespace nlsplit {

struct OnnxText {
  int opset = 13;
  std::string inputs, nodes;
};

inline OnnxFile file_of(const OnnxText& text) {
  OnnxFile file(text.opset);
  const std::string whole = fmt::format("<ir_version: 8, opset_import: [\"\" : {}]> g ({}) => (float y) {{ {} }}",
                                        text.opset, text.inputs, text.nodes);
  const auto parsed = onnx::OnnxParser::Parse(file.model(), whole.c_str());
  EXPECT_TRUE(parsed.IsOK()) << whole << "\n" << parsed.ErrorMessage();
  for (onnx::NodeProto& node : *file.graph().mutable_node()) {
    for (std::string& name : *node.mutable_input()) name = name == "none" ? "" : name;
    for (std::string& name : *node.mutable_output()) name = name == "none" ? "" : name;
  }
  return file;
}

inline Result<Model> import_text(const OnnxText& text) { return file_of(text).import(); }

}  // namespace nlsplit
