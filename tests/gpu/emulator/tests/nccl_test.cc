// Messages between emulated GPUs over the stand-in for NCCL (exec/fake_nccl): the suite of all transports, Programs
// whose results must be those of the unsplit network, and what goes wrong. Not NCCL's own code, and no GPUs.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <tuple>
#include <utility>

#include "differential/generate.h"
#include "exec/fake_nccl/fake_nccl.h"
#include "exec/gpu_programs.h"
#include "exec/nccl/transport_nccl.h"
#include "gpu/emulator/control.h"
#include "gpu/gpu_check.h"
#include "graph/zoo/zoo.h"
#include "kernels/cpu.h"
#include "program/verify.h"
#include "testing/compile_program.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string libraries = std::string(NLS_BIN_DIR) + "/../lib/";
const std::string emulated_path = libraries + "libbackend_cuda_emulated.so", nccl_path = libraries + "libfake_nccl.so";

template <class Function>
Function function_of(const std::string& path, const char* name) {
  void* handle = dlopen(path.c_str(), RTLD_LOCAL | RTLD_NOW);
  EXPECT_NE(handle, nullptr) << dlerror();
  return reinterpret_cast<Function>(dlsym(handle, name));
}

const cuda::Backend& emulated() { return *function_of<cuda::BackendFunction>(emulated_path, cuda::backend_function)(); }

class EmulatedNccl : public ::testing::Test {
 protected:
  void SetUp() override {
    fail("", 0);
    function_of<EmulatedShow>(emulated_path, "emulated_gpu_show")(4);
    std::string name = "/tmp/nlsplit-nccl-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
    ::setenv(fake_nccl_folder, folder.c_str(), 1);
  }
  // All that was begun has ended or was aborted, and is given back.
  void TearDown() override {
    fail("", 0);
    function_of<EmulatedShow>(emulated_path, "emulated_gpu_show")(4);
    EXPECT_EQ(function_of<FakeNcclLeft>(nccl_path, "fake_nccl_left")(), 0);
    EXPECT_EQ(function_of<EmulatedLeft>(emulated_path, "emulated_gpu_left")(), 0u);
    std::filesystem::remove_all(folder);
  }

  static void fail(const char* function, int nth) {
    function_of<FakeNcclFail>(nccl_path, "fake_nccl_fail")(function, nth);
  }
  static int calls(const char* function) { return function_of<FakeNcclCalls>(nccl_path, "fake_nccl_calls")(function); }
  static void seed(uint64_t value) { function_of<EmulatedSeed>(emulated_path, "emulated_gpu_seed")(value); }

  static RunOptions options(GpuMessages messages = GpuMessages::nccl) {
    RunOptions made = test_options();
    made.gpu.backend = emulated_path;
    made.gpu.messages = messages;
    made.gpu.nccl = nccl_path;
    return made;
  }

  std::string folder;  // the stand-in's
};

// ---- the transport

TEST_F(EmulatedNccl, ConformsAsAllTransportsDo) {
  const NcclLibrary library = load_nccl(nccl_path).value();
  for (const int gpus : {2, 3, 4}) {
    for (const int64_t eager_bytes : {0, 1 << 16}) {
      SCOPED_TRACE(fmt::format("{} ranks, eager {}", gpus, eager_bytes));
      seed(static_cast<uint64_t>(gpus));
      fail("", 0);
      const Status same = check_nccl_messages(emulated(), library, {gpus, eager_bytes});
      EXPECT_TRUE(same.ok()) << same.error().message;
      EXPECT_GT(calls("ncclSend"), 20);
      EXPECT_EQ(calls("ncclSend"), calls("ncclRecv"));
    }
  }
}

