#include "tools/nlsim_show.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "graph/differentiate/differentiate.h"
#include "graph/differentiate/loss.h"
#include "graph/dot.h"
#include "graph/operators/operator.h"
#include "graph/passes/passes.h"
#include "kernels/cpu.h"
#include "tools/commands.h"
#include "tools/exit.h"

namespace nlsplit::inline tools {

Result<Level> level_of(const ShowArguments& arguments) {
  if (!arguments.isa.empty()) return parse_level(arguments.isa);
  const Result<Isa> best = best_isa();
  return best.ok() ? Level(*best) : Level();
}

namespace {

// Loss and gradients behind the network.
Status add_gradients(const std::string& name, Model& model) {
  ASSIGN_OR_RETURN(const Loss loss, parse_loss(name));
  ASSIGN_OR_RETURN(const GraphWithLoss with, with_loss(model.graph, loss));
  ASSIGN_OR_RETURN(Differentiated made,
                   differentiate(with.graph, with.loss, trained_weights(with, model.weights), model.weights));
  model.graph = std::move(made.graph);
  return ok_status();
}

Status show(const ShowArguments& arguments) {
  if (arguments.memory) return show_memory(arguments);
  if (!arguments.json.empty() && !arguments.costs) return invalid_input("--json needs --costs or --memory");
  if (is_scenario(arguments.model.model))
    return invalid_input(
        fmt::format("{0} is a scenario, and `nlsim show` prints a network: name its model (zoo:…, *.onnx), or add "
                    "--memory for what a plan of the scenario takes. `nlsim rank {0}` ranks its plans",
                    arguments.model.model));
  if (!arguments.isa.empty() && arguments.code.empty()) return invalid_input("--isa needs --memory or --code");
  if (!arguments.code.empty()) return show_code(arguments);
  ASSIGN_OR_RETURN(Model model, load_model(arguments.model));
  if (arguments.fused) {
    ASSIGN_OR_RETURN(model.graph, optimize(model.graph, model.weights));
  }
  if (!arguments.passes.empty()) {
    ASSIGN_OR_RETURN(const std::vector<Pass> passes, select_passes(arguments.passes));
    ASSIGN_OR_RETURN(model.graph, run_passes(model.graph, model.weights, passes));
  }
  if (!arguments.loss.empty()) RETURN_IF_ERROR(add_gradients(arguments.loss, model));
  RETURN_IF_ERROR(convert_precision(arguments.model, model));
  if (arguments.costs) return show_costs(arguments, model.graph);
  if (arguments.dot) {
    std::fputs(to_dot(model.graph).c_str(), stdout);
    return ok_status();
  }
  std::fputs(to_string(model.graph, true).c_str(), stdout);
  Work total;
  int64_t parameters = 0;
  for (const Node& node : model.graph.nodes) {
    if (!is_view(node.op)) total += work_of(model.graph, node);
  }
  for (const Value& value : model.graph.values) {
    if (value.kind == ValueKind::weight && !value.state) parameters += element_count(value.type.shape);
  }
  fmt::print("# {} nodes, {} parameters, {}, reads {}, writes {}\n", model.graph.nodes.size(), parameters,
             to_string(total.flops), to_string(total.bytes_read), to_string(total.bytes_written));
  return ok_status();
}

std::string pass_list() {
  std::string text = "Passes, in the order of --fused:\n";
  for (const Pass& pass : all_passes()) text += fmt::format("  {:<24} {}\n", pass.name, pass.what);
  return text;
}

}  // namespace

void add_show_command(CLI::App& app, int& code) {
  CLI::App* command =
      app.add_subcommand("show", "Print a network as text: shapes, FLOPs, bytes; or its costs, its memory, a drawing");
  const auto arguments = std::make_shared<ShowArguments>();
  add_model_options(*command, arguments->model);
  CLI::Option* fused = command->add_flag("--fused", arguments->fused, "After all passes, as it is planned and run");
  CLI::Option* passes =
      command
          ->add_option(
              "--passes", arguments->passes,
              "After these passes only, in this order, e.g. fold_batch_norm,fuse_bias; none; all,-NAME: all but one")
          ->type_name("LIST")
          ->excludes(fused);
  command
      ->add_option("--differentiate", arguments->loss,
                   "Add this loss of the first output (mean_squared_error, softmax_cross_entropy), and the gradients "
                   "of all weights")
      ->type_name("LOSS")
      ->excludes(fused)
      ->excludes(passes);
  CLI::Option* costs = command->add_flag("--costs", arguments->costs,
                                         "A table of every layer: FLOPs, bytes read and written, its shares, FLOPs "
                                         "for each byte");
  CLI::Option* dot =
      command->add_flag("--dot", arguments->dot, "A drawing for Graphviz: `… --dot | dot -Tsvg -o model.svg`")
          ->excludes(costs);
  CLI::Option* memory = command
                            ->add_flag("--memory", arguments->memory,
                                       "Memory of a run: weights as the kernels store them, activations beside the "
                                       "bound that no plan can beat and\nthe layer where it is reached, workspace, "
                                       "messages. MODEL may be a scenario: then of every device and stage\nof a plan")
                            ->excludes(costs, dot, fused, passes);
  command
      ->add_option("--code", arguments->code,
                   "Code that is generated for this computation: its loops, LLVM's IR and assembly, or CUDA C with "
                   "--isa cuda (docs/generated.md)")
      ->type_name("NODE")
      ->excludes(fused, passes, costs, dot, memory);
  command
      ->add_option("--json", arguments->json,
                   "With --costs or --memory: the figures as JSON to this file, - for "
                   "standard output")
      ->type_name("FILE");
  CLI::Option* plan = command
                          ->add_option("--plan", arguments->choice.plan,
                                       "With --memory: number in the scenario's ranking, or name of one of its plans "
                                       "(default 1)")
                          ->type_name("K|NAME")
                          ->needs(memory);
  command->add_option("--plan-file", arguments->choice.file, "With --memory: a plan in a file of its own")
      ->type_name("FILE")
      ->needs(memory)
      ->excludes(plan);
  command
      ->add_option("--isa", arguments->isa,
                   "With --memory of a model, and --code: kernels of this instruction level (v2, v3, v4, neon, cuda; "
                   "default: this machine's)")
      ->type_name("LEVEL");
  command->footer(pass_list() + "\n" + command->get_footer());
  command->callback([arguments, &code] {
    if (const Status status = show(*arguments); !status.ok()) code = report(status.error());
  });
}

}  // namespace nlsplit::inline tools
