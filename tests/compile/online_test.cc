// A plan whose schedule is an online policy: a Program, and who decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "compile/compile.h"
#include "schedule/pipeline_csv.h"
#include "testing/layers.h"
#include "testing/star.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

// Two stages on A and B, four micro-batches.
Result<Compiled> compile_as(const std::string& schedule) {
  Plan plan;
  plan.micro_batches = 4;
  plan.schedule = schedule;
  plan.stages = {{0, 2, {DeviceId(0)}}, {2, 4, {DeviceId(1)}}};
  const KernelGraph kernels = value_of(choose_kernels(testing::layers(2, 2, 8), {Isa::v3}));
  return compile(kernels, plan, star(2), {HostId(0), HostId(0)}, nullptr);
}

TEST(CompileOnline, SaysWhoDecides) {
  EXPECT_FALSE(value_of(compile_as("streaming")).online.has_value());
  const Compiled online = value_of(compile_as("online:backward_first,in_flight=3"));
  ASSERT_TRUE(online.online.has_value());
  EXPECT_EQ(online.online->policy, "backward_first");
  EXPECT_TRUE(online.online->table.empty());
  // Its order is the base's, with room for three micro-batches in every buffer between the stages.
  EXPECT_EQ(static_order(online.program), static_order(value_of(compile_as("streaming")).program));
  int room = 0;
  for (const Buffer& buffer : online.program.devices[1].buffers) {
    if (buffer.kind == BufferKind::comm) room = std::max(room, buffer.instances);
  }
  EXPECT_EQ(room, 3);
}

TEST(CompileOnline, DecisionsToReplay) {
  const SlotTable table = table_of_slots(value_of(compile_as("streaming")).program,
                                         static_order(value_of(compile_as("streaming")).program));
  const std::string file = std::filesystem::path(::testing::TempDir()) / ("decided_" + std::to_string(::getpid()));
  ASSERT_TRUE(write_file(file, to_text(csv_of(table))).ok());
  const Compiled replayed = value_of(compile_as("online:longest_path,replay=" + file));
  ASSERT_TRUE(replayed.online.has_value());
  EXPECT_EQ(replayed.online->policy, "replay");
  EXPECT_EQ(replayed.online->table, table.devices);
  std::filesystem::remove(file);
  EXPECT_THAT(compile_as("online:longest_path,replay=/no/such/log.csv").error().message, HasSubstr("/no/such/log.csv"));
  EXPECT_THAT(compile_as("online:no_such").error().message, HasSubstr("unknown online policy 'no_such'"));
  EXPECT_THAT(compile_as("online:").error().message, HasSubstr("is not an online schedule"));
}

}  // namespace
}  // namespace nlsplit