TEST_F(EmulatedNccl, AnotherSizeThanExpectedFails) {
  const Status ended =
      over_nccl(emulated(), load_nccl(nccl_path).value(), {2, 0}, [](NcclTransport& transport, MessageMemory& memory) {
        const int rank = transport.rank();
        const std::span<std::byte> room = memory.take(rank == 0 ? 96 : 64);
        const auto request = rank == 0 ? transport.isend(1, 3, room) : transport.irecv(0, 3, room);
        return wait(transport, 1 - rank, request, {60, nullptr, "a message"});
      });
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().message, "rank 0 sends 96 B where rank 1 expects 64 B (tag 3)");
}

TEST_F(EmulatedNccl, SaysWhatIsUnderWay) {
  std::string said;
  const Status ended =
      over_nccl(emulated(), load_nccl(nccl_path).value(), {2, 0}, [&](NcclTransport& transport, MessageMemory& memory) {
        if (transport.rank() == 1) return barrier(transport, false, {});  // until rank 0 has had enough
        const auto request = transport.isend(1, 3, memory.take(64));
        const Status mine = wait(transport, 1, request, {0.2, nullptr, "a message"});
        said = transport.under_way();
        return mine;
      });
  EXPECT_FALSE(ended.ok());
  EXPECT_EQ(said, "NCCL: rank 0 has 1 end of messages to rank 1 with tag 3 without the other end");
}

// ---- Programs

TEST_F(EmulatedNccl, MovesDataAsTheMirrorDoes) {
  for (const char* name : {"instances", "ring_all_reduce", "interleaved", "replicas"}) {
    SCOPED_TRACE(name);
    const Program program = on_gpus(name);
    const Job job = seeded_job(program);
    const auto want = run_threads(program, job, options(GpuMessages::mirror));
    ASSERT_TRUE(want.ok()) << error_of(want);
    EXPECT_EQ(calls("ncclSend"), 0);
    for (const GpuGraphs graphs : {GpuGraphs::timed, GpuGraphs::off}) {
      RunOptions over_nccl = options();
      over_nccl.gpu.graphs = graphs;
      const auto got = run_threads(program, job, over_nccl);
      ASSERT_TRUE(got.ok()) << error_of(got);
      ASSERT_EQ(got->outputs.size(), want->outputs.size());
      for (size_t o = 0; o < got->outputs.size(); ++o)
        EXPECT_EQ(got->outputs[o].tensor.values, want->outputs[o].tensor.values) << want->outputs[o].tensor.name;
    }
    EXPECT_GT(calls("ncclSend"), 0);
    fail("", 0);
  }
}

// Layers over devices, replicas, several micro-batches under way.
TEST_F(EmulatedNccl, SplitEqualsUnsplitBitForBit) {
  int compared = 0;
  for (uint64_t number = 1; number <= 24 && compared < 8; ++number) {
    SCOPED_TRACE(number);
    seed(number);
    const Level level = Isa::cuda;
    const auto made = CaseMaker(number, level).make();
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    auto graph = with_batch(made->model.graph, made->batch / made->plan.micro_batches);
    ASSERT_TRUE(graph.ok()) << graph.error().to_string();
    const auto kernels = choose_kernels(std::move(*graph), {level});
    ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
    const CostTable costs(made->costs, "generated");
    const auto split = compile_program(*kernels, made->plan, made->cluster, made->endpoints, &costs);
    ASSERT_TRUE(split.ok()) << split.error().to_string();
    const auto gpus = std::ranges::count(split->devices, DeviceKind::cuda, &DeviceProgram::kind);
    if (!verify(*split).ok() || gpus < 2 || gpus > 4) continue;
    const Program whole = compile_unsplit(*kernels, made->plan.micro_batches, gpu_device(level), "here").value();
    const auto got = run_threads(*split, job_of(*split, made->model.weights), options());
    ASSERT_TRUE(got.ok()) << error_of(got);
    const auto want = run_threads(whole, job_of(whole, made->model.weights), options(GpuMessages::mirror));
    ASSERT_TRUE(want.ok()) << error_of(want);
    for (const OutputTensor& output : want->outputs)
      EXPECT_EQ(output_of(*got, output.tensor.name), output.tensor.values) << output.tensor.name;
    ++compared;
  }
  EXPECT_EQ(compared, 8);
  EXPECT_GT(calls("ncclSend"), 50);
}

