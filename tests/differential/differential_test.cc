// One Program, five readers: the reference evaluator, threads, MPI, and both tiers of the simulator. They must agree on
// what happens, in which order, with which bytes; and those that compute, on the result. Only times may differ.
//
// A failure prints its seed; to run that one alone: test_differential --gtest_random_seed=SEED
// --gtest_filter='*OneCase'
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/npy.h"
#include "differential/digest.h"
#include "differential/generate.h"
#include "exec/run_threads.h"
#include "graph/builder.h"
#include "graph/reference/evaluate.h"
#include "graph/zoo/zoo.h"
#include "kernels/module/kernel_library.h"
#include "program/saved.h"
#include "program/text.h"
#include "program/verify.h"
#include "sim/fast.h"
#include "sim/simgrid/simgrid_tier.h"
#include "testing/causality.h"
#include "testing/compile_program.h"
#include "testing/paths.h"
#include "testing/tensors.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t usual_cases = 40;  // ten times slower
#else
constexpr uint64_t usual_cases = 300;
#endif
constexpr uint64_t cases_per_mpirun = 500;

// NLSPLIT_DIFFERENTIAL_CASES=10000 test_differential --gtest_filter='*GeneratedSplits': some minutes by hand.
uint64_t case_count() {
  const char* text = std::getenv("NLSPLIT_DIFFERENTIAL_CASES");
  return text == nullptr ? usual_cases : std::strtoull(text, nullptr, 10);
}

std::vector<Tensor> batch_of(const Program& program) {
  std::vector<Tensor> tensors;
  const auto inputs = seeded_inputs(program, input_seed);
  for (const NamedTensor& input : *inputs) tensors.push_back({input.type, input.values});
  return tensors;
}

// A plan without splits, the weights it needs, and what is promised of its results.
struct Lowerable {
  KernelGraph kernels;
  Plan plan;
  WeightStore weights;
  Promise promise;
};

Result<Lowerable> lowerable(const Case& c, const KernelGraph& whole) {
  Lowerable made{{}, c.plan, c.model.weights, {}};
  if (!has_splits(c.plan)) {
    made.kernels = whole;
    return made;
  }
  // Links for which sums of some sizes pay whole, of others in slices.
  ASSIGN_OR_RETURN(Expanded expanded, expand_splits(whole.graph, c.plan, {bytes(512)}));
  add_slices(expanded.slices, made.weights);
  const Level level = whole.chosen.begin()->first;
  ASSIGN_OR_RETURN(made.kernels, choose_kernels(std::move(expanded.graph), {level}, {}, std::nullopt,
                                                wanted_kernels(whole, expanded.origin)));
  made.kernels.input_parts = expanded.input_parts;
  made.promise = promise_of(whole, made.kernels, expanded.origin, expanded.regions);
  made.plan = std::move(expanded.plan);
  return made;
}

void expect_promised(const Tensor& split, const Tensor& whole, const Promise& promise) {
  if (promise.tolerance == 0) return expect_same_bits(split, whole);
  float largest = 0;
  for (const float value : whole.values) largest = std::max(largest, std::abs(value));
  expect_close(split, whole, {.relative = 0, .absolute = promise.tolerance * static_cast<double>(largest)});
}

