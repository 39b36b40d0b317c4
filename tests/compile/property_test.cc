// Generated graphs, plans and clusters: what lower makes is always sound, computes the graph, and says the same twice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/index.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/zoo/zoo.h"
#include "program/footprint.h"
#include "program/text.h"
#include "program/verify.h"
#include "symbolic.h"
#include "testing/compile_program.h"
#include "testing/random_graph.h"

namespace nlsplit {
namespace {

const std::vector<Level> levels = {Isa::v3, Isa::v4, Isa::neon};  // blocks of 8, 16 and 4 channels

// Up to four hosts around a switch with one or two devices each; links within hosts too.
Cluster random_cluster(Random& random) {
  Cluster cluster;
  cluster.messages = std::array{DType::f32, DType::f16, DType::bf16, DType::q8_0}[random.below(4)];
  const size_t hosts = 1 + random.below(4);
  for (size_t h = 0; h < hosts; ++h) cluster.hosts.push_back({fmt::format("h{}", h), false});
  cluster.hosts.push_back({"sw", true});
  for (size_t h = 0; h < hosts; ++h) {
    cluster.links.push_back({"", HostId(h), HostId(hosts), bytes_per_second(1e8), seconds(1e-4), true});
    cluster.links.push_back({"", HostId(h), HostId(h), bytes_per_second(1e9), seconds(1e-6), true});
    const size_t devices = 1 + random.below(2);
    for (size_t d = 0; d < devices; ++d) {
      cluster.devices.push_back({fmt::format("D{}", cluster.devices.size()), HostId(h), DeviceKind::cpu,
                                 bytes(int64_t{1} << 40), levels[random.below(levels.size())]});
    }
  }
  return cluster;
}

// `apart`: no device in two stages.
Plan random_plan(Random& random, const Graph& graph, const Cluster& cluster, bool apart) {
  Plan plan;
  plan.micro_batches = 1 + static_cast<int>(random.below(9));
  plan.schedule = std::array{"fill_drain", "streaming", "list", "sequential"}[random.below(4)];
  std::vector<DeviceId> free;
  for (size_t d = 0; d < cluster.devices.size(); ++d) free.push_back(DeviceId(d));
  size_t begin = 0;
  while (begin < graph.nodes.size()) {
    Stage stage;
    stage.begin = begin;
    const size_t replicas = 1 + (random.below(3) == 0 ? random.below(3) : 0);
    std::vector<DeviceId> choice = free;
    for (size_t r = 0; r < replicas && !choice.empty(); ++r) {
      const auto pick = choice.begin() + static_cast<std::ptrdiff_t>(random.below(choice.size()));
      stage.devices.push_back(*pick);
      choice.erase(pick);
    }
    if (apart) free = choice;
    const size_t left = graph.nodes.size() - begin;
    stage.end = free.empty() || plan.stages.size() == 5 ? graph.nodes.size() : begin + 1 + random.below(left);
    begin = stage.end;
    plan.stages.push_back(stage);
  }
  return plan;
}

// Only what is sent or received is converted, once in each segment, to the type of the cluster's messages.
void check_conversions(const Program& program, DType messages) {
  for (const DeviceProgram& device : program.devices) {
    std::set<size_t> moved, halves;
    for (const Segment& segment : device.segments) {
      std::set<BufferId> made;  // in the segment, of halves
      for (const Instr& instr : segment.instrs) {
        const bool sends = instr.opcode == Opcode::send;
        if (sends || instr.opcode == Opcode::recv) {
          const Operand& operand = sends ? instr.reads[0] : instr.writes[0];
          moved.insert(operand.buffer.index());
          const DType type = device.buffer(operand.buffer).type.dtype;
          EXPECT_TRUE(type == messages || !(is_half(type) || is_scaled(type)) ||
                      (messages == DType::q8_0 && type == DType::f16))
              << name_of(type);
        }
        if (instr.opcode != Opcode::compute || program.descs[at(instr.desc)].op != Op::Cast) continue;
        const DType made_as = program.descs[at(instr.desc)].outputs[0].dtype;
        const bool narrows = is_half(made_as) || is_scaled(made_as);
        const BufferId half = narrows ? instr.writes[0].buffer : instr.reads[0].buffer;
        halves.insert(half.index());
        EXPECT_TRUE(!narrows || made.insert(half).second) << device.buffer(half).name << " is converted twice";
      }
    }
    for (const size_t half : halves) EXPECT_TRUE(moved.contains(half)) << device.buffers[half].name;
  }
}

void check_everything(const KernelGraph& kernels, const Plan& plan, const Cluster& cluster, const Endpoints& ends,
                      const CostTable* costs) {
  SCOPED_TRACE(fmt::format("{}, {} micro-batches, {}, source {} sink {}", to_string(plan, kernels.graph, cluster),
                           plan.micro_batches, plan.schedule, cluster.hosts[ends.source.index()].name,
                           cluster.hosts[ends.sink.index()].name));
  const auto program = compile_program(kernels, plan, cluster, ends, costs);
  ASSERT_TRUE(program.ok()) << program.error().message;
  const Status sound = verify(*program);
  ASSERT_TRUE(sound.ok()) << sound.error().message << "\n" << to_string(*program);
  EXPECT_EQ(check_symbols(*program, kernels), "") << to_string(*program);
  check_conversions(*program, cluster.messages);
  const std::string text = to_string(*program);
  const auto again = parse_program(text, "text");
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_TRUE(*again == *program) << text;
  EXPECT_EQ(to_string(*again), text);
  EXPECT_EQ(to_string(*compile_program(kernels, plan, cluster, ends, costs)), text);
  for (const DeviceProgram& device : program->devices) {
    int64_t all = 0;
    for (const Buffer& buffer : device.buffers) {
      if (buffer.kind == BufferKind::view) continue;
      all += buffer.instances * buffer.stride();
      const int most = plan.micro_batches;
      if (buffer.kind == BufferKind::comm || buffer.kind == BufferKind::stash)
        EXPECT_LE(buffer.instances, most) << buffer.name;
      else if (buffer.kind == BufferKind::input || buffer.kind == BufferKind::output)
        EXPECT_EQ(buffer.instances, most);
      else
        EXPECT_EQ(buffer.instances, 1);
    }
    EXPECT_LE(device.arena.value(), all);
  }
  const std::vector<DeviceFootprint> memory = footprints(*program);
  for (size_t d = 0; d < memory.size(); ++d) {
    EXPECT_EQ(memory[d].total(), program->devices[d].arena);
    Bytes largest;
    for (const StageFootprint& stage : memory[d].stages) {
      EXPECT_LE(stage.bound, stage.activations);
      largest = std::max(largest, stage.activations);
    }
    EXPECT_EQ(largest, memory[d].activations);
  }
}

// Two thirds of the plans of `seeds` networks; every third has devices with several stages.
void random_round(uint64_t seed, const Graph& graph) {
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const auto kernels = choose_kernels(graph, levels);
  ASSERT_TRUE(kernels.ok()) << kernels.error().message;
  Random random(seed * 77 + 5);
  for (int round = 0; round < 4; ++round) {
    const Cluster cluster = random_cluster(random);
    const Plan plan = random_plan(random, graph, cluster, round != 0);
    const size_t hosts = cluster.hosts.size() - 1;
    const Endpoints ends{HostId(random.below(hosts)), HostId(random.below(hosts))};
    std::vector<CostSourcePtr> sources;
    for (size_t d = 0; d < cluster.devices.size(); ++d) {
      sources.emplace_back(roofline(flops_per_second(random.uniform(1e9, 4e9)), bytes_per_second(1e10)));
    }
    const CostTable costs(sources, "scenario");
    check_everything(*kernels, plan, cluster, ends, random.below(2) == 0 ? nullptr : &costs);
  }
}

TEST(LowerProperties, RandomNetworksAndPlans) {
  for (uint64_t seed = 0; seed < 100 && !HasFailure(); ++seed) {
    Model model = random_graph(seed, 10);
    random_round(seed, optimize(model.graph, model.weights).value());
  }
}

// Element-wise nodes only, wired at random: values that skip many stages, inputs read late, outputs made early, views
// between stages, inputs that are outputs, the same output twice.
Graph random_wiring(uint64_t seed) {
  Random random(seed);
  GraphBuilder builder(fmt::format("wiring{}", seed));
  const TensorType type{DType::f32, {1, 2, 3}};
  std::vector<ValueId> square;
  for (size_t i = 0; i <= random.below(2); ++i) square.push_back(builder.input(fmt::format("x{}", i), type));
  const auto pick = [&] { return square[square.size() - 1 - random.below(std::min<size_t>(square.size(), 6))]; };
  const size_t nodes = 3 + random.below(12);
  std::vector<ValueId> flat;
  for (size_t n = 0; n < nodes; ++n) {
    const std::string name = fmt::format("n{}", n);
    if (random.below(5) == 0) {
      flat.push_back(builder.add(Op::Flatten, name, {pick()}, {{"axis", int64_t{1}}}).value());
    } else if (random.below(2) == 0) {
      const std::vector<ValueId>& from = !flat.empty() && random.below(3) == 0 ? flat : square;
      const ValueId value = builder.add(Op::Relu, name, {from[random.below(from.size())]}, {}).value();
      if (&from == &square)
        square.push_back(value);
      else
        flat.push_back(value);
    } else {
      square.push_back(builder.add(Op::Add, name, {pick(), pick()}, {}).value());
    }
  }
  builder.output(square.back());
  if (!flat.empty()) builder.output(flat.back());
  for (size_t extra = random.below(3); extra-- > 0;) builder.output(pick());
  return std::move(builder).finish();
}

TEST(LowerProperties, RandomWiring) {
  for (uint64_t seed = 0; seed < 400 && !HasFailure(); ++seed) random_round(seed, random_wiring(seed));
}

TEST(LowerProperties, EveryNetworkOfTheZooInFourPieces) {
  for (const ZooEntry& entry : zoo()) {
    Model model = zoo_model(entry.name).value();
    const Graph graph = optimize(model.graph, model.weights).value();
    const KernelGraph kernels = choose_kernels(graph, levels).value();
    Random random(1);
    const Cluster cluster = random_cluster(random);
    for (int i = 0; i < 5 && !HasFailure(); ++i) {
      check_everything(kernels, random_plan(random, graph, cluster, i != 0), cluster, {HostId(0), HostId(0)}, nullptr);
    }
  }
}

}  // namespace
}  // namespace nlsplit
