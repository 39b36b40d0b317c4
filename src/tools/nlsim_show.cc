#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "graph/ops.h"
#include "graph/passes.h"
#include "graph/zoo.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/nlsim_model.h"

namespace nlsplit {
namespace {

struct ShowArguments {
  ModelArguments model;
  bool fused = false;
};

Status show(const ShowArguments& arguments) {
  ASSIGN_OR_RETURN(Model model, load_model(arguments.model));
  if (arguments.fused) {
    ASSIGN_OR_RETURN(model.graph, optimize(model.graph, model.weights));
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
  add_model_options(*command, arguments->model);
  command->add_flag("--fused", arguments->fused, "After the passes: BatchNorm folded, element-wise steps fused");
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
