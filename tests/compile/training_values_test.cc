// A plan may change speed, never results: the updates of a training step are the same whatever the stages, the
// schedule, the copies and recomputation. Programs are run here on symbols, in their arenas: each element is a number,
// a computation's result is a hash of all it read, sums are sums (so their order does not matter).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "base/hash.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "program/text.h"
#include "program/verify.h"
#include "testing/compile_program.h"
#include "testing/training.h"

namespace nlsplit {
namespace {

using testing::all_forward_first;
using testing::copies;
using testing::one_f_one_b;

constexpr int64_t element = 4;  // f32

uint64_t mix(uint64_t a, uint64_t b) {  // splitmix64's finalizer
  uint64_t z = a * 0x9e3779b97f4a7c15U + b + 0x7f4a7c15U;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

class Symbols {
 public:
  explicit Symbols(const Program& program) : program_(program) {
    for (const DeviceProgram& device : program.devices) {
      std::vector<uint64_t>& arena = arenas_.emplace_back(static_cast<size_t>(device.arena.value() / element), 0xdead);
      for (const Buffer& buffer : device.buffers) {
        for (int instance = 0; instance < buffer.instances; ++instance) {
          uint64_t seed = 0;
          if (buffer.kind == BufferKind::input)
            seed = mix(hash_text(buffer.name), static_cast<uint64_t>(instance));
          else if (buffer.has_content)
            seed = buffer.content.value;
          else if (buffer.kind != BufferKind::state)
            continue;
          const int64_t begin = (buffer.offset + instance * buffer.stride()) / element;
          for (int64_t i = 0; i < buffer.bytes.value() / element; ++i)
            arena[static_cast<size_t>(begin + i)] = mix(seed, static_cast<uint64_t>(i));
        }
      }
    }
  }

  void run() {
    const auto deps = dependencies(program_);
    ASSERT_TRUE(deps.ok()) << deps.error().message;
    const auto order = dry_run(program_, *deps);
    ASSERT_TRUE(order.ok()) << order.error().message;
    for (const uint32_t i : *order) {
      const Instance& now = deps->instances[i];
      const Instr& instr = instr_of(program_, now);
      if (instr.opcode == Opcode::recv) {
        const Instance& from = deps->instances[deps->match[i]];
        write(now, instr.writes[0], sent_.at(deps->match[i]));
        (void)from;
      } else if (instr.opcode == Opcode::send) {
        sent_[i] = read(now, instr.reads[0]);
      } else {
        compute(now, instr);
      }
    }
  }

  // What each update of a weight leaves, by the weight's name and device.
  std::map<std::string, uint64_t> weights() const {
    std::map<std::string, uint64_t> all;
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      for (const Buffer& buffer : program_.devices[d].buffers) {
        if (buffer.kind != BufferKind::state || !buffer.has_content) continue;
        uint64_t sum = 0;
        for (int64_t i = 0; i < element_count(buffer.type.shape); ++i)
          sum = mix(sum, arenas_[d][static_cast<size_t>(buffer.offset / element + i)]);
        const auto [known, is_new] = all.emplace(buffer.name, sum);
        EXPECT_EQ(known->second, sum) << "copies of " << buffer.name << " differ";
      }
    }
    return all;
  }

 private:
  using Values = std::vector<uint64_t>;

  size_t address(const Instance& at, const Operand& operand) const {
    const DeviceProgram& device = program_.devices[static_cast<size_t>(at.device)];
    return static_cast<size_t>(address_of(device, device.order[static_cast<size_t>(at.slot)], operand) / element);
  }
  size_t count(const Instance& at, const Operand& operand) const {
    const DeviceProgram& device = program_.devices[static_cast<size_t>(at.device)];
    return static_cast<size_t>(bytes_of(device, operand).value() / element);
  }
  Values read(const Instance& at, const Operand& operand) const {
    const auto begin =
        arenas_[static_cast<size_t>(at.device)].begin() + static_cast<std::ptrdiff_t>(address(at, operand));
    return {begin, begin + static_cast<std::ptrdiff_t>(count(at, operand))};
  }
  void write(const Instance& at, const Operand& operand, const Values& values) {
    ASSERT_EQ(values.size(), count(at, operand));
    std::copy(values.begin(), values.end(),
              arenas_[static_cast<size_t>(at.device)].begin() + static_cast<std::ptrdiff_t>(address(at, operand)));
  }

  void compute(const Instance& at, const Instr& instr) {
    const bool computes = instr.opcode == Opcode::compute;
    if (!computes || program_.descs[static_cast<size_t>(instr.desc)].op == Op::Accumulate) {
      Values sum = read(at, instr.reads[0]);
      for (size_t r = 1; r < instr.reads.size(); ++r) {
        const Values other = read(at, instr.reads[r]);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
      }
      write(at, instr.writes[0], sum);
      return;
    }
    const ComputeDesc& desc = program_.descs[static_cast<size_t>(instr.desc)];
    uint64_t all = hash_text(signature(desc));
    for (const Operand& operand : instr.reads) {
      for (const uint64_t value : read(at, operand)) all = mix(all, value);
    }
    for (size_t w = 0; w < instr.writes.size(); ++w) {
      Values values(count(at, instr.writes[w]));
      for (size_t i = 0; i < values.size(); ++i) values[i] = mix(mix(all, w), i);
      write(at, instr.writes[w], values);
    }
  }

  const Program& program_;
  std::vector<Values> arenas_;  // [device]: by element
  std::map<uint32_t, Values> sent_;
};

Cluster devices(size_t count) {
  Cluster cluster;
  for (size_t i = 0; i < count; ++i) {
    cluster.hosts.push_back({fmt::format("h{}", i), false});
    cluster.devices.push_back({fmt::format("D{}", i), HostId(i), DeviceKind::cpu, bytes(int64_t{1} << 36), Isa::v3});
  }
  cluster.hosts.push_back({"away", false});  // where inputs can come from
  return cluster;
}

// Layers with residual connections of several lengths, a value that is used twice by one node, a broadcast operand, a
// view, and a weight that two layers share, or one for each.
Graph tangled(bool shares = true) {
  GraphBuilder b("tangled");
  const auto weight = [&](const std::string& name, Shape shape, uint64_t id) {
    return b.weight(name, {DType::f32, std::move(shape)}, {id});
  };
  const auto add = [&](Op op, const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {}) {
    auto value = b.add(op, name, std::move(inputs), std::move(attrs));
    EXPECT_TRUE(value.ok()) << value.error().message;
    return *value;
  };
  const ValueId x = b.input("x", {DType::f32, {2, 6}});
  const ValueId shared = weight("shared", {6, 6}, 11);
  const ValueId a = add(Op::MatMul, "fc1", {x, weight("w1", {6, 6}, 12)});
  const ValueId r = add(Op::Relu, "relu1", {a});
  const ValueId s = add(Op::Add, "skip1", {r, x});
  const ValueId t = add(Op::MatMul, "fc2", {s, shared});
  const ValueId u = add(Op::MatMul, "fc3", {t, shares ? shared : weight("w3", {6, 6}, 16)});
  const ValueId v = add(Op::Mul, "square", {u, u});
  const ValueId p = add(Op::Add, "shift", {v, weight("bias", {6}, 13)});
  const ValueId q = add(Op::Add, "skip2", {p, r});
  const ValueId f = add(Op::Reshape, "view", {q}, {{"shape", std::vector<int64_t>{0, 3, 2}}});
  const ValueId g = add(Op::MatMul, "fc4", {f, weight("w4", {2, 5}, 14)});
  const ValueId h = add(Op::Flatten, "flat", {g}, {{"axis", int64_t{1}}});
  const ValueId k = add(Op::MatMul, "fc5", {h, weight("w5", {15, 6}, 15)});
  const ValueId l = add(Op::Sub, "skip3", {k, r});
  const ValueId m = add(Op::Add, "skip4", {l, q});
  b.output(m);
  b.output(add(Op::Tanh, "second", {l}));
  return std::move(b).finish();
}

std::map<std::string, uint64_t> updated(const Graph& graph, const Plan& plan, const SlotTable& table, size_t source,
                                        const TrainingOptions& options) {
  const auto kernels = choose_kernels(graph, {Isa::v3}, {}, options);
  EXPECT_TRUE(kernels.ok()) << kernels.error().message;
  size_t most = 0;
  for (const Stage& stage : plan.stages) {
    for (const DeviceId device : stage.devices) most = std::max(most, device.index() + 1);
  }
  const Cluster cluster = devices(most);
  const HostId from(source == 0 ? 0 : most);
  std::map<std::string, uint64_t> weights;
  int buckets = 1;
  for (const CollectiveAlgorithm algorithm : algorithms_of(CollectiveKind::all_reduce)) {
    const auto program = compile_program(*kernels, plan, cluster, {from, from}, nullptr, &table, algorithm, buckets,
                                         buckets == 2 ? 1 : 0);
    buckets = buckets % 3 + 1;
    EXPECT_TRUE(program.ok()) << program.error().message;
    const Status sound = verify(*program);
    EXPECT_TRUE(sound.ok()) << sound.error().message << "\n" << to_string(*program);
    Symbols symbols(*program);
    symbols.run();
    if (weights.empty()) weights = symbols.weights();
    EXPECT_EQ(symbols.weights(), weights) << name_of(algorithm);
    if (std::ranges::none_of(plan.stages, [](const Stage& stage) { return stage.devices.size() > 1; })) break;
  }
  return weights;
}

Plan plan_of(const std::vector<size_t>& cuts, size_t nodes, int micro_batches) {
  Plan plan;
  plan.micro_batches = micro_batches;
  size_t begin = 0;
  for (size_t s = 0; s <= cuts.size(); ++s) {
    const size_t end = s == cuts.size() ? nodes : cuts[s];
    plan.stages.push_back({begin, end, {DeviceId(s)}});
    begin = end;
  }
  return plan;
}

void expect_same_updates(const Graph& graph, const std::vector<std::vector<size_t>>& all_cuts,
                         const std::vector<int>& counts_of_micro_batches) {
  const size_t nodes = graph.nodes.size();
  for (const int m : counts_of_micro_batches) {
    for (const Optimizer optimizer : all_optimizers()) {
      const TrainingOptions plain{optimizer}, again{optimizer, Recompute::full};
      const auto wanted = updated(graph, plan_of({}, nodes, m), one_f_one_b(1, m), 0, plain);
      EXPECT_GT(wanted.size(), 3u);
      EXPECT_EQ(updated(graph, plan_of({}, nodes, m), one_f_one_b(1, m), 1, again), wanted);
      for (const std::vector<size_t>& cuts : all_cuts) {
        const Plan plan = plan_of(cuts, nodes, m);
        const int p = static_cast<int>(plan.stages.size());
        for (const size_t source : {0, 1}) {
          const std::string what = fmt::format("{} stages, {} micro-batches, source {}", p, m, source);
          EXPECT_EQ(updated(graph, plan, one_f_one_b(p, m), source, plain), wanted) << what << ", 1F1B";
          EXPECT_EQ(updated(graph, plan, all_forward_first(p, m), source, plain), wanted) << what << ", GPipe";
          EXPECT_EQ(updated(graph, plan, one_f_one_b(p, m), source, again), wanted) << what << ", recomputed";
          EXPECT_EQ(updated(graph, plan, all_forward_first(p, m), source, again), wanted) << what << ", recomputed";
          Plan some = plan;
          for (size_t s = 0; s < some.stages.size(); s += 2) some.stages[s].recompute = true;
          EXPECT_EQ(updated(graph, some, one_f_one_b(p, m), source, plain), wanted) << what << ", some recomputed";
        }
      }
      if (optimizer != Optimizer::sgd) continue;
      for (const int replicas : {2, 3}) {
        if (replicas > m) continue;
        Plan plan = plan_of({}, nodes, m);
        for (int r = 1; r < replicas; ++r) plan.stages[0].devices.push_back(DeviceId(static_cast<size_t>(r)));
        EXPECT_EQ(updated(graph, plan, copies(replicas, m), 1, plain), wanted) << replicas << " copies";
      }
    }
  }
}

TEST(TrainingValues, UpdatesDoNotDependOnThePlan) {
  // "shared" is read by nodes 3 and 4, which may be in two stages.
  expect_same_updates(tangled(), {{1}, {4}, {6}, {2, 7}, {2, 4, 8}, {1, 3, 5, 9}, {2, 5, 8, 10, 12, 13}}, {1, 2, 5});
}

TEST(TrainingValues, OfAConvolutionalNetworkNeither) {
  Model model = zoo_model("simple_cnn").value();
  const Graph graph = optimize(model.graph, model.weights, Purpose::training).value();
  expect_same_updates(graph, {{2}, {1, 4}}, {3});
}

// Every training policy there is, with the placements it wants.
TEST(TrainingValues, NoPolicyChangesUpdates) {
  const Graph graph = tangled();
  const size_t nodes = graph.nodes.size();
  const auto on = [&](const std::vector<size_t>& cuts, int m, const std::vector<std::vector<size_t>>& devices_of) {
    Plan plan = plan_of(cuts, nodes, m);
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      plan.stages[s].devices.clear();
      for (const size_t d : devices_of[s]) plan.stages[s].devices.push_back(DeviceId(d));
    }
    return plan;
  };
  for (const bool recompute : {false, true}) {
    const TrainingOptions options{Optimizer::momentum, recompute ? Recompute::full : Recompute::none};
    const auto kernels = choose_kernels(graph, {Isa::v3}, {}, options).value();
    for (const int m : {4, 8}) {
      const auto wanted = updated(graph, plan_of({}, nodes, m), one_f_one_b(1, m), 0, options);
      for (const SchedulePolicy& policy : all_schedules()) {
        if (policy.mode == ScheduleMode::inference) continue;
        const bool searches = policy.name == "search";  // half a second a table
        if (searches && m > 4) continue;
        int lowered = 0;
        for (const Plan& shape :
             {on({2, 7}, m, {{0}, {1}, {2}}), on({3, 6, 9}, m, {{0}, {1}, {0}, {1}}),
              on({3, 6, 9}, m, {{0}, {1}, {1}, {0}}), on({6}, m, {{0, 1}, {1, 0}}), on({6}, m, {{0, 1}, {2}})}) {
          Plan plan = shape;
          plan.schedule = policy.name;
          const Cluster cluster = devices(3);
          const auto input = schedule_input(kernels, plan, cluster, nullptr);
          ASSERT_TRUE(input.ok()) << input.error().message;
          const auto table = make_schedule(policy.name, *input);
          if (!table.ok()) continue;  // not a placement it serves
          EXPECT_EQ(updated(graph, plan, *table, 0, options), wanted) << policy.name << ", " << m << " micro-batches";
          if (++lowered == 2 && searches) break;
        }
        EXPECT_GE(lowered, 1) << policy.name;
      }
    }
  }
}

// Replicas that keep shares of gradients, or also of weights: in one stage and in pipelines, in buckets as they save
// memory and in others.
class SharesOfReplicas : public ::testing::TestWithParam<std::tuple<int, bool>> {};
INSTANTIATE_TEST_SUITE_P(Zero, SharesOfReplicas, ::testing::Combine(::testing::Values(2, 3), ::testing::Bool()));

TEST_P(SharesOfReplicas, ChangeNoUpdates) {
  const auto [zero, recompute] = GetParam();
  const Graph graph = tangled(false);
  const TrainingOptions options{Optimizer::momentum, recompute ? Recompute::full : Recompute::none};
  const auto kernels = choose_kernels(graph, {Isa::v3}, {}, options).value();
  const std::vector<std::vector<std::vector<size_t>>> shapes = {{{0, 1}},
                                                                {{0, 1, 2}},
                                                                {{0, 1, 2, 3}},
                                                                {{0, 1}, {2, 3}},
                                                                {{0, 1}, {2}},
                                                                {{0, 1}, {1, 0}},
                                                                {{0, 1}, {2, 3}, {2, 3}, {0, 1}}};
  const Cluster cluster = devices(4);
  const auto algorithms = algorithms_of(CollectiveKind::all_reduce);
  std::map<std::string, int> compiled;  // by schedule
  std::set<std::string> refusals;
  size_t turn = 0;
  for (const int per_replica : {1, 2, 3}) {
    for (const auto& shape : shapes) {
      const int m = per_replica * static_cast<int>(shape[0].size());
      const auto wanted = updated(graph, plan_of({}, graph.nodes.size(), m), one_f_one_b(1, m), 0, options);
      std::vector<size_t> cuts;
      for (size_t s = 1; s < shape.size(); ++s) cuts.push_back(graph.nodes.size() * s / shape.size());
      Plan plan = plan_of(cuts, graph.nodes.size(), m);
      for (size_t s = 0; s < shape.size(); ++s) {
        plan.stages[s].devices.clear();
        for (const size_t d : shape[s]) plan.stages[s].devices.push_back(DeviceId(d));
      }
      for (const SchedulePolicy& policy : all_schedules()) {
        if (policy.mode == ScheduleMode::inference || policy.name == "search") continue;
        plan.schedule = policy.name;
        ++turn;
        const CollectiveAlgorithm algorithm = algorithms[turn % algorithms.size()];
        const std::optional<int> buckets = turn % 4 == 0 ? std::nullopt : std::optional(static_cast<int>(turn % 4));
        const auto program = compile_program(kernels, plan, cluster, {HostId(turn % 5), HostId(turn % 5)}, nullptr,
                                             nullptr, algorithm, buckets, zero);
        if (!program.ok()) {
          EXPECT_EQ(program.error().kind, ErrorKind::unsupported) << program.error().message;
          refusals.insert(program.error().message);
          continue;
        }
        const Status sound = verify(*program);
        ASSERT_TRUE(sound.ok()) << sound.error().message << "\n" << to_string(*program);
        Symbols symbols(*program);
        symbols.run();
        EXPECT_EQ(symbols.weights(), wanted)
            << policy.name << ", " << m << " micro-batches, " << shape.size() << " stages";
        ++compiled[std::string(policy.name)];
      }
    }
  }
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"})
    EXPECT_GE(compiled[schedule], 12) << schedule << ": " << fmt::format("{}", fmt::join(refusals, "; "));
}

TEST(TrainingValues, CopiesOfAStageInAPipeline) {
  // Stage 0 on D0 and D1, stage 1 on D2, 1F1B by hand: replicas take turns.
  const Graph graph = tangled();
  Plan plan = plan_of({6}, graph.nodes.size(), 4);
  plan.stages[0].devices = {DeviceId(0), DeviceId(1)};
  plan.stages[1].devices = {DeviceId(2)};
  SlotTable table;
  for (const int r : {0, 1}) {
    std::vector<ScheduledSlot>& order = table.devices.emplace_back();
    order = {{0, Phase::forward, r}, {0, Phase::forward, r + 2}};
    testing::backward(order, 0, r);
    testing::backward(order, 0, r + 2);
    order.push_back({0, Phase::step, 0});
  }
  std::vector<ScheduledSlot>& last = table.devices.emplace_back();
  for (int m = 0; m < 4; ++m) {
    last.push_back({1, Phase::forward, m});
    testing::backward(last, 1, m);
  }
  last.push_back({1, Phase::step, 0});
  const auto wanted = updated(graph, plan_of({}, graph.nodes.size(), 4), one_f_one_b(1, 4), 0, {});
  EXPECT_EQ(updated(graph, plan, table, 0, {}), wanted);
  EXPECT_EQ(updated(graph, plan, table, 1, {}), wanted);
}

TEST(TrainingValues, TwoStagesOnADeviceInAV) {
  // Stages 0 and 3 on D0, 1 and 2 on D1, as ZB-V and DualPipe place them; W late.
  const Graph graph = tangled();
  Plan plan = plan_of({3, 6, 9}, graph.nodes.size(), 3);
  for (size_t s = 0; s < 4; ++s) plan.stages[s].devices = {DeviceId(s == 0 || s == 3 ? 0 : 1)};
  SlotTable table;
  table.devices.resize(2);
  std::vector<ScheduledSlot>&a = table.devices[0], &b = table.devices[1];
  for (int m = 0; m < 3; ++m) {
    a.push_back({0, Phase::forward, m});
    b.push_back({1, Phase::forward, m});
    b.push_back({2, Phase::forward, m});
  }
  for (int m = 0; m < 3; ++m) {
    a.push_back({3, Phase::forward, m});
    a.push_back({3, Phase::input_gradient, m});
    b.push_back({2, Phase::input_gradient, m});
    b.push_back({1, Phase::input_gradient, m});
  }
  for (int m = 0; m < 3; ++m) a.push_back({0, Phase::input_gradient, m});
  for (const int s : {3, 0}) {
    for (int m = 0; m < 3; ++m) a.push_back({s, Phase::weight_gradient, m});
    a.push_back({s, Phase::step, 0});
  }
  for (const int s : {2, 1}) {
    for (int m = 3; m-- > 0;) b.push_back({s, Phase::weight_gradient, m});
    b.push_back({s, Phase::step, 0});
  }
  for (const bool recompute : {false, true}) {
    const TrainingOptions options{Optimizer::adam, recompute ? Recompute::full : Recompute::none};
    const auto wanted = updated(graph, plan_of({}, graph.nodes.size(), 3), one_f_one_b(1, 3), 0, options);
    EXPECT_EQ(updated(graph, plan, table, 0, options), wanted);
    EXPECT_EQ(updated(graph, plan, table, 1, options), wanted);
  }
}

}  // namespace
}  // namespace nlsplit
