#include "kernels/assign.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/choices.h"
#include "kernels/layout.h"
#include "kernels/min_cut.h"
#include "kernels/without_kernel.h"

namespace nlsplit::inline kernels {
namespace {

// A convolution of fewer channels reads them row-major: an image's three would leave most of a block empty.
constexpr int64_t fewest_channels_in_blocks = 5;

// The readers of a value as itself, and whether anything needs it row-major whatever is chosen: a view, or the outside.
struct Use {
  size_t node, input;  // input of the node's desc
};
struct Uses {
  std::vector<Use> uses;
  bool plainly = false;
};

std::vector<Uses> find_uses(const Graph& graph) {
  std::vector<Uses> all(graph.values.size());
  for (const ValueId output : graph.outputs) all[output.index()].plainly = true;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::vector<ValueId> reads = reads_of(graph.nodes[n]);  // as describe() counts them
    for (size_t i = 0; i < reads.size(); ++i) {
      Uses& of = all[reads[i].index()];
      if (is_view(graph.nodes[n].op))
        of.plainly = true;
      else
        of.uses.push_back({n, i});
    }
  }
  return all;
}

// Which of the nodes that could work on blocks shall. A vertex on the source's side does.
class LayoutCut {
 public:
  // bound: [node], those that must, besides the convolutions.
  LayoutCut(const Graph& graph, const std::vector<const ComputeDesc*>& blocked, const std::vector<bool>& bound,
            const std::vector<Uses>& uses)
      : graph_(graph), blocked_(blocked), cut_(2), vertex_(graph.nodes.size(), MinCut::sink) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      if (blocked[n] == nullptr) continue;
      vertex_[n] = cut_.add_vertex();
      if (blocked[n]->op == Op::Conv || bound[n]) cut_.add(MinCut::source, vertex_[n], MinCut::never);
    }
    for (size_t v = 0; v < graph.values.size(); ++v) {
      if (graph.values[v].kind != ValueKind::weight) add_value(v, uses[v]);
    }
  }

  std::vector<bool> solve() {
    const std::vector<bool> sides = cut_.solve();
    std::vector<bool> chosen;
    for (const int vertex : vertex_) chosen.push_back(vertex != MinCut::sink && sides[static_cast<size_t>(vertex)]);
    return chosen;
  }

 private:
  // The vertex on whose side it depends whether the value is made, or read, in blocks.
  int maker(size_t v) const {
    const Value& value = graph_.values[v];
    if (value.kind != ValueKind::node) return MinCut::sink;
    const size_t n = value.producer.index();
    return blocked_[n] != nullptr && blocked_[n]->outputs[0].block > 0 ? vertex_[n] : MinCut::sink;
  }
  int reader(const Use& use) const {
    const ComputeDesc* blocked = blocked_[use.node];
    return blocked != nullptr && blocked->inputs[use.input].block > 0 ? vertex_[use.node] : MinCut::sink;
  }

  // Stored once more in blocks if it is not made so and anybody reads it so; and row-major likewise.
  void add_value(size_t v, const Uses& uses) {
    const int64_t cost = size_of(graph_.values[v].type).value();
    const int made = maker(v);
    bool any = false, all = !uses.plainly;
    for (const Use& use : uses.uses) {
      any = any || reader(use) != MinCut::sink;
      all = all && reader(use) != MinCut::sink;
    }
    if (any) {
      const int somebody = cut_.add_vertex();
      for (const Use& use : uses.uses) {
        if (reader(use) != MinCut::sink) cut_.add(reader(use), somebody, MinCut::never);
      }
      cut_.add(somebody, made, cost);
    }
    if (made == MinCut::sink || (uses.uses.empty() && all)) return;
    if (!all) {
      cut_.add(made, MinCut::sink, cost);
      return;
    }
    const int everybody = cut_.add_vertex();
    for (const Use& use : uses.uses) cut_.add(everybody, reader(use), MinCut::never);
    cut_.add(made, everybody, cost);
  }

  const Graph& graph_;
  const std::vector<const ComputeDesc*>& blocked_;  // [node]; nullptr: it works on row-major tensors only
  MinCut cut_;
  std::vector<int> vertex_;  // [node]; sink: it works on row-major tensors only
};

