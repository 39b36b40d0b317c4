// A ranking in the making (ranking/ranking.h): candidates are collected, timed by the fast tier, the best simulated.
//
//   ranker_candidates.cc   the candidates: the plans that the search finds, and the user's own
//   ranker_timing.cc       the fast tier times them
//   ranker_refine.cc       local search: small changes to the best plans
//   ranker_simulate.cc     the judging tier (SimGrid) simulates the best plans
//   ranker_judge.cc        selects the best plans, and orders them
//   ranker_rules.cc        the baselines (partition/baselines.h), whose plans are candidates like the others
//   ranker_generation.cc   of generation: prompts beside tokens
//   ranker_prefill.cc      of generation: plans whose prompts are computed elsewhere
//   ranker_confidence.cc   error bars
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "partition/anneal.h"
#include "partition/baselines.h"
#include "partition/plan_scorer.h"
#include "ranking/evaluate.h"
#include "ranking/kept_plans.h"
#include "ranking/noise_runs.h"
#include "ranking/pruning.h"
#include "ranking/ranking.h"
#include "ranking/shorter.h"

namespace nlsplit::inline ranking {

struct Candidate {
  RankedPlan ranked;
  std::optional<ScoredPlan> found;   // by search, and may be pruned
  double bound = 0;                  // of the objective: seconds no schedule can beat; 0: look at it first
  double fast_score = 0;             // smaller is better
  double noise_factor = 0;           // what noise makes of it, if there is any
  double noisy_score = 0;            // the score under noise
  double prompt_s = 0, token_s = 0;  // of generation, where prompts matter: of an execution, by the fast tier
  KeptPlan lowered;                  // null or empty: it is lowered again where it is judged
  bool must_judge = false;           // the user's own plans, and the plans that splits are compared with (yardsticks)
  uint32_t rules = 0;                // bit b: the plan of rule b of all_baselines()
};

// The work of compiling a plan: its layers, counted for each replica.
size_t layers_lowered(const Plan& plan);
size_t layers_lowered(const ScoredPlan& scored);  // and within stages that are split inside their layers
// Of training a layer is so many: its forward pass, and the gradients by its input and its weights.
inline constexpr size_t layers_of_a_step = 3;

// Both networks with another context, on devices with memory enough.
struct LongerContext {
  Scenario scenario;
  std::map<int, GenerationModels> models;  // by micro-batches
  std::unique_ptr<ShorterGenerations> shorter;
};

struct DeviceNeeds {  // of a session
  DeviceKind kind{};
  Bytes memory;         // it has
  Bytes arena, caches;  // it needs, and what of that its caches do
};

class Ranker {
 public:
  Ranker(const Scenario& scenario, const Model& model, const RankOptions& options);
  Result<Ranking> run();

 private:
  // A candidate's estimate by the fast tier.
  struct Timed {
    KeptPlan lowered;                  // of `estimate`'s plan, if it is kept
    std::optional<Estimate> estimate;  // none: it cannot be, for the reason below. Of generation: what the cost is of
    double prompt_s = 0, token_s = 0;
    double noise_factor = 0;
    std::optional<Plan> recomputing;   // what the plan has become: stages recompute, or it would not fit
    std::optional<Plan> without_idle;  // the plan without the devices that have nothing to do
    std::optional<Error> trouble;      // it cannot be lowered
    std::optional<Misfit> too_large;   // a device's memory is too small
  };

  struct TooSmall {  // for the whole model, as one of so many copies
    size_t copies = 0;
    Misfit misfit;
  };

  bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  void progress(std::string_view phase, size_t done, size_t total) const {
    if (options_.progress) options_.progress(phase, done, total);
  }
  const PreparedModel& prepared_for(const Plan& plan) const {
    return nlsplit::prepared_for(prepared_, plan.micro_batches);
  }
  size_t wanted() const;   // how many of the best plans the judging tier simulates
  size_t workers() const;  // cores that share the work; results do not depend on them
  // On shorter networks where that is less work. It takes so many of layers_lowered's layers.
  Result<LoweredPlan> lower(const Plan& plan) const;
  size_t work_of(const ScoredPlan& scored) const;
  // Whether nothing is wanted of its Program after verify() but a digest.
  bool may_keep_digest(const Plan& plan) const { return !wants_noise() && !wants_parts_ && !has_splits(plan); }
  bool wants_noise() const { return scenario_.noise && (options_.noise || options_.robust); }
  static bool is_yardstick(const Candidate& candidate) {
    return !candidate.ranked.own && !is_split(candidate.ranked.plan);
  }

