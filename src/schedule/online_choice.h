// An online policy as a plan's schedule: "online:longest_path", "online:longest_path,base=1f1b,in_flight=8" or
// "online:longest_path,replay=/somewhere/log.csv".
//
// The Program is that of the base: its order decides which message goes to which of several instances, and so what an
// online run may not change (program/dependencies.h); the rest is the policy's.
#pragma once

#include <string>
#include <string_view>

#include "schedule/online.h"

namespace nlsplit::inline schedules {

inline constexpr std::string_view online_prefix = "online:";

struct OnlineChoice {
  std::string policy;  // a name of all_online_policies
  std::string base;    // the schedule whose Program it is; empty: streaming, in training list
  int in_flight = 0;   // room for so many micro-batches in every buffer at least; 0: as the base has it
  std::string replay;  // a file with decisions to follow instead; empty: none
  friend bool operator==(const OnlineChoice&, const OnlineChoice&) = default;
};

std::string to_string(const OnlineChoice& choice);
// Error: not what to_string writes. Whether the names exist is for others to say.
Result<OnlineChoice> parse_online_choice(std::string_view schedule);

inline bool is_online(std::string_view schedule) { return schedule.starts_with(online_prefix); }

// The base's table, with room.
Result<SlotTable> make_online_base(const OnlineChoice& choice, const ScheduleInput& input);

// The decisions of the file it names. Errors: those of parse_pipeline_csv and table_of.
Result<SlotTable> decisions_to_replay(const OnlineChoice& choice, const ScheduleInput& input);

}  // namespace nlsplit::inline schedules
