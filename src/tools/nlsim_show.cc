#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <map>
#include <memory>

#include "graph/onnx/import.h"
#include "graph/ops.h"
#include "graph/passes.h"
#include "graph/zoo.h"
#include "tools/commands.h"
#include "tools/exit.h"

namespace nlsplit {
namespace {

struct ShowArguments {
  std::string model;
  std::vector<std::string> inputs;
  bool fused = false;
  int64_t batch = 0;
};

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

Status show(const ShowArguments& arguments) {
  ImportOptions options;
  for (const std::string& text : arguments.inputs) RETURN_IF_ERROR(add_input_shape(text, options.input_shapes));
  if (arguments.model.starts_with("zoo:") && !arguments.inputs.empty()) {
    return invalid_input(
        "--input-shape is for files that leave shapes open; those of the zoo do not (--batch sets the batch)");
  }
  auto loaded = arguments.model.starts_with("zoo:") ? zoo_model(arguments.model.substr(4))
                                                    : import_onnx(arguments.model, options);
  if (!loaded) return loaded.error();
  Model model = std::move(loaded).value();
  if (arguments.fused) {
    ASSIGN_OR_RETURN(model.graph, optimize(model.graph, model.weights));
  }
  if (arguments.batch > 0) {
    ASSIGN_OR_RETURN(model.graph, with_batch(model.graph, arguments.batch));
  }
  std::fputs(to_string(model.graph, true).c_str(), stdout);
  Work total;
  int64_t parameters = 0;
  for (const Node& node : model.graph.nodes) {
    if (!is_view(node.op)) total += work_of(model.graph, node);
  }
  for (const Value& value : model.graph.values) {
    if (value.kind == ValueKind::weight) parameters += element_count(value.type.shape);
  }
  fmt::print("# {} nodes, {} parameters, {}, reads {}, writes {}\n", model.graph.nodes.size(), parameters,
             to_string(total.flops), to_string(total.bytes_read), to_string(total.bytes_written));
  return ok_status();
}

}  // namespace

void add_show_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("show", "Print a network as text: shapes, FLOPs, bytes");
  const auto arguments = std::make_shared<ShowArguments>();
  command->add_option("MODEL", arguments->model, "An .onnx file, or zoo:NAME (see `nlsim zoo`)")
      ->type_name("FILE|zoo:NAME")
      ->required();
  command->add_flag("--fused", arguments->fused, "After the passes: BatchNorm folded, element-wise steps fused");
  command->add_option("--batch", arguments->batch, "Another batch size")->type_name("COUNT")->check(at_least(1));
  command->add_option("--input-shape", arguments->inputs, "NAME=1,3,48,192 for inputs the file leaves open; repeatable")
      ->type_name("NAME=SHAPE");
  command->callback([arguments, &code] {
    if (const Status status = show(*arguments); !status.ok()) code = report(status.error());
  });
}

void add_zoo_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("zoo", "List the networks that come with the program");
  command->callback([&code] {
    for (const ZooEntry& entry : zoo()) fmt::print("zoo:{:<14} {}\n", entry.name, entry.what);
    code = 0;
  });
}

}  // namespace nlsplit
