// Who computes what of clipped gradients.
#include <algorithm>
#include <set>
#include <utility>

#include "compile/lowering.h"
#include "compile/shares.h"

namespace nlsplit::inline compiler {

bool Lowering::has_factor(int device) const {
  const std::vector<int>& adds = group(clipping->stage);
  return std::ranges::find(adds, device) != adds.end();
}

std::vector<int> Lowering::factor_goes_to() const {
  std::set<int> to;
  for (size_t s = 0; s < reductions.size(); ++s) {
    if (nodes.step[s].empty()) continue;  // it updates nothing
    for (const int device : reductions[s].group) {
      if (!has_factor(device)) to.insert(device);
    }
  }
  return {to.begin(), to.end()};
}

bool Lowering::has_part(const Clipping::Part& part, int device) const {
  const std::vector<int>& has = group(part.stage);
  return reductions[at(part.stage)].sharded ? device == part.device : std::ranges::find(has, device) != has.end();
}

namespace {

// Of each of a stage's sums of squares, the place in the group of who has the gradient it is of.
std::vector<size_t> owners(const Lowering& lowering, int stage) {
  const StepNodes& step = lowering.training->nodes;
  const Reduction& reduction = lowering.reductions[at(stage)];
  std::vector<size_t> all;
  for (const size_t n : lowering.clipping->sums[at(stage)].nodes) {
    const auto weight = static_cast<size_t>(std::ranges::find(step.squares, n) - step.squares.begin());
    const int64_t begin = reduction.begin.at(step.sums[step.parts[weight][0]].state);
    all.push_back(lowering.owner_of(stage, reduction.buckets[bucket_of(reduction, begin)], weight));
  }
  return all;
}

void add_part(Lowering& lowering, int stage, int device, int64_t begin, int64_t end) {
  if (begin == end) return;
  Clipping::Part part{stage, device, begin, end, {}};
  for (const int to : lowering.group(lowering.clipping->stage)) {
    if (!lowering.has_part(part, to)) part.to.push_back(to);
  }
  lowering.clipping->parts.push_back(std::move(part));
}

// What a replica has lies together in the buffer.
void deal_out_among_replicas(Lowering& lowering, int stage) {
  Clipping::Sums& sums = lowering.clipping->sums[at(stage)];
  const std::vector<size_t> owner = owners(lowering, stage);
  const std::vector<int>& group = lowering.group(stage);
  std::vector<size_t> nodes;
  for (size_t member = 0; member < group.size(); ++member) {
    const auto begin = static_cast<int64_t>(nodes.size());
    for (size_t i = 0; i < owner.size(); ++i) {
      if (owner[i] == member) nodes.push_back(sums.nodes[i]);
    }
    add_part(lowering, stage, group[member], begin, static_cast<int64_t>(nodes.size()));
  }
  sums.nodes = std::move(nodes);
  for (size_t i = 0; i < sums.nodes.size(); ++i)
    sums.place[lowering.graph->graph.nodes[sums.nodes[i]].outputs[0]] = static_cast<int64_t>(i);
}

}  // namespace

void deal_out_squares(Lowering& lowering) {
  for (int stage = 0; stage < lowering.stages(); ++stage) {
    const auto count = static_cast<int64_t>(lowering.clipping->sums[at(stage)].nodes.size());
    if (count == 0) continue;
    if (lowering.reductions[at(stage)].sharded)
      deal_out_among_replicas(lowering, stage);
    else
      add_part(lowering, stage, lowering.group(stage)[0], 0, count);
  }
}

}  // namespace nlsplit::inline compiler
