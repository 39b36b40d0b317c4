#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "graph/operators/operator.h"
#include "graph/zoo/zoo.h"
#include "report/table.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/nlsim_model.h"

namespace nlsplit::inline tools {
namespace {

Flops total_work(const Graph& graph) {
  Flops total = flops(0);
  for (const Node& node : graph.nodes) total += work_of(graph, node).flops;
  return total;
}

// One line a network; the parameters of its recipe below it.
Status list_zoo() {
  Table table({{"network"}, {"parameters", Align::right}, {"one sample", Align::right}, {"what"}});
  for (const ZooEntry& entry : zoo()) {
    ASSIGN_OR_RETURN(const Model model, entry.build(1));
    table.add({fmt::format("zoo:{}", entry.name), grouped(static_cast<double>(parameter_count(model))),
               to_string(total_work(model.graph)), std::string(entry.what)});
    std::string recipe;
    for (const ZooParameter& parameter : entry.parameters)
      recipe += fmt::format("{}{}={}", recipe.empty() ? "?" : "&", parameter.name, parameter.standard);
    if (!recipe.empty()) table.add({"", "", "", "  " + recipe});
  }
  std::fputs(table.to_string().c_str(), stdout);
  fmt::print(
      "\nThe sizes of a recipe follow the name, those left out are as above: "
      "zoo:llama?layers=80&hidden=8192&heads=64.\n");
  return ok_status();
}

Status zoo_command(ExportArguments arguments) {
  if (arguments.model.model.empty()) {
    if (!arguments.output.empty()) return invalid_input("zoo: -o needs the NAME of a network");
    return list_zoo();
  }
  if (arguments.output.empty())
    return invalid_input(
        fmt::format("zoo: -o FILE.onnx says where to write {0}; nlsim show zoo:{0} prints it", arguments.model.model));
  arguments.model.model = "zoo:" + arguments.model.model;
  return export_model(arguments);
}

}  // namespace

void add_zoo_command(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("zoo",
                         "List the built-in networks (parameters, arithmetic, sizes), or write one as an ONNX file\n"
                         "  nlsim zoo gpt2 -o gpt2.onnx\n"
                         "  nlsim zoo 'llama?layers=2&hidden=512&heads=8&ffn=1024' -o small.onnx");
  const auto arguments = std::make_shared<ExportArguments>();
  command->add_option("NAME", arguments->model.model,
                      "A network of the list, with ?SIZE=VALUE&… appended if it has sizes");
  command->add_option("--batch", arguments->model.batch, "Batch size (default 1)")
      ->type_name("COUNT")
      ->check(at_least(1));
  add_export_options(*command, *arguments, false);
  command->callback([arguments, &code] {
    if (const Status status = zoo_command(*arguments); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
