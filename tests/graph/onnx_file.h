// ONNX files for tests, made with the onnx library.
//
//   OnnxFile file(13);
//   file.input("x", {1, 3});
//   file.node("Relu", {"x"}, "y");
//   file.output("y");
//   auto model = import_onnx(file.write(folder));
#pragma once

#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "graph/onnx/import.h"

namespace nlsplit {

class OnnxFile {
 public:
  explicit OnnxFile(int64_t opset) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
  }

  onnx::ModelProto& model() { return model_; }
  onnx::GraphProto& graph() { return *model_.mutable_graph(); }

  // -1: an extent called "n"
  void input(const std::string& name, const std::vector<int64_t>& shape, int type = onnx::TensorProto::FLOAT) {
    onnx::ValueInfoProto& value = *graph().add_input();
    value.set_name(name);
    auto& tensor = *value.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
    for (const int64_t extent : shape) {
      auto& dim = *tensor.mutable_shape()->add_dim();
      if (extent == -1)
        dim.set_dim_param("n");
      else
        dim.set_dim_value(extent);
    }
  }
  void output(const std::string& name) { graph().add_output()->set_name(name); }

  onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs, const std::string& output,
                        const std::string& name = "") {
    onnx::NodeProto& node = *graph().add_node();
    node.set_op_type(op);
    node.set_name(name);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return node;
  }

  onnx::TensorProto& floats(const std::string& name, const std::vector<int64_t>& shape,
                            const std::vector<float>& values) {
    onnx::TensorProto& tensor = *graph().add_initializer();
    fill(tensor, name, onnx::TensorProto::FLOAT, shape, values.data(), values.size() * sizeof(float));
    return tensor;
  }
  onnx::TensorProto& integers(const std::string& name, const std::vector<int64_t>& values) {
    onnx::TensorProto& tensor = *graph().add_initializer();
    fill(tensor, name, onnx::TensorProto::INT64, {static_cast<int64_t>(values.size())}, values.data(),
         values.size() * sizeof(int64_t));
    return tensor;
  }

  std::string bytes() const { return model_.SerializeAsString(); }
  std::string write() const { return write(bytes()); }

  static std::string write(const std::string& bytes) {
    static std::atomic<int> next{0};
    const std::string path = (std::filesystem::path(::testing::TempDir()) /
                              ("graph_" + std::to_string(getpid()) + "_" + std::to_string(next++) + ".onnx"))
                                 .string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  Result<Model> import(const ImportOptions& options = {}) const {
    const std::string path = write();
    auto model = import_onnx(path, options);
    std::filesystem::remove(path);
    return model;
  }

 private:
  static void fill(onnx::TensorProto& tensor, const std::string& name, int type, const std::vector<int64_t>& shape,
                   const void* data, size_t size) {
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (const int64_t extent : shape) tensor.add_dims(extent);
    tensor.set_raw_data(data, size);
  }

  onnx::ModelProto model_;
};

inline void set(onnx::NodeProto& node, const std::string& name, int64_t value) {
  onnx::AttributeProto& attr = *node.add_attribute();
  attr.set_name(name);
  attr.set_type(onnx::AttributeProto::INT);
  attr.set_i(value);
}
inline void set(onnx::NodeProto& node, const std::string& name, const char* value) {
  onnx::AttributeProto& attr = *node.add_attribute();
  attr.set_name(name);
  attr.set_type(onnx::AttributeProto::STRING);
  attr.set_s(value);
}
inline void set(onnx::NodeProto& node, const std::string& name, float value) {
  onnx::AttributeProto& attr = *node.add_attribute();
  attr.set_name(name);
  attr.set_type(onnx::AttributeProto::FLOAT);
  attr.set_f(value);
}
inline void set(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
  onnx::AttributeProto& attr = *node.add_attribute();
  attr.set_name(name);
  attr.set_type(onnx::AttributeProto::INTS);
  for (const int64_t value : values) attr.add_ints(value);
}

inline std::string error_of(const Result<Model>& model) { return model.ok() ? "accepted" : model.error().to_string(); }

// The graph's nodes, one a line, without "graph", weights' contents and outputs.
inline std::string nodes_of(const Result<Model>& model) {
  if (!model.ok()) return model.error().to_string();
  std::string text = to_string(model->graph), out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    if (line.starts_with('%')) out += line + "\n";
    at = end + 1;
  }
  return out;
}

}  // namespace nlsplit
