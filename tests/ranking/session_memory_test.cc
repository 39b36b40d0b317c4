// What it takes to verify a session whose devices all talk to each other grows with its instructions, not with those
// times all pairs of devices.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "program/session.h"
#include "ranking/session.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

constexpr int shards_that_talk = 24;

Session tensor_session() {
  std::string text = R"(model: zoo:llama?layers=2&hidden=192&heads=24&kv_heads=24&ffn=480&vocab=480
workload: {mode: generation, prompt: 32, tokens: 8, chunk: 16}
devices:
)";
  for (int d = 0; d < shards_that_talk; ++d)
    text += fmt::format(
        "  d{0}: {{host: h{0}, memory: 1GiB, costs: {{roofline: {{compute: 1TFLOPS, memory: 1GBps}}}}}}\n", d);
  text += "switches: [switch]\nlinks:\n";
  for (int d = 0; d < shards_that_talk; ++d)
    text += fmt::format("  - {{between: [h{}, switch], bandwidth: 1Gbps, latency: 10us}}\n", d);
  text += "source: h0\nsink: h0\n";
  const Scenario scenario = value_of(parse_scenario(text, "talk.yaml"));
  const Model model = value_of(load_model(scenario));
  const GenerationModels models = value_of(prepare_generation(scenario, model.graph, 1, nullptr));
  Stage all{0, models.decode.kernels.graph.nodes.size(), {}, Split{SplitAxis::tensor, false, {}}};
  for (size_t d = 0; d < shards_that_talk; ++d) {
    all.devices.emplace_back(d);
    all.split->shares.push_back(1);
  }
  Plan plan;
  plan.stages = {all};
  return value_of(generation_session(scenario, models, plan, false)).session;
}

// Of a process of its own that does nothing else; -1: the session is not sound.
long bytes_to_verify(const Session& session) {
  std::array<int, 2> pipe{};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t process = ::fork();
  if (process == 0) {
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    const bool sound = verify_session(session).ok();
    ::getrusage(RUSAGE_SELF, &after);
    const long bytes = sound ? (after.ru_maxrss - before.ru_maxrss) * 1024 : -1;
    ::_exit(::write(pipe[1], &bytes, sizeof bytes) == sizeof bytes ? 0 : 1);
  }
  long bytes = -1;
  EXPECT_EQ(::read(pipe[0], &bytes, sizeof bytes), static_cast<ssize_t>(sizeof bytes));
  ::waitpid(process, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  return bytes;
}

TEST(SessionMemory, VerifyingGrowsWithTheInstructions) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is in the way";
#endif
  const Session session = tensor_session();
  size_t instructions = 0;
  for (const Program& program : session.programs) {
    for (const DeviceProgram& device : program.devices) {
      for (const Slot& slot : device.order)
        instructions += device.segments[static_cast<size_t>(slot.segment)].instrs.size();
    }
  }
  const long bytes = bytes_to_verify(session);
  ASSERT_GT(bytes, 0);
  const double each = static_cast<double>(bytes) / static_cast<double>(instructions);
  RecordProperty("bytes_per_instruction", static_cast<int>(each));
  EXPECT_LT(each, 4000);
}

}  // namespace
}  // namespace nlsplit
