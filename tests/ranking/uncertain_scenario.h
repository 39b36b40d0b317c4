// Scenarios whose costs have spreads, and worlds in which costs are others: for tests of error bars.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/hash.h"
#include "base/random.h"
#include "ranking/evaluate.h"

namespace nlsplit::testing {

// What costs really are, by device and computation: factors on the predictions.
using TrueFactor = std::function<double(size_t device, const ComputeDesc&, const Cost&)>;

// A roofline that says it was measured, each kernel with a spread of its own; every third kernel was predicted.
class Uncertain final : public CostSource {
 public:
  Uncertain(CostSourcePtr times, double largest_spread, TrueFactor truth = {})
      : times_(std::move(times)), largest_spread_(largest_spread), truth_(std::move(truth)) {}

  Result<Cost> cost(const CostRequest& request) const override {
    ASSIGN_OR_RETURN(Cost cost, times_->cost(request));
    const uint64_t kernel = hash_text(signature(request.desc));
    cost.origin = kernel % 3 == 0 ? CostOrigin::predicted : CostOrigin::measured;
    cost.spread = largest_spread_ * Random(kernel).uniform() * (cost.origin == CostOrigin::predicted ? 3 : 1);
    if (truth_) cost.time = cost.time * truth_(request.device.index(), request.desc, cost);
    return cost;
  }
  CostSourcePtr slowed(double slowdown) const override {
    return std::make_shared<Uncertain>(times_->slowed(slowdown), largest_spread_, truth_);
  }
  bool same_as(const CostSource& other) const override { return this == &other; }
  const Profile* profile() const override { return &profile_; }
  CostSourcePtr with(TrueFactor truth) const {
    return std::make_shared<Uncertain>(times_, largest_spread_, std::move(truth));
  }

 private:
  CostSourcePtr times_;
  double largest_spread_;
  TrueFactor truth_;
  Profile profile_;
};

struct UncertainScrews {
  std::string model = "zoo:simple_cnn", objective = "throughput";
  std::string compute_a = "60GFLOPS", compute_b = "60GFLOPS", compute_c = "60GFLOPS";
  std::string bandwidth = "1Gbps", latency = "50us", more = "";
  double kernels = 0.1;       // the largest spread of a measured kernel
  double messages_error = 0;  // of each measured way
  CorrectionSpreads spreads = {};
};

// Three devices on three hosts; messages between them were measured.
inline Scenario uncertain_scenario(const UncertainScrews& s) {
  const auto device = [](const std::string& host, const std::string& compute) {
    return fmt::format("{{host: {}, memory: 4GiB, costs: {{roofline: {{compute: {}, memory: 10GBps}}}}}}", host,
                       compute);
  };
  Scenario scenario = parse_scenario(fmt::format(R"(model: {}
workload: {{batch: 8, micro_batches: [1, 2, 4, 8]}}
devices:
  A: {}
  B: {}
  C: {}
links:
  - {{between: [a, b], bandwidth: {}, latency: {}}}
  - {{between: [b, c], bandwidth: {}, latency: {}}}
  - {{between: [a, c], bandwidth: {}, latency: {}}}
source: a
sink: a
search: {{objective: {}}}
{})",
                                                 s.model, device("a", s.compute_a), device("b", s.compute_b),
                                                 device("c", s.compute_c), s.bandwidth, s.latency, s.bandwidth,
                                                 s.latency, s.bandwidth, s.latency, s.objective, s.more),
                                     "uncertain.yaml")
                          .value();
  for (CostSourcePtr& source : scenario.costs) source = std::make_shared<Uncertain>(source, s.kernels);
  for (const size_t a : {0, 1, 2}) {
    for (const size_t b : {0, 1, 2}) {
      if (a == b) continue;
      const Route route = find_path(scenario.cluster, HostId(a), HostId(b)).value();
      MeasuredRoute way{HostId(a), HostId(b), route.eager, route.rendezvous, {}};
      way.largest_error = s.messages_error;
      scenario.cluster.routes.push_back(way);
    }
  }
  scenario.spreads = s.spreads;
  return scenario;
}

struct UncertainRanking {
  Scenario scenario;
  Model model;
  Ranking ranking;
  std::vector<PreparedModel> prepared;
  std::vector<LoweredPlan> lowered;  // as Ranking::judged, with parts
};

inline UncertainRanking rank_uncertain(const UncertainScrews& screws, RankOptions options = {}) {
  UncertainRanking r;
  r.scenario = uncertain_scenario(screws);
  r.model = load_model(r.scenario).value();
  options.workers = 1;
  r.ranking = rank_plans(r.scenario, r.model, options).value();
  const CostTable costs = cost_table(r.scenario, r.model.graph.name);
  for (const int count : r.scenario.micro_batches)
    r.prepared.push_back(prepare_model(r.scenario, r.model.graph, count).value());
  for (const RankedPlan& ranked : r.ranking.judged) {
    LoweredPlan lowered =
        lower_plan(r.scenario, prepared_for(r.prepared, ranked.plan.micro_batches), ranked.plan, costs).value();
    lowered.parts = parts_of(lowered, r.scenario.cluster, costs);
    r.lowered.push_back(std::move(lowered));
  }
  return r;
}

}  // namespace nlsplit::testing
