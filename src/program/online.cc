#include "program/online.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <tuple>

#include "base/index.h"
#include "base/json_number.h"
#include "schedule/evaluate.h"

namespace nlsplit::inline program {
namespace {

using nlohmann::json;

using SlotKey = std::tuple<int, Phase, int>;
SlotKey key_of(const ScheduledSlot& slot) { return {slot.stage, slot.phase, slot.micro_batch}; }

Result<ScheduledSlot> slot_from(const json& value) {
  ScheduledSlot slot;
  slot.stage = whole_number<int>(value.at(0));
  ASSIGN_OR_RETURN(slot.phase, parse_phase(value.at(1).get<std::string>()));
  slot.micro_batch = whole_number<int>(value.at(2));
  return slot;
}

}  // namespace

bool is_work(const ScheduledSlot& slot) {
  return slot.stage >= 0 && slot.micro_batch >= 0 &&
         (slot.phase == Phase::forward || slot.phase == Phase::input_gradient || slot.phase == Phase::weight_gradient);
}

std::string online_text(const Online& online) {
  json table = json::array();
  for (const std::vector<ScheduledSlot>& order : online.table) {
    json row = json::array();
    for (const ScheduledSlot& slot : order)
      row.push_back({slot.stage, std::string(name_of(slot.phase)), slot.micro_batch});
    table.push_back(std::move(row));
  }
  return json{{"format", "nlsplit-online"},
              {"version", 1},
              {"policy", online.policy},
              {"remaining_s", online.remaining_s},
              {"table", std::move(table)}}
             .dump() +
         "\n";
}

Result<Online> parse_online(const std::string& text, const Program& program, const std::string& file) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-online" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: not an online run of version 1", file));
    Online online;
    value.at("policy").get_to(online.policy);
    const auto placed = [&](Error error) {
      error.where.file = file;
      return error;
    };
    if (const auto policy = find_online_policy(online.policy); !policy) return placed(policy.error());
    value.at("remaining_s").get_to(online.remaining_s);
    bool fits = online.remaining_s.size() == program.devices.size();
    for (size_t d = 0; fits && d < program.devices.size(); ++d) {
      fits = online.remaining_s[d].size() == program.devices[d].order.size() &&
             std::ranges::all_of(online.remaining_s[d], [](double s) { return s >= 0; });
    }
    if (!fits) return invalid_input(fmt::format("{}: this is the online run of another program", file));
    for (const json& row : value.at("table")) {
      std::vector<ScheduledSlot>& order = online.table.emplace_back();
      for (const json& one : row) {
        const auto slot = slot_from(one);
        if (!slot) return placed(slot.error());
        order.push_back(*slot);
      }
    }
    return online;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
}

Status check_table(const Program& program, const Dependencies& dependencies,
                   const std::vector<std::vector<ScheduledSlot>>& table) {
  for (size_t d = 0; d < program.devices.size(); ++d) {
    std::map<SlotKey, int> missing;  // how often it has to come yet
    for (const FreeSlot& slot : dependencies.free_slots[d]) {
      if (slot.computes && is_work(slot.slot)) ++missing[key_of(slot.slot)];
    }
    const std::string& name = program.devices[d].name;
    const auto row = d < table.size() ? std::span<const ScheduledSlot>(table[d]) : std::span<const ScheduledSlot>();
    for (const ScheduledSlot& slot : row) {
      if (is_work(slot) && --missing[key_of(slot)] < 0)
        return invalid_input(
            fmt::format("these decisions are of another plan: device {} does not run {} here, or not twice", name,
                        to_string(slot)));
    }
    for (const auto& [key, count] : missing) {
      if (count > 0)
        return invalid_input(
            fmt::format("these decisions are of another plan: device {} runs {} here, but not there", name,
                        to_string(ScheduledSlot{std::get<0>(key), std::get<1>(key), std::get<2>(key)})));
    }
  }
  return ok_status();
}

SlotTable table_of_slots(const Program& program, const std::vector<std::vector<int>>& order) {
  SlotTable table;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const DeviceProgram& device = program.devices[d];
    if (device.kind == DeviceKind::host) continue;
    std::vector<ScheduledSlot>& row = table.devices.emplace_back();
    for (const int s : order[d]) {
      const Slot& slot = device.order[at(s)];
      const Segment& segment = device.segments[at(slot.segment)];
      const ScheduledSlot work{segment.stage, segment.phase, slot.micro_batch};
      if (is_work(work)) row.push_back(work);
      if (segment.stage >= 0 && segment.phase == Phase::step) row.push_back({segment.stage, Phase::step, 0});
    }
  }
  return table;
}

std::vector<std::vector<int>> static_order(const Program& program) {
  std::vector<std::vector<int>> orders;
  for (const DeviceProgram& device : program.devices) {
    std::vector<int>& order = orders.emplace_back(device.order.size());
    std::iota(order.begin(), order.end(), 0);
  }
  return orders;
}

}  // namespace nlsplit::inline program
