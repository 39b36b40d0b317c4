#include "partition/repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <unordered_map>

#include "partition/cuts.h"

namespace nlsplit::inline partition {
namespace {

constexpr size_t longest_period = 2048;  // nodes of a block; finding them takes so many comparisons a node

// What a node computes, wiring apart: equal texts, equal numbers.
std::vector<size_t> numbers_of(const Graph& graph) {
  std::unordered_map<std::string, size_t> known;
  std::vector<size_t> numbers;
  for (const Node& node : graph.nodes) {
    std::string text = fmt::format("{} {} {}", static_cast<int>(node.op), node.inputs.size(), to_string(node.attrs));
    for (const EpilogueStep& step : node.epilogue)
      text += fmt::format(" + {} {}", static_cast<int>(step.op), to_string(step.attrs));
    for (const ValueId made : node.outputs) text += " -> " + to_string(graph.value(made).type);
    numbers.push_back(known.try_emplace(std::move(text), known.size()).first->second);
  }
  return numbers;
}

// Are nodes a and b, b later, the same at their places in two blocks?
class Likeness {
 public:
  explicit Likeness(const Graph& graph) : graph_(graph), numbers_(numbers_of(graph)) {}

  bool operator()(size_t a, size_t b) const {
    if (numbers_[a] != numbers_[b]) return false;
    const Node &x = graph_.nodes[a], &y = graph_.nodes[b];
    for (size_t i = 0; i < x.inputs.size(); ++i) {
      if (!same_operand(x.inputs[i], y.inputs[i], b - a)) return false;
    }
    for (size_t i = 0; i < x.epilogue.size(); ++i) {
      if (!same_operand(x.epilogue[i].operand, y.epilogue[i].operand, b - a)) return false;
    }
    return true;
  }

 private:
  bool same_operand(ValueId a, ValueId b, size_t apart) const {
    if (a == b) return true;  // both read one value from outside, or none
    if (!a.valid() || !b.valid()) return false;
    const Value &x = graph_.value(a), &y = graph_.value(b);
    if (x.kind != y.kind || x.type != y.type) return false;
    if (x.kind == ValueKind::weight) return true;
    return x.kind == ValueKind::node && x.producer.index() + apart == y.producer.index();
  }

  const Graph& graph_;
  std::vector<size_t> numbers_;  // [node]
};

}  // namespace

std::vector<Repeat> find_repeats(const Graph& graph) {
  const size_t nodes = graph.nodes.size();
  const Likeness alike(graph);
  std::vector<Repeat> found;
  for (size_t period = 1; period <= std::min(nodes / 2, longest_period); ++period) {
    for (size_t begin = 0; begin + period < nodes;) {
      size_t end = begin;  // nodes [begin, end) are like those a period later
      while (end + period < nodes && alike(end, end + period)) ++end;
      const size_t count = (end - begin) / period + 1;
      if (count >= 2) found.push_back({begin, period, count});
      begin = end + 1;
    }
  }
  // Most nodes first. A period found as a multiple covers no more than the period itself, which was found before.
  std::ranges::stable_sort(found, std::greater(), [](const Repeat& r) { return r.period * r.count; });
  std::vector<Repeat> kept;
  std::vector<bool> taken(nodes, false);
  for (const Repeat& repeat : found) {
    const auto begin = taken.begin() + static_cast<std::ptrdiff_t>(repeat.begin);
    const auto end = begin + static_cast<std::ptrdiff_t>(repeat.period * repeat.count);
    if (std::find(begin, end, true) != end) continue;
    std::fill(begin, end, true);
    kept.push_back(repeat);
  }
  std::ranges::sort(kept, {}, &Repeat::begin);
  return kept;
}

std::vector<size_t> coarse_cuts(const std::vector<size_t>& cuts, const std::vector<Repeat>& repeats,
                                const std::vector<double>& cut_bytes, size_t most) {
  if (cuts.size() <= most) return cuts;
  std::vector<size_t> borders;
  for (const Repeat& repeat : repeats) {
    // The border is where the fewest bytes cross between the first two blocks; the others' are at the same place.
    const size_t first = repeat.begin + repeat.period;
    const auto begin = std::ranges::lower_bound(cuts, first);
    const auto end = std::ranges::lower_bound(cuts, first + repeat.period);
    if (begin == end) continue;
    const size_t border =
        *std::min_element(begin, end, [&](size_t a, size_t b) { return cut_bytes[a] < cut_bytes[b]; });
    for (size_t k = 0; k < repeat.count; ++k) {
      const size_t cut = border - repeat.period + k * repeat.period;
      if (std::ranges::binary_search(cuts, cut)) borders.push_back(cut);
    }
  }
  borders.push_back(cuts.back());
  std::ranges::sort(borders);
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  if (borders.size() >= most) return thin_cuts(std::move(borders), cut_bytes, most);
  // The room that is left goes to cuts elsewhere.
  std::vector<size_t> others;
  std::ranges::set_difference(cuts, borders, std::back_inserter(others));
  const size_t room = most - borders.size() + 1;
  if (!others.empty() && room >= 2) {
    others.push_back(cuts.back());
    others = thin_cuts(std::move(others), cut_bytes, room);
    std::ranges::copy(others, std::back_inserter(borders));
    std::ranges::sort(borders);
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  }
  return borders;
}

}  // namespace nlsplit::inline partition
