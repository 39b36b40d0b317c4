#include "program/part.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/counter_session.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using namespace testing;

std::vector<Program> programs_by_hand() {
  std::vector<Program> programs;
  for (const char* name : {"train_1f1b", "interleaved", "ring_all_reduce", "replicas", "instances"}) {
    const std::string path = std::string(NLS_SOURCE_DIR) + "/tests/programs/" + name + ".nls";
    programs.push_back(value_of(parse_program(value_of(read_file(path)), path)));
  }
  return programs;
}

Program own_of(const Program& whole, size_t device) {
  return value_of(in_outline(outline_of(whole), part_of(whole, device).program, device));
}

// A part is the device as it is in the whole, and its text says the same.
TEST(Part, IsTheDeviceOfTheWhole) {
  for (const Program& whole : programs_by_hand()) {
    SCOPED_TRACE(whole.name);
    EXPECT_EQ(value_of(parse_program(to_string(outline_of(whole)), "outline")), outline_of(whole));
    for (size_t d = 0; d < whole.devices.size(); ++d) {
      const Part part = part_of(whole, d);
      EXPECT_EQ(value_of(parse_program(to_string(part.program), "part")), part.program);
      const Program program = own_of(whole, d);
      const DeviceProgram &own = program.devices[d], &there = whole.devices[d];
      EXPECT_EQ(own.buffers, there.buffers);
      EXPECT_EQ(own.order, there.order);
      ASSERT_EQ(part.descs.size(), program.descs.size());
      for (size_t desc = 0; desc < part.descs.size(); ++desc)
        EXPECT_EQ(program.descs[desc], whole.descs[static_cast<size_t>(part.descs[desc])]);
      for (size_t s = 0; s < there.segments.size(); ++s) {
        EXPECT_EQ(own.segments[s].collectives, there.segments[s].collectives);
        for (size_t i = 0; i < there.segments[s].instrs.size(); ++i) {
          EXPECT_EQ(to_string(program, own, own.segments[s].instrs[i]),
                    to_string(whole, there, there.segments[s].instrs[i]));
        }
      }
      ASSERT_EQ(program.devices.size(), whole.devices.size());
      for (size_t other = 0; other < whole.devices.size(); ++other) {
        if (other == d) continue;
        EXPECT_TRUE(program.devices[other].segments.empty() && program.devices[other].buffers.empty());
        EXPECT_EQ(program.devices[other].name, whole.devices[other].name);
        EXPECT_EQ(program.devices[other].kind, whole.devices[other].kind);
      }
    }
  }
}

// Of others a part has those that it talks with.
// Clocks are kept by the computations' numbers, which a text gives by their first use.
TEST(Part, ExchangedDevicesAreAsTheTextHasThem) {
  int renumbered = 0;
  for (const Program& whole : programs_by_hand()) {
    SCOPED_TRACE(whole.name);
    for (size_t d = 1; d < whole.devices.size(); ++d) {
      Program exchanged = whole;
      exchange_devices(exchanged, 0, d);
      EXPECT_EQ(exchanged.devices[0].name, whole.devices[d].name);
      EXPECT_EQ(value_of(parse_program(to_string(exchanged), "exchanged")), exchanged);
      if (exchanged.descs != whole.descs) ++renumbered;
    }
  }
  EXPECT_GT(renumbered, 0);
}

TEST(Part, HasNoDevicesThatItsOwnDoesNotName) {
  std::string text = "nlsplit program 1\nprogram chain batch 1 micro_batches 1\n";
  const auto name = [](int device) { return std::string(1, static_cast<char>('A' + device)); };
  for (int d = 0; d < 5; ++d) {
    text += "device " + name(d) + " cpu host h isa v2 memory 4096\n";
    text += d == 0 ? "  buffer x f32[8] input\n" : "  buffer x f32[8] comm\n";
    text += d == 4 ? "  buffer y f32[8] output\n" : "  buffer y f32[8] comm\n";
    text += "  segment F stage " + std::to_string(d) + " phase F\n";
    if (d > 0) text += "    recv x from " + name(d - 1) + " tag 0\n";
    text += "    y = Tanh(x) kernel unary_v2\n";
    if (d < 4) text += "    send y to " + name(d + 1) + " tag 0\n";
    text += "  order\n    F.0\n";
  }
  const Program whole = value_of(parse_program(text, "chain"));
  const Program part = part_of(whole, 3).program;
  ASSERT_EQ(part.devices.size(), 3u);
  EXPECT_EQ(part.devices[0].name, "C");
  EXPECT_EQ(part.devices[1].buffers, whole.devices[3].buffers);
  EXPECT_EQ(own_of(whole, 3).devices[3], whole.devices[3]);
  EXPECT_EQ(own_of(whole, 0).devices[0], whole.devices[0]);
  const Program outline = outline_of(whole);
  EXPECT_EQ(in_outline(outline, part, 0).error().message, "this is not a part for device A");
  EXPECT_EQ(in_outline(outline, part, 5).error().message, "there is no device number 5");
  EXPECT_EQ(in_outline(part, whole, 0).error().message, "there is no device A");
}

// What a device waits for on the device itself is in its part as it is in the whole.
TEST(Part, HasTheDependenciesOfTheWhole) {
  for (const Program& whole : programs_by_hand()) {
    SCOPED_TRACE(whole.name);
    const Dependencies all = value_of(dependencies(whole));
    for (size_t d = 0; d < whole.devices.size(); ++d) {
      const Dependencies own = value_of(verified_part(own_of(whole, d), d));
      const uint32_t first = all.device_begin[d], count = all.device_begin[d + 1] - first;
      ASSERT_EQ(own.device_begin[d], 0u);
      ASSERT_EQ(own.device_begin[d + 1], count);
      ASSERT_EQ(own.instances.size(), count);
      for (uint32_t i = 0; i < count; ++i) {
        EXPECT_EQ(own.instances[i], all.instances[first + i]);
        EXPECT_EQ(own.match[i], no_instance);
        ASSERT_EQ(own.into(i).size(), all.into(first + i).size());
        for (size_t e = 0; e < own.into(i).size(); ++e) {
          EXPECT_EQ(own.into(i)[e].kind, all.into(first + i)[e].kind);
          EXPECT_EQ(own.into(i)[e].from + first, all.into(first + i)[e].from);
        }
      }
    }
  }
}

// The same across the executions of a session.
TEST(Part, OfASessionHasItsDependencies) {
  const Session whole = counter_session();
  const std::vector<Choice> choices = {{counter_init, 1}, {counter_push, 5}, {counter_read, 1}};
  const Sequence all = value_of(in_sequence(whole, choices, Choosing::known));
  for (size_t d = 0; d < 3; ++d) {
    const Session part = part_of(whole, d);
    EXPECT_EQ(value_of(parse_session(to_string(part), "part")), part);
    const Session among_all = value_of(in_outline(outline_of(whole.programs[0]), part, d));
    const Sequence own = value_of(in_sequence_of(among_all, choices, d));
    EXPECT_EQ(own.program.devices[d].order, all.program.devices[d].order);
    const uint32_t first = all.dependencies.device_begin[d], count = all.dependencies.device_begin[d + 1] - first;
    ASSERT_EQ(own.dependencies.instances.size(), count);
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_EQ(own.dependencies.into(i).size(), all.dependencies.into(first + i).size());
      for (size_t e = 0; e < own.dependencies.into(i).size(); ++e)
        EXPECT_EQ(own.dependencies.into(i)[e].from + first, all.dependencies.into(first + i)[e].from);
    }
  }
}

}  // namespace
}  // namespace nlsplit
