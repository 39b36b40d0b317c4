// What an online run of a Program needs: the policy, and its knowledge of the critical path. Also for the simulator.
#pragma once

#include <string>
#include <vector>

#include "program/dependencies.h"
#include "schedule/online.h"

namespace nlsplit::inline program {

struct Online {
  std::string policy;                                  // schedule/online.h
  std::vector<std::vector<ScheduledSlot>> table = {};  // replay only: [device]
  std::vector<std::vector<double>> remaining_s = {};   // [device][slot]: ReadySlot::remaining
};

bool is_work(const ScheduledSlot& slot);  // F, I or W of a stage: the slots of a table, without steps

// JSON {"format": "nlsplit-online", "version": 1, "policy": …}. Errors: not that, not of this Program, no such policy.
std::string online_text(const Online& online);
Result<Online> parse_online(const std::string& text, const Program& program, const std::string& file);

// Error: the table is not of this Program: of some device it has not exactly the slots that stages run there.
// `dependencies`: free ones.
Status check_table(const Program& program, const Dependencies& dependencies,
                   const std::vector<std::vector<ScheduledSlot>>& table);

// The slots of stages in the order in which each device ran its slots; steps too. order[device]: indices into
// DeviceProgram::order. Devices that only hold data are left away.
SlotTable table_of_slots(const Program& program, const std::vector<std::vector<int>>& order);
// The order of the Program itself.
std::vector<std::vector<int>> static_order(const Program& program);

}  // namespace nlsplit::inline program
