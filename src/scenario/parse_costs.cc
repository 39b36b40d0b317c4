// Where a device's costs come from: one row for each kind of source.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "scenario/parse_cluster.h"

namespace nlsplit::inline scenario {

namespace {

// `value` stands behind the row's key; `costs` are all keys beside it.
using ParseCosts = Result<CostSourcePtr> (*)(const Source& source, const Fields& costs, const Yaml& value,
                                             const ScenarioOptions& options);

struct CostSourceRow {
  std::string_view key;                  // costs: {KEY: …}
  std::vector<std::string_view> beside;  // further keys
  ParseCosts parse;
};

Result<Profile> read_costs_file(const Source& source, const Yaml& node) {
  ASSIGN_OR_RETURN(const std::string name,
                   read_text(source, node, "costs (a profile, or {roofline: {compute: ..., memory: ...}})"));
  const std::string path = beside(source.file, name);
  auto profile = read_profile(path);
  if (profile.ok()) return profile;
  Error error = profile.error();
  if (error.kind == ErrorKind::io)
    error.message += fmt::format("; measure on that machine with: nlbench profile {} -o {}", source.file, path);
  return moved_to(std::move(error), source.location(node), source.line(node.line));
}

// A file, or a list of them.
Result<CostSourcePtr> parse_files(const Source& source, const Yaml& node, bool predict,
                                  const ScenarioOptions& options) {
  const std::vector<Yaml> one = {node};
  if (node.is_list() && node.items.empty()) return source.at(node, "costs: an empty list of profiles");
  std::vector<Profile> profiles;
  for (const Yaml& item : node.is_list() ? node.items : one) {
    auto profile = read_costs_file(source, item);
    if (!profile.ok() && options.need_profiles) return profile.error();
    if (profile.ok()) profiles.push_back(std::move(*profile));
  }
  if (profiles.empty()) return no_costs();
  auto all = join(std::move(profiles));
  if (!all.ok()) return source.at(node, all.error());
  all->predict = predict;
  return measured(std::move(*all));
}

Result<CostSourcePtr> parse_measured(const Source& source, const Fields& costs, const Yaml& value,
                                     const ScenarioOptions& options) {
  bool predicts = false;
  if (const Yaml* predict = costs.find("predict")) {
    static constexpr std::array<std::string_view, 2> answers = {"false", "true"};
    ASSIGN_OR_RETURN(const size_t chosen, read_choice(source, *predict, "predict", answers));
    predicts = chosen == 1;
  }
  return parse_files(source, value, predicts, options);
}

Result<CostSourcePtr> parse_roofline(const Source& source, const Fields&, const Yaml& value, const ScenarioOptions&) {
  ASSIGN_OR_RETURN(const Fields figures, Fields::open(source, value, "roofline", {"compute", "memory"}));
  ASSIGN_OR_RETURN(const Yaml* compute, figures.need("compute"));
  ASSIGN_OR_RETURN(const Yaml* memory, figures.need("memory"));
  ASSIGN_OR_RETURN(const FlopsPerSecond peak, read_rate(source, *compute, "a compute rate", parse_compute_rate));
  ASSIGN_OR_RETURN(const BytesPerSecond bandwidth, read_rate(source, *memory, "a memory bandwidth", parse_bandwidth));
  return roofline(peak, bandwidth);
}

// A row for each kind of source; the first is what a lack of all is reported as.
const std::vector<CostSourceRow>& cost_sources() {
  static const std::vector<CostSourceRow> rows = {
      {"roofline", {}, parse_roofline},
      {"profile", {"predict"}, parse_measured},
  };
  return rows;
}

}  // namespace

Result<CostSourcePtr> parse_costs(const Source& source, const Yaml& node, const ScenarioOptions& options) {
  if (!node.is_map()) return parse_files(source, node, false, options);
  std::vector<std::string_view> keys;
  for (const CostSourceRow& row : cost_sources()) {
    keys.push_back(row.key);
    keys.insert(keys.end(), row.beside.begin(), row.beside.end());
  }
  ASSIGN_OR_RETURN(const Fields costs, Fields::open(source, node, "costs", keys));
  const CostSourceRow* chosen = nullptr;
  for (const CostSourceRow& row : cost_sources()) {
    if (costs.find(row.key) == nullptr) continue;
    if (chosen != nullptr) {
      return source.at(*costs.find(chosen->key), fmt::format("costs are a {} or a {}, not both", row.key, chosen->key));
    }
    chosen = &row;
  }
  for (const CostSourceRow& row : cost_sources()) {
    for (const std::string_view key : row.beside) {
      if (costs.find(key) == nullptr || chosen == &row) continue;
      if (chosen == nullptr) return costs.need(row.key).error();
      return source.at(*costs.find(key), fmt::format("'{}' goes with '{}', not with '{}'", key, row.key, chosen->key));
    }
  }
  if (chosen == nullptr) return costs.need(cost_sources().front().key).error();
  return chosen->parse(source, costs, *costs.find(chosen->key), options);
}

}  // namespace nlsplit::inline scenario