// All but MPI. Leaves a saved folder for MPI, with what it must match.
void check_case(const Case& c, const fs::path& folder, std::map<size_t, std::vector<std::string>>& by_ranks,
                int& refused) {
  auto at_micro_batch = with_batch(c.model.graph, c.batch / c.plan.micro_batches);
  ASSERT_TRUE(at_micro_batch.ok()) << at_micro_batch.error().to_string();
  const Level level = c.cluster.devices[0].level;
  auto kernels = choose_kernels(std::move(*at_micro_batch), {level});
  ASSERT_TRUE(kernels.ok()) << kernels.error().to_string();
  const CostTable costs(c.costs, "generated");
  SavedProgram saved;
  const auto made = lowerable(c, *kernels);
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  const auto& [parts, plan, weights, promise] = *made;
  SCOPED_TRACE(fmt::format("{}, {} in {} micro-batches", to_string(c.plan, c.model.graph, c.cluster), c.plan.schedule,
                           c.plan.micro_batches));
  auto lowered = compile_program(parts, plan, c.cluster, c.endpoints, &costs);
  ASSERT_TRUE(lowered.ok()) << lowered.error().to_string();
  saved.program = std::move(*lowered);
  saved.promise = promise;
  if (const Status sound = verify(saved.program); !sound.ok()) {
    // Allowed only where one device serves several stages: their messages may need another order than the slots'.
    std::map<size_t, int> served;
    for (const Stage& stage : plan.stages) {
      for (const DeviceId device : stage.devices) ++served[device.index()];
    }
    ASSERT_TRUE(std::any_of(served.begin(), served.end(), [](const auto& s) { return s.second > 1; }))
        << sound.error().to_string();
    ++refused;
    return;
  }
  auto parsed = parse_program(to_string(saved.program), "round trip");
  ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
  ASSERT_EQ(*parsed, saved.program);
  auto unsplit = compile_unsplit(*kernels, c.plan.micro_batches, c.cluster.devices[0], "a");
  ASSERT_TRUE(unsplit.ok());
  saved.unsplit = std::move(*unsplit);

  RunOptions once;
  once.warmup = 0;
  once.repeats = 1;
  once.poison = true;
  const auto inputs = seeded_inputs(saved.program, input_seed);
  const auto split_run = run_threads(saved.program, {contents_of(weights), *inputs}, once);
  ASSERT_TRUE(split_run.ok()) << split_run.error().to_string();
  const auto whole_run =
      run_threads(saved.unsplit, {contents_of(weights), *seeded_inputs(saved.unsplit, input_seed)}, once);
  ASSERT_TRUE(whole_run.ok()) << whole_run.error().to_string();
  testing::expect_causal(saved.program, split_run->trace);
  ASSERT_EQ(split_run->outputs.size(), 1u);
  const Tensor split{split_run->outputs[0].tensor.type, split_run->outputs[0].tensor.values};
  const Tensor whole{whole_run->outputs[0].tensor.type, whole_run->outputs[0].tensor.values};
  expect_promised(split, whole, promise);

  auto full = with_batch(c.model.graph, c.batch);
  ASSERT_TRUE(full.ok());
  const auto expected = evaluate(*full, c.model.weights, batch_of(saved.program));
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  expect_close(whole, (*expected)[0], {1e-3, 1e-5});

  const std::string order = digest(saved.program, split_run->trace);
  const auto deps = dependencies(saved.program);
  ASSERT_TRUE(deps.ok());
  const auto timed = build_timed_graph(saved.program, *deps, c.cluster, costs);
  ASSERT_TRUE(timed.ok()) << timed.error().to_string();
  Timing fast;
  simulate_fast(*timed, fast);
  EXPECT_EQ(digest(saved.program, to_trace(saved.program, *deps, *timed, fast)), order) << "fast tier";
  const auto shared = simulate_all(simgrid_tier(), c.cluster, {&*timed});
  ASSERT_TRUE(shared.ok()) << shared.error().to_string();
  EXPECT_EQ(digest(saved.program, to_trace(saved.program, *deps, *timed, (*shared)[0])), order) << "SimGrid";
  // Sharing a link cannot make anything faster than having it alone, but for the order at a windowed card. SimGrid
  // rounds: by up to 6e-9 of the makespan in 10,000 cases.
  if (timed->nic_window == 0) {
    EXPECT_GE((*shared)[0].makespan, fast.makespan * (1 - 1e-7));
  }

  ASSERT_TRUE(save_program(folder, saved, weights).ok());
  ASSERT_TRUE(write_file(folder / "expected.digest", order).ok());
  ASSERT_TRUE(write_npy(folder / "expected.npy", {split.type.shape, split.values}).ok());
  by_ranks[saved.program.devices.size()].push_back(folder);
}

