// One of ONNX's own tests: a model of a single operator, what goes in and what must come out.
//
//   test_relu/model.onnx
//   test_relu/test_data_set_0/input_0.pb, …, output_0.pb, …       each a TensorProto
#pragma once

#include <onnx/onnx_pb.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "graph/onnx/import.h"
#include "graph/onnx/onnx_types.h"
#include "graph/reference/evaluate.h"

namespace nlsplit::testing {

inline constexpr const char* onnx_cases = "/usr/share/libonnx-testdata/data/node";  // Debian's libonnx-testdata

template <class T, class List>
std::string raw_list(const List& list) {
  std::string raw;
  for (const auto element : list) {
    const T value = static_cast<T>(element);
    raw.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return raw;
}

inline Result<Tensor> tensor_of_proto(const onnx::TensorProto& proto, const std::string& path) {
  const auto type = dtype_of_onnx(proto.data_type());
  if (!type)
    return unsupported(onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(proto.data_type())) +
                       " elements");
  TensorType whole{*type, Shape(proto.dims().begin(), proto.dims().end())};
  RETURN_IF_ERROR(check_type(whole));  // a sequence may look like a tensor, of any shape
  std::string raw = proto.raw_data();
  if (!proto.has_raw_data()) {
    const int64_t size = size_of(*type);
    if (*type == DType::f32)
      raw = raw_list<float>(proto.float_data());
    else if (*type == DType::f64)
      raw = raw_list<double>(proto.double_data());
    else if (*type == DType::i64)
      raw = raw_list<int64_t>(proto.int64_data());
    else if (*type == DType::u64)
      raw = raw_list<uint64_t>(proto.uint64_data());
    else if (*type == DType::u32)
      raw = raw_list<uint32_t>(proto.uint64_data());
    else if (size == 4)
      raw = raw_list<int32_t>(proto.int32_data());
    else if (size == 2)
      raw = raw_list<uint16_t>(proto.int32_data());
    else
      raw = raw_list<uint8_t>(proto.int32_data());
  }
  if (static_cast<int64_t>(raw.size()) != size_of(whole).value())
    return unsupported(path + " has bytes that do not fit its shape");
  return tensor_of(std::move(whole), std::move(raw));
}

inline Result<Tensor> read_tensor(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  onnx::TensorProto proto;
  if (!proto.ParseFromString(text)) return unsupported(path + " is not a tensor");
  return tensor_of_proto(proto, path);
}

// numpy has no bf16, so ONNX 1.12 wrote such tensors as u16; the model says what they are.
inline void as_declared(const onnx::ValueInfoProto& value, Tensor& tensor) {
  if (value.type().tensor_type().elem_type() == onnx::TensorProto::BFLOAT16 && tensor.type.dtype == DType::u16)
    tensor.type.dtype = DType::bf16;
}

struct OnnxCase {
  std::string name;
  std::string model;
  std::map<std::string, Tensor> inputs;
  std::vector<Tensor> outputs;
  std::set<std::string> parameters;  // inputs that decide shapes, or which elements: constants in real networks
  std::set<std::string> operators;
};

// Which inputs of an operator decide about extents, or must be known before anything runs.
inline std::vector<int> parameter_places(const std::string& op) {
  if (op.starts_with("Reduce")) return {1};
  static const std::map<std::string, std::vector<int>> places = {
      {"Reshape", {1}},         {"Expand", {1}},      {"Tile", {1, 2}},   {"Slice", {1, 2, 3, 4}},
      {"Split", {1}},           {"Squeeze", {1}},     {"Unsqueeze", {1}}, {"Pad", {1, 2, 3}},
      {"Resize", {1, 2, 3}},    {"Upsample", {1}},    {"TopK", {1}},      {"CumSum", {1}},
      {"OneHot", {1}},          {"Trilu", {1}},       {"Compress", {1}},  {"NonZero", {0}},
      {"ConstantOfShape", {0}}, {"Range", {0, 1, 2}}, {"If", {0}},        {"Dropout", {1, 2}},
      {"MaxUnpool", {2}},       {"LSTM", {4}},        {"GRU", {4}},       {"RNN", {4}},
      {"CenterCropPad", {1}},   {"AffineGrid", {1}},  {"Attention", {6}}};
  const auto found = places.find(op);
  return found == places.end() ? std::vector<int>{} : found->second;
}

// read(role, i): "input" or "output" number i.
template <class Read>
Result<OnnxCase> read_case_with(std::string name_of_case, std::string model, const Read& read) {
  OnnxCase out;
  out.name = std::move(name_of_case);
  out.model = std::move(model);
  ASSIGN_OR_RETURN(const std::string text, read_file(out.model));
  onnx::ModelProto proto;
  if (!proto.ParseFromString(text)) return unsupported("not an ONNX model");
  std::set<std::string> names;
  for (int i = 0; i < proto.graph().input_size(); ++i) {
    const std::string& name = proto.graph().input(i).name();
    names.insert(name);
    ASSIGN_OR_RETURN(out.inputs[name], read("input", i));
    as_declared(proto.graph().input(i), out.inputs[name]);
  }
  for (int i = 0; i < proto.graph().output_size(); ++i) {
    ASSIGN_OR_RETURN(out.outputs.emplace_back(), read("output", i));
    as_declared(proto.graph().output(i), out.outputs.back());
  }
  for (const auto& node : proto.graph().node()) {
    out.operators.insert(node.op_type());
    for (const int place : parameter_places(node.op_type())) {
      if (place < node.input_size() && names.contains(node.input(place))) out.parameters.insert(node.input(place));
    }
  }
  return out;
}

inline Result<OnnxCase> read_case(const std::filesystem::path& folder) {
  return read_case_with(
      folder.filename().string(), (folder / "model.onnx").string(), [&](const std::string& role, int i) {
        return read_tensor((folder / "test_data_set_0" / (role + "_" + std::to_string(i) + ".pb")).string());
      });
}

// One of tests/conformance/later: NAME.onnx, and NAME.data with the tensors as initializers of a graph.
inline Result<OnnxCase> read_later_case(const std::filesystem::path& model) {
  std::filesystem::path data = model;
  ASSIGN_OR_RETURN(const std::string text, read_file(data.replace_extension(".data").string()));
  onnx::GraphProto tensors;
  if (!tensors.ParseFromString(text)) return unsupported(data.string() + " is not a graph");
  return read_case_with(model.stem().string(), model.string(), [&](const std::string& role, int i) -> Result<Tensor> {
    const std::string wanted = role + "_" + std::to_string(i);
    for (const onnx::TensorProto& tensor : tensors.initializer()) {
      if (tensor.name() == wanted) return tensor_of_proto(tensor, data.string());
    }
    return unsupported(data.string() + " has no " + wanted);
  });
}

// With these inputs as constants of the network.
inline Result<Model> import_case(const OnnxCase& onnx_case, const std::set<std::string>& constants) {
  ImportOptions options;
  for (const auto& [name, tensor] : onnx_case.inputs) {
    if (constants.contains(name)) options.constants[name] = {tensor.type, std::string(bytes_of(tensor))};
  }
  return import_onnx(onnx_case.model, options);
}

}  // namespace nlsplit::testing
