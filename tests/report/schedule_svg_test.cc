#include "report/schedule_svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedule/shapes.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

std::string svg_of(const std::string& policy, int devices, int stages, int micro_batches, const std::string& name) {
  const ScheduleInput input = training_shape(policy, devices, stages, micro_batches);
  const SlotTable table = make_schedule(policy, input).value();
  return schedule_svg(name, input, table, evaluate(input, table).value());
}

TEST(ScheduleSvg, HasEverySlotWhereItIs) {
  const std::string svg = svg_of("1f1b", 2, 2, 2, "1f1b");
  EXPECT_THAT(svg, HasSubstr("1f1b · 2 devices, 2 stages, 2 micro-batches"));
  EXPECT_THAT(svg, HasSubstr("makespan 9 · bubble 33.3 % of the devices' time · longest idle time within a device 3"));
  // Whole backwards are one; a step takes no time and has no bar.
  EXPECT_EQ(count(svg, "<title>"), 2u * (2 + 2));
  EXPECT_EQ(count(svg, "class=\"idle\""), 2u);
  EXPECT_THAT(svg, HasSubstr("<title>stage 0 F of micro-batch 1: 1 to 2</title>"));
  EXPECT_THAT(svg, HasSubstr("<title>stage 1 B of micro-batch 0: 2 to 4</title>"));
  EXPECT_THAT(svg, HasSubstr(">B1</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("href")));
  EXPECT_EQ(count(svg, "http"), 1u);  // the name of SVG
}

TEST(ScheduleSvg, NamesTheStageWhereDevicesHaveSeveral) {
  const std::string svg = svg_of("zb_v", 2, 4, 4, "zb_v");
  EXPECT_EQ(count(svg, "<title>"), 4u * 4 * 3);
  EXPECT_THAT(svg, HasSubstr(">3I0</text>"));
}

TEST(ScheduleSvg, LeavesNamesAwayWhereTheyDoNotFit) {
  const std::string svg = svg_of("gpipe", 4, 4, 256, "many");
  EXPECT_EQ(count(svg, "<title>"), 4u * 256 * 2);
  EXPECT_THAT(svg, Not(HasSubstr(">F200</text>")));
}

TEST(ScheduleSvg, EscapesTheName) {
  const std::string svg = svg_of("1f1b", 1, 1, 1, "<script>&\"x\"\n");
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&amp;&quot;x&quot; "));
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
}

}  // namespace
}  // namespace nlsplit
