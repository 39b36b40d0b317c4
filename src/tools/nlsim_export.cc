#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/nlsim_model.h"

namespace nlsplit::inline tools {

void add_export_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("export",
                                         "Write a network with its weights as an ONNX file (opset 17), for other "
                                         "runtimes; no passes have run. Above 2 GiB "
                                         "the weights\nare in FILE.onnx.data beside it");
  const auto arguments = std::make_shared<ExportArguments>();
  add_model_options(*command, arguments->model);
  add_export_options(*command, *arguments);
  command->callback([arguments, &code] {
    if (const Status status = export_model(*arguments); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
