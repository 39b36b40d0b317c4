// Messages from and to a GPU's memory, as a CUDA-aware transport takes them: here the fake's, which the host can read.
#include <gmock/gmock.h>

#include <thread>

#include "exec/on_fake_gpu.h"
#include "exec/transport_threads.h"

namespace nlsplit {
namespace {

using namespace testing;

class DeviceAware : public Transport {
 public:
  explicit DeviceAware(Transport& real) : real_(real) {}
  bool takes_device_memory() const override { return true; }
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  std::vector<int> same_machine() const override { return real_.same_machine(); }
  Request isend(int peer, int tag, std::span<const std::byte> data) override { return real_.isend(peer, tag, data); }
  Request irecv(int peer, int tag, std::span<std::byte> room) override { return real_.irecv(peer, tag, room); }
  State test(Request request) override { return real_.test(request); }
  Error error() const override { return real_.error(); }
  void pause(int rounds) override { real_.pause(rounds); }
  void wake() override { real_.wake(); }
  Liveness& liveness() override { return real_.liveness(); }
  double idle_s() const override { return real_.idle_s(); }
  void abort(const Error& why) override { real_.abort(why); }

 private:
  Transport& real_;
};

Result<RunResult> run_device_aware(const Program& program, const Job& job, const RunOptions& options) {
  const size_t devices = program.devices.size();
  ThreadWorld world(static_cast<int>(devices), program.eager_limit);
  std::vector<std::optional<Result<RunResult>>> results(devices);
  std::vector<std::thread> threads;
  for (size_t d = 0; d < devices; ++d) {
    threads.emplace_back([&, d] {
      DeviceAware transport(world.endpoint(static_cast<int>(d)));
      results[d].emplace(run(d == 0 ? &program : nullptr, d == 0 ? job : Job(), transport, options));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::move(*results[0]);
}

int sends_of_gpus(const Program& program) {
  int sends = 0;
  for (const DeviceProgram& device : program.devices) {
    for (const Slot& slot : device.order) {
      for (const Instr& instr : device.segments[static_cast<size_t>(slot.segment)].instrs)
        sends += device.kind == DeviceKind::cuda && instr.opcode == Opcode::send ? 1 : 0;
    }
  }
  return sends;
}

class DirectMessages : public FakeGpu {};

TEST_F(DirectMessages, SkipTheMirror) {
  for (const char* name : {"instances", "ring_all_reduce", "interleaved", "replicas"}) {
    SCOPED_TRACE(name);
    const Program program = on_gpus(name);
    const Job job = seeded_job(program);
    RunOptions by_mirror = options();
    by_mirror.gpu.messages = GpuMessages::mirror;
    fake_fail("", 0);
    const auto want = run_device_aware(program, job, by_mirror);
    ASSERT_TRUE(want.ok()) << error_of(want);
    const int copied_out = fake_calls("copy_out");
    EXPECT_GT(fake_calls("query"), 0);
    fake_fail("", 0);
    const auto got = run_device_aware(program, job, options());
    ASSERT_TRUE(got.ok()) << error_of(got);
    EXPECT_EQ(fake_calls("query"), 0) << "no copy is under way";
    EXPECT_EQ(copied_out - fake_calls("copy_out"), sends_of_gpus(program) * (by_mirror.warmup + by_mirror.repeats));
    ASSERT_EQ(got->outputs.size(), want->outputs.size());
    for (size_t o = 0; o < want->outputs.size(); ++o)
      EXPECT_EQ(got->outputs[o].tensor.values, want->outputs[o].tensor.values);
  }
}

// One that says nothing of it gets what it can read.
TEST_F(DirectMessages, AreNotForEveryTransport) {
  const Program program = on_gpus("interleaved");
  const auto result = run_threads(program, seeded_job(program), options());
  ASSERT_TRUE(result.ok()) << error_of(result);
  EXPECT_GT(fake_calls("query"), 0);
}

}  // namespace
}  // namespace nlsplit
