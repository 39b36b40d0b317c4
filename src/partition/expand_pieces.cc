#include "partition/expand_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "graph/operators/operator.h"
#include "graph/passes/rewrite.h"

namespace nlsplit::inline partition {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

bool is_all(const Region& region, const Shape& shape) {
  return region.axis < 0 || (region.begin == 0 && region.end == shape[at(region.axis)]);
}

}  // namespace

PieceGraph::PieceGraph(const Graph& graph, const Plan& plan, const std::vector<Layout>& layouts)
    : from_(graph), plan_(plan), layouts_(layouts), pieces_(graph.values.size()), joined_(graph.values.size()) {
  graph_.name = graph.name;
  // Names of the unsplit graph stay with what is not split, and with its outputs.
  for (const ValueId input : graph.inputs) add_input(input);
}

ValueId PieceGraph::add_input(ValueId value) {
  const ValueId id(graph_.values.size());
  graph_.values.push_back(from_.value(value));
  value_names_.insert(from_.value(value).name);
  graph_.inputs.push_back(id);
  set_pieces(value, {{id, 0, 0}});
  return id;
}

std::string PieceGraph::unused(const std::string& wanted, std::unordered_set<std::string>& taken) {
  std::string name = wanted;
  for (int n = 2; !taken.insert(name).second; ++n) name = fmt::format("{}_{}", wanted, n);
  return name;
}

std::vector<ValueId> PieceGraph::emit(Node node, const std::vector<std::string>& value_names, int stage, int shard,
                                      int origin, const Region& region) {
  auto types = infer(node.op, input_types(graph_, node), node.attrs);
  CHECK(types.ok(), fmt::format("splitting made an invalid {} '{}': {}", name_of(node.op), node.name,
                                types.ok() ? "" : types.error().message));
  Place place{stage, shard, 0};
  for (const ValueId read : reads_of(node)) {
    const Value& value = graph_.value(read);
    if (value.kind != ValueKind::node) continue;
    const Place& from = places_[value.producer.index()];
    if (from.stage == stage) place.level = std::max(place.level, from.level + (from.shard == shard ? 0 : 1));
  }
  node.name = unused(node.name, node_names_);
  node.outputs.clear();
  for (size_t i = 0; i < types->size(); ++i) {
    const std::string wanted = i < value_names.size() ? value_names[i] : node.name;
    node.outputs.push_back(ValueId(graph_.values.size()));
    graph_.values.push_back(
        {unused(wanted, value_names_), (*types)[i], ValueKind::node, NodeId(graph_.nodes.size()), {}});
  }
  std::vector<ValueId> outputs = node.outputs;
  graph_.nodes.push_back(std::move(node));
  places_.push_back(place);
  origin_.push_back(origin);
  regions_.push_back(region);
  return outputs;
}

ValueId PieceGraph::weight(ValueId value, Region region, int stage, int shard) {
  const Value& from = from_.value(value);
  if (is_all(region, from.type.shape)) region = {};
  if (!from.state) stage = shard = -1;
  const auto [found, added] =
      weights_.try_emplace({value.index(), region.axis, region.begin, region.end, stage, shard}, ValueId());
  if (!added) return found->second;
  Value part = from;
  if (region.axis >= 0) {
    part.type.shape[at(region.axis)] = region.end - region.begin;
    part.name = fmt::format("{}#{}-{}", from.name, region.begin, region.end);
    if (!from.state)
      part.content = WeightStore::slice_id(from.content, region.axis, region.begin, region.end, from.type);
    if (!from.state && sliced_weights_.insert(part.content).second)
      slices_.push_back({part.content, from.content, from.type, region.axis, region.begin, region.end});
  }
  part.name = unused(part.name, value_names_);
  if (!from.state) parts_.push_back({part.name, from.name, from.type, region});
  found->second = ValueId(graph_.values.size());
  graph_.values.push_back(std::move(part));
  return found->second;
}

ValueId PieceGraph::slice(ValueId from, const std::vector<Region>& regions, Place place, const std::string& name) {
  const Shape& shape = graph_.value(from).type.shape;
  std::vector<int64_t> axes, starts, ends;
  for (const Region& region : regions) {
    if (is_all(region, shape)) continue;
    axes.push_back(region.axis);
    starts.push_back(region.begin);
    ends.push_back(region.end);
  }
  if (axes.empty()) return from;
  std::vector<int64_t> key;
  for (const auto* list : {&axes, &starts, &ends}) key.insert(key.end(), list->begin(), list->end());
  const auto [found, added] = sliced_.try_emplace({from.index(), std::move(key), place.stage, place.shard}, ValueId());
  if (!added) return found->second;
  Node node;
  node.op = Op::Slice;
  node.name = name;
  node.inputs = {from};
  set_attr(node.attrs, "steps", std::vector<int64_t>(axes.size(), 1));
  set_attr(node.attrs, "axes", std::move(axes));
  set_attr(node.attrs, "ends", std::move(ends));
  set_attr(node.attrs, "starts", std::move(starts));
  found->second = emit(std::move(node), {name}, place.stage, place.shard, -1)[0];
  return found->second;
}

