#include "graph/onnx/onnx_file.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx_pb.h>

#include <cstring>
#include <limits>

#include "base/file.h"

namespace nlsplit {
namespace {

Result<DType> dtype_of(int32_t type) {
  switch (type) {
    case onnx::TensorProto::FLOAT:
      return DType::f32;
    case onnx::TensorProto::INT64:
      return DType::i64;
    case onnx::TensorProto::INT32:
      return DType::i32;
    case onnx::TensorProto::BOOL:
      return DType::boolean;
    default: {
      const std::string name = onnx::TensorProto::DataType_IsValid(type)
                                   ? onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(type))
                                   : std::to_string(type);
      return unsupported(fmt::format("element type {}; supported are FLOAT, INT64, INT32 and BOOL", name));
    }
  }
}

template <class T, class List>
std::string bytes_of_list(const List& list) {
  std::string raw(static_cast<size_t>(list.size()) * sizeof(T), '\0');
  for (int i = 0; i < list.size(); ++i) {
    const T value = static_cast<T>(list[i]);
    std::memcpy(&raw[static_cast<size_t>(i) * sizeof(T)], &value, sizeof(T));
  }
  return raw;
}

// Takes the bytes out of `tensor`, so that a large model is not held twice.
Result<OnnxTensor> take_tensor(onnx::TensorProto& tensor) {
  const auto wrong = [&](const std::string& why) {
    return invalid_input(fmt::format("tensor {}: {}", tensor.name(), why));
  };
  OnnxTensor out;
  auto dtype = dtype_of(tensor.data_type());
  if (!dtype) return unsupported(fmt::format("tensor {}: {}", tensor.name(), dtype.error().message));
  out.type.dtype = *dtype;
  out.type.shape.assign(tensor.dims().begin(), tensor.dims().end());
  if (const Status sound = check_type(out.type); !sound.ok()) return wrong(sound.error().message);
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    return unsupported(fmt::format("tensor {}: its data is in another file (external data), which is not supported yet",
                                   tensor.name()));
  }
  if (tensor.has_raw_data()) {
    out.raw = std::move(*tensor.mutable_raw_data());
  } else {
    switch (out.type.dtype) {
      case DType::f32:
        out.raw = bytes_of_list<float>(tensor.float_data());
        break;
      case DType::i64:
        out.raw = bytes_of_list<int64_t>(tensor.int64_data());
        break;
      case DType::i32:
        out.raw = bytes_of_list<int32_t>(tensor.int32_data());
        break;
      case DType::boolean:
        out.raw = bytes_of_list<char>(tensor.int32_data());
        break;
    }
  }
  if (static_cast<int64_t>(out.raw.size()) != size_of(out.type).value()) {
    return wrong(fmt::format("{} has {} B of data, but needs {} B", to_string(out.type), out.raw.size(),
                             size_of(out.type).value()));
  }
  return out;
}

Result<OnnxNode> take_node(onnx::NodeProto& node) {
  OnnxNode out;
  out.name = node.name();
  out.op = node.op_type();
  out.domain = node.domain() == "ai.onnx" ? "" : node.domain();
  out.inputs.assign(node.input().begin(), node.input().end());
  out.outputs.assign(node.output().begin(), node.output().end());
  for (onnx::AttributeProto& attr : *node.mutable_attribute()) {
    switch (attr.type()) {
      case onnx::AttributeProto::INT:
        out.attrs[attr.name()] = static_cast<int64_t>(attr.i());
        break;
      case onnx::AttributeProto::FLOAT:
        out.attrs[attr.name()] = attr.f();
        break;
      case onnx::AttributeProto::STRING:
        out.attrs[attr.name()] = attr.s();
        break;
      case onnx::AttributeProto::INTS:
        out.attrs[attr.name()] = std::vector<int64_t>(attr.ints().begin(), attr.ints().end());
        break;
      case onnx::AttributeProto::FLOATS:
        out.attrs[attr.name()] = std::vector<float>(attr.floats().begin(), attr.floats().end());
        break;
      case onnx::AttributeProto::STRINGS:
        out.attrs[attr.name()] = std::vector<std::string>(attr.strings().begin(), attr.strings().end());
        break;
      case onnx::AttributeProto::TENSOR: {
        ASSIGN_OR_RETURN(out.attrs[attr.name()], take_tensor(*attr.mutable_t()));
        break;
      }
      default:
        out.unreadable.push_back(attr.name());
        break;
    }
  }
  return out;
}

