// The bottleneck bound of a plan: the busiest device or link direction, plus the time to fill and drain around it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "partition/network.h"
#include "partition/search.h"

namespace nlsplit::inline partition {

// A value that another stage or the sink may need: its bytes in one micro-batch as it travels, the node that makes it,
// the nodes that read it.
struct Crossing {
  double bytes = 0;
  double part_bytes = 0;     // of its parts, from or to a stage that is split inside its layers; at most `bytes`
  int made = -1;             // -1: an input
  std::vector<size_t> read;  // ascending
  bool is_output = false;
};
std::vector<Crossing> find_crossings(const Graph& graph, DType messages);  // Cluster::messages

// What can be said of a plan without lowering it.
struct Score {
  double bound = 0;    // seconds a batch takes at least
  double latency = 0;  // seconds of one micro-batch that nothing holds up
  double busiest = 0;  // seconds of a batch in which the busiest device computes
};

// Who works for a stage, or the source, or the sink.
struct StagePlace {
  DeviceId device;  // none: an endpoint without a device
  HostId host;
  double share = 1;  // of the micro-batches
  double part = 1;   // of each of them
};

// Seconds that a job keeps link directions busy on its way to a machine and from it: lane of Network, seconds.
using LaneSeconds = std::vector<std::pair<uint32_t, double>>;

struct SplitLoad;
using PlanLoads = std::vector<std::vector<SplitLoad>>;  // partition/split_load.h

class Scorer {
 public:
  Scorer(const Cluster& cluster, const Network& network, HostId source, HostId sink, const SearchCosts& costs,
         std::vector<Crossing> crossings);

  // bound: a lower bound of the seconds a batch takes. Infinite: two devices must exchange data, but nothing connects
  // them. A stage that is split inside its layers takes no less than its work shared among its devices as their speeds
  // are; its messages, within and to other stages, are left out. With `loads` (of these stages) they are counted, and
  // each of its devices has its own part of the work. With StepCosts: of a step, with the gradients that stages send
  // back, the updates, the sums of what several shards train, and what replicas send each other to reduce gradients.
  Score score(const std::vector<Stage>& stages, const PlanLoads* loads = nullptr) const;
  double bound(const std::vector<Stage>& stages) const { return score(stages).bound; }

  // Seconds of one micro-batch through nodes [begin, end) on a device.
  double seconds(DeviceId device, size_t begin, size_t end) const {
    return prefix_[device.index()][end] - prefix_[device.index()][begin];
  }

 private:
  // A crossing that place `to` takes from place `from`.
  struct Needed {
    double bytes = 0;  // of a micro-batch
    size_t from = 0, to = 0;
  };
  // How long links are busy: by lane, in all and as part of the fill.
  struct Lanes {
    std::vector<double> bytes, first;  // first: seconds
    std::vector<bool> reduces;         // replicas reduce gradients over it
    bool connected = true;             // who has to exchange data
  };
  // A plan as far as it is placed.
  struct Placed {
    std::vector<std::vector<StagePlace>> places;       // [p]: the source, the stages, the sink
    std::vector<double> step_bytes;                    // [p]: of step_bytes()
    std::vector<double> device_seconds, device_first;  // [device]: its whole work, and the part that fills the pipeline
    Lanes lanes;
    double fill = 0;
    double busiest = 0;          // seconds by which a resource's whole work exceeds its part of the fill
    std::vector<double> groups;  // of the stage that is being placed: seconds of a micro-batch, by group
    std::vector<LaneSeconds> ways;
  };
  // Of a micro-batch from a place to the next, and of its gradients back; nullptr: no messages.
  struct Passage {
    double seconds = never;
    const Path* there = nullptr;
    const Path* back = nullptr;
  };
  StagePlace endpoint(const std::vector<Stage>& stages, HostId host) const;
  void time_groups(const Stage& stage, const std::vector<SplitLoad>* loads, std::vector<double>& groups) const;
  void find_ways(const std::vector<Stage>& stages, size_t s, const std::vector<SplitLoad>* loads, Placed& placed) const;
  void place_group(const Stage& stage, size_t group, int jobs, double first, const SplitLoad* load, Placed& placed,
                   std::vector<StagePlace>& places) const;
  void place_stage(const std::vector<Stage>& stages, size_t s, const std::vector<SplitLoad>* loads,
                   Placed& placed) const;
  bool add_messages(const std::vector<Needed>& needed, Placed& placed) const;
  std::optional<Passage> fastest_passage(const Placed& placed, size_t p) const;
  std::vector<double> pass_messages(Placed& placed) const;
  double update_seconds(const Stage& stage, DeviceId device, const SplitLoad* load, size_t shard) const;
  double reduce_seconds(const Stage& stage, std::vector<StagePlace> members, Lanes& lanes) const;
  double step_seconds(const std::vector<Stage>& stages, const std::vector<std::vector<StagePlace>>& places,
                      const std::vector<double>& messages, Lanes& lanes) const;
  std::vector<Needed> needed_at(const std::vector<Stage>& stages) const;
  std::vector<double> step_bytes(const std::vector<Stage>& stages, const std::vector<Needed>& needed) const;

  const Cluster& cluster_;
  const Network& network_;
  HostId source_, sink_;
  const SearchCosts& costs_;
  std::vector<Crossing> crossings_;
  std::vector<std::vector<double>> prefix_;  // [device][node]: of all nodes before
  // The same of StepCosts::updates, and of gradients by inputs and weights; none: inference.
  std::vector<std::vector<double>> updates_before_, backward_before_;
  std::vector<double> gradient_bytes_before_;  // [node]
};

// What work takes if machines that take so long for all of it share it fairly: 1 / sum(1 / seconds).
double shared_seconds(const std::vector<double>& seconds);

// Whether jobs to all machines take as long on as many lanes, each of which as many of these machines use. (Two behind
// one uplink are not like a third behind one of its own.)
bool alike_ways(const std::vector<LaneSeconds>& ways);

// How many of `jobs` equal jobs each of these machines gets if each goes to where the machine, and the busiest lane on
// the job's way, would be done first. ways: of each machine; none: jobs have no way.
std::vector<int> share_jobs(int jobs, const std::vector<double>& seconds, const std::vector<LaneSeconds>& ways = {});

// Whether what one has the other has, without a message.
bool same_place(const StagePlace& x, const StagePlace& y);

void add_lane(LaneSeconds& way, uint32_t lane, double seconds);

// What a micro-batch takes of the lanes between a stage with replicas and the one place that has its inputs, or wants
// its outputs. Messages between two stages with replicas spread over many links: those are no reason for shares.
void add_way(LaneSeconds& way, const Network& network, const StagePlace& from, const StagePlace& to, double bytes);

}  // namespace nlsplit::inline partition