ValueId PieceGraph::part_of(ValueId partial, const std::vector<Region>& regions, const std::string& name) {
  return slice(partial, regions, places_[graph_.value(partial).producer.index()], name);
}

DeviceId PieceGraph::device_of(const Place& place) const {
  return plan_.stages[at(place.stage)].devices[at(place.shard)];
}

std::vector<DeviceId> PieceGraph::devices_of(const Place& place) const {
  const Stage& stage = plan_.stages[at(place.stage)];
  if (!stage.split) return stage.devices;
  std::vector<DeviceId> devices;
  for (size_t d = at(place.shard); d < stage.devices.size(); d += stage.split->shares.size())
    devices.push_back(stage.devices[d]);
  return devices;
}

// Its own, else one on its own device, else the first.
size_t PieceGraph::nearest_copy(const std::vector<ShardPiece>& copies, int stage, int shard) const {
  const DeviceId here = device_of({stage, shard, 0});
  size_t best = 0;
  for (size_t i = copies.size(); i-- > 0;) {
    const Value& value = graph_.value(copies[i].value);
    if (value.kind != ValueKind::node) continue;
    const Place& place = places_[value.producer.index()];
    if (place.stage == stage && place.shard == shard) return i;
    if (device_of(place) == here) best = i;
  }
  return best;
}

ValueId PieceGraph::fetch_whole_layout(ValueId value, Region region, int stage, int shard) {
  const std::vector<ShardPiece>& copies = pieces_[value.index()];
  CHECK(!copies.empty(), fmt::format("'{}' is read before it is made", from_.value(value).name));
  const ValueId copy = copies[nearest_copy(copies, stage, shard)].value;
  const Value& made = graph_.value(copy);
  // Cut where it is, so that only the part travels; of inputs of the graph see cut_inputs().
  const Place place = made.kind == ValueKind::node ? places_[made.producer.index()] : Place{stage, shard, 0};
  return slice(copy, {region}, place, fmt::format("{}.part{}", from_.value(value).name, shard));
}

ValueId PieceGraph::fetch(ValueId value, Region region, int stage, int shard) {
  const Value& wanted = from_.value(value);
  if (wanted.kind == ValueKind::weight) return weight(value, region, stage, shard);
  if (is_all(region, wanted.type.shape)) region = {};
  const std::tuple key{value.index(), region.axis, region.begin, region.end, stage, shard};
  if (const auto found = fetched_.find(key); found != fetched_.end()) return found->second;
  const Layout& layout = layouts_[value.index()];
  ValueId got;
  if (layout.on_demand >= 0)
    got = make_(value, region, shard);
  else
    got = layout.axis < 0 ? fetch_whole_layout(value, region, stage, shard) : join(value, region, stage, shard);
  fetched_.emplace(key, got);
  return got;
}

