#include <fmt/format.h>
#include <onnx/onnx_pb.h>

#include "base/file.h"
#include "graph/onnx/onnx_file.h"
#include "graph/onnx/onnx_types.h"

namespace nlsplit::inline graph {
namespace {

constexpr int64_t ir_version = 8;  // the one that goes with opset 17

void put_tensor(onnx::TensorProto& to, const OnnxTensor& tensor) {
  to.set_data_type(onnx_type_of(tensor.type.dtype));
  for (const int64_t extent : tensor.type.shape) to.add_dims(extent);
  to.set_raw_data(tensor.raw);
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
  void operator()(const std::string& value) const {
    to.set_type(onnx::AttributeProto::STRING);
    to.set_s(value);
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
  void operator()(const OnnxTensor& value) const {
    to.set_type(onnx::AttributeProto::TENSOR);
    put_tensor(*to.mutable_t(), value);
  }
};

void put_node(onnx::NodeProto& to, const OnnxNode& node) {
  to.set_name(node.name);
  to.set_op_type(node.op);
  to.set_domain(node.domain);
  for (const std::string& input : node.inputs) to.add_input(input);
  for (const std::string& output : node.outputs) to.add_output(output);
  for (const auto& [name, value] : node.attrs) {
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

// All but model.weights.
onnx::ModelProto message_of(const OnnxModel& model) {
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
  for (const OnnxNode& node : model.nodes) put_node(*graph.add_node(), node);
  for (const auto& [name, tensor] : model.initializers) {
    onnx::TensorProto& initializer = *graph.add_initializer();
    initializer.set_name(name);
    put_tensor(initializer, tensor);
  }
  return out;
}

onnx::TensorProto head_of(const OnnxWeight& weight) {
  onnx::TensorProto head;
  head.set_name(weight.name);
  head.set_data_type(onnx_type_of(weight.type.dtype));
  for (const int64_t extent : weight.type.shape) head.add_dims(extent);
  return head;
}

Result<std::string> bytes_of(const OnnxWeight& weight) {
  ASSIGN_OR_RETURN(std::string raw, weight.bytes());
  CHECK(static_cast<int64_t>(raw.size()) == size_of(weight.type).value(), "a weight of another size than its type");
  return raw;
}

// ---- the wire format, as far as needed to write the weights past protobuf, which would want all of them at once

std::string varint_bytes(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out += static_cast<char>(value);
}

// What stands in front of the content of a field that has a length.
std::string field_head(uint64_t field, uint64_t size) { return varint_bytes(field << 3 | 2) + varint_bytes(size); }

constexpr uint64_t graph_field = 7, initializer_field = 5, raw_data_field = 9;

struct WeightHead {
  std::string text;  // of the whole initializer, up to its bytes
  int64_t size = 0;  // with its bytes
};

WeightHead head_in_graph(const OnnxWeight& weight) {
  const auto raw = static_cast<uint64_t>(size_of(weight.type).value());
  const std::string tensor = head_of(weight).SerializeAsString() + field_head(raw_data_field, raw);
  WeightHead head{field_head(initializer_field, tensor.size() + raw) + tensor, 0};
  head.size = static_cast<int64_t>(head.text.size() + raw);
  return head;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Where ONNX says that data should begin, so that it can be mapped.
constexpr int64_t external_alignment = 4096;
constexpr int64_t smallest_external = 1024;  // less is not worth a place in another file

void set_external(onnx::TensorProto& tensor, const std::string& location, int64_t offset, int64_t length) {
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto put = [&](const std::string& key, const std::string& value) {
    auto& entry = *tensor.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  put("location", location);
  put("offset", std::to_string(offset));
  put("length", std::to_string(length));
}

Status write_beside(const std::string& path, const OnnxModel& model, onnx::ModelProto message) {
  const std::string data = path + ".data";
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(data));
  int64_t at = 0;
  for (const OnnxWeight& weight : model.weights) {
    ASSIGN_OR_RETURN(const std::string raw, bytes_of(weight));
    onnx::TensorProto& tensor = *message.mutable_graph()->add_initializer();
    tensor = head_of(weight);
    if (static_cast<int64_t>(raw.size()) < smallest_external) {
      tensor.set_raw_data(raw);
      continue;
    }
    const std::string gap(static_cast<size_t>((external_alignment - at % external_alignment) % external_alignment),
                          '\0');
    RETURN_IF_ERROR(file.write(gap));
    at += static_cast<int64_t>(gap.size());
    set_external(tensor, file_name(data), at, static_cast<int64_t>(raw.size()));
    RETURN_IF_ERROR(file.write(raw));
    at += static_cast<int64_t>(raw.size());
  }
  const auto size = static_cast<int64_t>(message.ByteSizeLong());
  if (size > largest_onnx_file)
    return unsupported(fmt::format("{}: the model would take {} without its weights, and ONNX files end at 2 GiB", path,
                                   to_string(bytes(size))));
  RETURN_IF_ERROR(file.commit());
  return write_file(path, message.SerializeAsString());
}

}  // namespace

Status write_onnx(const std::string& path, const OnnxModel& model, const OnnxWriteOptions& options) {
  CHECK(model.output_types.size() == model.outputs.size(), "an output without a type");
  onnx::ModelProto message = message_of(model);
  std::vector<WeightHead> heads;
  int64_t total = static_cast<int64_t>(message.ByteSizeLong()) + 64;  // tags and lengths of what is put together
  for (const OnnxWeight& weight : model.weights) total += heads.emplace_back(head_in_graph(weight)).size;
  if (options.external_data || total > options.largest) return write_beside(path, model, std::move(message));

  const std::string graph = message.graph().SerializeAsString();
  message.clear_graph();
  int64_t graph_size = static_cast<int64_t>(graph.size());
  for (const WeightHead& head : heads) graph_size += head.size;
  ASSIGN_OR_RETURN(FileWriter file, FileWriter::open(path));
  RETURN_IF_ERROR(file.write(message.SerializeAsString()));
  RETURN_IF_ERROR(file.write(field_head(graph_field, static_cast<uint64_t>(graph_size))));
  RETURN_IF_ERROR(file.write(graph));
  for (size_t i = 0; i < heads.size(); ++i) {
    RETURN_IF_ERROR(file.write(heads[i].text));
    ASSIGN_OR_RETURN(const std::string raw, bytes_of(model.weights[i]));
    RETURN_IF_ERROR(file.write(raw));
  }
  return file.commit();
}

}  // namespace nlsplit::inline graph
