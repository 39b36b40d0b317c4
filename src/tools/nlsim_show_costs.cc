// nlsim show MODEL --costs: where the arithmetic and the traffic of a network are.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "graph/operators/operator.h"
#include "report/table.h"
#include "tools/nlsim_show.h"

namespace nlsplit::inline tools {
namespace {

struct Layer {
  std::string name, ops, result;
  Work work;
};

std::vector<Layer> layers_of(const Graph& graph) {
  std::vector<Layer> layers;
  for (const Node& node : graph.nodes) {
    if (is_view(node.op)) continue;
    Layer& layer = layers.emplace_back();
    layer.name = node.name;
    layer.ops = name_of(node.op);
    for (const EpilogueStep& step : node.epilogue) {
      layer.name += ", " + step.name;
      layer.ops += fmt::format("+{}", name_of(step.op));
    }
    layer.result = to_string(graph.value(node.outputs[0]).type);
    layer.work = work_of(graph, node);
  }
  return layers;
}

Bytes traffic(const Work& work) { return work.bytes_read + work.bytes_written; }

// FLOPs for each byte that comes or goes, all operands and results counted once.
double intensity(const Work& work) {
  return traffic(work).value() == 0 ? 0 : work.flops.value() / static_cast<double>(traffic(work).value());
}

// Of nothing: nothing.
double share(double part, double whole) { return whole == 0 ? 0 : part / whole; }
double share_of_flops(const Work& part, const Work& all) { return share(part.flops.value(), all.flops.value()); }
double share_of_bytes(const Work& part, const Work& all) {
  return share(static_cast<double>(traffic(part).value()), static_cast<double>(traffic(all).value()));
}

std::string costs_text(const Graph& graph, const std::vector<Layer>& layers, const Work& all) {
  Table table({{"layer"},
               {"operator"},
               {"result"},
               {"work", Align::right},
               {"of all", Align::right},
               {"reads", Align::right},
               {"writes", Align::right},
               {"of all", Align::right},
               {"FLOP/B", Align::right}});
  const auto add = [&](const std::string& name, const std::string& ops, const std::string& result, const Work& work) {
    table.add({name, ops, result, to_string(work.flops), percent(share_of_flops(work, all), 1),
               to_string(work.bytes_read), to_string(work.bytes_written), percent(share_of_bytes(work, all), 1),
               fmt::format("{:.1f}", intensity(work))});
  };
  for (const Layer& layer : layers) add(layer.name, layer.ops, layer.result, layer.work);
  add("all", counted(static_cast<int64_t>(layers.size()), "layer"), "", all);
  return fmt::format("{}\n\n{}", graph.name, table.to_string());
}

nlohmann::json figures(const Work& work) {
  return {{"flops", work.flops.value()},
          {"bytes_read", work.bytes_read.value()},
          {"bytes_written", work.bytes_written.value()},
          {"flops_per_byte", intensity(work)}};
}

std::string costs_json(const Graph& graph, const std::vector<Layer>& layers, const Work& all) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Layer& layer : layers) {
    nlohmann::json& row = rows.emplace_back(figures(layer.work));
    row["name"] = layer.name;
    row["operator"] = layer.ops;
    row["result"] = layer.result;
    row["share_of_flops"] = share_of_flops(layer.work, all);
    row["share_of_bytes"] = share_of_bytes(layer.work, all);
  }
  const nlohmann::json file = {{"format", "nlsplit-costs"},
                               {"version", 1},
                               {"model", graph.name},
                               {"layers", std::move(rows)},
                               {"all", figures(all)}};
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

Status show_costs(const ShowArguments& arguments, const Graph& graph) {
  const std::vector<Layer> layers = layers_of(graph);
  Work all;
  for (const Layer& layer : layers) all += layer.work;
  return print_or_save(costs_text(graph, layers, all), costs_json(graph, layers, all), arguments.json);
}

Status print_or_save(const std::string& text, const std::string& json, const std::string& file) {
  if (!file.empty() && file != "-") RETURN_IF_ERROR(write_file(file, json));
  std::fputs(file == "-" ? json.c_str() : text.c_str(), stdout);
  return ok_status();
}

}  // namespace nlsplit::inline tools
