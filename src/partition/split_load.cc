#include "partition/split_load.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "cost/messages.h"
#include "graph/operators/operator.h"
#include "graph/passes/passes.h"

namespace nlsplit::inline partition {

// Pieces of a value that shards take of each other.
struct PieceExchange {
  ValueId value;
  std::vector<Region> wanted;  // [shard]: along the axis the value is split on
  std::vector<double> bytes;   // [shard]: of one element along that axis
};

struct SplitParts {
  struct OfNode {
    bool is_split = false;             // and has work of its own
    std::vector<double> work;          // [shard]: part of the node's work; empty: each does all of it
    std::vector<double> weight_bytes;  // [shard]: of the weights that it is the first to read
    std::vector<size_t> exchanges;     // before it
  };
  std::vector<Layout> layouts;  // [value]
  std::vector<OfNode> nodes;
  std::vector<PieceExchange> exchanges;
};

namespace {

// Of a message with all of its elements. Parts of outputs are no outputs; what TopK finds travels as it is, which is
// not less.
double bytes_of_message(const Graph& graph, ValueId value, DType messages) {
  const TensorType& type = graph.value(value).type;
  return static_cast<double>(size_of(traveling(type, type.dtype == DType::f32 ? messages : type.dtype)).value());
}

double bytes_of_value(const Graph& graph, ValueId value) {
  return static_cast<double>(size_of(graph.value(value).type).value());
}

int64_t extent_of(const Graph& graph, ValueId value, int axis) {
  return graph.value(value).type.shape[static_cast<size_t>(axis)];
}

// Fills in SplitParts, a node after the other.
class PartsFinder {
 public:
  PartsFinder(const Graph& graph, const Split& split, const std::vector<bool>& batched, Bytes latency_bytes,
              const ImageMultiples& multiples, DType messages, Pieces& pieces)
      : graph_(graph), split_(split), messages_(messages), pieces_(pieces), weight_seen_(graph.values.size(), false) {
    found_.layouts.resize(graph.values.size());
    std::vector<DeviceId> devices;
    for (size_t k = 0; k < shards(); ++k) devices.emplace_back(k);
    const Stage all{0, graph.nodes.size(), devices, split};
    const std::vector<bool> alike{false};
    choose_layouts({graph, all, 0, alike, batched, latency_bytes, multiples, pieces}, found_.layouts);
    const auto sum = static_cast<double>(std::accumulate(split.shares.begin(), split.shares.end(), int64_t{0}));
    for (const int64_t share : split.shares) shares_.push_back(static_cast<double>(share) / sum);
  }

  SplitParts run() {
    for (const Node& node : graph_.nodes) found_.nodes.push_back(parts_of(node));
    return std::move(found_);
  }

 private:
  size_t shards() const { return split_.shares.size(); }

  SplitParts::OfNode parts_of(const Node& node) {
    const Layout& layout = found_.layouts[node.outputs[0].index()];
    SplitParts::OfNode parts;
    parts.is_split = (layout.axis >= 0 || layout.sums()) && !is_view(node.op);
    // [shard]: what it reads. Made on demand: its share, from whole inputs.
    std::vector<const NodePiece*> pieces(shards(), nullptr);
    const auto known = [](const Pieces::Piece& piece) { return piece ? &*piece : nullptr; };
    for (size_t k = 0; k < shards(); ++k) {
      if (layout.sums()) {
        pieces[k] = known(pieces_.sum_of(node, layout.inner[k], layout.inner[k + 1], k == 0));
        parts.work.push_back(part(layout.inner, k));
      } else if (layout.axis >= 0) {
        pieces[k] = known(pieces_.of(node, split_.axis, layout.axis, layout.bounds[k], layout.bounds[k + 1]));
        parts.work.push_back(part(layout.bounds, k));
      } else if (layout.on_demand >= 0) {
        parts.work.push_back(shares_[k]);
      }
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId input = node.inputs[i];
      if (!input.valid()) continue;
      std::vector<Region> regions(shards());
      for (size_t k = 0; k < shards(); ++k) {
        if (pieces[k] != nullptr && i < pieces[k]->inputs.size()) regions[k] = pieces[k]->inputs[i];
      }
      if (graph_.value(input).kind == ValueKind::weight)
        read_weight(input, regions, layout.on_demand >= 0, parts);
      else
        take(input, regions, parts);
    }
    for (const EpilogueStep& step : node.epilogue) {
      if (!step.operand.valid() || graph_.value(step.operand).kind == ValueKind::weight) continue;
      std::vector<Region> regions(shards());
      for (size_t k = 0; layout.axis >= 0 && k < shards(); ++k)
        regions[k] = {layout.axis, layout.bounds[k], layout.bounds[k + 1]};
      take(step.operand, regions, parts);
    }
    return parts;
  }

