#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "sweep/page.h"
#include "sweep/sweep_report.h"

namespace nlsplit::inline sweeps {
namespace {

using nlohmann::json;

constexpr double ticks = 20'000;  // of a timeline: its times are whole numbers of them

// Within a script element "</" and "<!--" would end or change it.
std::string embedded(std::string text) {
  constexpr std::string_view escaped = "\\u003c";
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos; at += escaped.size())
    text.replace(at, 1, escaped);
  return text;
}

// Six digits are enough to look at; null where there is none.
json figure(const std::string& text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failure != std::errc()) return nullptr;
  const std::string rounded = fmt::format("{:.6g}", value);
  std::from_chars(rounded.data(), rounded.data() + rounded.size(), value);
  return value;
}

json axes_json(const Experiment& experiment) {
  json axes = json::array();
  for (const Axis& axis : experiment.axes) {
    json values = json::array(), numbers = json::array();
    for (const AxisValue& value : axis.values) {
      values.push_back(value.text);
      if (is_numeric(axis.kind)) numbers.push_back(value.numbers.at(0));
    }
    axes.push_back({{"column", axis.column},
                    {"values", std::move(values)},
                    {"numbers", is_numeric(axis.kind) ? std::move(numbers) : json(nullptr)},
                    {"seed", axis.kind == AxisKind::seed}});
  }
  return axes;
}

json drawing_json(size_t point, const Drawing& drawing) {
  double makespan = 0;
  for (const SlotBar& bar : drawing.bars) makespan = std::max(makespan, bar.finish);
  const double scale = makespan > 0 ? ticks / makespan : 0;
  json bars = json::array();
  for (const SlotBar& bar : drawing.bars) {
    const auto start = std::llround(bar.start * scale), finish = std::llround(bar.finish * scale);
    for (const int64_t number :
         {int64_t{bar.device}, static_cast<int64_t>(bar.phase), int64_t{bar.stage}, int64_t{bar.micro_batch},
          static_cast<int64_t>(start), static_cast<int64_t>(finish - start)})
      bars.push_back(number);
  }
  json file = {{"point", point}, {"devices", drawing.devices}, {"end_s", makespan}, {"bars", std::move(bars)}};
  if (!drawing.kept_until_input.empty()) file["kept"] = {drawing.kept_until_input, drawing.kept_until_weight};
  if (!drawing.arena.empty()) file["arena"] = drawing.arena;
  return file;
}

}  // namespace

std::vector<size_t> points_to_draw(const Experiment& experiment, const Sweep& sweep, size_t most_points) {
  const size_t status = column_of(sweep, "status");
  const auto seed_axis = std::ranges::find(experiment.axes, AxisKind::seed, &Axis::kind);
  const auto seed = static_cast<size_t>(seed_axis - experiment.axes.begin());
  const auto seed_of = [&](size_t point) {
    return seed_axis == experiment.axes.end() ? 0 : sweep.points[point].at[seed];
  };
  std::vector<size_t> possible;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    if (!sweep.rows[i].empty() && sweep.rows[i][status] == "ok") possible.push_back(i);
  }
  std::ranges::stable_sort(possible, {}, seed_of);
  if (possible.size() > most_points) possible.resize(most_points);
  return possible;
}

std::string sweep_html(const Experiment& experiment, const Sweep& sweep, const std::vector<size_t>& drawn,
                       const std::vector<Drawing>& drawings) {
  const SweepOrders orders = orders_of(experiment, sweep);
  json points = {{"number", json::array()}, {"at", json::array()}, {"reason", json::array()}};
  const std::vector<std::pair<std::string, bool>> shown = {
      {"makespan_s", true},         {"throughput_samples_per_s", true},
      {"latency_mean_s", true},     {"bubble", true},
      {"inner_bubble_s", true},     {"busiest_device", false},
      {"busiest_link", false},      {"busiest_device_share", true},
      {"busiest_link_share", true}, {"peak_memory_bytes", true},
      {"kept_micro_batches", true}};
  const size_t reason = column_of(sweep, "reason");
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    if (sweep.rows[i].empty()) continue;
    points["number"].push_back(i);
    for (const size_t at : sweep.points[i].at) points["at"].push_back(at);
    points["reason"].push_back(sweep.rows[i][reason]);
    for (const auto& [name, is_figure] : shown) {
      const std::string& cell = sweep.rows[i][column_of(sweep, name)];
      points[name].push_back(is_figure ? figure(cell) : json(cell));
    }
  }
  json timelines = json::array();
  size_t slots = 0;
  for (size_t i = 0; i < drawings.size(); ++i) {
    slots += drawings[i].bars.size();
    if (slots > most_drawn_slots && i > 0) break;
    timelines.push_back(drawing_json(drawn[i], drawings[i]));
  }
  json phases = json::array();
  for (int phase = 0; phase <= static_cast<int>(Phase::step); ++phase)
    phases.push_back(name_of(static_cast<Phase>(phase)));
  const json data = {{"experiment", experiment.file},
                     {"what", experiment.pipeline ? "a pipeline, played on its times" : experiment.scenario.file},
                     {"tier", experiment.pipeline ? "" : experiment.tier->title()},
                     {"axes", axes_json(experiment)},
                     {"series", orders.series},
                     {"x", orders.x ? json(*orders.x) : json(nullptr)},
                     {"points", std::move(points)},
                     {"phases", std::move(phases)},
                     {"ticks", ticks},
                     {"timelines", std::move(timelines)}};
  constexpr std::string_view mark = "@DATA@";
  std::string page = sweep_page;
  return page.replace(page.find(mark), mark.size(),
                      embedded(data.dump(-1, ' ', false, json::error_handler_t::replace)));
}

}  // namespace nlsplit::inline sweeps
