#include "partition/layer_names.h"

#include <fmt/format.h>

#include "base/text_reader.h"
#include "partition/plan.h"

namespace nlsplit::inline partition {
namespace {

bool is_separator(char c) { return c == '.' || c == '/'; }

// Names of many layers begin alike: what differs is looked at first.
bool is_or_below(std::string_view name, std::string_view scope) {
  const size_t size = scope.size();
  if (name.size() < size || (name.size() > size && !is_separator(name[size]))) return false;
  return size == 0 || (name[size - 1] == scope.back() && name.starts_with(scope));
}

// "conv1", "layer2.0" and "layer2" of "layer2.0": the scopes a name is in, longest first, without itself.
std::vector<std::string_view> scopes_of(std::string_view name) {
  std::vector<std::string_view> scopes;
  for (size_t i = name.size(); i-- > 1;) {
    if (is_separator(name[i])) scopes.push_back(name.substr(0, i));
  }
  return scopes;
}

// The last node of which some name passes; of its names the last that does.
template <class Accepts>
bool find_last(const Graph& graph, FoundLayer& found, Accepts accepts) {
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    const std::string_view last = node.epilogue.empty() ? node.name : node.epilogue.back().name;
    for (size_t s = node.epilogue.size(); s-- > 0;) {
      if (accepts(node.epilogue[s].name)) {
        found = {i, node.epilogue[s].name, last};
        return true;
      }
    }
    if (accepts(node.name)) {
      found = {i, node.name, last};
      return true;
    }
  }
  return false;
}

bool find_name(const Graph& graph, std::string_view name, FoundLayer& found) {
  if (name.starts_with('=')) {
    return find_last(graph, found, [&](std::string_view candidate) { return candidate == name.substr(1); });
  }
  return find_last(graph, found, [&](std::string_view candidate) { return is_or_below(candidate, name); });
}

Error unknown_layer(const Graph& graph, std::string_view name) {
  if (name.starts_with('=')) name.remove_prefix(1);
  std::vector<std::string_view> known;
  for (const Node& node : graph.nodes) {
    for (const std::string_view own : names_of(node)) {
      known.push_back(own);
      for (const std::string_view scope : scopes_of(own)) known.push_back(scope);
    }
  }
  std::string hint;
  if (const std::string near = nearest(name, known); !near.empty()) {
    hint = fmt::format("did you mean '{}'? ", near);
  } else {
    // The layer after which it stood may still be there: name what is below the longest scope they share.
    for (const std::string_view scope : scopes_of(name)) {
      FoundLayer last;
      if (!find_name(graph, scope, last)) continue;
      hint = fmt::format("the last layer below '{}' is '{}'; ", scope, last.last);
      break;
    }
  }
  return invalid_input(
      fmt::format("no layer is called '{}' ({}a layer that was folded into another, like a BatchNormalization, has no "
                  "name left: cut after the "
                  "layer it was folded into)",
                  name, hint));
}

}  // namespace

std::vector<std::string_view> names_of(const Node& node) {
  std::vector<std::string_view> names = {node.name};
  for (const EpilogueStep& step : node.epilogue) names.push_back(step.name);
  return names;
}

Result<FoundLayer> find_layer(const Graph& graph, std::string_view name) {
  FoundLayer found;
  if (!name.empty() && name != "=" && find_name(graph, name, found)) return found;
  return unknown_layer(graph, name);
}

std::string cut_name(const Graph& graph, size_t end) {
  CHECK(end >= 1 && end <= graph.nodes.size(), "a cut behind no node");
  const Node& node = graph.nodes[end - 1];
  const std::string_view last = node.epilogue.empty() ? node.name : node.epilogue.back().name;
  // Scopes of the last name from short to long, then itself: the first that leads here is the shortest.
  std::vector<std::string_view> candidates = scopes_of(last);
  candidates.insert(candidates.begin(), last);
  for (size_t i = candidates.size(); i-- > 0;) {
    FoundLayer found;
    if (find_name(graph, candidates[i], found) && found.node == end - 1 && found.name == last)
      return std::string(candidates[i]);
  }
  return fmt::format("={}", last);
}

}  // namespace nlsplit::inline partition
