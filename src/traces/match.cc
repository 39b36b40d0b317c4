#include "traces/match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/json_place.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline traces {
namespace {

// Where a runtime fuses operators it names the kernel anew. Here: the last of the network's operators within it, the
// one that is found by order. ONNX Runtime's contrib operators (docs/ContribOperators.md there).
struct FusedKind {
  std::string_view fused, last;
};
constexpr std::array fused_kinds = {
    FusedKind{"SkipLayerNormalization", "LayerNormalization"},
    FusedKind{"EmbedLayerNormalization", "LayerNormalization"},
    FusedKind{"FusedConv", "Conv"},
    FusedKind{"FusedGemm", "Gemm"},
    FusedKind{"FusedMatMul", "MatMul"},
    FusedKind{"BiasGelu", "Gelu"},
    FusedKind{"FastGelu", "Gelu"},
    FusedKind{"QuickGelu", "Mul"},
    FusedKind{"BiasSoftmax", "Softmax"},
};

// Kinds that change where elements lie, and nothing else.
constexpr std::array<std::string_view, 11> layout_kinds = {"ReorderInput", "ReorderOutput",  "Reshape", "Transpose",
                                                           "Squeeze",      "Unsqueeze",      "Flatten", "Cast",
                                                           "MemcpyToHost", "MemcpyFromHost", "Identity"};

std::string_view network_kind(std::string_view op) {
  const auto found = std::ranges::find(fused_kinds, op, &FusedKind::fused);
  return found == fused_kinds.end() ? op : found->last;
}

bool is_layout(const OperatorTime& event) {
  return std::ranges::find(layout_kinds, std::string_view(event.op)) != layout_kinds.end();
}
// What a runtime adds behind an operator; all else is before one.
bool comes_after(const OperatorTime& event) {
  return event.op == "ReorderOutput" || event.name.starts_with("gemm_output_reshape");
}

// "ReorderOutput_token_12" → "ReorderOutput".
std::string_view without_number(std::string_view name) {
  constexpr std::string_view token = "_token_";
  const size_t at = name.rfind(token);
  if (at == name.npos || name.find_first_not_of("0123456789", at + token.size()) != name.npos) return name;
  return name.substr(0, at);
}

// What ONNX Runtime puts behind names: "conv1_nchwc", "fc1/MatMulAddFusion", "scores/MatMulScaleFusion/".
std::optional<std::string_view> shorter(std::string_view name) {
  for (const std::string_view end : {"_nchwc", "_nhwc"}) {
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  }
  const std::string_view inner = name.ends_with('/') ? name.substr(0, name.size() - 1) : name;
  const size_t slash = inner.rfind('/');
  if (slash != inner.npos && slash > 0 && inner.ends_with("Fusion")) return inner.substr(0, slash);
  return std::nullopt;
}

// Whether both are alike but for the batch, their first axis; none: they cannot be compared.
std::optional<bool> alike(const std::optional<Shape>& seen, const Shape& own) {
  if (!seen || seen->size() != own.size() || own.empty()) return std::nullopt;
  return std::equal(seen->begin() + 1, seen->end(), own.begin() + 1);
}

const Shape& result_shape(const Graph& graph, int node) {
  return graph.value(graph.nodes[static_cast<size_t>(node)].outputs[0]).type.shape;
}

}  // namespace

NodeFinder::NodeFinder(const Graph& graph) : graph_(graph) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) names_.emplace_back(graph.nodes[n].name, static_cast<int>(n));
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId value : graph.nodes[n].outputs) {
      if (value.valid()) names_.emplace_back(graph.value(value).name, static_cast<int>(n));
    }
  }
  std::ranges::stable_sort(names_, {}, [](const auto& entry) { return entry.first; });
}

int NodeFinder::by_name(std::string_view name) const {
  for (std::optional<std::string_view> part = without_number(name); part; part = shorter(*part)) {
    const auto found = std::ranges::lower_bound(names_, *part, {}, [](const auto& entry) { return entry.first; });
    if (!part->empty() && found != names_.end() && found->first == *part) return found->second;
  }
  return -1;
}

void NodeFinder::by_order(const ProfiledRun& run, std::vector<EventNode>& found) const {
  std::vector<bool> taken(graph_.nodes.size(), false);
  for (const EventNode& one : found) {
    if (one.node >= 0) taken[static_cast<size_t>(one.node)] = true;
  }
  std::map<std::string_view, std::vector<int>> free;  // by kind
  for (size_t n = 0; n < taken.size(); ++n) {
    if (!taken[n]) free[name_of(graph_.nodes[n].op)].push_back(static_cast<int>(n));
  }
  std::map<std::string_view, std::vector<size_t>> open;
  for (size_t e = 0; e < run.events.size(); ++e) {
    if (found[e].node < 0) open[network_kind(run.events[e].op)].push_back(e);
  }
  for (const auto& [kind, events] : open) {
    const auto nodes = free.find(kind);
    if (nodes == free.end() || nodes->second.size() != events.size()) continue;
    bool differ = false;
    for (size_t i = 0; i < events.size(); ++i)
      differ = differ || alike(run.events[events[i]].output, result_shape(graph_, nodes->second[i])) == false;
    if (differ) continue;
    for (size_t i = 0; i < events.size(); ++i) found[events[i]] = {nodes->second[i], MatchedBy::order};
  }
}