// What the shard has itself, and what is missing in front of it and behind it from its owners.
ValueId PieceGraph::join(ValueId value, Region region, int stage, int shard) {
  const Layout& layout = layouts_[value.index()];
  const Value& whole = from_.value(value);
  const std::vector<ShardPiece>& pieces = pieces_[value.index()];
  CHECK(pieces.size() + 1 == layout.bounds.size(), fmt::format("'{}' is read before it is made", whole.name));
  if (region.axis < 0) {
    for (const ValueId joined : joined_[value.index()]) {
      const int where = places_[graph_.value(joined).producer.index()].stage;
      if (where != layout.stage && where < stage) return joined;  // one message instead of one from each shard
    }
  }
  const bool same_axis = region.axis == layout.axis;
  const int64_t begin = same_axis ? region.begin : 0, end = same_axis ? region.end : layout.bounds.back();
  Node node;
  const auto take = [&](size_t k, int64_t low, int64_t high) {
    if (low >= high) return;
    const ShardPiece& piece = pieces[k];
    std::vector<Region> regions{{layout.axis, low - piece.begin, high - piece.begin}};
    if (region.axis >= 0 && !same_axis) regions.push_back(region);
    node.inputs.push_back(part_of(piece.value, regions, fmt::format("{}#{}.part", whole.name, k)));
  };
  const auto take_owned = [&](int64_t low, int64_t high) {
    for (size_t k = 0; k < pieces.size(); ++k)
      take(k, std::max(low, layout.bounds[k]), std::min(high, layout.bounds[k + 1]));
  };
  if (layout.stage == stage) {
    const ShardPiece& own = pieces[at(shard)];
    const int64_t low = std::clamp(own.begin, begin, end), high = std::clamp(own.end, low, end);
    take_owned(begin, low);
    take(at(shard), low, high);
    take_owned(high, end);
  } else {
    take_owned(begin, end);
  }
  if (node.inputs.size() == 1) return node.inputs[0];
  node.op = Op::Concat;
  node.name = fmt::format("{}.{}#{}", whole.name, region.axis < 0 ? "join" : same_axis ? "halo" : "turn", shard);
  set_attr(node.attrs, "axis", static_cast<int64_t>(layout.axis));
  const std::string name = node.name;
  const ValueId joined = emit(std::move(node), {name}, stage, shard, -1)[0];
  if (region.axis < 0) joined_[value.index()].push_back(joined);
  return joined;
}

ValueId PieceGraph::fetch_output(ValueId value) {
  if (from_.value(value).kind == ValueKind::weight) return weight(value, {}, -1, -1);
  if (!joined_[value.index()].empty()) return joined_[value.index()][0];
  const int stage = layouts_[value.index()].stage;
  return stage < 0 ? pieces_[value.index()][0].value : fetch(value, {}, stage, 0);
}

// [node]: an output needs it.
std::vector<bool> PieceGraph::needed() const {
  std::vector<bool> needed(graph_.nodes.size(), false);
  std::vector<size_t> open;
  const auto need = [&](ValueId value) {
    if (graph_.value(value).kind != ValueKind::node) return;
    const size_t n = graph_.value(value).producer.index();
    if (!needed[n]) open.push_back(n);
    needed[n] = true;
  };
  for (const ValueId output : graph_.outputs) need(output);
  while (!open.empty()) {
    const size_t n = open.back();
    open.pop_back();
    for (const ValueId read : reads_of(graph_.nodes[n])) need(read);
  }
  return needed;
}

// What shards take of an input is cut where the input is, so that no more than that travels. A device that reads all of
// it, or parts that lie over each other, is sent these once and cuts them itself.
void PieceGraph::cut_inputs() {
  const std::vector<bool> used = needed(), output = output_flags(graph_);
  for (const ValueId input : graph_.inputs) {
    std::map<std::vector<DeviceId>, std::vector<size_t>> cuts;  // by who does them
    std::set<std::vector<DeviceId>> whole;
    for (size_t n = 0; n < used.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const std::vector<ValueId> reads = reads_of(node);
      if (!used[n] || std::ranges::find(reads, input) == reads.end()) continue;
      if (node.op == Op::Slice && origin_[n] < 0 && !output[node.outputs[0].index()])
        cuts[devices_of(places_[n])].push_back(n);
      else
        whole.insert(devices_of(places_[n]));
    }
    for (const auto& [devices, nodes] : cuts) {
      if (!whole.contains(devices)) cut_input(input, nodes);
    }
  }
}

// For one device, or replicas.
void PieceGraph::cut_input(ValueId input, const std::vector<size_t>& nodes) {
  std::vector<Region> regions;  // of one axis each: nothing else is taken of a value that is not split
  for (const size_t n : nodes) {
    const Attrs& attrs = graph_.nodes[n].attrs;
    regions.push_back(
        {static_cast<int>(attr_ints(attrs, "axes")[0]), attr_ints(attrs, "starts")[0], attr_ints(attrs, "ends")[0]});
  }
  Region hull = regions[0];
  int64_t apart = 0;  // elements, if every part is sent alone
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i].axis != hull.axis) return;
    hull.begin = std::min(hull.begin, regions[i].begin);
    hull.end = std::max(hull.end, regions[i].end);
    const auto here = regions.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(regions.begin(), here, *here) == here) apart += here->end - here->begin;
  }
  const bool together = apart > hull.end - hull.begin;
  if (together && is_all(hull, graph_.value(input).type.shape)) return;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Region& sent = together ? hull : regions[i];
    const std::string name = fmt::format("{}#{}-{}", graph_.value(input).name, sent.begin, sent.end);
    const ValueId part = slice(input, {sent}, {}, name);
    Node& node = graph_.nodes[nodes[i]];
    if (sent == regions[i]) {
      redirect(graph_, node.outputs[0], part);
      continue;
    }
    node.inputs[0] = part;
    set_attr(node.attrs, "starts", std::vector<int64_t>{regions[i].begin - sent.begin});
    set_attr(node.attrs, "ends", std::vector<int64_t>{regions[i].end - sent.begin});
  }
}