std::vector<Reorder> find_reorders(const Graph& graph, const Assignment& chosen, const std::vector<Uses>& uses,
                                   int block) {
  std::vector<Reorder> reorders;
  std::vector<size_t> read_by_view(graph.values.size(), graph.nodes.size() + 1);  // the first computation that does
  std::vector<size_t> root(graph.values.size());
  for (size_t v = 0; v < root.size(); ++v) root[v] = v;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (is_view(graph.nodes[n].op)) {
      root[graph.nodes[n].outputs[0].index()] = root[graph.nodes[n].inputs[0].index()];
      continue;
    }
    for (const ValueId read : reads_of(graph.nodes[n])) {
      size_t& first = read_by_view[root[read.index()]];
      if (root[read.index()] != read.index()) first = std::min(first, n);
    }
  }
  for (const ValueId output : graph.outputs) {
    size_t& first = read_by_view[root[output.index()]];
    first = std::min(first, graph.nodes.size());
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind == ValueKind::weight || root[v] != v) continue;
    size_t plain = read_by_view[v], blocked = graph.nodes.size() + 1;
    for (const Use& use : uses[v].uses) {
      size_t& first = chosen.descs[use.node].inputs[use.input].block > 0 ? blocked : plain;
      first = std::min(first, use.node);
    }
    if (chosen.made_in[v] > 0 && plain <= graph.nodes.size()) reorders.push_back({ValueId(v), 0, plain});
    if (chosen.made_in[v] == 0 && blocked <= graph.nodes.size()) reorders.push_back({ValueId(v), block, blocked});
  }
  std::ranges::stable_sort(reorders, {}, &Reorder::before);
  return reorders;
}

// All that may be, in blocks of channels; a convolution of few channels reads them row-major, unless `also_few`.
std::optional<ComputeDesc> laid_out_in_blocks(const ComputeDesc& desc, Level level, bool also_few) {
  const int block = static_cast<int>(vector_width(level.isa));
  if (is_gpu(level.isa)) return std::nullopt;
  const auto has_pixels = [](const TensorType& type) { return type.shape.size() == 3 || type.shape.size() == 4; };
  if (desc.outputs.size() != 1 || !has_pixels(desc.outputs[0])) return std::nullopt;
  ComputeDesc blocked = desc;
  blocked.outputs[0].block = block;
  size_t tensors = desc.own_inputs();  // how many of the first inputs are activations
  switch (desc.op) {
    case Op::Conv:
      tensors = desc.inputs[0].shape[1] < fewest_channels_in_blocks && !also_few ? 0 : 1;
      break;
    case Op::GlobalAveragePool:
      blocked.outputs[0].block = 0;  // one number a channel: row-major at no cost
      break;
    case Op::BatchNormalization:
      tensors = 1;
      break;
    default:
      break;
  }
  for (size_t i = 0; i < blocked.inputs.size(); ++i) {
    const bool operand = i >= desc.own_inputs();
    if (i >= tensors && !operand) continue;
    if (!has_pixels(blocked.inputs[i])) return std::nullopt;
    blocked.inputs[i].block = operand ? blocked.outputs[0].block : block;
  }
  return blocked;
}

// Blocks are of the value that a view is of, not of the view.
bool reads_view_in_blocks(const Graph& graph, const Node& node, const ComputeDesc& blocked) {
  const std::vector<ValueId> reads = reads_of(node);  // as describe() counts them
  for (size_t i = 0; i < reads.size(); ++i) {
    const Value& value = graph.value(reads[i]);
    if (blocked.inputs[i].block == 0 || value.kind != ValueKind::node) continue;
    if (is_view(graph.node(value.producer).op)) return true;
  }
  return false;
}

