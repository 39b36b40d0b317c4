#include "traces/match.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/json_place.h"
#include "graph/operators/operator.h"

namespace nlsplit::inline traces {
namespace {

// Of a shape seen in an execution and of the network's: they differ, cannot be compared, or are alike but for the
// batch.
enum class Likeness : uint8_t { differ, unknown, alike };
struct Compared {
  Likeness likeness = Likeness::unknown;
  int64_t batch = 0;  // where they are alike: the first extent; 0: it is no batch
};

Compared compare(const Shape& seen, const Shape& own) {
  if (seen.empty() || own.empty()) return {};
  if (seen.back() != own.back() && own.size() > 1) return {Likeness::differ};
  if (seen.size() != own.size()) return {};  // leading axes may be one, as of a product of matrices
  if (!std::equal(seen.begin() + 1, seen.end(), own.begin() + 1)) return {Likeness::differ};
  return {Likeness::alike, seen.front()};
}

// Weights may be stored transposed, and with axes of extent 1.
Compared compare_weights(Shape seen, Shape own) {
  if (seen.empty() || own.empty()) return {};
  std::erase(seen, 1);
  std::erase(own, 1);
  std::ranges::sort(seen);
  std::ranges::sort(own);
  return {seen == own ? Likeness::alike : Likeness::differ};
}

const Shape& result_shape(const Graph& graph, int node) {
  return graph.value(graph.nodes[static_cast<size_t>(node)].outputs[0]).type.shape;
}

// Of an operator and a node, by all shapes that the profile says.
Compared compare(const Graph& graph, const OperatorTime& event, int node) {
  Compared all;
  const auto add = [&](const Compared& one) {
    if (all.likeness != Likeness::differ && one.likeness != Likeness::unknown) all.likeness = one.likeness;
    if (all.batch == 0) all.batch = one.batch;
  };
  if (event.output) add(compare(*event.output, result_shape(graph, node)));
  const std::vector<ValueId>& operands = graph.nodes[static_cast<size_t>(node)].inputs;
  for (size_t i = 0; i < std::min(event.inputs.size(), operands.size()); ++i) {
    if (event.inputs[i].empty() || !operands[i].valid()) continue;
    const Value& own = graph.value(operands[i]);
    const bool weight = own.kind == ValueKind::weight;
    add(weight ? compare_weights(event.inputs[i], own.type.shape) : compare(event.inputs[i], own.type.shape));
  }
  return all;
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

int NodeFinder::by_name(const OperatorTime& event) const {
  for (const std::string_view name : event.nodes) {
    const auto found = std::ranges::lower_bound(names_, name, {}, [](const auto& entry) { return entry.first; });
    if (!name.empty() && found != names_.end() && found->first == name) return found->second;
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
  // Operators that may be the same nodes.
  std::map<std::vector<int>, std::vector<size_t>> groups;
  for (size_t e = 0; e < run.events.size(); ++e) {
    if (found[e].node >= 0) continue;
    if (std::vector<int> candidates = candidates_of(run.events[e], free); !candidates.empty())
      groups[std::move(candidates)].push_back(e);
  }
  for (const auto& [nodes, events] : groups) {
    if (nodes.size() != events.size()) continue;
    for (size_t i = 0; i < events.size(); ++i) found[events[i]] = {nodes[i], MatchedBy::order};
  }
}

std::vector<int> NodeFinder::candidates_of(const OperatorTime& event,
                                           const std::map<std::string_view, std::vector<int>>& free) const {
  std::vector<int> candidates;
  for (const std::string_view kind : event.kinds) {
    const auto nodes = free.find(kind);
    if (nodes == free.end()) continue;
    std::ranges::copy_if(nodes->second, std::back_inserter(candidates),
                         [&](int node) { return compare(graph_, event, node).likeness != Likeness::differ; });
    if (!candidates.empty()) break;
  }
  return candidates;
}

std::vector<EventNode> NodeFinder::find(const ProfiledRun& run) const {
  const size_t count = run.events.size();
  std::vector<EventNode> found(count);
  for (size_t e = 0; e < count; ++e) {
    if (const int node = by_name(run.events[e]); node >= 0) found[e] = {node, MatchedBy::name};
  }
  by_order(run, found);
  const std::vector<EventNode> named = found;
  for (size_t e = 0; e < count; ++e) {
    if (found[e].node >= 0 || run.events[e].beside == Beside::none) continue;
    size_t before = e, after = e;
    while (before > 0 && named[before].node < 0) --before;
    while (after + 1 < count && named[after].node < 0) ++after;
    int node = named[run.events[e].beside == Beside::after ? before : after].node;
    if (node < 0) node = std::max(named[before].node, named[after].node);
    if (node >= 0) found[e] = {node, MatchedBy::beside};
  }
  return found;
}

namespace {

// The batch of an execution by the shapes of its operators. Error: they are not those of the network.
Result<int64_t> batch_of(const ProfiledRun& run, const std::vector<EventNode>& found, const Graph& graph) {
  std::map<int64_t, size_t> votes;
  size_t alikes = 0, others = 0;
  const OperatorTime* other = nullptr;
  for (size_t e = 0; e < found.size(); ++e) {
    if (found[e].by != MatchedBy::name && found[e].by != MatchedBy::order) continue;
    const Compared compared = compare(graph, run.events[e], found[e].node);
    if (compared.likeness == Likeness::differ) ++others;
    if (compared.likeness == Likeness::differ && other == nullptr && run.events[e].output) other = &run.events[e];
    if (compared.likeness != Likeness::alike || compared.batch == 0) continue;
    ++alikes;
    ++votes[compared.batch];
  }
  if (others > alikes && other != nullptr) {
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
    matched.beside = by[static_cast<size_t>(MatchedBy::beside)] / all;
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
