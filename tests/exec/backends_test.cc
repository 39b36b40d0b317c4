#include "exec/backends/backends.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "exec/cuda/library.h"
#include "exec/on_fake_gpu.h"
#include "exec/programs.h"
#include "exec/run_session.h"
#include "testing/counter_session.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

TEST(Backends, EveryKindOfDeviceHasOneRow) {
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::host}) {
    SCOPED_TRACE(name_of(kind));
    EXPECT_EQ(std::ranges::count(all_backends(), kind, &BackendRow::kind), 1);
  }
}

// A device that computes nothing still has its arena, on every backend.
TEST_F(FakeGpu, EveryBackendHasItsBuffersInHostMemory) {
  const GpuOptions gpu = options().gpu;
  for (const BackendRow& row : all_backends()) {
    SCOPED_TRACE(name_of(row.kind));
    Program program;
    DeviceProgram& device = program.devices.emplace_back();
    device.name = "A";
    device.kind = row.kind;
    device.arena = bytes(192);
    Buffer& state = device.buffers.emplace_back();
    state.name = "s";
    state.type = {DType::f32, {2}};
    state.kind = BufferKind::state;
    state.bytes = bytes(8);
    state.offset = 128;
    state.has_content = true;
    const auto backend = open_backend({.program = program, .gpu = gpu});
    ASSERT_TRUE(backend.ok()) << error_of(backend);
    EXPECT_EQ((*backend)->host().size(), 192u);
    const std::vector<float> values = {1, 2};
    const std::string raw(reinterpret_cast<const char*>(values.data()), 8);
    EXPECT_THAT(error_of((*backend)->place(state, raw.substr(1))), HasSubstr("device A buffer s"));
    ASSERT_TRUE((*backend)->place(state, raw).ok());
    ASSERT_TRUE((*backend)->upload(every_buffer).ok());
    // What is not taken back is lost where the device has memory of its own; what is taken back is as it was.
    const std::span<std::byte> place = (*backend)->host().subspan(128, 8);
    if (row.kind == DeviceKind::cuda) std::ranges::fill(place, std::byte{0});
    ASSERT_TRUE((*backend)->download(of_kinds({BufferKind::weight})).ok());
    EXPECT_EQ(std::memcmp(place.data(), raw.data(), 8) == 0, row.kind != DeviceKind::cuda);
    ASSERT_TRUE((*backend)->download([&](const Buffer& buffer) { return &buffer == &device.buffers[0]; }).ok());
    EXPECT_EQ(std::memcmp(place.data(), raw.data(), 8), 0);
  }
}

// ---- sessions on GPUs

// The counter on three GPUs, or on one with the others on the CPU.
Session counter_on_gpus(const std::vector<std::string>& gpus) {
  std::string text = counter_text();
  for (const std::string& name : gpus) {
    const std::string device = "device " + name + " cpu", level = "isa v2";
    for (size_t at = text.find(device); at != std::string::npos; at = text.find(device, at + 1)) {
      text.replace(at, device.size(), "device " + name + " cuda");
      text.replace(text.find(level, at), level.size(), "isa cuda");
      const size_t end = std::min(text.find("\ndevice ", at), text.size());
      for (size_t kernel = text.find("ary_v2", at); kernel < end; kernel = text.find("ary_v2", kernel))
        text.replace(kernel, 6, "ary_cuda");
    }
  }
  return value_of(parse_session(text, "counter.session"));
}

std::vector<float> state_of(const SessionResult& result, const std::string& name) {
  for (const OutputTensor& output : result.outputs) {
    if (output.tensor.name == name) return output.tensor.values;
  }
  ADD_FAILURE() << "no state " << name;
  return {};
}

void expect_counter_after(const SessionResult& result, int pushes) {
  const CounterModel model = CounterModel::after(pushes);
  EXPECT_THAT(state_of(result, "count"), ElementsAreArray({model.count}));
  EXPECT_THAT(state_of(result, "ring"), ElementsAreArray(model.ring));
  EXPECT_THAT(state_of(result, "total"), ElementsAreArray(model.total));
  EXPECT_THAT(state_of(result, "read/values"), ElementsAreArray(model.ring));
}

TEST_F(FakeGpu, ASessionRunsOnGpus) {
  const std::vector<Choice> choices = {{counter_init, 1}, {counter_push, 100}, {counter_push, 20}, {counter_read, 1}};
  for (const std::vector<std::string>& gpus :
       std::vector<std::vector<std::string>>{{"A"}, {"B"}, {"C"}, {"A", "B", "C"}}) {
    SCOPED_TRACE(gpus.front() + std::to_string(gpus.size()));
    const int before = fake_calls("launch");
    const auto result = run_session_threads(counter_on_gpus(gpus), {}, choose_from(choices), options());
    ASSERT_TRUE(result.ok()) << error_of(result);
    expect_counter_after(*result, 120);
    EXPECT_GT(fake_calls("launch"), before);
  }
}

// What rank 0 looks at comes from its GPU, as the executions so far have left it.
TEST_F(FakeGpu, AChoiceMayLookAtAGpusStates) {
  std::vector<float> seen;
  const ChooseNext choose = [&](const SessionState& at) -> Choice {
    if (at.executions == 0) return {counter_init, 1};
    float count = -1;
    const auto bytes = at.bytes("count", 0);
    EXPECT_EQ(bytes.size(), sizeof count);
    if (bytes.size() == sizeof count) std::memcpy(&count, bytes.data(), sizeof count);
    EXPECT_TRUE(at.bytes("nobody", 0).empty());
    seen.push_back(count);
    if (seen.size() > 4) return {counter_read, seen.size() == 5 ? 1 : 0};
    return {counter_push, 3};
  };
  const auto result = run_session_threads(counter_on_gpus({"A", "B", "C"}), {}, choose, options());
  ASSERT_TRUE(result.ok()) << error_of(result);
  EXPECT_THAT(seen, ElementsAreArray({0.f, 3.f, 6.f, 9.f, 12.f, 12.f}));
  expect_counter_after(*result, 12);
}

TEST_F(FakeGpu, AFailureEndsASession) {
  const std::vector<Choice> choices = {{counter_init, 1}, {counter_push, 50}, {counter_read, 1}};
  const Session session = counter_on_gpus({"A", "B", "C"});
  RunOptions one_by_one = options();
  one_by_one.gpu.graphs = GpuGraphs::off;
  ASSERT_TRUE(run_session_threads(session, {}, choose_from(choices), one_by_one).ok());
  for (const char* function : {"open", "allocate", "copy_in", "copy_out", "prepare", "launch", "wait", "elapsed"}) {
    const int calls = fake_calls(function);
    for (const int nth : {1, calls}) {
      SCOPED_TRACE(std::string(function) + " " + std::to_string(nth));
      fake_fail(function, nth);
      const auto result = run_session_threads(session, {}, choose_from(choices), one_by_one);
      EXPECT_THAT(error_of(result), AllOf(HasSubstr("(GPU): "), HasSubstr("the fake was told to fail")));
    }
    fake_fail("", 0);
    ASSERT_TRUE(run_session_threads(session, {}, choose_from(choices), one_by_one).ok());
  }
}

}  // namespace
}  // namespace nlsplit