// One mpirun for each number of ranks.
void check_mpi(const std::map<size_t, std::vector<std::string>>& by_ranks) {
  for (const auto& [ranks, folders] : by_ranks) {
    // Open MPI itself keeps what it has allocated.
    std::string command =
        fmt::format("ASAN_OPTIONS=detect_leaks=0 mpirun {} --oversubscribe -np {} {}/differential_mpi {}",
                    ::geteuid() == 0 ? "--allow-run-as-root" : "", ranks, NLS_BIN_DIR, input_seed);
    for (const std::string& folder : folders) command += " " + folder;
    ASSERT_EQ(std::system((command + " > " + folders[0] + "/log 2>&1").c_str()), 0)
        << value_of(read_file(folders[0] + "/log"));
    for (const std::string& folder : folders) {
      SCOPED_TRACE(folder);
      EXPECT_EQ(value_of(read_file(folder + "/mpi.digest")), value_of(read_file(folder + "/expected.digest")));
      EXPECT_EQ(value_of(read_file(folder + "/mpi.npy")),
                value_of(read_file(folder + "/expected.npy")));  // bit for bit
    }
  }
}

class Differential : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / fmt::format("nlsplit-differential-{}", ::getpid());
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  void check_mpi_so_far() {
    check_mpi(by_ranks_);
    for (const auto& [ranks, folders] : by_ranks_) {
      for (const std::string& folder : folders) fs::remove_all(folder);
    }
    by_ranks_.clear();
  }

  fs::path root_;
  std::map<size_t, std::vector<std::string>> by_ranks_;
  int refused_ = 0;
};

TEST_F(Differential, GeneratedCases) {
  const uint64_t cases = case_count();
  for (uint64_t seed = 1; seed <= cases && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Isa isa = seed % 3 == 0 ? supported_levels().front() : best_isa().value();
    const auto made = CaseMaker(seed, isa).make();
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    check_case(*made, root_ / std::to_string(seed), by_ranks_, refused_);
    if (seed % cases_per_mpirun == 0) check_mpi_so_far();
  }
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_LE(refused_, static_cast<int>(cases / 10));
  check_mpi_so_far();
}

// Splits inside layers, alone and beside others: of most cases.
TEST_F(Differential, GeneratedSplits) {
  const uint64_t cases = case_count();
  uint64_t split = 0, exact = 0;
  for (uint64_t seed = 1; seed <= cases && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Isa isa = seed % 3 == 0 ? supported_levels().front() : best_isa().value();
    const auto made = CaseMaker(seed, isa).make_with_splits();
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    if (has_splits((*made).plan)) {
      ++split;
      check_case(*made, root_ / std::to_string(seed), by_ranks_, refused_);
      exact += std::filesystem::exists(root_ / std::to_string(seed) / "promise.json") ? 0 : 1;
    }
    if (seed % cases_per_mpirun == 0) check_mpi_so_far();
  }
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_GT(split, cases / 2);
  EXPECT_GT(exact, split / 4);
  EXPECT_LE(refused_, static_cast<int>(split / 10));
  check_mpi_so_far();
}

// For a failure of GeneratedSplits: the same.
TEST_F(Differential, OneSplit) {
  const auto seed = static_cast<uint64_t>(std::max(1, GTEST_FLAG_GET(random_seed)));
  const auto made = CaseMaker(seed, seed % 3 == 0 ? supported_levels().front() : best_isa().value()).make_with_splits();
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  check_case(*made, root_ / std::to_string(seed), by_ranks_, refused_);
  ASSERT_FALSE(HasFatalFailure());
  check_mpi(by_ranks_);
}

// For a failure of GeneratedCases: only the seed given by --gtest_random_seed (1 without it).
TEST_F(Differential, OneCase) {
  const auto seed = static_cast<uint64_t>(std::max(1, GTEST_FLAG_GET(random_seed)));
  const auto made = CaseMaker(seed, seed % 3 == 0 ? supported_levels().front() : best_isa().value()).make();
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  check_case(*made, root_ / std::to_string(seed), by_ranks_, refused_);
  ASSERT_FALSE(HasFatalFailure());
  check_mpi(by_ranks_);
}

