// PyTorch's CSV: its files, ours, and what is said of broken ones.
#include "schedule/pipeline_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/index.h"
#include "schedule/shapes.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

ScheduleInput input_for(const PipelineShape& shape, int devices) {
  ScheduleInput input;
  input.micro_batches = shape.micro_batches;
  input.devices = devices;
  input.stage_devices = shape.stage_devices;
  for (const std::vector<int>& on : shape.stage_devices) {
    input.stage_seconds.emplace_back(on.size(), 1.0);
    if (!shape.training) continue;
    input.input_gradient_seconds.emplace_back(on.size(), 1.0);
    input.weight_gradient_seconds.emplace_back(on.size(), 1.0);
  }
  return input;
}

Result<SlotTable> read_table(const std::string& text) {
  ASSIGN_OR_RETURN(const PipelineCsv csv, parse_pipeline_csv(text, "s.csv"));
  ASSIGN_OR_RETURN(const PipelineShape shape, shape_of(csv));
  return table_of(csv, input_for(shape, static_cast<int>(csv.ranks.size())));
}

std::string refusal(const std::string& text) {
  const auto table = read_table(text);
  return table.ok() ? "no error" : table.error().to_string();
}

struct Fixture {
  const char* file;
  const char* policy;  // the one it must be the same as; empty: PyTorch has an order of its own
  int ranks, micro_batches;
};
const std::vector<Fixture> fixtures = {
    {"interleaved1f1b_4rank_8mb", "interleaved", 4, 8}, {"loopedbfs_2rank_4mb", "looped_bfs", 2, 4},
    {"interleavedzerobubble_2rank_4mb", "", 2, 4},      {"zbvzerobubble_2rank_4mb", "", 2, 4},
    {"dualpipev_4rank_10mb", "dualpipe_v", 4, 10},      {"dualpipev_4rank_10mb_comms", "dualpipe_v", 4, 10},
    {"zbvzerobubble_2rank_4mb_comms_2.15", "", 2, 4},
};

TEST(PipelineCsv, PyTorchsFilesComeBackByteForByte) {
  for (const Fixture& fixture : fixtures) {
    const std::string text =
        value_of(read_file(fmt::format("{}/tests/schedule/pytorch/{}.csv", NLS_SOURCE_DIR, fixture.file)));
    const auto csv = parse_pipeline_csv(text, fixture.file);
    ASSERT_TRUE(csv.ok()) << csv.error().to_string();
    EXPECT_EQ(to_text(*csv), text) << fixture.file;
  }
}

TEST(PipelineCsv, PyTorchsSchedulesAreOurs) {
  for (const Fixture& fixture : fixtures) {
    const std::string text =
        value_of(read_file(fmt::format("{}/tests/schedule/pytorch/{}.csv", NLS_SOURCE_DIR, fixture.file)));
    const auto table = read_table(text);
    ASSERT_TRUE(table.ok()) << table.error().to_string();
    if (fixture.policy == std::string_view()) continue;
    const ScheduleInput input = training_shape(fixture.policy, fixture.ranks, 2 * fixture.ranks, fixture.micro_batches);
    EXPECT_EQ(table->devices, make_schedule(fixture.policy, input)->devices) << fixture.file;
  }
}

TEST(PipelineCsv, EveryPolicysTableComesBack) {
  for (const SchedulePolicy& policy : all_schedules()) {
    if (policy.mode == ScheduleMode::inference || policy.name == "search") continue;
    const bool one_each = policy.placement == StagePlacement::chain || policy.placement == StagePlacement::mirrored;
    const ScheduleInput input = training_shape(policy.name, 4, one_each ? 4 : 8, 8);
    const SlotTable table = make_schedule(policy.name, input).value();
    const std::string text = to_text(csv_of(table));
    const auto csv = parse_pipeline_csv(text, "s.csv");
    ASSERT_TRUE(csv.ok()) << csv.error().to_string();
    EXPECT_EQ(to_text(*csv), text);
    const auto again = table_of(*csv, input);
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(again->devices, table.devices) << policy.name;
  }
}