// Of a node that changes a state, where it lies.
KernelId kernel_in_place(const ComputeDesc& desc, Level level) {
  for (const KernelName name : kernels_of(level.isa)) {
    const KernelId id{name, level};
    if (info_of(name).only_in_place && accepts(id, desc, level)) return id;
  }
  return {};
}

}  // namespace

std::optional<ComputeDesc> in_blocks(const ComputeDesc& desc, Level level, const KernelPreference& prefer,
                                     KernelId wanted) {
  for (const bool also_few : {false, true}) {
    std::optional<ComputeDesc> blocked = laid_out_in_blocks(desc, level, also_few);
    if (!blocked) return std::nullopt;
    if (accepts(wanted, *blocked, level)) {
      blocked->kernel = wanted;
      return blocked;
    }
  }
  std::optional<ComputeDesc> blocked = laid_out_in_blocks(desc, level, false);
  auto kernel = choose_kernel(*blocked, level, prefer);
  if (!kernel) return std::nullopt;
  blocked->kernel = *kernel;
  return blocked;
}

Result<Assignment> assign_kernels(const Graph& graph, Level level, const KernelPreference& prefer,
                                  std::span<const ValueId> trained, std::span<const KernelId> wanted) {
  CHECK(wanted.empty() || wanted.size() == graph.nodes.size(), "a wanted kernel for each node, or none");
  Choices choices(level, prefer);
  std::vector<const Choice*> choice(graph.nodes.size(), nullptr);
  std::vector<const ComputeDesc*> blocked(graph.nodes.size(), nullptr);
  std::vector<bool> bound(graph.nodes.size(), false);
  std::vector<bool> changes(graph.values.size(), false);
  bool trains = false;
  for (const ValueId weight : trained) {
    changes[weight.index()] = true;
    trains = trains || !graph.value(weight).state;
  }
  Assignment chosen;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    ComputeDesc& desc = chosen.descs.emplace_back();
    if (is_view(node.op)) continue;
    desc = describe(graph, node);
    for (size_t i = 0; i < node.inputs.size() && i < 64; ++i) {
      if (node.inputs[i].valid() && changes[node.inputs[i].index()]) desc.weights &= ~(uint64_t{1} << i);
    }
    if (has(node.op, traits::changes_first) && changes[node.inputs[0].index()]) {
      desc.kernel = kernel_in_place(desc, level);
      if (desc.kernel.empty())
        return unsupported(fmt::format("layer '{}': {} has no kernel for {} that changes a state where it lies",
                                       node.name, name_of(level), name_of(node.op)));
      continue;
    }
    const KernelId own = wanted.empty() ? KernelId() : wanted[n];
    choice[n] = &choices.of(desc, own, trained.empty());
    const bool plain = choice[n]->plain;
    if (plain) desc.kernel = own;
    if (!choice[n]->blocked || reads_view_in_blocks(graph, node, *choice[n]->blocked)) continue;
    const bool has_it = !own.empty() && choice[n]->blocked->kernel == own;
    bound[n] = has_it && !plain;
    if (has_it || !plain) blocked[n] = &*choice[n]->blocked;
  }
  const std::vector<Uses> uses = find_uses(graph);
  const std::vector<bool> chosen_blocked = LayoutCut(graph, blocked, bound, uses).solve();
  chosen.made_in.assign(graph.values.size(), 0);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (is_view(node.op)) continue;
    ComputeDesc& desc = chosen.descs[n];
    if (chosen_blocked[n]) {
      desc = *blocked[n];
    } else if (desc.kernel.empty()) {
      const Result<KernelId>& kernel = choices.kernel(*choice[n]);
      if (!kernel && trains) {
        desc.kernel = KernelName::none;
        continue;
      }
      if (!kernel) {
        Error error = kernel.error();
        error.message = fmt::format("layer '{}': {}", node.name, error.message);
        return error;
      }
      desc.kernel = *kernel;
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) chosen.made_in[node.outputs[i].index()] = desc.outputs[i].block;
  }
  chosen.reorders = find_reorders(graph, chosen, uses, static_cast<int>(vector_width(level.isa)));
  return chosen;
}

}  // namespace nlsplit::inline kernels