  // ---- ranker_candidates.cc
  struct Searched {
    SearchCosts costs;
    std::unique_ptr<PlanScorer> scorer;         // none: nothing is split inside its layers
    std::unique_ptr<PlanScorer> prompt_scorer;  // of generation, where prompts matter
    SearchResult found;
    std::vector<std::vector<Stage>> rules;  // [baseline]: its plan; empty if it has none
  };
  Status collect_candidates();
  void choose_yardsticks();
  Status prepare_models(const std::vector<RankedPlan>& own);
  void see_whether_layers_may_be_split();
  Status search_all();
  void leave_out_devices_without_room();
  Result<Searched> search(const PreparedModel& prepared) const;
  HostId results() const;              // where they go: of training nothing goes to the sink
  void add_found(Searched& searched);  // and takes its plans
  void set_node_shares(const SearchCosts& costs);

  // ---- ranker_generation.cc
  Status prepare_generations();
  bool prompts_matter() const;  // to the objective, or to what is required
  ScoredPlan with_prompts(const ScoredPlan& tokens, const ScoredPlan& prompts) const;
  Result<Searched> with_prompts(Searched searched) const;  // also plans that are good for prompts; all scored by both
  Result<LoweredPlan> lower_prompts(const Plan& plan) const;
  void add_prompts(const Plan& plan, Timed& timed) const;
  void choose_for_requirements();
  Status time_some_generations(size_t begin, size_t end);  // of judged
  Status time_judged(size_t begin);
  Status time_generations();  // of judged, which are ordered by them then
  void prepare_longer_contexts();
  void find_contexts_of(const std::vector<size_t>& plans);  // of judged
  void find_longest_contexts();                             // of told()

  // ---- ranker_prefill.cc
  std::vector<Plan> plans_with_prefill() const;
  Status judge_plans_with_prefill();

  // ---- ranker_timing.cc
  Status fast_tier();
  Status time_candidates(Pruning& pruning, std::vector<Candidate>& fitting, std::vector<Estimate>& estimates);
  double bound_of(const ScoredPlan& scored) const;  // of the objective
  size_t most_work() const;
  bool too_much_work(const ScoredPlan& scored, size_t layers, size_t inside) const;
  const Misfit* known_misfit(const Plan& plan) const;
  std::optional<Plan> without_idle(const Plan& plan, const LoweredPlan& lowered) const;
  void keep(const Candidate& candidate, const Plan& plan, LoweredPlan lowered, Timed& timed) const;
  Timed time(const Candidate& candidate) const;
  Status note(Candidate& candidate, const Timed& timed);
  bool has_no_schedule(const Candidate& candidate, const Error& error) const;
  Status count_own_trouble(const Candidate& candidate, const Error& error);
  Status leave_out(const Candidate& candidate, const Error& error);
  void count_misfit(const Misfit& misfit, const Candidate& candidate);
  void count_own_misfit(const Misfit& misfit, const Plan& plan);
  Error nothing_fits() const;
  void measure_against_singles(const std::vector<Estimate>& estimates);
  double fast_score(const Candidate& candidate, const Estimate& estimate) const;
  void score(Candidate& candidate, const Estimate& estimate) const;
  void choose_champions(const std::vector<Estimate>& estimates);
  template <class Among>
  void choose_best(const std::vector<Estimate>& estimates, const Among& among);

  // ---- ranker_refine.cc
  struct Changed {
    Candidate candidate;
    Timed timed;
  };
  struct Changing {                     // all plans at once
    std::map<int, std::mutex> scoring;  // by micro-batches: of their scorers
    std::mutex mutex;                   // of what is below and progress
    size_t done = 0;
  };
  bool may_refine() const;
  Status refine(std::vector<Estimate>& estimates, const Pruning& pruning);
  std::vector<Plan> plans_to_refine() const;
  AnnealSpace changed_plans() const;
  const Candidate* known_candidate(const Plan& plan) const;
  std::optional<ScoredPlan> scored(const Plan& plan) const;
  std::vector<Changed> change(const Plan& start, const AnnealOptions& options, size_t most_layers,
                              const Pruning& pruning, Changing& all) const;

