// A plan's times and memory, from networks with fewer of its repeated blocks (partition/repeats.h).
//
// One micro-batch passes a stage that is split inside its layers block by block, and the devices of the stage exchange
// data in every block. So from the second block on each takes as long as the one before, and needs as much memory more:
//   time(n blocks) = time(2) + (n - 2) * (time(3) - time(2))
// which holds for times, bytes, and memory. Plans of large models are lowered so: the work no longer grows with the
// number of blocks.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "partition/repeats.h"
#include "ranking/session.h"

namespace nlsplit::inline ranking {

// Without `fewer` of a repeat's blocks; its first and last ones stay. None: a block reads what others than the one
// before have made.
std::optional<Graph> without_blocks(const Graph& graph, const Repeat& repeat, size_t fewer);

// A plan's like on a network of so many blocks fewer.
struct ShorterPlan {
  double weight = 0;  // of its time; the sum over all is 1
  size_t fewer = 0;
  Plan plan;
};

// The shorter plans whose weighted sum is the plan; empty: not worthwhile, or several micro-batches. repeat: of the
// plan's graph.
std::vector<ShorterPlan> shorter_plans(const Plan& plan, const Repeat& repeat);

// The repeat of the most nodes that has enough blocks.
std::optional<Repeat> longest_repeat(const Graph& graph);

// A network with fewer blocks, made once for each number. Several threads may ask.
class ShorterModels {
 public:
  // Borrows all. like: as prepare_model's.
  ShorterModels(const Scenario& scenario, const Graph& graph, const Repeat& repeat)
      : scenario_(scenario), graph_(graph), repeat_(repeat) {}

  const Repeat& repeat() const { return repeat_; }
  Result<const PreparedModel*> without(size_t fewer);

 private:
  const Scenario& scenario_;
  const Graph& graph_;
  const Repeat repeat_;
  std::mutex mutex_;
  std::map<size_t, PreparedModel> models_;
};

// The same of both networks of a scenario that generates.
class ShorterGenerations {
 public:
  // repeat: of the network for a token. Borrows all.
  ShorterGenerations(const Scenario& scenario, const GenerationModels& whole, const Repeat& repeat);

  // Whether both have these blocks.
  bool exist() const { return prefill_.has_value() || !whole_.prefill; }
  const Repeat& repeat() const { return decode_; }
  const std::optional<Repeat>& repeat_of_prompts() const { return prefill_; }
  Result<const GenerationModels*> without(size_t fewer);

 private:
  const Scenario& scenario_;
  const GenerationModels& whole_;
  const Repeat decode_;
  std::optional<Repeat> prefill_;
  std::mutex mutex_;
  std::map<size_t, GenerationModels> models_;
};

}  // namespace nlsplit::inline ranking
