// Scenario: what the user wants to know, read from YAML. docs/scenario.md lists every key, unit and default.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "cost/cost_table.h"
#include "graph/weights.h"
#include "partition/search.h"
#include "program/lower.h"

namespace nlsplit {

enum class Objective : uint8_t { throughput, latency };

struct UserPlan {
  std::string name;
  std::vector<std::string> stages;     // plan parts, partition/plan.h
  std::vector<int> micro_batches;      // empty: all of the workload's
  std::string schedule;                // empty: all of the search's
  Location where;
};

struct Scenario {
  std::string file;
  std::string model;                   // "zoo:NAME" or a path, already relative to the working directory
  std::map<std::string, Shape> input_shapes;
  uint64_t weights_seed = 1;
  int64_t batch = 1;
  std::vector<int> micro_batches;      // to try; each divides the batch
  Cluster cluster;
  std::vector<CostSource> costs;       // one a device
  Endpoints endpoints;
  SearchOptions search;
  std::vector<std::string> schedules;
  Objective objective = Objective::throughput;
  int keep = 20;                       // plans kept in the answer
  std::vector<UserPlan> plans;
  Location model_where;                // for errors about the model
};

// Errors: file:line:column, the offending text, and what would be right.
Result<Scenario> parse_scenario(std::string_view text, const std::string& file);
Result<Scenario> read_scenario(const std::string& path);

// A plan of one's own in a file of its own: {name?: …, stages: [..conv2@A, rest@B], micro_batches?: 4, schedule?: streaming}.
Result<UserPlan> read_plan_file(const std::string& path);
std::string plan_file_text(const UserPlan& plan);     // what read_plan_file reads

// The model of the scenario, imported or built, optimized.
Result<Model> load_model(const Scenario& scenario);

}  // namespace nlsplit
