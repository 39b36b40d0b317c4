// The memory that a session of generation needs, and the parts that a plan of a large model is compiled in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/cores.h"
#include "ranking/lowering_work.h"
#include "ranking/session.h"
#include "ranking/shorter.h"

namespace nlsplit::inline ranking {

struct DeviceNeeds {  // of a session
  DeviceKind kind{};
  Bytes memory;         // it has
  Bytes arena, caches;  // it needs, and what of that its caches do
};

// [device of the Programs]
std::vector<DeviceNeeds> needs_of(const Session& session);

// A plan on its network, or one of those on shorter networks that it is made of.
struct PlanPart {
  double weight = 1;
  const GenerationModels* models = nullptr;
  Plan plan;
};
// shorter: nullptr: there are none.
Result<std::vector<PlanPart>> parts_of(const GenerationModels& models, ShorterGenerations* shorter, const Plan& plan);

template <class Of>
double weighted_sum(const std::vector<PlanPart>& parts, const Of& of) {
  double sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) sum += parts[i].weight * of(i);
  return sum;
}

// Of a plan, from its parts'.
std::vector<DeviceNeeds> whole_needs(const std::vector<PlanPart>& parts,
                                     const std::vector<std::vector<DeviceNeeds>>& of_parts);

// What `work` makes of all parts of these plans, on all cores, the largest first: the last ones to end are small.
template <class Made>
std::vector<std::vector<Made>> of_all_parts(const std::vector<std::vector<PlanPart>>& plans, size_t workers,
                                            const std::function<Made(size_t plan, const PlanPart& part)>& work) {
  struct Job {
    size_t plan, part, layers;
  };
  std::vector<Job> jobs;
  for (size_t i = 0; i < plans.size(); ++i) {
    for (size_t k = 0; k < plans[i].size(); ++k) jobs.push_back({i, k, layers_lowered(plans[i][k].plan)});
  }
  std::ranges::stable_sort(jobs, std::greater(), &Job::layers);
  std::vector<std::optional<Made>> results(jobs.size());
  on_all_cores(
      jobs.size(), [&](size_t j) { results[j].emplace(work(jobs[j].plan, plans[jobs[j].plan][jobs[j].part])); },
      workers);
  std::vector<std::vector<std::optional<Made>>> by_part(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) by_part[i].resize(plans[i].size());
  for (size_t j = 0; j < jobs.size(); ++j) by_part[jobs[j].plan][jobs[j].part] = std::move(results[j]);
  std::vector<std::vector<Made>> made(plans.size());
  for (size_t i = 0; i < plans.size(); ++i) {
    for (std::optional<Made>& one : by_part[i]) made[i].push_back(*std::move(one));
  }
  return made;
}

}  // namespace nlsplit::inline ranking
