// What a sweep found, as a summary for terminals and as a page.
#pragma once

#include <string>
#include <vector>

#include "sweep/order.h"

namespace nlsplit::inline sweeps {

// For each value of the x axis the schedules from the best to the worst, and where their order changes.
std::string sweep_text(const Experiment& experiment, const Sweep& sweep);

// Those whose timelines a page of bearable size can hold: of the first seeds, and no more slots than so many.
std::vector<size_t> points_to_draw(const Experiment& experiment, const Sweep& sweep, size_t most_points);
inline constexpr size_t most_drawn_slots = 100'000;

// One file without references to others. drawings[i] is of point drawn[i]; those that would make it too large are left
// out, and it says so.
std::string sweep_html(const Experiment& experiment, const Sweep& sweep, const std::vector<size_t>& drawn,
                       const std::vector<Drawing>& drawings);

}  // namespace nlsplit::inline sweeps
