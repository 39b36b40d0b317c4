// A schedule for people and for programs: drawn in time, with what it takes and keeps.
#pragma once

#include <string>

#include "schedule/evaluate.h"
#include "schedule/schedules.h"

namespace nlsplit::inline reports {

// One line a device, left to right in time. A slot is its name and dashes until its end ("F3--", "B0----"; with a stage
// in front, "2F3", where devices host several), idle time dots. Where names do not fit into `width` columns every
// column is the phase's letter: F, I, W, B for a whole backward, s for a step that takes time.
std::string schedule_drawing(const ScheduleInput& input, const SlotTable& table, const SlotTiming& timing, int width);

// The drawing, makespan and bubble, and a table of the devices: work, idle, micro-batches kept.
std::string schedule_text(const ScheduleInput& input, const SlotTable& table, const SlotTiming& timing, int width);

// {"format": "nlsplit-schedule", …}: every slot with its start and finish, and the figures of schedule_text.
std::string schedule_json(const std::string& name, const ScheduleInput& input, const SlotTable& table,
                          const SlotTiming& timing);

// Name, mode, placement, one line, source: all policies.
std::string schedules_text();

}  // namespace nlsplit::inline reports
