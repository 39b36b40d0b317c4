// A link that is cut while nlbench runs over it: both ranks end in time, with one message and exit code 3.
#include <gmock/gmock.h>

#include <chrono>
#include <functional>
#include <thread>

#include "program/saved.h"
#include "program/text.h"
#include "testing/paths.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// 2 MB take 16 s.
constexpr const char* slow_link = R"(model: zoo:simple_cnn
workload: {mode: inference, batch: 4, micro_batches: 2}
devices:
  A: &device {host: a, memory: 64MiB, isa: v2, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}}
  B: {<<: *device, host: b}
links:
  - {between: [a, b], bandwidth: 1Mbps, latency: 1ms}
source: a
sink: b
)";

// Device B has a buffer of 2 MB of one kind, and makes a result of it of another: what is an input goes from rank 0 to
// rank 1 before anything is computed, what is an output comes back in the end.
std::string program_text(const std::string& from, const std::string& to) {
  return "nlsplit program 1\n"
         "program slow batch 1 micro_batches 1\n"
         "device A cpu host a isa v2 memory 1048576\n"
         "  buffer x f32[1,4] input\n"
         "  buffer m f32[1,4] comm\n"
         "  segment F0 stage 0 phase F\n"
         "    m = copy(x)\n"
         "    send m to B tag 0\n"
         "  order\n"
         "    F0.0\n"
         "device B cpu host b isa v2 memory 16777216\n"
         "  buffer r f32[1,4] comm\n"
         "  buffer big f32[1,500000] " +
         from + "\n  buffer result f32[1,500000] " + to +
         "\n"
         "  buffer z f32[1,4] output\n"
         "  segment F1 stage 1 phase F\n"
         "    recv r from A tag 0\n"
         "    z = copy(r)\n"
         "    result = copy(big)\n"
         "  order\n"
         "    F1.0\n";
}

class CutLink : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "namespaces and signals have not been tried under a sanitizer";
#endif
    scenario_ = scratch_.write("s.yaml", slow_link);
    const Outcome outcome = run_command(fmt::format("{}/nlemulate {}", NLS_BIN_DIR, scenario_));
    if (outcome.code != 0) GTEST_SKIP() << outcome.err;
  }

  void save(const std::string& name, const std::string& from, const std::string& to) const {
    const auto program = parse_program(program_text(from, to), name);
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    const Status saved = save_program(scratch_ / name, {*program, *program, false, {}}, WeightStore());
    ASSERT_TRUE(saved.ok()) << saved.error().to_string();
  }

  // The phase lasts from some second or two on, for many seconds.
  void expect_end(const std::string& name, const std::string& more, const std::string& phase) const {
    const std::string json = scratch_ / (name + ".json");
    const auto begin = std::chrono::steady_clock::now();
    const Outcome outcome =
        run_command(fmt::format("{}/nlemulate {} --cut a,b@4s -- nlbench run {} --warmup 0 --heartbeat 3 --json {} {}",
                                NLS_BIN_DIR, scenario_, scratch_ / name, json, more));
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_EQ(outcome.code, 3) << name;
    EXPECT_LT(took, 4 + 3 + 30) << name << ": mpirun itself takes its time, but ends";
    const size_t first = outcome.err.find("error: ");
    ASSERT_NE(first, std::string::npos) << name << outcome.err;
    EXPECT_EQ(outcome.err.find("error: ", first + 1), std::string::npos) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr("lost rank 1 on host b (it was silent for "),
                      AnyOf(HasSubstr("rank 0 on host a waited in "), HasSubstr("rank 0 on host a worked on ")),
                      HasSubstr(phase), HasSubstr("met a cut link")))
        << name;
  }

  Scratch scratch_;
  std::string scenario_;
};

#ifdef NLS_HAS_MPI
TEST_F(CutLink, InAnyPhaseEndsBothRanks) {
  save("set_up", "input", "scratch");
  save("steady", "state", "scratch");
  save("tear_down", "state", "output");
  std::thread set_up([&] { expect_end("set_up", "", "the distribution of the inputs"); });
  std::thread steady([&] { expect_end("steady", "--duration 60s", ""); });
  std::thread tear_down([&] { expect_end("tear_down", "--repeats 1", "the collection of results"); });
  set_up.join();
  steady.join();
  tear_down.join();
  EXPECT_THAT(value_of(read_file(scratch_ / "steady.json")), HasSubstr("\"incomplete\": \"lost rank 1"));
  EXPECT_THAT(value_of(read_file(scratch_ / "tear_down.json")), HasSubstr("\"incomplete\": \"lost rank 1"));
  EXPECT_FALSE(read_file(scratch_ / "set_up.json").ok());
}
#endif

TEST_F(CutLink, SaysWhatCannotBeCut) {
  for (const auto& [cut, message] :
       {std::pair("a,c@1s", "there is no host or switch 'c'"), std::pair("a,a@1s", "no link goes from a to a"),
        std::pair("a-b@1s", "it reads HOST,HOST@TIME"), std::pair("a,b@1", "1")}) {
    const Outcome outcome = run_command(fmt::format("{}/nlemulate {} --cut {} -- true", NLS_BIN_DIR, scenario_, cut));
    EXPECT_EQ(outcome.code, 2) << cut;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

}  // namespace
}  // namespace nlsplit