TEST(PipelineCsv, WhatIsWrittenIsAGridWithIdleCells) {
  const SlotTable table = make_schedule("1f1b", training_shape("1f1b", 2, 2, 2)).value();
  EXPECT_EQ(to_text(csv_of(table)), "0F0,0F1,,0B0,,0B1\r\n,1F0,1B0,1F1,1B1\r\n");
}

TEST(PipelineCsv, ForwardOnlyAndOtherLineEnds) {
  for (const char* text : {"0F0,0F1\n,1F0,1F1\n", "0F0,0F1\n,1F0,1F1", "0F0\r\n1F0\r\n", "\"\"\n0F0\n", "0F0\n\n"}) {
    const auto csv = parse_pipeline_csv(text, "s.csv");
    ASSERT_TRUE(csv.ok()) << csv.error().to_string();
    EXPECT_EQ(to_text(*csv), text);
  }
  EXPECT_EQ(to_text(*parse_pipeline_csv("\"0F0\", 0F1 \n", "s.csv")), "0F0,0F1\n");
}

TEST(PipelineCsv, ErrorsShowTheGridTheRankTheSlotAndTheReason) {
  EXPECT_EQ(refusal("0F0,0F1,0B0,0B1\n1F0,1B0,1F0,1F1,1B1\n"),
            "s.csv:2:9: rank 1, slot 3 (1F0): a second time; first in slot 1 of rank 1\n"
            "  | slot    1     2     3     4     5     6\n"
            "  | rank 0  0F0   0F1   0B0   0B1\n"
            "  | rank 1  1F0   1B0  [1F0]  1F1   1B1");
  EXPECT_THAT(refusal("0F0,0X1\n"), HasSubstr("s.csv:1:5: rank 0, slot 2: '0X1' has no action X (there are F I W B"));
  EXPECT_THAT(refusal("F0\n"), HasSubstr("'F0' does not begin with a stage; an action is e.g. 2F0"));
  EXPECT_THAT(refusal("0F\n"), HasSubstr("'0F' does not end with a micro-batch, as 2F0 does"));
  EXPECT_THAT(refusal("0F0x\n"), HasSubstr("'0F0x' does not end with a micro-batch"));
  EXPECT_THAT(refusal("0UNSHARD3\n"), HasSubstr("has a micro-batch, and UNSHARD has none"));
  EXPECT_THAT(refusal("0F99999999999999999999\n"), HasSubstr("does not end with a micro-batch"));
  EXPECT_THAT(refusal("(0F0;1B0\n"), HasSubstr("two actions beside each other are (0F7;7B3)OVERLAP_F_B"));
  EXPECT_THAT(refusal("(0F0)OVERLAP_F_B\n"), HasSubstr("two actions go beside each other"));
  EXPECT_THAT(refusal("(0F0;0SEND_F0)OVERLAP_F_B\n"), HasSubstr("0SEND_F0 is a message"));
}

TEST(PipelineCsv, MissingTwiceAndWrongOrder) {
  EXPECT_EQ(refusal(""), "s.csv: no rank computes anything in this schedule");
  EXPECT_EQ(refusal("0F0,0F1\n2F0,2F1\n"), "s.csv: stage 1 is missing: the last one is 2");
  EXPECT_EQ(refusal("0F0,0F2\n"), "s.csv: micro-batch 1 is missing: the last one is 2");
  EXPECT_EQ(refusal("0F0,0F1\n1F1\n"), "s.csv: 1F0 is missing: micro-batch 0 never goes through F of stage 1");
  EXPECT_THAT(refusal("0F0,0I0\n"), HasSubstr("slot 1 (0F0): 0W0 is missing: micro-batch 0 never goes through W"));
  EXPECT_THAT(refusal("0B0,0F0\n"), HasSubstr("rank 0, slot 1 (0B0): before what it needs, slot 2 of rank 0"));
  EXPECT_THAT(refusal("0F0,,0W0,0I0\n"), HasSubstr("slot 3 (0W0): before what it needs, slot 4 of rank 0"));
  EXPECT_THAT(refusal("0F0,0F1,0B1\n0B0\n"), HasSubstr("slot 1 (0B0): 0F0 was in slot 1 of rank 0: what it kept is"));
}