// Nodes that an output needs, sorted.
std::vector<size_t> PieceGraph::order() const {
  const std::vector<bool> needed = this->needed();
  std::vector<size_t> kept;
  for (size_t n = graph_.nodes.size(); n-- > 0;) {
    if (needed[n]) kept.push_back(n);
  }
  // What others wait for is cut and sent as soon as it is made, not after the shard's next layers.
  std::vector<size_t> moment(graph_.nodes.size());
  for (size_t n = 0; n < moment.size(); ++n) {
    const Node& node = graph_.nodes[n];
    const bool part = node.op == Op::Slice && origin_[n] < 0 && graph_.value(node.inputs[0]).kind == ValueKind::node;
    moment[n] = part ? moment[graph_.value(node.inputs[0]).producer.index()] : n;
  }
  const auto key = [&](size_t n) {
    return std::tuple(places_[n].stage, places_[n].level, places_[n].shard, moment[n], n);
  };
  std::ranges::sort(kept, [&](size_t a, size_t b) { return key(a) < key(b); });
  return kept;
}

namespace {

// A stage needs work to do: one of views alone joins the one before it, or the first one the one behind it. It makes no
// difference: views are nowhere.
std::vector<Stage> without_idle(const Graph& graph, std::vector<Stage> stages) {
  std::vector<Stage> kept;
  for (Stage& stage : stages) {
    const auto first = graph.nodes.begin() + static_cast<std::ptrdiff_t>(stage.begin);
    const auto last = graph.nodes.begin() + static_cast<std::ptrdiff_t>(stage.end);
    const bool idle = std::all_of(first, last, [](const Node& node) { return is_view(node.op); });
    if (kept.empty() || !idle) {
      const bool join =
          kept.size() == 1 && std::all_of(graph.nodes.begin() + static_cast<std::ptrdiff_t>(kept[0].begin), first,
                                          [](const Node& node) { return is_view(node.op); });
      if (join) {
        stage.begin = kept[0].begin;
        kept.clear();
      }
      kept.push_back(std::move(stage));
    } else {
      kept.back().end = stage.end;
    }
  }
  return kept;
}

}  // namespace

Expanded PieceGraph::finish(const std::vector<ValueId>& outputs) {
  for (const ValueId output : outputs) graph_.outputs.push_back(fetch_output(output));
  for (size_t i = 0; i < outputs.size(); ++i) {
    Value& value = graph_.values[graph_.outputs[i].index()];
    const std::string& name = from_.value(outputs[i]).name;
    if (value.kind == ValueKind::node && value.name != name && !value_names_.contains(name)) {
      value_names_.insert(name);
      value.name = name;
    }
  }
  cut_inputs();
  Expanded out;
  const std::vector<size_t> order = this->order();
  Graph sorted;
  sorted.name = std::move(graph_.name);
  sorted.inputs = std::move(graph_.inputs);
  sorted.outputs = std::move(graph_.outputs);
  sorted.values = std::move(graph_.values);
  std::vector<Stage> stages;
  Place last;
  for (const size_t n : order) {
    sorted.nodes.push_back(std::move(graph_.nodes[n]));
    out.origin.push_back(origin_[n]);
    out.regions.push_back(regions_[n]);
    const Place& place = places_[n];
    if (place.stage < 0) {
      ++out.input_parts;
      continue;
    }
    if (stages.empty() ||
        std::tie(last.stage, last.level, last.shard) != std::tie(place.stage, place.level, place.shard)) {
      Stage& stage = stages.emplace_back();
      stage.begin = sorted.nodes.size() - 1;
      stage.part_of = place.stage;
      stage.devices = devices_of(place);
      last = place;
    }
    stages.back().end = sorted.nodes.size();
  }
  const std::vector<bool> none(sorted.nodes.size(), false);
  out.graph = compacted(std::move(sorted), none);
  out.plan.name = plan_.name;
  out.plan.stages = without_idle(out.graph, std::move(stages));
  out.plan.micro_batches = plan_.micro_batches;
  out.plan.schedule = plan_.schedule;
  out.slices = std::move(slices_);
  out.weights = std::move(parts_);
  return out;
}

}  // namespace nlsplit::inline partition
