// A Ranking for people (a table, a verdict, what to do next) and for machines (JSON, CSV).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ranking/ranking.h"

namespace nlsplit::inline reports {

// `scenario` has its path as the user gave it: the last lines quote it in a command of `nlbench`.
std::string ranking_text(const Ranking& ranking, const Scenario& scenario, const std::string& nlbench = "nlbench");

// {"format": "nlsplit-ranking", "version": 1, …, "plans": [{"rank", "stages": [{"layers", "devices"}],
// "throughput_per_s", …}]}
std::string ranking_json(const Ranking& ranking, const Scenario& scenario, const Graph& graph);

// {"first_token_s", "next_token_s", "tokens_per_s", "largest_device", "largest_memory_bytes", "largest_context"}
nlohmann::json generation_json(const GenerationTimes& times);

// One line a plan, with a header; units are in the column names.
std::string ranking_csv(const Ranking& ranking);

// One page without references to others: the table, and of each kept plan a drawing and what there is to say about it.
std::string ranking_html(const Ranking& ranking, const Scenario& scenario);

}  // namespace nlsplit::inline reports
