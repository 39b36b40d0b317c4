#include "report/schedule_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "schedule/shapes.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

TEST(ScheduleReport, DrawsSlotsAtTheirTimes) {
  // 2 devices, 2 micro-batches: F 1, B 2. Device 1 has its F a second later and B0 directly after it.
  const ScheduleInput input = training_shape("1f1b", 2, 2, 2);
  const SlotTable table = make_schedule("1f1b", input).value();
  const SlotTiming timing = evaluate(input, table).value();
  EXPECT_EQ(schedule_drawing(input, table, timing, 100),
            "device 0  F0 F1 ......B0--- ...B1--- \n"
            "device 1  ...F0 B0--- F1 B1--- ......\n");
  // Too narrow for names: a letter a column.
  EXPECT_EQ(schedule_drawing(input, table, timing, 9),
            "device 0  FF..BB.BB\n"
            "device 1  .FBBFBB..\n");
}

TEST(ScheduleReport, NamesTheStageWhereDevicesHaveSeveral) {
  const ScheduleInput input = training_shape("zb_v", 1, 2, 1);
  const SlotTable table = make_schedule("zb_v", input).value();
  EXPECT_EQ(schedule_drawing(input, table, evaluate(input, table).value(), 100),
            "device 0  0F0 1F0 1I0 1W0 0I0 0W0 \n");
}

TEST(ScheduleReport, TextHasTheFigures) {
  const ScheduleInput input = training_shape("1f1b", 2, 2, 2);
  const SlotTable table = make_schedule("1f1b", input).value();
  const std::string text = schedule_text(input, table, evaluate(input, table).value(), 100);
  // 9 of 2 · 9 seconds are not worked: 2 · 2 · 3 are.
  EXPECT_THAT(text,
              HasSubstr("makespan 9 · bubble 33.3 % of the devices' time · longest idle time within a device 3\n"));
  EXPECT_THAT(text, HasSubstr("kept micro-batches"));
}

TEST(ScheduleReport, JsonHasEverySlot) {
  const ScheduleInput input = training_shape("1f1b", 2, 2, 2);
  const SlotTable table = make_schedule("1f1b", input).value();
  const auto json = nlohmann::json::parse(schedule_json("1f1b", input, table, evaluate(input, table).value()));
  EXPECT_EQ(json.at("format"), "nlsplit-schedule");
  EXPECT_EQ(json.at("makespan_s"), 9);
  EXPECT_EQ(json.at("devices").size(), 2u);
  EXPECT_EQ(json.at("devices")[0].at("slots").size(), 2u * 3 + 1);
  EXPECT_EQ(json.at("devices")[1].at("slots")[1].at("phase"), "I");
  EXPECT_EQ(json.at("devices")[1].at("slots")[1].at("whole_backward"), true);
  EXPECT_EQ(json.at("devices")[0].at("kept_micro_batches"), 2);
}

TEST(ScheduleReport, ListsAll) {
  const std::string text = schedules_text();
  for (const SchedulePolicy& policy : all_schedules()) EXPECT_THAT(text, HasSubstr(std::string(policy.what)));
}

}  // namespace
}  // namespace nlsplit