  static double part(const std::vector<int64_t>& bounds, size_t k) {
    return static_cast<double>(bounds[k + 1] - bounds[k]) / static_cast<double>(bounds.back());
  }

  void read_weight(ValueId weight, const std::vector<Region>& regions, bool on_demand, SplitParts::OfNode& parts) {
    if (weight_seen_[weight.index()]) return;
    weight_seen_[weight.index()] = true;
    parts.weight_bytes.resize(shards(), 0);
    for (size_t k = 0; k < shards(); ++k) {
      double read = on_demand ? shares_[k] : 1;
      if (regions[k].axis >= 0)
        read = static_cast<double>(regions[k].end - regions[k].begin) /
               static_cast<double>(extent_of(graph_, weight, regions[k].axis));
      parts.weight_bytes[k] += read * bytes_of_value(graph_, weight);
    }
  }

  void take(ValueId value, const std::vector<Region>& regions, SplitParts::OfNode& parts) {
    const Layout& from = found_.layouts[value.index()];
    if (from.axis < 0) return;  // everybody has all of it, or makes it
    const int64_t extent = extent_of(graph_, value, from.axis);
    PieceExchange exchange{value, {}, {}};
    bool needed = false;
    for (size_t k = 0; k < shards(); ++k) {
      Region wanted{from.axis, 0, extent};
      double of_other_axes = 1;
      if (regions[k].axis == from.axis)
        wanted = regions[k];
      else if (regions[k].axis >= 0)
        of_other_axes = static_cast<double>(regions[k].end - regions[k].begin) /
                        static_cast<double>(extent_of(graph_, value, regions[k].axis));
      // Rows that others have are computed instead.
      if (split_.recompute_halo && regions[k].axis == from.axis)
        wanted = {from.axis, from.bounds[k], from.bounds[k + 1]};
      needed |= !is_empty(wanted) && (wanted.begin < from.bounds[k] || wanted.end > from.bounds[k + 1]);
      exchange.wanted.push_back(wanted);
      exchange.bytes.push_back(of_other_axes * bytes_of_message(graph_, value, messages_) /
                               static_cast<double>(extent));
    }
    if (!needed) return;
    // What one reader has taken is there for the next.
    std::vector<size_t>& known = of_value_[value.index()];
    const auto same = std::ranges::find_if(known, [&](size_t e) {
      return found_.exchanges[e].wanted == exchange.wanted && found_.exchanges[e].bytes == exchange.bytes;
    });
    if (same != known.end()) {
      parts.exchanges.push_back(*same);
      return;
    }
    known.push_back(found_.exchanges.size());
    parts.exchanges.push_back(found_.exchanges.size());
    found_.exchanges.push_back(std::move(exchange));
  }

  const Graph& graph_;
  const Split& split_;
  DType messages_;
  Pieces& pieces_;
  std::vector<double> shares_;     // [shard], sum 1
  std::vector<bool> weight_seen_;  // [value]
  std::map<size_t, std::vector<size_t>> of_value_;
  SplitParts found_;
};

// One micro-batch through one group: each shard computes its parts in order, as soon as what it takes is there.
class GroupPlay {
 public:
  GroupPlay(const Graph& graph, const SplitParts& parts, const Stage& stage, size_t shards, DType messages)
      : graph_(graph),
        parts_(parts),
        stage_(stage),
        shards_(shards),
        messages_(messages),
        clock_(shards, 0),
        ready_((stage.end - stage.begin) * shards, 0) {
    load_.compute.assign(shards, 0);
    load_.weight_bytes.assign(shards, 0);
    load_.message_bytes.assign(shards * shards, 0);
  }

