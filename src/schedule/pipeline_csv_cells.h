// What the text of a pipeline CSV (pipeline_csv.cc) and what it says of a plan (pipeline_csv_table.cc) share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/pipeline_csv.h"

namespace nlsplit::inline schedules {

bool computes(PipelineAction::Kind kind);  // F, I, W, B

// The actions of a cell: itself, or those beside each other.
std::vector<PipelineAction> actions_of(const std::optional<PipelineAction>& cell);

// At a cell, with the grid around it. column -1: of the rank as a whole; rank -1: nowhere in particular.
Error fault_at(const PipelineCsv& csv, int rank, int column, const std::string& reason);

}  // namespace nlsplit::inline schedules
