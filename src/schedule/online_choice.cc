#include "schedule/online_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"
#include "schedule/pipeline_csv.h"

namespace nlsplit::inline schedules {
namespace {

constexpr std::string_view base_key = "base=", in_flight_key = "in_flight=", replay_key = "replay=";

}  // namespace

std::string to_string(const OnlineChoice& choice) {
  std::string text = fmt::format("{}{}", online_prefix, choice.policy);
  if (!choice.base.empty()) text += fmt::format(",{}{}", base_key, choice.base);
  if (choice.in_flight > 0) text += fmt::format(",{}{}", in_flight_key, choice.in_flight);
  if (!choice.replay.empty()) text += fmt::format(",{}{}", replay_key, choice.replay);  // the last: it may hold commas
  return text;
}

Result<OnlineChoice> parse_online_choice(std::string_view schedule) {
  const auto wrong = [&] {
    return invalid_input(fmt::format(
        "'{}' is not an online schedule such as online:longest_path,base=list,in_flight=8,replay=FILE", schedule));
  };
  if (!is_online(schedule)) return wrong();
  OnlineChoice choice;
  std::string_view rest = schedule.substr(online_prefix.size());
  const auto word = [&] {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string_view found = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return found;
  };
  choice.policy = word();
  if (choice.policy.empty()) return wrong();
  while (!rest.empty()) {
    if (rest.starts_with(replay_key)) {
      choice.replay = rest.substr(replay_key.size());
      rest = {};
      continue;
    }
    const std::string_view part = word();
    if (part.starts_with(base_key)) {
      choice.base = part.substr(base_key.size());
    } else if (part.starts_with(in_flight_key)) {
      const std::string_view number = part.substr(in_flight_key.size());
      const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), choice.in_flight);
      if (failure != std::errc() || end != number.data() + number.size() || choice.in_flight < 1) return wrong();
    } else {
      return wrong();
    }
  }
  return choice;
}

Result<SlotTable> make_online_base(const OnlineChoice& choice, const ScheduleInput& input) {
  RETURN_IF_ERROR(find_online_policy(choice.policy));
  ScheduleInput with_room = input;
  if (choice.in_flight > 0) with_room.in_flight = choice.in_flight;
  std::string base = input.training() ? "list" : "streaming";
  if (!choice.base.empty()) base = choice.base;
  ASSIGN_OR_RETURN(SlotTable table, make_schedule(base, with_room));
  table.room = std::min(choice.in_flight, input.micro_batches);
  return table;
}

Result<SlotTable> decisions_to_replay(const OnlineChoice& choice, const ScheduleInput& input) {
  CHECK(!choice.replay.empty(), "there is nothing to replay");
  ASSIGN_OR_RETURN(const std::string text, read_file(choice.replay));
  ASSIGN_OR_RETURN(const PipelineCsv csv, parse_pipeline_csv(text, choice.replay));
  ScheduleInput unlimited = input;  // what is kept has its place in the Program whatever the order
  unlimited.device_memory.clear();
  ASSIGN_OR_RETURN(SlotTable table, table_of(csv, unlimited));
  for (std::vector<ScheduledSlot>& order : table.devices) {
    for (ScheduledSlot& slot : order) slot.whole = false;  // when a gradient leaves is the Program's business
  }
  return table;
}

}  // namespace nlsplit::inline schedules
