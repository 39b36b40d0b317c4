#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "graph/onnx/export.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/nlsim_model.h"

namespace nlsplit {
namespace {

struct ExportArguments {
  ModelArguments model;
  std::string output;
};

Status export_command(const ExportArguments& arguments) {
  ASSIGN_OR_RETURN(const Model model, load_model(arguments.model));
  RETURN_IF_ERROR(export_onnx(model.graph, model.weights, arguments.output));
  fmt::print("wrote {} to {}\n", model.graph.name, arguments.output);
  return ok_status();
}

}  // namespace

void add_export_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand(
      "export", "Write a network with its weights as an ONNX file (opset 17), for other runtimes; no passes have run");
  const auto arguments = std::make_shared<ExportArguments>();
  add_model_options(*command, arguments->model);
  command->add_option("-o,--output", arguments->output, "The file to write")->type_name("FILE.onnx")->required();
  command->callback([arguments, &code] {
    if (const Status status = export_command(*arguments); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit
