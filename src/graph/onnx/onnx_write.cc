#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include "base/file.h"
#include "graph/onnx/onnx_file.h"
#include "graph/onnx/onnx_types.h"

namespace nlsplit {
namespace {

constexpr int64_t ir_version = 8;  // the one that goes with opset 17

void put_tensor(onnx::TensorProto& to, OnnxTensor tensor) {
  to.set_data_type(onnx_type_of(tensor.type.dtype));
  for (const int64_t extent : tensor.type.shape) to.add_dims(extent);
  to.set_raw_data(std::move(tensor.raw));
}

// The name of the type is what AttributeProto adds to the value itself.
struct AttrWriter {
  onnx::AttributeProto& to;

  void operator()(int64_t value) const {
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(value);
  }
  void operator()(float value) const {
    to.set_type(onnx::AttributeProto::FLOAT);
    to.set_f(value);
  }
  void operator()(std::string& value) const {
    to.set_type(onnx::AttributeProto::STRING);
    to.set_s(std::move(value));
  }
  void operator()(const std::vector<int64_t>& values) const {
    to.set_type(onnx::AttributeProto::INTS);
    to.mutable_ints()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<float>& values) const {
    to.set_type(onnx::AttributeProto::FLOATS);
    to.mutable_floats()->Add(values.begin(), values.end());
  }
  void operator()(const std::vector<std::string>& values) const {
    to.set_type(onnx::AttributeProto::STRINGS);
    for (const std::string& value : values) to.add_strings(value);
  }
  void operator()(OnnxTensor& value) const {
    to.set_type(onnx::AttributeProto::TENSOR);
    put_tensor(*to.mutable_t(), std::move(value));
  }
};

void put_node(onnx::NodeProto& to, OnnxNode node) {
  to.set_name(node.name);
  to.set_op_type(node.op);
  to.set_domain(node.domain);
  for (std::string& input : node.inputs) to.add_input(std::move(input));
  for (std::string& output : node.outputs) to.add_output(std::move(output));
  for (auto& [name, value] : node.attrs) {
    onnx::AttributeProto& attr = *to.add_attribute();
    attr.set_name(name);
    std::visit(AttrWriter{attr}, value);
  }
}

onnx::TypeProto::Tensor& put_value(onnx::ValueInfoProto& to, const std::string& name, DType dtype) {
  to.set_name(name);
  onnx::TypeProto::Tensor& tensor = *to.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(onnx_type_of(dtype));
  return tensor;
}

void put_input(onnx::ValueInfoProto& to, const OnnxInput& input) {
  onnx::TypeProto::Tensor& tensor = put_value(to, input.name, input.dtype);
  if (!input.ranked) return;
  tensor.mutable_shape();
  for (size_t i = 0; i < input.shape.size(); ++i) {
    auto& dim = *tensor.mutable_shape()->add_dim();
    if (input.shape[i] >= 0)
      dim.set_dim_value(input.shape[i]);
    else if (i < input.symbols.size() && !input.symbols[i].empty())
      dim.set_dim_param(input.symbols[i]);
  }
}

onnx::ModelProto message_of(OnnxModel model) {
  onnx::ModelProto out;
  out.set_ir_version(ir_version);
  out.set_producer_name("nlsplit");
  out.add_opset_import()->set_version(model.opset);
  onnx::GraphProto& graph = *out.mutable_graph();
  graph.set_name(model.name);
  for (const OnnxInput& input : model.inputs) put_input(*graph.add_input(), input);
  for (size_t i = 0; i < model.outputs.size(); ++i) {
    const TensorType& type = model.output_types[i];
    onnx::TypeProto::Tensor& tensor = put_value(*graph.add_output(), model.outputs[i], type.dtype);
    tensor.mutable_shape();  // of a scalar: there, and empty
    for (const int64_t extent : type.shape) tensor.mutable_shape()->add_dim()->set_dim_value(extent);
  }
  for (OnnxNode& node : model.nodes) put_node(*graph.add_node(), std::move(node));
  for (auto& [name, tensor] : model.initializers) {
    onnx::TensorProto& initializer = *graph.add_initializer();
    initializer.set_name(name);
    put_tensor(initializer, std::move(tensor));
  }
  return out;
}

}  // namespace

Status write_onnx(const std::string& path, OnnxModel model) {
  CHECK(model.output_types.size() == model.outputs.size(), "an output without a type");
  std::string text;
  {
    const onnx::ModelProto message = message_of(std::move(model));
    const auto size = static_cast<int64_t>(message.ByteSizeLong());
    if (size > largest_onnx_file) {
      return unsupported(
          fmt::format("{}: the model would take {}, and ONNX files end at 2 GiB (weights in files of "
                      "their own are not supported yet)",
                      path, to_string(bytes(size))));
    }
    message.SerializeToString(&text);
  }
  return write_file(path, text);
}

}  // namespace nlsplit
