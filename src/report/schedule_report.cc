#include "report/schedule_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "report/table.h"

namespace nlsplit::inline reports {
namespace {

// A slot as it is drawn: a whole backward is one.
struct Drawn {
  std::string name;
  char letter = ' ';
  double start = 0, finish = 0;
};

char letter_of(const ScheduledSlot& slot) {
  if (slot.whole) return 'B';
  switch (slot.phase) {
    case Phase::forward:
      return 'F';
    case Phase::input_gradient:
      return 'I';
    case Phase::weight_gradient:
      return 'W';
    case Phase::step:
      return 's';
    case Phase::init:
    case Phase::recompute:
      return '?';
  }
  CHECK(false, "unknown phase");
}

std::vector<std::vector<Drawn>> drawn_slots(const ScheduleInput& input, const SlotTable& table,
                                            const SlotTiming& timing) {
  std::vector<int> stages(static_cast<size_t>(input.devices), 0);
  for (const std::vector<int>& devices : input.stage_devices) {
    for (const int device : devices) ++stages[static_cast<size_t>(device)];
  }
  const bool several = std::ranges::any_of(stages, [](int count) { return count > 1; });
  std::vector<std::vector<Drawn>> drawn;
  for (size_t d = 0; d < table.devices.size(); ++d) {
    const std::vector<ScheduledSlot>& order = table.devices[d];
    std::vector<Drawn>& line = drawn.emplace_back();
    for (size_t i = 0; i < order.size(); ++i) {
      const ScheduledSlot& slot = order[i];
      Drawn one = {"", letter_of(slot), timing.slots[d][i].start, timing.slots[d][i].finish};
      if (several) one.name += fmt::format("{}", slot.stage);
      one.name += slot.phase == Phase::step ? "step" : fmt::format("{}{}", one.letter, slot.micro_batch);
      if (slot.whole) one.finish = timing.slots[d][++i].finish;
      if (one.finish > one.start) line.push_back(std::move(one));
    }
  }
  return drawn;
}

std::string seconds_text(double seconds) { return fmt::format("{:.6g}", seconds); }

}  // namespace

std::string schedule_drawing(const ScheduleInput& input, const SlotTable& table, const SlotTiming& timing, int width) {
  const std::vector<std::vector<Drawn>> lines = drawn_slots(input, table, timing);
  if (timing.makespan <= 0) return "";
  // Columns a second, so that every name and a dash fit into their slot.
  double scale = 0;
  for (const auto& line : lines) {
    for (const Drawn& slot : line)
      scale = std::max(scale, static_cast<double>(slot.name.size() + 1) / (slot.finish - slot.start));
  }
  const bool named = scale * timing.makespan <= width;
  if (!named) scale = width / timing.makespan;
  const auto column = [&](double when) { return static_cast<size_t>(std::lround(when * scale)); };
  const size_t columns = column(timing.makespan);
  const size_t digits = fmt::format("{}", lines.size() - 1).size();
  std::string text;
  for (size_t d = 0; d < lines.size(); ++d) {
    std::string row(columns, '.');
    for (const Drawn& slot : lines[d]) {
      const size_t first = column(slot.start), last = std::min(columns, column(slot.finish));
      for (size_t c = first; c < last; ++c) {
        const size_t in = c - first;
        row[c] = !named ? slot.letter : in < slot.name.size() ? slot.name[in] : '-';
      }
      if (named && last > first) row[last - 1] = ' ';  // one slot ends, the next begins
    }
    text += fmt::format("device {:>{}}  {}\n", d, digits, row);
  }
  return text;
}

std::string schedule_text(const ScheduleInput& input, const SlotTable& table, const SlotTiming& timing, int width) {
  std::string text = schedule_drawing(input, table, timing, width);
  text += fmt::format("\nmakespan {} · bubble {:.1f} % of the devices' time · longest idle time within a device {}\n\n",
                      seconds_text(timing.makespan), 100 * timing.bubble(), seconds_text(timing.inner_bubble()));
  std::vector<Table::Column> columns = {{"device", Align::right},
                                        {"stages", Align::left},
                                        {"slots", Align::right},
                                        {"work", Align::right},
                                        {"idle within", Align::right}};
  if (input.training()) columns.push_back({"kept micro-batches", Align::right});
  Table devices(columns);
  for (size_t d = 0; d < table.devices.size(); ++d) {
    std::vector<int> stages;
    for (size_t s = 0; s < input.stage_devices.size(); ++s) {
      if (std::ranges::find(input.stage_devices[s], static_cast<int>(d)) != input.stage_devices[s].end())
        stages.push_back(static_cast<int>(s));
    }
    std::vector<std::string> row = {fmt::format("{}", d), fmt::format("{}", fmt::join(stages, " ")),
                                    fmt::format("{}", table.devices[d].size()), seconds_text(timing.busy[d]),
                                    seconds_text(timing.idle_between[d])};
    if (input.training()) row.push_back(fmt::format("{}", timing.peak_micro_batches[d]));
    devices.add(std::move(row));
  }
  return text + devices.to_string();
}

std::string schedule_json(const std::string& name, const ScheduleInput& input, const SlotTable& table,
                          const SlotTiming& timing) {
  nlohmann::json devices = nlohmann::json::array();
  for (size_t d = 0; d < table.devices.size(); ++d) {
    nlohmann::json slots = nlohmann::json::array();
    for (size_t i = 0; i < table.devices[d].size(); ++i) {
      const ScheduledSlot& slot = table.devices[d][i];
      nlohmann::json one = {{"stage", slot.stage},
                            {"phase", name_of(slot.phase)},
                            {"start_s", timing.slots[d][i].start},
                            {"finish_s", timing.slots[d][i].finish}};
      if (slot.phase != Phase::step) one["micro_batch"] = slot.micro_batch;
      if (slot.whole) one["whole_backward"] = true;
      slots.push_back(std::move(one));
    }
    nlohmann::json device = {
        {"slots", std::move(slots)}, {"busy_s", timing.busy[d]}, {"idle_within_s", timing.idle_between[d]}};
    if (input.training()) device["kept_micro_batches"] = timing.peak_micro_batches[d];
    devices.push_back(std::move(device));
  }
  const nlohmann::json file = {{"format", "nlsplit-schedule"},
                               {"version", 1},
                               {"schedule", name},
                               {"mode", name_of(input.training() ? ScheduleMode::training : ScheduleMode::inference)},
                               {"stages", input.stage_devices.size()},
                               {"micro_batches", input.micro_batches},
                               {"makespan_s", timing.makespan},
                               {"bubble", timing.bubble()},
                               {"idle_within_s", timing.inner_bubble()},
                               {"devices", std::move(devices)}};
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string schedules_text() {
  Table table({{"name"}, {"mode"}, {"placement"}, {"what it does"}, {"source"}});
  for (const SchedulePolicy& policy : all_schedules()) {
    table.add({std::string(policy.name), std::string(name_of(policy.mode)), std::string(name_of(policy.placement)),
               std::string(policy.what), std::string(policy.source)});
  }
  return table.to_string();
}

}  // namespace nlsplit::inline reports