  // ---- ranker_rules.cc
  std::span<const Baseline> all_baselines() const;
  static uint32_t rules_of(const Plan& plan, const std::vector<std::vector<Stage>>& rules);
  void note_rules(const Searched& searched);
  void choose_rules();
  void note_rule(const Candidate& candidate, const Timed& timed);
  void choose_best_of_rules();
  void report_rules();

  // ---- ranker_simulate.cc
  using SeenCosts = std::map<std::pair<std::string, CostOrigin>, double>;  // by signature: its spread
  struct Judging {
    explicit Judging(Candidate of) : candidate(std::move(of)) {}
    Candidate candidate;
    size_t parts = 1;  // networks that it is lowered on
    std::optional<Result<LoweredPlan>> lowered;
    Status sound;
    std::vector<Timing> timings;  // of parts
    SeenCosts costs;              // of a plan that splits layers
    bool left_out = false;        // after an interrupt
    bool runs() const { return lowered && lowered->ok() && sound.ok(); }
  };
  Status simulate(std::vector<Judging>& plans);
  void leave_out_of(std::vector<Judging>& plans);
  size_t networks_of(const Plan& plan) const;
  void lower_some(std::span<Judging* const> plans) const;
  void sum_up(std::span<Judging* const> plans) const;
  void sum_up(Judging& plan) const;
  Status note_judged(Judging& plan);

  // ---- ranker_judge.cc
  Status judge();
  void draw_samples();
  void choose_robust(size_t most);
  void choose_by_bound();
  void sort_judged();
  // Of those as good as each other the one first whose fullest device has the most memory left.
  void sort_judged_by(const std::function<double(size_t)>& score, const std::function<double(size_t)>& fullest);
  void arrange_judged(const std::vector<size_t>& order);
  void order_judged();
  void measure_judged();
  Status find_bound();
  std::vector<std::string> layers_of(const Plan& plan) const;
  void count_cost(DeviceId device, const ComputeDesc& desc, SeenCosts& seen) const;
  void count_costs_of(const Program& program, SeenCosts& seen) const;
  void count_costs();

  // ---- ranker_confidence.cc
  Status see_whether_there_are_error_bars();
  void find_confidence();

  const Scenario& scenario_;
  const Graph& graph_;
  const RankOptions& options_;
  CostTable costs_;
  Goal goal_;
  std::optional<NoiseBound> noise_bound_;
  std::optional<SearchCosts> first_costs_;            // of the fewest micro-batches; of inference
  std::vector<size_t> class_of_;                      // interchangeable_devices, by these costs
  bool inside_ = false;                               // search splits stages inside their layers
  std::optional<Network> network_;                    // of what search looks at
  std::vector<std::unique_ptr<PlanScorer>> scorers_;  // there, one for each micro-batch count
  std::vector<PreparedModel> prepared_;
  std::map<int, GenerationModels> generations_;  // by micro-batches
  std::unique_ptr<ShorterGenerations> shorter_generations_;
  std::unique_ptr<ShorterModels> shorter_prompts_;
  std::map<int, std::unique_ptr<PlanScorer>> prompt_scorers_;  // by micro-batches, where prompts matter
  std::unique_ptr<ShorterModels> shorter_;  // none: no repeated blocks, or others than times are wanted of plans
  std::unique_ptr<KeptPlans> kept_;         // none: no plan has a score before all are timed
  std::vector<Candidate> candidates_;
  bool many_yardsticks_ = false;                        // only the best of them are simulated
  bool wants_parts_ = false;                            // LoweredPlan::parts of judged_
  std::vector<std::unique_ptr<LongerContext>> longer_;  // none: the network has no longer contexts
  std::vector<std::vector<DeviceNeeds>> needed_;        // of generation, as Ranking::judged
  std::vector<LoweredPlan> judged_;                     // as Ranking::judged; Programs only if noise is wanted
  std::map<std::tuple<int, std::string, DeviceId>, TooSmall> too_small_;  // by micro-batches, schedule and device
  std::vector<RankedBaseline> rules_;                                     // as baselines() are
  std::map<std::string, size_t> own_ways_;     // of own plans by name: possible pairs of micro-batches and schedule
  std::map<std::string, Error> own_troubles_;  // by name: why the first impossible pair is not possible
  SeenCosts seen_costs_;
  Ranking ranking_;
};

}  // namespace nlsplit::inline ranking