  // links: [from * shards + to]; seconds: [shard][node].
  SplitLoad run(const std::vector<const Path*>& links, const std::vector<const std::vector<double>*>& seconds) {
    links_ = &links;
    for (size_t n = stage_.begin; n < stage_.end; ++n) {
      const SplitParts::OfNode& node = parts_.nodes[n];
      std::vector<double> start = clock_;
      for (const ValueId read : reads_of(graph_.nodes[n])) wait_for(read, start);
      for (const size_t exchange : node.exchanges) wait_for_exchange(exchange, start);
      for (size_t k = 0; k < shards_; ++k) {
        const double takes = (*seconds[k])[n] * (node.work.empty() ? 1 : node.work[k]);
        if (!is_view(graph_.nodes[n].op)) ++load_.parts;
        load_.compute[k] += takes;
        if (takes > 0) clock_[k] = start[k] + takes;
        ready(n)[k] = start[k] + takes;
        if (!node.weight_bytes.empty()) load_.weight_bytes[k] += node.weight_bytes[k];
      }
      if (const Layout& layout = parts_.layouts[graph_.nodes[n].outputs[0].index()]; layout.sums()) add_up(n, layout);
    }
    for (const double time : ready_) load_.seconds = std::max(load_.seconds, time);
    return std::move(load_);
  }

 private:
  double* ready(size_t node) { return ready_.data() + (node - stage_.begin) * shards_; }

  // -1: it is not made in this stage.
  int64_t maker(ValueId value) const {
    const auto& of = graph_.value(value);
    if (of.kind != ValueKind::node) return -1;
    const size_t n = of.producer.index();
    return n < stage_.begin || n >= stage_.end ? -1 : static_cast<int64_t>(n);
  }

  void wait_for(ValueId value, std::vector<double>& start) {
    const int64_t made = maker(value);
    if (made < 0) return;
    const double* there = ready(static_cast<size_t>(made));
    for (size_t k = 0; k < shards_; ++k) start[k] = std::max(start[k], there[k]);
  }

  // [shard]: when it has what it takes of others. The messages of one exchange share the links at their ends.
  // sent_at: [shard]; bytes_of(from, to): 0: no message.
  template <class BytesOf>
  std::vector<double> exchange(const std::vector<double>& sent_at, const BytesOf& bytes_of) {
    std::vector<double> arrived(shards_, 0), sending(shards_, 0), receiving(shards_, 0), slowest_sender(shards_, 0);
    const auto for_each_message = [&](const auto& message) {
      for (size_t to = 0; to < shards_; ++to) {
        for (size_t from = 0; from < shards_; ++from) {
          if (const double bytes = from == to ? 0 : bytes_of(from, to); bytes > 0)
            message(from, to, bytes, *(*links_)[from * shards_ + to]);
        }
      }
    };
    for_each_message([&](size_t from, size_t to, double bytes, const Path& path) {
      load_.message_bytes[from * shards_ + to] += bytes;
      ++load_.messages;
      sending[from] += bytes * path.seconds_per_byte;
      receiving[to] += bytes * path.seconds_per_byte;
      arrived[to] = std::max(arrived[to], sent_at[from] + path.latency);
    });
    for_each_message([&](size_t from, size_t to, double, const Path&) {
      slowest_sender[to] = std::max(slowest_sender[to], sending[from]);
    });
    for (size_t k = 0; k < shards_; ++k) arrived[k] += std::max(receiving[k], slowest_sender[k]);
    return arrived;
  }

  std::vector<double> ready_times(size_t node) { return {ready(node), ready(node) + shards_}; }

  void wait_for_exchange(size_t number, std::vector<double>& start) {
    const PieceExchange& taken = parts_.exchanges[number];
    const int64_t made = maker(taken.value);
    if (made < 0) return;  // it comes whole from another stage
    const auto [at, added] = arrived_.try_emplace(number);
    if (added) {
      const std::vector<int64_t>& bounds = parts_.layouts[taken.value.index()].bounds;
      at->second = exchange(ready_times(static_cast<size_t>(made)), [&](size_t from, size_t to) {
        const Region& wanted = taken.wanted[to];
        const int64_t count = std::min(wanted.end, bounds[from + 1]) - std::max(wanted.begin, bounds[from]);
        return static_cast<double>(std::max<int64_t>(count, 0)) * taken.bytes[to];
      });
    }
    for (size_t k = 0; k < shards_; ++k) start[k] = std::max(start[k], at->second[k]);
  }

  // Each shard takes everybody's partial sum, or the slice of it that it adds up.
  void add_up(size_t n, const Layout& layout) {
    const double bytes = bytes_of_message(graph_, graph_.nodes[n].outputs[0], messages_);
    const std::vector<double> arrived = exchange(ready_times(n), [&](size_t, size_t to) {
      if (layout.axis < 0) return bytes;
      return bytes * static_cast<double>(layout.bounds[to + 1] - layout.bounds[to]) /
             static_cast<double>(layout.bounds.back());
    });
    for (size_t k = 0; k < shards_; ++k) ready(n)[k] = std::max(ready(n)[k], arrived[k]);
  }