std::vector<EventNode> NodeFinder::find(const ProfiledRun& run) const {
  const size_t count = run.events.size();
  std::vector<EventNode> found(count);
  for (size_t e = 0; e < count; ++e) {
    if (const int node = by_name(run.events[e].name); node >= 0) found[e] = {node, MatchedBy::name};
  }
  by_order(run, found);
  const std::vector<EventNode> named = found;
  for (size_t e = 0; e < count; ++e) {
    if (found[e].node >= 0 || !is_layout(run.events[e])) continue;
    size_t before = e, after = e;
    while (before > 0 && named[before].node < 0) --before;
    while (after + 1 < count && named[after].node < 0) ++after;
    int node = named[comes_after(run.events[e]) ? before : after].node;
    if (node < 0) node = std::max(named[before].node, named[after].node);
    if (node >= 0) found[e] = {node, MatchedBy::layout};
  }
  return found;
}

namespace {

// The batch of an execution by what its operators returned. Error: their shapes are not those of the network.
Result<int64_t> batch_of(const ProfiledRun& run, const std::vector<EventNode>& found, const Graph& graph) {
  std::map<int64_t, size_t> votes;
  size_t alikes = 0, others = 0;
  const OperatorTime* other = nullptr;
  for (size_t e = 0; e < found.size(); ++e) {
    if (found[e].by != MatchedBy::name) continue;
    const std::optional<bool> same = alike(run.events[e].output, result_shape(graph, found[e].node));
    if (!same) continue;
    ++(*same ? alikes : others);
    if (*same) ++votes[run.events[e].output->front()];
    if (!*same && other == nullptr) other = &run.events[e];
  }
  if (others > alikes) {
    return invalid_input(fmt::format(
        "'{}' has the result [{}] in this profile and [{}] in the network: the profile is of other input sizes, or of "
        "another network",
        other->name, fmt::join(*other->output, ","),
        fmt::join(result_shape(graph, found[static_cast<size_t>(other - run.events.data())].node), ",")));
  }
  for (const auto& [batch, count] : votes) {
    if (batch >= 1 && count * 2 > alikes) return batch;
  }
  return invalid_input("this profile does not say what batch it was taken at: name it with --profiled-batch");
}

void add(const ProfiledRun& run, const std::vector<EventNode>& found, SizeTimes& size) {
  const size_t execution = size.run_s.size();
  size.run_s.push_back(run.seconds);
  double busy = 0;
  for (size_t e = 0; e < found.size(); ++e) {
    busy += run.events[e].seconds;
    if (found[e].node < 0) continue;
    std::vector<double>& times = size.nodes[static_cast<size_t>(found[e].node)];
    times.resize(execution + 1, 0);
    times[execution] += run.events[e].seconds;
  }
  size.between_s.push_back(std::max(0.0, run.seconds - busy));
  for (std::vector<double>& times : size.nodes) {
    if (!times.empty()) times.resize(execution + 1, 0);
  }
}

// Sums over all executions that count.
struct Sums {
  double by[4] = {};
  std::map<std::pair<std::string_view, std::string_view>, double> without;  // name, kind

  void add(const ProfiledRun& run, const std::vector<EventNode>& found) {
    for (size_t e = 0; e < found.size(); ++e) {
      by[static_cast<size_t>(found[e].by)] += run.events[e].seconds;
      if (found[e].by == MatchedBy::nothing) without[{run.events[e].name, run.events[e].op}] += run.events[e].seconds;
    }
  }
  void write_to(Matched& matched) const {
    const double all = by[0] + by[1] + by[2] + by[3];
    if (all <= 0) return;
    matched.not_matched = by[static_cast<size_t>(MatchedBy::nothing)] / all;
    matched.by_name = by[static_cast<size_t>(MatchedBy::name)] / all;
    matched.by_order = by[static_cast<size_t>(MatchedBy::order)] / all;
    matched.layout = by[static_cast<size_t>(MatchedBy::layout)] / all;
    for (const auto& [event, seconds] : without)
      matched.events.push_back({std::string(event.first), std::string(event.second), seconds / all});
    std::ranges::stable_sort(matched.events, std::ranges::greater(), &UnmatchedEvent::share);
  }
};

bool same_operators(const ProfiledRun& a, const ProfiledRun& b) {
  return std::ranges::equal(a.events, b.events, [](const OperatorTime& x, const OperatorTime& y) {
    return x.name == y.name && x.op == y.op;
  });
}

}  // namespace

Result<Matched> match(const std::vector<OperatorTrace>& traces, const Graph& graph, const MatchOptions& options) {
  const NodeFinder finder(graph);
  std::map<int64_t, SizeTimes> sizes;
  Sums sums;
  for (const OperatorTrace& trace : traces) {
    const ProfiledRun* before = nullptr;
    std::vector<EventNode> found;
    std::map<int64_t, int> seen;  // executions at each batch: every trace begins with its own warm-up
    for (const ProfiledRun& run : trace.runs) {
      if (before == nullptr || !same_operators(*before, run)) found = finder.find(run);
      before = &run;
      int64_t batch = options.batch;
      if (batch == 0) {
        auto told = batch_of(run, found, graph);
        if (!told) return in_file(trace.file, told.error());
        batch = *told;
      }
      SizeTimes& size = sizes.try_emplace(batch).first->second;
      size.batch = batch;
      size.nodes.resize(graph.nodes.size());
      if (++seen[batch] <= options.warm_up) {
        ++size.left_out;
        continue;
      }
      add(run, found, size);
      sums.add(run, found);
    }
    for (const auto& [batch, count] : seen) {
      if (count > options.warm_up) continue;
      return in_file(trace.file, invalid_input(fmt::format(
                                     "{} execution{} at batch {}, and the first {} to be left out as warm-up: "
                                     "profile more, or leave out fewer with --warm-up",
                                     count, count == 1 ? "" : "s", batch,
                                     options.warm_up == 1 ? "is" : fmt::format("{} are", options.warm_up))));
    }
  }
  Matched matched;
  for (auto& [batch, size] : sizes) matched.sizes.push_back(std::move(size));
  sums.write_to(matched);
  return matched;
}

}  // namespace nlsplit::inline traces
