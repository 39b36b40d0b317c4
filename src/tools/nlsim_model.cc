#include "tools/nlsim_model.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <map>

#include "graph/onnx/export.h"
#include "graph/passes/passes.h"
#include "graph/passes/precision.h"
#include "graph/safetensors/replace_weights.h"
#include "scenario/read_model.h"
#include "tools/exit.h"

namespace nlsplit::inline tools {
namespace {

// "x=1,3,48,192"
Status add_input_shape(const std::string& text, std::map<std::string, Shape>& shapes) {
  const auto wrong = [&] { return invalid_input(fmt::format("--input-shape {}: write NAME=1,3,224,224", text)); };
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return wrong();
  Shape shape;
  for (const char *at = text.data() + equals + 1, *end = text.data() + text.size(); at < end;) {
    int64_t extent = 0;
    const auto [next, failure] = std::from_chars(at, end, extent);
    if (failure != std::errc() || extent < 1 || (next != end && *next != ',')) return wrong();
    shape.push_back(extent);
    at = next == end ? end : next + 1;
  }
  shapes[text.substr(0, equals)] = shape;
  return ok_status();
}

// "batch=8"
Status add_dim(const std::string& text, std::map<std::string, int64_t>& dims) {
  const size_t equals = text.rfind('=');
  int64_t extent = 0;
  const char* end = text.data() + text.size();
  const char* from = text.data() + (equals == std::string::npos ? text.size() : equals + 1);
  const auto [stop, failure] = std::from_chars(from, end, extent);
  if (equals == std::string::npos || equals == 0 || failure != std::errc() || stop != end || extent < 1)
    return invalid_input(fmt::format("--dim {}: write NAME=8", text));
  dims[text.substr(0, equals)] = extent;
  return ok_status();
}

}  // namespace

void add_model_options(CLI::App& command, ModelArguments& arguments) {
  command
      .add_option("MODEL", arguments.model,
                  "An .onnx or .gguf file, a folder with config.json and safetensors, or zoo:NAME (see `nlsim zoo`); "
                  "FILE.gguf?length=64 and FOLDER?length=64 are for a prompt of 64 tokens")
      ->type_name("FILE|zoo:NAME")
      ->required();
  command.add_option("--batch", arguments.batch, "Another batch size")->type_name("COUNT")->check(at_least(1));
  command
      .add_option("--input-shape", arguments.inputs, "NAME=1,3,48,192 for an input with symbolic extents; repeatable")
      ->type_name("NAME=SHAPE");
  command.add_option("--dim", arguments.dims, "NAME=8 for a symbolic extent; repeatable")->type_name("NAME=EXTENT");
  command
      .add_option(
          "--precision", arguments.precision,
          "float16 or bfloat16 instead of float32, except for inputs and outputs; float32 (default: the model's)")
      ->type_name("TYPE");
}

Result<Model> load_model(const ModelArguments& arguments) {
  ImportOptions options;
  for (const std::string& text : arguments.inputs) RETURN_IF_ERROR(add_input_shape(text, options.input_shapes));
  for (const std::string& text : arguments.dims) RETURN_IF_ERROR(add_dim(text, options.dims));
  if (!leaves_extents(arguments.model) && !(arguments.inputs.empty() && arguments.dims.empty())) {
    return invalid_input(
        "--input-shape and --dim are for ONNX files that leave extents open; other models leave none "
        "(--batch sets the batch)");
  }
  ASSIGN_OR_RETURN(Model model, read_model(arguments.model, options));
  if (arguments.batch > 0) {
    ASSIGN_OR_RETURN(model.graph, with_batch(model.graph, arguments.batch));
  }
  return model;
}

Status convert_precision(const ModelArguments& arguments, Model& model) {
  if (arguments.precision.empty()) return ok_status();
  ASSIGN_OR_RETURN(const DType type, parse_precision(arguments.precision));
  ASSIGN_OR_RETURN(model.graph, with_precision(model.graph, model.weights, type));
  return ok_status();
}

void add_export_options(CLI::App& command, ExportArguments& arguments, bool required) {
  command.add_option("-o,--output", arguments.output, "The file to write")->type_name("FILE.onnx")->required(required);
  command
      .add_option("--weights", arguments.weights,
                  "Weights to use instead of the model's own: a file of `nlbench train --output`")
      ->type_name("FILE.safetensors");
  command.add_flag("--external-data", arguments.external_data,
                   "Put the weights into FILE.onnx.data beside it, whatever their size");
}

namespace {

// A training is of the network behind some of the passes, which may have made weights of their own: then that form of
// it is exported.
Status take_trained(Model& model, const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsFile trained, read_safetensors(path));
  if (replace_weights(model, trained).ok()) return ok_status();
  ASSIGN_OR_RETURN(model.graph, optimize(model.graph, model.weights, Purpose::training));
  return replace_weights(model, trained);
}

}  // namespace

Status export_model(const ExportArguments& arguments) {
  ASSIGN_OR_RETURN(Model model, load_model(arguments.model));
  if (!arguments.weights.empty()) RETURN_IF_ERROR(take_trained(model, arguments.weights));
  RETURN_IF_ERROR(convert_precision(arguments.model, model));
  RETURN_IF_ERROR(
      export_onnx(model.graph, model.weights, arguments.output, {.external_data = arguments.external_data}));
  fmt::print("wrote {} to {}\n", model.graph.name, arguments.output);
  return ok_status();
}

}  // namespace nlsplit::inline tools
