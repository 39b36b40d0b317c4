#include "graph/onnx/onnx_file.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>

#include "graph/onnx/cut_tensors.h"
#include "graph/onnx/onnx_types.h"

namespace nlsplit::inline graph {
namespace {

Result<DType> dtype_of(int32_t type) {
  if (const auto known = dtype_of_onnx(type)) return *known;
  const std::string name = onnx::TensorProto::DataType_IsValid(type)
                               ? onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(type))
                               : std::to_string(type);
  return unsupported(
      fmt::format("element type {}; supported are floats of 16, 32 and 64 bits, integers and BOOL", name));
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

// Where a tensor's elements are if not in raw_data: one list serves several types.
std::string bytes_of_lists(const onnx::TensorProto& tensor, DType type) {
  switch (type) {
    case DType::f32:
      return bytes_of_list<float>(tensor.float_data());
    case DType::f64:
      return bytes_of_list<double>(tensor.double_data());
    case DType::i64:
      return bytes_of_list<int64_t>(tensor.int64_data());
    case DType::u32:
      return bytes_of_list<uint32_t>(tensor.uint64_data());
    case DType::u64:
      return bytes_of_list<uint64_t>(tensor.uint64_data());
    case DType::i32:
      return bytes_of_list<int32_t>(tensor.int32_data());
    case DType::i16:
    case DType::u16:
    case DType::f16:  // their bits
    case DType::bf16:
      return bytes_of_list<uint16_t>(tensor.int32_data());
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return bytes_of_list<uint8_t>(tensor.int32_data());
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q4_k:
    case DType::q6_k:
      break;  // ONNX has none
  }
  CHECK(false, "unknown data type");
}

// The part of another file that has the tensor's bytes. Whoever made the model must not read what it has no business
// with: only files in the model's folder or below, links followed.
Result<MappedBytes> external_bytes(const onnx::TensorProto& tensor, const std::string& folder, int64_t needed) {
  std::string location;
  uint64_t offset = 0, length = static_cast<uint64_t>(needed);
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length") continue;
    const char* end = entry.value().data() + entry.value().size();
    const auto [stop, code] = std::from_chars(entry.value().data(), end, entry.key() == "offset" ? offset : length);
    if (code != std::errc() || stop != end)
      return invalid_input(
          fmt::format("{} of \"{}\"", entry.key() == "offset" ? "an offset" : "a length", entry.value()));
  }
  if (location.empty()) return invalid_input("external data without a location");
  // The operating system would take what stands in front of it for the whole name, and that is not what is checked.
  if (location.find('\0') != std::string::npos) return invalid_input("a location with a zero byte");
  std::error_code unknown;
  const std::filesystem::path base = std::filesystem::weakly_canonical(folder, unknown);
  const std::filesystem::path path = std::filesystem::weakly_canonical(base / location, unknown);
  const auto within = std::mismatch(base.begin(), base.end(), path.begin(), path.end());
  if (unknown || std::filesystem::path(location).is_absolute() || within.first != base.end())
    return invalid_input(fmt::format("its data is in '{}', outside of the model's folder", location));
  if (length != static_cast<uint64_t>(needed))
    return invalid_input(fmt::format("{} B of external data, but needs {} B", length, needed));
  ASSIGN_OR_RETURN(auto file, MappedFile::open(path.string()));
  const uint64_t size = file->bytes().size();
  if (offset > size || length > size - offset)
    return invalid_input(fmt::format("'{}' ends before its {} B at {}", location, length, offset));
  return MappedBytes{std::move(file), static_cast<size_t>(offset), static_cast<size_t>(length)};
}

// Where the bytes of tensors are that are not in the message.
struct Places {
  std::string folder;  // of external data
  std::shared_ptr<const MappedFile> file;
  std::vector<CutModel::Range> ranges;  // of the file
};

// What cut_tensors has taken out of this one; nothing if it left it alone.
Result<MappedBytes> cut_bytes(const onnx::TensorProto& tensor, const Places& places) {
  MappedBytes bytes;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() != cut_key) continue;
    size_t number = 0;
    const char* end = entry.value().data() + entry.value().size();
    const auto [stop, code] = std::from_chars(entry.value().data(), end, number);
    if (code != std::errc() || stop != end || number >= places.ranges.size())
      return invalid_input(fmt::format("an entry {} of \"{}\"", cut_key, entry.value()));
    bytes = {places.file, places.ranges[number].offset, places.ranges[number].size};
  }
  return bytes;
}

// Takes the bytes out of `tensor`, so that a large model is not held twice.
Result<OnnxTensor> take_tensor(onnx::TensorProto& tensor, const Places& places) {
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
    auto bytes = external_bytes(tensor, places.folder, size_of(out.type).value());
    if (!bytes) return wrong(bytes.error().message);
    out.mapped = std::move(bytes).value();
    return out;
  }
  auto cut = cut_bytes(tensor, places);
  if (!cut) return wrong(cut.error().message);
  if (cut->file != nullptr) {
    out.mapped = std::move(cut).value();
  } else if (tensor.has_raw_data()) {
    out.raw = std::move(*tensor.mutable_raw_data());
  } else {
    out.raw = bytes_of_lists(tensor, out.type.dtype);
  }
  const size_t given = out.mapped.file != nullptr ? out.mapped.size : out.raw.size();
  if (static_cast<int64_t>(given) != size_of(out.type).value()) {
    return wrong(
        fmt::format("{} has {} B of data, but needs {} B", to_string(out.type), given, size_of(out.type).value()));
  }
  return out;
}