  const Graph& graph_;
  const SplitParts& parts_;
  const Stage& stage_;
  size_t shards_;
  DType messages_;
  std::vector<double> clock_;  // [shard]: until when it computes
  std::vector<double> ready_;  // [node of the stage * shards + shard]: when its result is there
  std::map<size_t, std::vector<double>> arrived_;
  const std::vector<const Path*>* links_ = nullptr;
  SplitLoad load_;
};

}  // namespace

SplitLoads::SplitLoads(const Graph& graph, const Cluster& cluster, const Network& network, const SearchCosts& costs,
                       std::vector<int64_t> multiples)
    : graph_(graph),
      cluster_(cluster),
      network_(network),
      costs_(costs),
      multiples_(std::move(multiples)),
      kinds_(device_kinds(costs.node_seconds)),
      batched_(graph.values.size(), false),
      pieces_(graph, batched_) {
  if (auto batched = batched_values(graph); batched.ok()) batched_ = std::move(batched).value();
}

SplitLoads::~SplitLoads() = default;

const SplitParts& SplitLoads::parts(const Stage& stage, Bytes latency_bytes) {
  const Split& split = *stage.split;
  ImageMultiples multiples = image_multiples(graph_, stage, multiples_);
  const auto [at, added] = parts_.try_emplace(
      {split.axis, split.recompute_halo, split.shares, latency_bytes.value(), std::move(multiples)}, nullptr);
  if (added)
    at->second =
        std::make_unique<const SplitParts>(PartsFinder(graph_, split, batched_, latency_bytes,
                                                       std::get<ImageMultiples>(at->first), cluster_.messages, pieces_)
                                               .run());
  return *at->second;
}

// Whether two groups of a stage take the same time.
bool SplitLoads::is_alike(const Stage& stage, size_t group, size_t other) const {
  const size_t shards = stage.split->shares.size();
  const DeviceId* a = &stage.devices[group * shards];
  const DeviceId* b = &stage.devices[other * shards];
  for (size_t j = 0; j < shards; ++j) {
    if (kinds_[a[j].index()] != kinds_[b[j].index()]) return false;
    for (size_t k = 0; k < shards; ++k) {
      const Path &x = path(a[j], a[k]), &y = path(b[j], b[k]);
      if (x.latency != y.latency || x.seconds_per_byte != y.seconds_per_byte) return false;
    }
  }
  return true;
}

std::optional<PlanLoads> SplitLoads::of(const std::vector<Stage>& stages) {
  double most = 0;  // as expand_plan finds it
  for (const Stage& stage : stages) {
    if (!stage.split) continue;
    const size_t shards = stage.split->shares.size();
    for (size_t first = 0; first < stage.devices.size(); first += shards) {
      for (size_t j = first; j < first + shards; ++j) {
        for (size_t k = first; k < first + shards; ++k) {
          const Path& between = path(stage.devices[j], stage.devices[k]);
          if (j != k && !between.exists) return std::nullopt;
          if (k == j + 1 && between.seconds_per_byte > 0)
            most = std::max(most, between.latency / between.seconds_per_byte);
        }
      }
    }
  }
  PlanLoads loads(stages.size());
  for (size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    if (!stage.split) continue;
    const SplitParts& of_all = parts(stage, bytes(static_cast<int64_t>(most)));
    const auto nodes = std::span(of_all.nodes).subspan(stage.begin, stage.end - stage.begin);
    if (std::ranges::none_of(nodes, &SplitParts::OfNode::is_split)) return std::nullopt;
    const size_t shards = stage.split->shares.size();
    for (size_t g = 0; g < stage.devices.size() / shards; ++g) {
      if (g > 0 && is_alike(stage, g, g - 1)) {
        loads[s].push_back(loads[s].back());
        continue;
      }
      std::vector<const Path*> links(shards * shards);
      std::vector<const std::vector<double>*> seconds;
      const DeviceId* devices = &stage.devices[g * shards];
      for (size_t j = 0; j < shards; ++j) {
        seconds.push_back(&costs_.node_seconds[devices[j].index()]);
        for (size_t k = 0; k < shards; ++k) links[j * shards + k] = &path(devices[j], devices[k]);
      }
      loads[s].push_back(GroupPlay(graph_, of_all, stage, shards, cluster_.messages).run(links, seconds));
    }
  }
  return loads;
}

}  // namespace nlsplit::inline partition
