#include "planning/regions.h"

#include <map>
#include <string>
#include <string_view>

namespace nlsplit::inline planning {
namespace {

int producer_of(const Graph& graph, ValueId value) {
  if (!value.valid() || graph.value(value).kind != ValueKind::node) return -1;
  return static_cast<int>(graph.value(value).producer.index());
}

class Regions {
 public:
  Regions(const Graph& original, const KernelGraph& kernels) : original_(original), owner_(original.nodes.size(), -1) {
    for (size_t n = 0; n < original.nodes.size(); ++n) {
      by_node_.emplace(original.nodes[n].name, static_cast<int>(n));
      for (const ValueId value : original.nodes[n].outputs) {
        if (value.valid()) by_value_.emplace(original.value(value).name, static_cast<int>(n));
      }
    }
    std::vector<std::vector<int>> roots(kernels.graph.nodes.size());
    for (size_t n = 0; n < roots.size(); ++n) {
      if (kernels.computed[n]) roots[n] = take_roots(kernels.graph, kernels.graph.nodes[n], static_cast<int>(n));
    }
    for (std::vector<int>& own : roots) take_what_is_read(std::move(own));
    take_what_is_left();
  }

  std::vector<int> owner() && { return std::move(owner_); }

 private:
  void take(const std::map<std::string_view, int>& names, std::string_view name, int by, std::vector<int>& taken) {
    const auto found = names.find(name);
    if (found == names.end() || owner_[static_cast<size_t>(found->second)] >= 0) return;
    owner_[static_cast<size_t>(found->second)] = by;
    taken.push_back(found->second);
  }

  std::vector<int> take_roots(const Graph& graph, const Node& node, int by) {
    std::vector<int> roots;
    for (const ValueId value : node.outputs) {
      if (value.valid()) take(by_value_, graph.value(value).name, by, roots);
    }
    take(by_node_, node.name, by, roots);
    for (const EpilogueStep& step : node.epilogue) take(by_node_, step.name, by, roots);
    return roots;
  }

  // Nodes that lead to these and belong to nobody.
  void take_what_is_read(std::vector<int> open) {
    while (!open.empty()) {
      const auto at = static_cast<size_t>(open.back());
      open.pop_back();
      for (const ValueId value : original_.nodes[at].inputs) {
        const int before = producer_of(original_, value);
        if (before < 0 || owner_[static_cast<size_t>(before)] >= 0) continue;
        owner_[static_cast<size_t>(before)] = owner_[at];
        open.push_back(before);
      }
    }
  }

  // As a Reshape of the network's result: to what makes its operand.
  void take_what_is_left() {
    for (size_t n = 0; n < owner_.size(); ++n) {
      for (const ValueId value : original_.nodes[n].inputs) {
        const int before = producer_of(original_, value);
        if (owner_[n] < 0 && before >= 0) owner_[n] = owner_[static_cast<size_t>(before)];
      }
    }
  }

  const Graph& original_;
  std::map<std::string_view, int> by_node_, by_value_;
  std::vector<int> owner_;
};

}  // namespace

std::vector<int> regions_of(const Graph& original, const KernelGraph& kernels) {
  return Regions(original, kernels).owner();
}

}  // namespace nlsplit::inline planning