int sends_between_gpus(const Program& program) {
  int sends = 0;
  const auto is_gpu = [](const DeviceProgram& device) { return device.kind == DeviceKind::cuda; };
  for (const DeviceProgram& device : program.devices) {
    for (const Slot& slot : device.order) {
      for (const Instr& instr : device.segments[static_cast<size_t>(slot.segment)].instrs) {
        if (instr.opcode == Opcode::send && is_gpu(device) && is_gpu(program.devices[static_cast<size_t>(instr.peer)]))
          ++sends;
      }
    }
  }
  return sends;
}

// Messages with a CPU go by the other transport.
TEST_F(EmulatedNccl, CpusTakePartWithoutIt) {
  Model model = zoo_model("simple_cnn").value();
  const Graph graph = optimize(model.graph, model.weights).value();
  const Level cpu = best_isa().value();
  const KernelGraph kernels = choose_kernels(graph, {cpu, Isa::cuda}).value();
  Cluster cluster;
  for (const char* host : {"a", "b", "c"}) cluster.hosts.push_back({host, false});
  for (const auto& [name, one, other] : {std::tuple("l", 0, 1), std::tuple("m", 1, 2), std::tuple("n", 0, 2)}) {
    cluster.links.push_back({name, HostId(static_cast<size_t>(one)), HostId(static_cast<size_t>(other)),
                             bytes_per_second(1e9), seconds(1e-5)});
  }
  cluster.devices = {gpu_device(cpu), gpu_device(), gpu_device()};
  const CostTable costs(std::vector<CostSourcePtr>(3, roofline(flops_per_second(1e9), bytes_per_second(1e9))), "none");
  for (size_t d = 0; d < 3; ++d) {
    cluster.devices[d].name = std::string(1, static_cast<char>('A' + d));
    cluster.devices[d].host = HostId(d);
  }
  Plan plan;
  plan.micro_batches = 1;
  const size_t third = graph.nodes.size() / 3;
  plan.stages = {
      {0, third, {DeviceId(0)}}, {third, 2 * third, {DeviceId(1)}}, {2 * third, graph.nodes.size(), {DeviceId(2)}}};
  plan.schedule = "streaming";
  const Program split = compile_program(kernels, plan, cluster, {HostId(0), HostId(0)}, &costs).value();
  const int between = sends_between_gpus(split);
  ASSERT_GT(between, 0);
  const Job job = job_of(split, model.weights);
  const auto want = run_threads(split, job, options(GpuMessages::mirror));
  ASSERT_TRUE(want.ok()) << error_of(want);
  EXPECT_EQ(calls("ncclSend"), 0);
  const RunOptions over_nccl = options();
  const auto got = run_threads(split, job, over_nccl);
  ASSERT_TRUE(got.ok()) << error_of(got);
  EXPECT_EQ(got->outputs[0].tensor.values, want->outputs[0].tensor.values);
  EXPECT_EQ(calls("ncclSend"), between * (over_nccl.warmup + over_nccl.repeats));
}

// ---- what goes wrong

TEST_F(EmulatedNccl, TwoRanksOnOneGpuAreRefused) {
  function_of<EmulatedShow>(emulated_path, "emulated_gpu_show")(2);
  const Program program = on_gpus("ring_all_reduce");
  const auto refused = run_threads(program, seeded_job(program), options());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(exit_code(refused.error()), 2);
  EXPECT_THAT(refused.error().message,
              HasSubstr("rank 0 (A) and rank 2 (C) both compute on GPU 0000:01:00.0 of one machine"));
}

