// What a training step computes does not depend on the plan: Programs of random networks are evaluated by the reference
// in their arenas, under every schedule, and their updates held against the unsplit graph's gradients.
//
//   NLSPLIT_TRAINING_GRAPHS=1000 build/release/bin/test_compile --gtest_filter='TrainingResults.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>

#include "compile/lesson.h"
#include "graph/builder.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "kernels/without_kernel.h"
#include "program/verify.h"
#include "testing/compile_program.h"
#include "testing/random_graph.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

using namespace testing;

Plan random_plan(size_t nodes, const std::vector<std::vector<size_t>>& devices_of, int micro_batches,
                 std::mt19937& random) {
  std::vector<size_t> cuts(nodes - 1);
  for (size_t i = 0; i < cuts.size(); ++i) cuts[i] = i + 1;
  std::ranges::shuffle(cuts, random);
  cuts.resize(devices_of.size() - 1);
  std::ranges::sort(cuts);
  Plan plan;
  plan.micro_batches = micro_batches;
  size_t begin = 0;
  for (size_t s = 0; s < devices_of.size(); ++s) {
    const size_t end = s < cuts.size() ? cuts[s] : nodes;
    Stage& stage = plan.stages.emplace_back();
    stage.begin = begin, stage.end = end;
    for (const size_t d : devices_of[s]) stage.devices.push_back(DeviceId(d));
    begin = end;
  }
  return plan;
}

TEST(TrainingResults, UpdatesOfRandomNetworksAreThoseOfTheUnsplitOne) {
  const char* wanted_graphs = std::getenv("NLSPLIT_TRAINING_GRAPHS");
  const int graphs = wanted_graphs == nullptr ? 5 : std::atoi(wanted_graphs);
  std::vector<std::vector<std::vector<size_t>>> shapes = {
      {{0}},         {{0}, {1}}, {{0}, {1}, {2}}, {{0}, {1}, {0}, {1}}, {{0}, {1}, {1}, {0}}, {{0, 1}, {1, 0}},
      {{0, 1}, {2}}, {{0, 1, 2}}};
  const Cluster cluster = star(3, bytes(int64_t{1} << 36));
  const OneThread alone;  // small tensors
  int lowered = 0, trained = 0;
  for (int seed = 0; seed < graphs; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    Model model = random_graph(static_cast<uint64_t>(seed), 3 + seed % 10);
    Lesson lesson;
    lesson.weights = std::move(model.weights);
    lesson.network = optimize(model.graph, lesson.weights, Purpose::training).value();
    // Where a gradient is nothing but roundings, Adam's first step is its sign: a test of its own (gradient_test.cc).
    lesson.options.optimizer = seed % 2 == 0 ? Optimizer::sgd : Optimizer::momentum;
    if (seed % 4 > 1) lesson.options.clip = 0.25;
    lesson.options.settings.nesterov = seed % 3 == 0;
    lesson.options.settings.decay = seed % 3 == 0 ? 0.125 : 0;
    lesson.options.settings.decay_matrices_only = true;
    lesson.options.settings.rate = RateSchedule{1};
    lesson.options.loss = seed % 3 == 0 ? Loss::mean_squared_error : Loss::softmax_cross_entropy;
    constexpr int micro_batches = 4, samples = 1;
    lesson.options.micro_batches = micro_batches;
    const auto sound = step_graph(lesson.network, lesson.options);
    if (!sound.ok()) {  // none of its layers has weights
      EXPECT_NE(sound.error().message.find("nothing to train"), std::string::npos) << sound.error().message;
      continue;
    }
    ++trained;
    const Weights wanted = updated_unsplit(lesson, micro_batches * samples, random);
    const Graph network = with_batch(lesson.network, samples).value();
    for (const bool recompute : {false, true}) {
      lesson.options.recompute = recompute ? Recompute::full : Recompute::none;
      const KernelGraph kernels = choose_kernels(network, {Isa::v3}, {}, lesson.options).value();
      for (const SchedulePolicy& policy : all_schedules()) {
        if (policy.mode == ScheduleMode::inference) continue;
        if (policy.name == "search" && wanted_graphs == nullptr && seed > 1) continue;  // half a second a table
        std::ranges::shuffle(shapes, random);
        for (const auto& shape : shapes) {
          if (network.nodes.size() < shape.size()) continue;
          Plan plan = random_plan(network.nodes.size(), shape, micro_batches, random);
          plan.schedule = policy.name;
          const auto input = schedule_input(kernels, plan, cluster, nullptr);
          ASSERT_TRUE(input.ok()) << input.error().message;
          const auto table = make_schedule(policy.name, *input);
          if (!table.ok()) continue;  // not a placement it serves
          const HostId source(random() % cluster.hosts.size());
          const auto algorithms = algorithms_of(CollectiveKind::all_reduce);
          const CollectiveAlgorithm algorithm = algorithms[random() % algorithms.size()];
          const int buckets = 1 + static_cast<int>(random() % 4);
          const int zero = random() % 2 == 0 ? 1 + static_cast<int>(random() % 3) : 0;
          const auto program =
              compile_program(kernels, plan, cluster, {source, source}, nullptr, &*table, algorithm, buckets, zero);
          if (zero >= 2 && !program.ok()) {  // replicas with unlike numbers of micro-batches; a weight read twice
            EXPECT_EQ(program.error().kind, ErrorKind::unsupported) << program.error().message;
            continue;
          }
          ASSERT_TRUE(program.ok()) << program.error().message;
          const Status verified = verify(*program);
          ASSERT_TRUE(verified.ok()) << verified.error().message;
          Machine machine(*program, lesson, kernels.training->nodes.constants);
          machine.run();
          expect_close(machine.weights(), wanted, lesson,
                       fmt::format("seed {}, {}, {} stages, {}{}", seed, policy.name, shape.size(), name_of(algorithm),
                                   recompute ? ", recomputed" : ""));
          ++lowered;
          if (HasFailure()) return;
          break;  // of its placements one
        }
      }
    }
  }
  EXPECT_GE(trained, graphs / 2);
  EXPECT_GE(lowered, 10 * trained);
}