Result<OnnxInput> input_of(const onnx::ValueInfoProto& value) {
  OnnxInput out;
  out.name = value.name();
  if (!value.type().has_tensor_type()) return unsupported(fmt::format("input {} is not a tensor", value.name()));
  const onnx::TypeProto::Tensor& tensor = value.type().tensor_type();
  auto dtype = dtype_of(tensor.elem_type());
  if (!dtype) return unsupported(fmt::format("input {}: {}", value.name(), dtype.error().message));
  out.dtype = *dtype;
  out.ranked = tensor.has_shape();
  for (const auto& dim : tensor.shape().dim()) {
    const bool fixed = dim.value_case() == onnx::TensorShapeProto::Dimension::kDimValue;
    if (fixed && dim.dim_value() < 1)
      return invalid_input(fmt::format("input {} has an extent of {}", value.name(), dim.dim_value()));
    out.shape.push_back(fixed ? dim.dim_value() : -1);
    out.symbols.push_back(fixed ? "" : dim.dim_param());
  }
  return out;
}

Result<OnnxModel> take_model(onnx::ModelProto& model) {
  OnnxModel out;
  for (const auto& opset : model.opset_import()) {
    if (opset.domain().empty() || opset.domain() == "ai.onnx") out.opset = opset.version();
  }
  if (out.opset == 0) return invalid_input("no ONNX model: it names no operator set");
  if (!model.has_graph() || model.graph().node_size() == 0) return invalid_input("a model without a graph");
  onnx::GraphProto& graph = *model.mutable_graph();
  out.name = graph.name();
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    ASSIGN_OR_RETURN(out.initializers[tensor.name()], take_tensor(tensor));
  }
  if (graph.sparse_initializer_size() > 0) return unsupported("sparse initializers");
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    auto taken = take_node(node);
    if (!taken) {
      Error error = taken.error();
      error.message = fmt::format("node {} ({}): {}", node.name(), node.op_type(), error.message);
      return error;
    }
    out.nodes.push_back(std::move(taken).value());
  }
  for (const auto& value : graph.input()) {
    if (out.initializers.contains(value.name())) continue;  // older files list weights as inputs too
    ASSIGN_OR_RETURN(out.inputs.emplace_back(), input_of(value));
  }
  for (const auto& value : graph.output()) out.outputs.push_back(value.name());
  return out;
}

}  // namespace

Result<OnnxModel> read_onnx(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, read_file(path));
  const auto placed = [&](Error error) {
    error.where.file = path;
    return error;
  };
  if (text.empty()) return placed(invalid_input("the file is empty"));
  if (text.size() > static_cast<size_t>(std::numeric_limits<int>::max()))
    return placed(unsupported("models above 2 GiB"));
  try {
    onnx::ModelProto model;
    google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
    google::protobuf::io::CodedInputStream coded(&stream);
    coded.SetTotalBytesLimit(std::numeric_limits<int>::max());
    if (!model.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
      return placed(invalid_input("not an ONNX model, or a truncated one"));
    }
    text = {};  // parsed: no need to hold it twice
    auto out = take_model(model);
    if (!out) return placed(out.error());
    return out;
  } catch (const std::exception& e) {  // protobuf throws on its own limits
    return placed(invalid_input(fmt::format("not an ONNX model: {}", e.what())));
  }
}

}  // namespace nlsplit