TEST_F(EmulatedNccl, WhatNcclSaysEndsTheRun) {
  const Program program = on_gpus("interleaved");
  const std::pair<const char*, int> failures[] = {
      {"ncclGetUniqueId", 1}, {"ncclCommInitRankConfig", 1}, {"ncclGroupStart", 3}, {"ncclSend", 2},
      {"ncclRecv", 1},        {"ncclGroupEnd", 4},           {"async", 40},         {"ncclCommFinalize", 1}};
  for (const auto& [function, nth] : failures) {
    SCOPED_TRACE(function);
    fail(function, nth);
    const auto result = run_threads(program, seeded_job(program), options());
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().message, HasSubstr("the stand-in was told to fail"));
    if (function != std::string("async")) {
      EXPECT_THAT(result.error().message, HasSubstr(function));
    }
    fail("", 0);
    EXPECT_EQ(function_of<FakeNcclLeft>(nccl_path, "fake_nccl_left")(), 0);
  }
}

// ---- the stand-in: what breaks NCCL's rules is found

class FakeNccl : public EmulatedNccl {
 protected:
  struct Rank {
    cuda::Device* gpu = nullptr;
    nccl::Communicator* communicator = nullptr;
    void* stream = nullptr;
    void* memory = nullptr;
  };

  void SetUp() override {
    EmulatedNccl::SetUp();
    library = load_nccl(nccl_path).value();
    nccl::UniqueId id;
    ASSERT_EQ(library.api.get_unique_id(&id), nccl::Outcome::success);
    nccl::Config config;
    config.blocking = 0;
    for (int rank = 0; rank < 2; ++rank) {
      Rank& one = ranks[static_cast<size_t>(rank)];
      ASSERT_EQ(emulated().open(rank, &one.gpu), nullptr);
      ASSERT_EQ(emulated().allocate(one.gpu, 4096, &one.memory), nullptr);
      use(rank);
      ASSERT_EQ(library.api.comm_init_rank_config(&one.communicator, 2, id, rank, &config), nccl::Outcome::in_progress);
    }
    for (const Rank& one : ranks) ASSERT_EQ(state_of(one), nccl::Outcome::success);
  }
  void TearDown() override {
    for (Rank& one : ranks) {
      static_cast<void>(library.api.comm_abort(one.communicator));
      EXPECT_EQ(emulated().release(one.gpu, one.memory), nullptr);
      emulated().close(one.gpu);
    }
    EmulatedNccl::TearDown();
  }

  void use(int rank) {
    Rank& one = ranks[static_cast<size_t>(rank)];
    ASSERT_EQ(emulated().handle(one.gpu, cuda::Stream::messages, &one.stream), nullptr);
  }
  nccl::Outcome state_of(const Rank& one) const {
    nccl::Outcome state = nccl::Outcome::success;
    EXPECT_EQ(library.api.comm_get_async_error(one.communicator, &state), nccl::Outcome::success);
    return state;
  }
  nccl::Outcome send(int rank, size_t bytes, int peer) {
    use(rank);
    const Rank& one = ranks[static_cast<size_t>(rank)];
    return library.api.send(one.memory, bytes, nccl::DataType::int8, peer, one.communicator, one.stream);
  }
  nccl::Outcome receive(int rank, size_t bytes, int peer) {
    use(rank);
    const Rank& one = ranks[static_cast<size_t>(rank)];
    return library.api.recv(one.memory, bytes, nccl::DataType::int8, peer, one.communicator, one.stream);
  }
  void run_streams() const {
    for (const Rank& one : ranks) {
      cuda::Event* event = nullptr;
      EXPECT_EQ(emulated().create_event(one.gpu, &event), nullptr);
      EXPECT_EQ(emulated().record(one.gpu, cuda::Stream::messages, event), nullptr);
      for (int look = 0, reached = 0; look < 200 && reached == 0; ++look)
        EXPECT_EQ(emulated().query(one.gpu, event, &reached), nullptr);
      emulated().destroy_event(one.gpu, event);
    }
  }
  std::string said(int rank) const { return library.api.get_last_error(ranks[static_cast<size_t>(rank)].communicator); }

  NcclLibrary library;
  std::array<Rank, 2> ranks;
};

