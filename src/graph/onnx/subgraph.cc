#include "graph/onnx/subgraph.h"

#include <map>

namespace nlsplit::inline graph {
namespace {

std::set<std::string> names_made(const OnnxSubgraph& graph) {
  std::set<std::string> made(graph.inputs.begin(), graph.inputs.end());
  for (const auto& [name, tensor] : graph.initializers) made.insert(name);
  for (const OnnxNode& node : graph.nodes) made.insert(node.outputs.begin(), node.outputs.end());
  made.erase("");
  return made;
}

void rename(std::string& name, const std::map<std::string, std::string>& names) {
  if (const auto found = names.find(name); found != names.end()) name = found->second;
}

void rename_all(OnnxNode& node, const std::map<std::string, std::string>& names) {
  for (std::string& input : node.inputs) rename(input, names);
  for (std::string& output : node.outputs) rename(output, names);
  for (OnnxSubgraph& graph : node.graphs) {
    for (OnnxNode& inner : graph.nodes) rename_all(inner, names);
    for (std::string& output : graph.outputs) rename(output, names);
  }
}

}  // namespace

std::vector<std::string> names_read(const OnnxNode& node) {
  std::vector<std::string> names;
  for (const std::string& input : node.inputs) {
    if (!input.empty()) names.push_back(input);
  }
  for (const OnnxSubgraph& graph : node.graphs) {
    const std::set<std::string> own = names_made(graph);
    const auto take = [&](const std::string& name) {
      if (!name.empty() && !own.contains(name)) names.push_back(name);
    };
    for (const OnnxNode& inner : graph.nodes) {
      for (const std::string& name : names_read(inner)) take(name);
    }
    for (const std::string& output : graph.outputs) take(output);
  }
  return names;
}

OnnxSubgraph renamed(OnnxSubgraph graph, const std::string& prefix, const std::vector<std::string>& outputs) {
  std::map<std::string, std::string> names;
  for (const std::string& name : names_made(graph)) names[name] = prefix + name;
  std::set<std::string> given;
  for (size_t i = 0; i < graph.outputs.size() && i < outputs.size(); ++i) {
    const auto made = names.find(graph.outputs[i]);
    if (made != names.end() && !outputs[i].empty() && given.insert(made->first).second) made->second = outputs[i];
  }
  std::map<std::string, OnnxTensor> initializers;
  for (auto& [name, tensor] : graph.initializers) initializers[names.at(name)] = std::move(tensor);
  graph.initializers = std::move(initializers);
  for (OnnxNode& node : graph.nodes) rename_all(node, names);
  for (std::string& output : graph.outputs) rename(output, names);
  return graph;
}

}  // namespace nlsplit::inline graph
