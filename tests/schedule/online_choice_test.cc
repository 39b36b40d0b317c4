// Online policies as schedules: their text, the table of their base, and the policy that follows a log.
#include "schedule/online_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "schedule/shapes.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

TEST(OnlineChoice, TextReadsBack) {
  const std::vector<OnlineChoice> choices = {{"longest_path", "", 0, ""},
                                             {"backward_first", "zb_v", 0, ""},
                                             {"longest_path", "", 8, ""},
                                             {"longest_path", "list", 3, "/a folder/with, commas/base=x.csv"}};
  for (const OnlineChoice& choice : choices) {
    EXPECT_TRUE(is_online(to_string(choice)));
    EXPECT_EQ(parse_online_choice(to_string(choice)).value(), choice) << to_string(choice);
  }
  for (const char* wrong : {"streaming", "online:", "online:x,base", "online:x,in_flight=", "online:x,in_flight=0",
                            "online:x,in_flight=2x", "online:x,what=3", "online:,base=list"})
    EXPECT_THAT(parse_online_choice(wrong).error().message, HasSubstr("is not an online schedule")) << wrong;
}

TEST(OnlineChoice, TheTableIsTheBasesWithRoom) {
  ScheduleInput inference = training_shape("1f1b", 3, 3, 8);
  inference.input_gradient_seconds.clear();
  inference.weight_gradient_seconds.clear();
  const SlotTable streaming = make_schedule("streaming", inference).value();
  const SlotTable plain = make_schedule("online:longest_path", inference).value();
  EXPECT_EQ(plain.devices, streaming.devices);
  EXPECT_EQ(plain.instances, streaming.instances);
  EXPECT_EQ(plain.room, 0);
  EXPECT_EQ(make_schedule("online:longest_path,in_flight=5", inference)->instances, 5);
  EXPECT_EQ(make_schedule("online:longest_path,base=list,in_flight=50", inference)->room, 8) << "there are only 8";
  const ScheduleInput training = training_shape("1f1b", 3, 3, 8);
  EXPECT_EQ(make_schedule("online:backward_first", training)->devices, make_schedule("list", training)->devices);
  EXPECT_EQ(make_schedule("online:backward_first,base=gpipe", training)->devices,
            make_schedule("gpipe", training)->devices);
  EXPECT_THAT(make_schedule("online:no_such", training).error().message, HasSubstr("unknown online policy 'no_such'"));
  EXPECT_THAT(make_schedule("online:longest_path,base=no_such", training).error().message,
              HasSubstr("unknown schedule 'no_such'"));
  EXPECT_THAT(make_schedule("online:longest_path,base=1f1b", inference).error().message, HasSubstr("for training"));
}

TEST(OnlineChoice, AReplayTakesItsTurnsAndWaitsForThem) {
  const std::array<ScheduledSlot, 3> table = {{{0, Phase::forward, 1}, {0, Phase::forward, 0}, {1, Phase::forward, 1}}};
  const std::vector<ReadySlot> ready = {{{0, Phase::forward, 0}, 0, 5}, {{0, Phase::forward, 1}, 0, 4}};
  const OnlinePolicy& replay = replay_policy();
  const auto next = [&](std::span<const ScheduledSlot> done) { return replay.next(ready, {0, 0, done, 0, table}); };
  EXPECT_EQ(next({}), 1u);
  EXPECT_EQ(next(std::span(table).first(1)), 0u);
  EXPECT_EQ(next(std::span(table).first(2)), std::nullopt);
  EXPECT_EQ(next(table), std::nullopt) << "nothing is left";
  EXPECT_EQ(*find_online_policy("replay"), &replay);
  for (const OnlinePolicy& policy : all_online_policies()) EXPECT_NE(policy.name, replay.name);
}

}  // namespace
}  // namespace nlsplit