TEST_F(FakeNccl, FindsHalvesOfOtherSizes) {
  EXPECT_EQ(send(0, 64, 1), nccl::Outcome::in_progress);
  EXPECT_EQ(receive(1, 96, 0), nccl::Outcome::in_progress);
  run_streams();
  EXPECT_EQ(state_of(ranks[1]), nccl::Outcome::invalid_usage);
  EXPECT_EQ(said(1), "rank 0 sends 64 of type 0 where rank 1 receives 96 of type 0");
}

TEST_F(FakeNccl, FindsGroupsThatAreNotBalanced) {
  EXPECT_EQ(library.api.group_end(), nccl::Outcome::invalid_usage);
  EXPECT_EQ(said(0), "ncclGroupEnd without ncclGroupStart");
  EXPECT_EQ(library.api.group_start(), nccl::Outcome::success);
  EXPECT_EQ(library.api.comm_finalize(ranks[0].communicator), nccl::Outcome::invalid_usage);
  EXPECT_EQ(said(0), "ncclCommFinalize within a group");
  EXPECT_EQ(library.api.group_end(), nccl::Outcome::success);
}

TEST_F(FakeNccl, FindsASecondGroupOfAGpu) {
  EXPECT_EQ(send(0, 64, 1), nccl::Outcome::in_progress);
  EXPECT_EQ(send(0, 64, 1), nccl::Outcome::invalid_usage);
  EXPECT_EQ(said(0), "an operation begins while others of its GPU are under way");
  EXPECT_EQ(library.api.comm_finalize(ranks[0].communicator), nccl::Outcome::invalid_usage);
}

TEST_F(FakeNccl, FindsCallsAfterAnAbort) {
  nccl::Communicator* gone = ranks[1].communicator;
  EXPECT_EQ(library.api.comm_abort(gone), nccl::Outcome::success);
  EXPECT_EQ(send(1, 64, 0), nccl::Outcome::invalid_usage);
  EXPECT_EQ(said(1), "ncclSend of a communicator that is not there: it was destroyed or aborted");
  EXPECT_EQ(state_of(ranks[0]), nccl::Outcome::remote_error);
  EXPECT_EQ(said(0), "rank 1 has aborted");
}

TEST_F(FakeNccl, FindsStreamsOfAnotherGpuAndStrangers) {
  use(1);
  EXPECT_EQ(library.api.send(ranks[0].memory, 64, nccl::DataType::int8, 1, ranks[0].communicator, ranks[1].stream),
            nccl::Outcome::invalid_usage);
  use(0);
  EXPECT_EQ(library.api.send(ranks[0].memory, 64, nccl::DataType::int8, 1, ranks[0].communicator, ranks[1].stream),
            nccl::Outcome::invalid_usage);
  EXPECT_THAT(said(0), HasSubstr("the stream is not one of the communicator's GPU"));
  EXPECT_EQ(send(0, 64, 2), nccl::Outcome::invalid_argument);
  EXPECT_EQ(send(0, 64, 0), nccl::Outcome::invalid_argument);
}

TEST_F(FakeNccl, FindsTwoRanksOnOneGpu) {
  nccl::UniqueId id;
  ASSERT_EQ(library.api.get_unique_id(&id), nccl::Outcome::success);
  nccl::Config config;
  config.blocking = 0;
  use(0);
  std::array<nccl::Communicator*, 2> both{};
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(library.api.comm_init_rank_config(&both[static_cast<size_t>(rank)], 2, id, rank, &config),
              nccl::Outcome::in_progress);
  }
  nccl::Outcome state = nccl::Outcome::success;
  EXPECT_EQ(library.api.comm_get_async_error(both[0], &state), nccl::Outcome::success);
  EXPECT_EQ(state, nccl::Outcome::invalid_usage);
  EXPECT_STREQ(library.api.get_last_error(both[0]), "Duplicate GPU detected: rank 0 and rank 1 both on CUDA device 0");
  for (nccl::Communicator* one : both) EXPECT_EQ(library.api.comm_abort(one), nccl::Outcome::success);
}

}  // namespace
}  // namespace nlsplit
