// A schedule as a picture: one SVG file without references to others.
#pragma once

#include <string>

#include "schedule/evaluate.h"

namespace nlsplit::inline reports {

// A row a device, left to right in time: slots coloured by phase and named as in schedule_drawing where the name fits,
// idle time as the row's ground; below it makespan and bubble. Every slot tells stage, micro-batch and times when
// pointed at. `name` is the caption's, any text.
std::string schedule_svg(const std::string& name, const ScheduleInput& input, const SlotTable& table,
                         const SlotTiming& timing);

}  // namespace nlsplit::inline reports