// In batches of 4.
Case on_three_devices(Model model) {
  Case c{std::move(model), {}, {}, {HostId(0), HostId(2)}, 4, {}};
  for (const char* host : {"a", "b", "c"}) c.cluster.hosts.push_back({host, false});
  for (const size_t h : {0, 1, 2}) {
    Device device;
    device.name = std::string(1, static_cast<char>('A' + h));
    device.host = HostId(h);
    device.memory = bytes(1 << 30);
    device.level = best_isa().value();
    c.cluster.devices.push_back(device);
    c.costs.push_back(roofline(flops_per_second(1e9), bytes_per_second(1e9)));
    c.cluster.links.push_back(
        {"l" + std::to_string(h), HostId(h), HostId((h + 1) % 3), bytes_per_second(1e8), seconds(1e-5), true});
  }
  return c;
}

// What audio models begin with: two convolutions over time, the second with a stride.
TEST_F(Differential, ConvolutionsOverOneAxis) {
  using Ints = std::vector<int64_t>;
  Model model;
  GraphBuilder g("front_end");
  ValueId x = g.input("mel", {DType::f32, {1, 40, 61}});
  for (const int64_t stride : {1, 2}) {
    const std::string name = "conv" + std::to_string(stride);
    const TensorType filters{DType::f32, {48, g.type(x).shape[1], 3}}, each{DType::f32, {48}};
    const ValueId w = g.weight(name + ".w", filters, model.weights.add_random(filters, 1, 0.1f));
    const ValueId bias = g.weight(name + ".bias", each, model.weights.add_random(each, 2, 0.1f));
    x = g.add(Op::Conv, name, {x, w, bias},
              {{"dilations", Ints{1}},
               {"group", int64_t{1}},
               {"kernel_shape", Ints{3}},
               {"pads", Ints{1, 1}},
               {"strides", Ints{stride}}})
            .value();
    x = g.add(Op::Gelu, "gelu" + std::to_string(stride), {x}, {{"approximate", std::string("none")}}).value();
  }
  g.output(g.add(Op::Transpose, "tokens", {x}, {{"perm", Ints{0, 2, 1}}}).value());
  model.graph = std::move(g).finish();
  auto graph = optimize(model.graph, model.weights);
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  model.graph = *graph;
  Case c = on_three_devices(std::move(model));
  const size_t nodes = graph->nodes.size();
  for (const SplitAxis axis : {SplitAxis::batch, SplitAxis::channels, SplitAxis::tensor, SplitAxis::sequence}) {
    SCOPED_TRACE(fmt::format("axis {}", static_cast<int>(axis)));
    c.plan = {};
    c.plan.micro_batches = 2;
    c.plan.stages.push_back({0, nodes - 1, {DeviceId(0), DeviceId(1)}, Split{axis, false, {1, 1}}});
    c.plan.stages.push_back({nodes - 1, nodes, {DeviceId(2)}});
    check_case(c, root_ / std::to_string(static_cast<int>(axis)), by_ranks_, refused_);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_EQ(refused_, 0);
  check_mpi(by_ranks_);
}

// The small world: every pair of cuts of simple_cnn over three devices, with 1, 2 and 4 micro-batches.
TEST_F(Differential, AllCutsOfSimpleCnn) {
  auto model = zoo_model("simple_cnn");
  ASSERT_TRUE(model.ok());
  auto graph = optimize(model->graph, model->weights);
  ASSERT_TRUE(graph.ok());
  Case c = on_three_devices({*graph, model->weights});
  const size_t nodes = graph->nodes.size();
  for (size_t first = 1; first < nodes; ++first) {
    for (size_t second = first; second < nodes; ++second) {
      for (const int micro_batches : {1, 2, 4}) {
        SCOPED_TRACE(fmt::format("cuts {} {}, {} micro-batches", first, second, micro_batches));
        c.plan = {};
        c.plan.micro_batches = micro_batches;
        c.plan.stages.push_back({0, first, {DeviceId(0)}});
        if (second > first) c.plan.stages.push_back({first, second, {DeviceId(1)}});
        c.plan.stages.push_back({second, nodes, {DeviceId(2)}});
        check_case(c, root_ / fmt::format("{}-{}-{}", first, second, micro_batches), by_ranks_, refused_);
        ASSERT_FALSE(HasFatalFailure());
      }
    }
  }
  EXPECT_EQ(refused_, 0);
  check_mpi(by_ranks_);
}

}  // namespace
}  // namespace nlsplit