TEST(PipelineCsv, ADeadlockIsNamedWithItsCircle) {
  // Rank 0 wants 0B0 before it gives rank 1 what 1B0 waits behind.
  EXPECT_THAT(refusal("0F0,0B0,0F1,0B1\n1F0,,1F1,1B0,1B1\n"),
              HasSubstr("rank 0, slot 2 (0B0): deadlock: slot 2 of rank 0 (0I0) waits for 1I0 in slot 4 of rank 1; "
                        "slot 3 of rank 1 (1F1) waits for 0F1 in slot 3 of rank 0\n  | slot"));
}

TEST(PipelineCsv, MemoryIsCounted) {
  const auto csv = parse_pipeline_csv("0F0,0F1,0F2,0B0,0B1,0B2\n", "s.csv");
  ScheduleInput input = input_for(*shape_of(*csv), 1);
  input.kept_until_input_gradient = {bytes(100)};
  input.kept_until_weight_gradient = {bytes(40)};
  input.device_memory = {bytes(250)};
  EXPECT_THAT(table_of(*csv, input).error().to_string(),
              HasSubstr("rank 0, slot 3 (0F2): memory: 300 B would be kept of 3 micro-batches, and there are 250 B"));
  input.device_memory = {bytes(300)};
  EXPECT_TRUE(table_of(*csv, input).ok());
}

// Written again it would be a file of no ranks.
TEST(PipelineCsv, ACarriageReturnAloneEndsNoLine) {
  EXPECT_TRUE(parse_pipeline_csv("0F0\r\n", "s.csv").ok());
  EXPECT_THAT(parse_pipeline_csv("0F0\r", "s.csv").error().to_string(), HasSubstr("s.csv:1:1: rank 0, slot 1"));
  EXPECT_FALSE(parse_pipeline_csv("\r", "s.csv").ok());
}

TEST(PipelineCsv, MessagesMustMatch) {
  const std::string good =
      "0F0,0SEND_F0,0RECV_B0,0B0\n"
      "1RECV_F0,1F0,1B0,1SEND_B0\n";
  EXPECT_EQ(refusal(good), "no error");
  const auto without = [&](const std::string& cell, const std::string& instead) {
    std::string text = good;
    return refusal(text.replace(text.find(cell), cell.size(), instead));
  };
  EXPECT_THAT(without("0SEND_F0", ""), HasSubstr("slot 1 (0F0): 0SEND_F0 is missing: rank 1 waits for it"));
  EXPECT_THAT(without("1RECV_F0", ""), HasSubstr("slot 2 (0SEND_F0): 1RECV_F0 on rank 1 is missing"));
  EXPECT_THAT(without("0SEND_F0", "0SEND_F0,0SEND_F0"), HasSubstr("slot 3 (0SEND_F0): a second time"));
  EXPECT_THAT(without("0RECV_B0,0B0", "0B0,0RECV_B0"), HasSubstr("slot 4 (0RECV_B0): 0I0 came before, in slot 3"));
  EXPECT_THAT(without("0F0,0SEND_F0", "0SEND_F0,0F0"), HasSubstr("slot 1 (0SEND_F0): 0F0 comes later, in slot 2"));
  EXPECT_THAT(without("0SEND_F0", "0SEND_F0,0SEND_B0"), HasSubstr("(0SEND_B0): there is no stage after to send to"));
  EXPECT_THAT(without("0F0", "1UNSHARD,0F0"), HasSubstr("(1UNSHARD): stage 1 is not on this rank but on 1"));
  EXPECT_THAT(refusal("0F0,0F1,0SEND_F0,0SEND_F1\n1RECV_F1,1RECV_F0,1F0,1F1\n"),
              HasSubstr("rank 1, slot 1 (1RECV_F1): rank 0 sends 0SEND_F0 as message 1 to this rank, not 0SEND_F1"));
}

}  // namespace
}  // namespace nlsplit