// Two replicas, four micro-batches: the same sums in any cut and under any schedule, bit for bit.
TEST(TrainingResults, ExactSumsDependOnNeitherCutsNorSchedules) {
  const std::vector<std::vector<std::vector<size_t>>> shapes = {
      {{0, 1}}, {{0, 1}, {2, 3}}, {{0, 1}, {2, 3}, {4, 5}}, {{2, 1}, {0, 4}}};
  constexpr int micro_batches = 4;
  const Cluster cluster = star(6, bytes(int64_t{1} << 36));
  const OneThread alone;  // small tensors
  int refused = 0, compared = 0;
  for (uint32_t seed = 0; compared < 40; ++seed) {
    std::mt19937 random(seed);
    Lesson lesson;
    Model model = random_graph(seed, 3 + static_cast<int>(seed % 10));
    lesson.weights = std::move(model.weights);
    lesson.network = optimize(model.graph, lesson.weights, Purpose::training).value();
    lesson.options.settings.rate = RateSchedule{1};
    lesson.options.micro_batches = micro_batches;
    if (seed % 2 == 1) lesson.options.clip = 0.25;
    if (!step_graph(lesson.network, lesson.options).ok()) continue;
    updated_unsplit(lesson, micro_batches, random);  // draws the samples
    const KernelGraph kernels =
        choose_kernels(with_batch(lesson.network, 1).value(), {Isa::v3}, {}, lesson.options).value();
    std::optional<Weights> wanted;
    for (const SchedulePolicy& policy : all_schedules()) {
      if (policy.mode == ScheduleMode::inference) continue;
      for (const auto& shape : shapes) {
        if (lesson.network.nodes.size() < shape.size()) continue;
        Plan plan = random_plan(lesson.network.nodes.size(), shape, micro_batches, random);
        plan.schedule = policy.name;
        CompileOptions options;
        options.exact = true;
        options.buckets = 1 + static_cast<int>(compared % 3);
        const auto compiled = compile(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, options);
        if (!compiled.ok()) {  // not a placement it serves, or not exact
          refused += compiled.error().message.find("not exact") != std::string::npos;
          continue;
        }
        Machine machine(compiled->program, lesson, kernels.training->nodes.constants);
        machine.run();
        if (!wanted) wanted = machine.weights();
        EXPECT_EQ(machine.weights(), *wanted) << fmt::format("seed {}, {}, {} stages", seed, policy.name, shape.size());
        ++compared;
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 0) << "some schedule adds in another order, or decides while it runs";
}

// Three products with tanh between them: smooth, so that a rounding has an effect of its own size.
Lesson smooth_lesson(int micro_batches, std::mt19937& random) {
  constexpr int64_t width = 24;
  Lesson lesson;
  GraphBuilder g("smooth");
  ValueId value = g.input("x", {DType::f32, {1, width}});
  for (int i = 0; i < 3; ++i) {
    const TensorType type{DType::f32, {width, width}};
    const ValueId w =
        g.weight(fmt::format("w{}", i), type, lesson.weights.add_bytes(type, random_bytes(type, 0, random)));
    value = g.add(Op::MatMul, fmt::format("product{}", i), {value, w}, {}).value();
    value = g.add(Op::Tanh, fmt::format("tanh{}", i), {value}, {}).value();
  }
  g.output(value);
  lesson.network = std::move(g).finish();
  lesson.options.micro_batches = micro_batches;
  lesson.options.settings.rate = RateSchedule{1};
  return lesson;
}

double relative_error(const std::vector<float>& found, const std::vector<float>& wanted) {
  double error = 0, size = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(static_cast<double>(found.at(i)) - static_cast<double>(wanted[i]), 2);
    size += std::pow(static_cast<double>(wanted[i]), 2);
  }
  return std::sqrt(error / size);
}

int64_t bytes_sent(const Program& program) {
  int64_t sum = 0;
  for (const DeviceProgram& device : program.devices) {
    for (const Slot& slot : device.order) {
      for (const Instr& instr : device.segments[static_cast<size_t>(slot.segment)].instrs) {
        if (instr.opcode == Opcode::send) sum += bytes_of(device, instr.reads[0]).value();
      }
    }
  }
  return sum;
}

// Activations, their gradients and those of replicas travel as bfloat16; all replicas end with the same bits, which
// Machine::weights looks at.
TEST(TrainingResults, Bfloat16MessagesKeepReplicasEqual) {
  constexpr int micro_batches = 4;
  const OneThread alone;
  const std::vector<std::vector<std::vector<size_t>>> shapes = {
      {{0}, {1}}, {{0}, {1}, {0}, {1}}, {{0, 1}, {1, 0}}, {{0, 1}, {2, 3}}, {{0, 1, 2, 3}}, {{0, 1, 2}}};
  std::mt19937 random(3);
  Lesson lesson = smooth_lesson(micro_batches, random);
  const Weights wanted = updated_unsplit(lesson, micro_batches, random);
  const KernelGraph kernels = choose_kernels(lesson.network, {Isa::v3}, {}, lesson.options).value();
  Cluster cluster = star(4, bytes(int64_t{1} << 36));
  cluster.devices[3].host = cluster.devices[2].host;
  int lowered = 0;
  for (const auto& shape : shapes) {
    for (const CollectiveAlgorithm algorithm : algorithms_of(CollectiveKind::all_reduce)) {
      for (int zero = 0; zero <= 3; ++zero) {
        Plan plan = random_plan(lesson.network.nodes.size(), shape, micro_batches, random);
        plan.schedule = "1f1b";
        const int buckets = 1 + lowered % 3;
        const auto with = [&](DType messages) {
          cluster.messages = messages;
          return compile_program(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, nullptr, algorithm, buckets,
                                 zero);
        };
        const auto plain = with(DType::f32), program = with(DType::bf16);
        ASSERT_EQ(plain.ok(), program.ok());
        if (!program.ok()) continue;  // replicas with different numbers of micro-batches
        const Status sound = verify(*program);
        ASSERT_TRUE(sound.ok()) << sound.error().message;
        const std::string what = fmt::format("{} stages, {}, zero {}", shape.size(), name_of(algorithm), zero);
        Machine machine(*program, lesson, kernels.training->nodes.constants);
        machine.run();
        const Weights found = machine.weights();
        for (const auto& [name, values] : wanted) {
          if (!name.starts_with("w")) continue;
          EXPECT_LE(relative_error(found.at(name), values), 1e-2) << what << ", " << name;
        }
        EXPECT_LT(bytes_sent(*program), bytes_sent(*plain)) << what;
        ++lowered;
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GE(lowered, 60);
}

// The same elements drop in any cut, with replicas, recomputed or not, as in the unsplit network.
TEST(TrainingResults, DropoutDependsOnNeitherCutsNorReplicas) {
  constexpr int micro_batches = 4;
  const OneThread alone;
  const Cluster cluster = star(3, bytes(int64_t{1} << 36));
  const std::vector<std::vector<std::vector<size_t>>> shapes = {
      {{0}}, {{0}, {1}}, {{0}, {1}, {0}, {1}}, {{0, 1}, {2}}, {{0, 1, 2}}};
  std::mt19937 random(11);
  Lesson lesson;
  Model model = random_graph(3, 8);
  lesson.weights = std::move(model.weights);
  lesson.network = optimize(model.graph, lesson.weights, Purpose::training).value();
  // Behind each node with floats of its own a dropout, which all its readers read.
  GraphBuilder g("dropping");
  std::vector<ValueId> now(lesson.network.values.size());
  for (size_t v = 0; v < lesson.network.values.size(); ++v) {
    const Value& value = lesson.network.values[v];
    if (value.kind == ValueKind::weight) now[v] = g.weight(value.name, value.type, value.content);
    if (value.kind == ValueKind::input) now[v] = g.input(value.name, value.type);
  }
  for (const Node& node : lesson.network.nodes) {
    std::vector<ValueId> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(input.valid() ? now[input.index()] : ValueId());
    const std::vector<ValueId> made = g.add_all(node.op, node.name, inputs, node.attrs).value();
    for (size_t i = 0; i < made.size(); ++i) now[node.outputs[i].index()] = made[i];
    const bool drops =
        is_real(g.type(made[0]).dtype) && !g.type(made[0]).shape.empty() && g.type(made[0]).shape[0] == 1;
    if (drops)
      now[node.outputs[0].index()] = g.add(Op::Dropout, node.name + " dropped", {made[0]}, {{"ratio", 0.25}}).value();
  }
  for (const ValueId output : lesson.network.outputs) g.output(now[output.index()]);
  lesson.network = std::move(g).finish();
  lesson.options.settings.rate = RateSchedule{1};
  lesson.options.seed = 17;
  lesson.options.micro_batches = micro_batches;
  const Weights wanted = updated_unsplit(lesson, micro_batches, random);
  Lesson other = lesson;
  other.options.seed = 18;
  std::mt19937 again(11);
  EXPECT_NE(updated_unsplit(other, micro_batches, again), wanted) << "another seed drops others";
  const Graph network = with_batch(lesson.network, 1).value();
  int compared = 0;
  for (const bool recompute : {false, true}) {
    lesson.options.recompute = recompute ? Recompute::full : Recompute::none;
    const KernelGraph kernels = choose_kernels(network, {Isa::v3}, {}, lesson.options).value();
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "interleaved"}) {
      for (const auto& shape : shapes) {
        Plan plan = random_plan(network.nodes.size(), shape, micro_batches, random);
        plan.schedule = schedule;
        const auto compiled = compile(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, {});
        if (!compiled.ok()) continue;  // not a placement it serves, or a shared weight
        Machine machine(compiled->program, lesson, kernels.training->nodes.constants);
        machine.run();
        expect_close(machine.weights(), wanted, lesson, fmt::format("{}, {} stages", schedule, shape.size()));
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 10);
}

// Two layers that normalize by their samples, and what takes the place of an image's classes.
Lesson normalized(std::mt19937& random) {
  Lesson lesson;
  GraphBuilder g("normalized");
  const auto weight = [&](const std::string& name, Shape shape) {
    const TensorType type{DType::f32, std::move(shape)};
    std::string bytes = random_bytes(type, 0, random);
    for (size_t i = 0; name.ends_with("var") && i < bytes.size(); i += sizeof(float)) {
      const float one = 1;
      std::memcpy(bytes.data() + i, &one, sizeof(one));
    }
    return g.weight(name, type, lesson.weights.add_bytes(type, std::move(bytes)));
  };
  ValueId x = g.input("x", {DType::f32, {1, 2, 4, 4}});
  for (const std::string layer : {"a", "b"}) {
    const Attrs conv{{"dilations", std::vector<int64_t>{1, 1}},
                     {"group", int64_t{1}},
                     {"kernel_shape", std::vector<int64_t>{3, 3}},
                     {"pads", std::vector<int64_t>{1, 1, 1, 1}},
                     {"strides", std::vector<int64_t>{1, 1}}};
    const int64_t from = layer == "a" ? 2 : 3;
    x = g.add(Op::Conv, "conv_" + layer, {x, weight(layer + ".w", {3, from, 3, 3})}, conv).value();
    x = g.add(Op::BatchNormalization, "bn_" + layer,
              {x, weight(layer + ".scale", {3}), weight(layer + ".bias", {3}), weight(layer + ".mean", {3}),
               weight(layer + ".var", {3})},
              {{"epsilon", 1e-5}})
            .value();
    x = g.add(Op::Relu, "relu_" + layer, {x}, {}).value();
  }
  x = g.add(Op::GlobalAveragePool, "pool", {x}, {}).value();
  x = g.add(Op::Flatten, "flat", {x}, {{"axis", int64_t{1}}}).value();
  g.output(x);
  lesson.network = std::move(g).finish();
  lesson.options.batch_norm = BatchNorm::batch;
  lesson.options.settings.rate = RateSchedule{0.5};
  return lesson;
}

// Means and variances move once a micro-batch, in their order, recomputed or not, wherever the layer is.
TEST(TrainingResults, RunningStatisticsDependOnNeitherCutsNorSchedules) {
  constexpr int micro_batches = 4;
  const OneThread alone;
  std::mt19937 random(5);
  Lesson lesson = normalized(random);
  lesson.options.micro_batches = micro_batches;
  const Graph network = with_batch(lesson.network, 2).value();
  const Graph step = step_graph(network, lesson.options).value().graph;
  for (const ValueId id : step.inputs) {
    const Value& input = step.value(id);
    TensorType whole = input.type;
    whole.shape[0] *= micro_batches;
    lesson.samples[input.name] = random_bytes(whole, 3, random);
  }
  const Cluster cluster = star(3, bytes(int64_t{1} << 36));
  const std::vector<std::vector<std::vector<size_t>>> shapes = {
      {{0}}, {{0}, {1}}, {{0}, {1}, {2}}, {{0}, {1}, {0}, {1}}, {{0}, {1}, {1}, {0}}};
  std::optional<Weights> wanted;
  int compared = 0;
  for (const bool recompute : {false, true}) {
    lesson.options.recompute = recompute ? Recompute::full : Recompute::none;
    const KernelGraph kernels = choose_kernels(network, {Isa::v3}, {}, lesson.options).value();
    EXPECT_EQ(kernels.training->nodes.running.size(), 4u);
    for (const SchedulePolicy& policy : all_schedules()) {
      if (policy.mode == ScheduleMode::inference) continue;
      for (const auto& shape : shapes) {
        Plan plan = random_plan(network.nodes.size(), shape, micro_batches, random);
        plan.schedule = policy.name;
        CompileOptions options;
        options.exact = true;
        const auto compiled = compile(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, options);
        if (!compiled.ok()) continue;  // not a placement it serves, or not exact
        Machine machine(compiled->program, lesson, kernels.training->nodes.constants);
        machine.run();
        if (!wanted) wanted = machine.weights();
        EXPECT_EQ(machine.weights(), *wanted) << fmt::format("{}, {} stages", policy.name, shape.size());
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 10);
  // By hand, of the first layer: its convolution's results, micro-batch after micro-batch.
  const auto of = [&](const std::string& name) {
    for (const Value& value : lesson.network.values) {
      if (value.name == name) return tensor_of(value.type, lesson.weights.materialise(value.content).value());
    }
    return Tensor();
  };
  std::vector<float> mean = of("a.mean").values, variance(3, 1);
  Graph first = network;
  first.outputs = {first.nodes[0].outputs[0]};
  const std::string& samples = lesson.samples.at("x");
  for (size_t m = 0; m < micro_batches; ++m) {
    const size_t size = samples.size() / micro_batches;
    const Tensor x = tensor_of(network.value(network.inputs[0]).type, samples.substr(m * size, size));
    const Tensor y = evaluate(first, lesson.weights, {x}).value()[0];
    for (size_t c = 0; c < 3; ++c) {
      std::vector<double> values;
      for (size_t n = 0; n < 2; ++n) {
        for (size_t i = 0; i < 16; ++i) values.push_back(static_cast<double>(y.values[(n * 3 + c) * 16 + i]));
      }
      double sum = 0, squares = 0;
      for (const double v : values) sum += v;
      for (const double v : values) squares += (v - sum / 32) * (v - sum / 32);
      mean[c] = static_cast<float>(0.9 * static_cast<double>(mean[c]) + 0.1 * sum / 32);
      variance[c] = static_cast<float>(0.9 * static_cast<double>(variance[c]) + 0.1 * squares / 31);
    }
  }
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(wanted->at("a.mean")[c], mean[c], 1e-5);
    EXPECT_NEAR(wanted->at("a.var")[c], variance[c], 1e-5);
  }
}

}  // namespace
}  // namespace nlsplit
