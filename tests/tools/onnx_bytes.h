// Tiny ONNX files as bytes, so that these tests need no ONNX library: just enough of the protobuf wire format.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nlsplit::onnx_bytes {

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string number(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }
inline std::string text(uint32_t field, std::string_view value) {
  return varint(field << 3 | 2) + varint(value.size()) + std::string(value);
}

// onnx.proto: NodeProto {input 1, output 2, name 3, op_type 4}
inline std::string node(std::string_view op, const std::vector<std::string>& inputs, std::string_view output,
                        std::string_view name) {
  std::string bytes;
  for (const std::string& input : inputs) bytes += text(1, input);
  return bytes + text(2, output) + text(3, name) + text(4, op);
}

// ValueInfoProto {name 1, type 2 {tensor_type 1 {elem_type 1, shape 2 {dim 1 {dim_value 1}}}}}, float32
inline std::string value(std::string_view name, const std::vector<int64_t>& shape) {
  std::string dims;
  for (const int64_t extent : shape) dims += text(1, number(1, static_cast<uint64_t>(extent)));
  return text(1, name) + text(2, text(1, number(1, 1) + text(2, dims)));
}

// ModelProto {ir_version 1, graph 7 {node 1, name 2, input 11, output 12}, opset_import 8 {version 2}}
inline std::string model(const std::vector<std::string>& nodes, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, uint64_t opset = 13) {
  std::string graph;
  for (const std::string& one : nodes) graph += text(1, one);
  graph += text(2, "tiny");
  for (const std::string& one : inputs) graph += text(11, one);
  for (const std::string& one : outputs) graph += text(12, one);
  return number(1, 8) + text(7, graph) + text(8, number(2, opset));
}

}  // namespace nlsplit::onnx_bytes