Result<OnnxSubgraph> take_subgraph(onnx::GraphProto& graph, const std::string& attr, const Places& places);

Result<OnnxNode> take_node(onnx::NodeProto& node, const Places& places) {
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
      case onnx::AttributeProto::GRAPH: {
        ASSIGN_OR_RETURN(out.graphs.emplace_back(), take_subgraph(*attr.mutable_g(), attr.name(), places));
        break;
      }
      case onnx::AttributeProto::TENSOR: {
        ASSIGN_OR_RETURN(OnnxTensor tensor, take_tensor(*attr.mutable_t(), places));
        if (tensor.mapped.file != nullptr && out.op != "Constant") {  // a small parameter, then
          tensor.raw = std::string(tensor.mapped.view());
          tensor.mapped = {};
        }
        out.attrs[attr.name()] = std::move(tensor);
        break;
      }
      default:
        out.unreadable.push_back(attr.name());
        break;
    }
  }
  return out;
}

Result<std::vector<OnnxNode>> take_nodes(onnx::GraphProto& graph, const Places& places) {
  std::vector<OnnxNode> nodes;
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    auto taken = take_node(node, places);
    if (!taken) {
      Error error = taken.error();
      error.message = fmt::format("node {} ({}): {}", node.name(), node.op_type(), error.message);
      return error;
    }
    nodes.push_back(std::move(taken).value());
  }
  return nodes;
}

Result<OnnxSubgraph> take_subgraph(onnx::GraphProto& graph, const std::string& attr, const Places& places) {
  OnnxSubgraph out;
  out.attr = attr;
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    ASSIGN_OR_RETURN(out.initializers[tensor.name()], take_tensor(tensor, places));
  }
  ASSIGN_OR_RETURN(out.nodes, take_nodes(graph, places));
  for (const auto& value : graph.input()) out.inputs.push_back(value.name());
  for (const auto& value : graph.output()) out.outputs.push_back(value.name());
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
    if (fixed && dim.dim_value() < 0)
      return invalid_input(fmt::format("input {} has an extent of {}", value.name(), dim.dim_value()));
    out.shape.push_back(fixed ? dim.dim_value() : -1);
    out.symbols.push_back(fixed ? "" : dim.dim_param());
  }
  return out;
}

Result<OnnxModel> take_model(onnx::ModelProto& model, const Places& places) {
  OnnxModel out;
  for (const auto& opset : model.opset_import()) {
    if (opset.domain().empty() || opset.domain() == "ai.onnx") out.opset = opset.version();
  }
  if (out.opset == 0) return invalid_input("no ONNX model: it names no operator set");
  if (!model.has_graph() || model.graph().node_size() == 0) return invalid_input("a model without a graph");
  onnx::GraphProto& graph = *model.mutable_graph();
  out.name = graph.name();
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    ASSIGN_OR_RETURN(out.initializers[tensor.name()], take_tensor(tensor, places));
  }
  if (graph.sparse_initializer_size() > 0) return unsupported("sparse initializers");
  ASSIGN_OR_RETURN(out.nodes, take_nodes(graph, places));
  for (const auto& value : graph.input()) {
    if (out.initializers.contains(value.name())) continue;  // older files list weights as inputs too
    ASSIGN_OR_RETURN(out.inputs.emplace_back(), input_of(value));
  }
  for (const auto& value : graph.output()) out.outputs.push_back(value.name());
  return out;
}

}  // namespace

Result<OnnxModel> read_onnx(const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
  const auto placed = [&](Error error) {
    error.where.file = path;
    return error;
  };
  if (file->bytes().empty()) return placed(invalid_input("the file is empty"));
  const auto broken = [&] { return placed(invalid_input("not an ONNX model, or a truncated one")); };
  auto cut = cut_tensors(file->bytes());
  if (!cut) return broken();
  if (cut->rest.size() > static_cast<size_t>(std::numeric_limits<int>::max()))
    return placed(unsupported("more than 2 GiB besides the weights"));
  try {
    onnx::ModelProto model;
    google::protobuf::io::ArrayInputStream stream(cut->rest.data(), static_cast<int>(cut->rest.size()));
    google::protobuf::io::CodedInputStream coded(&stream);
    coded.SetTotalBytesLimit(std::numeric_limits<int>::max());
    if (!model.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) return broken();
    cut->rest = {};  // parsed: no need to hold it twice
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    auto out = take_model(model, {folder, file, std::move(cut->ranges)});
    if (!out) return placed(out.error());
    return out;
  } catch (const std::exception& e) {  // protobuf throws on its own limits
    return placed(invalid_input(fmt::format("not an ONNX model: {}", e.what())));
  }
}

}  // namespace nlsplit::inline graph
