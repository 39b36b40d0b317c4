// Sessions that the compiler makes, run by threads: training that goes on, and evaluation of what it has trained so
// far, split over one, two and three devices, against steps that are run one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>

#include "base/random.h"
#include "compile/session.h"
#include "exec/fill_inputs.h"
#include "exec/programs.h"
#include "exec/run_session.h"
#include "exec/states.h"
#include "graph/half.h"
#include "graph/passes/passes.h"
#include "graph/passes/precision.h"
#include "graph/zoo/zoo.h"
#include "kernels/cpu.h"
#include "testing/star.h"

namespace nlsplit::testing {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

constexpr int train_micro_batches = 2, evaluate_micro_batches = 3;

// simple_cnn: a step of 4 samples, an evaluation of 6.
struct Lesson {
  Model model = zoo_model("simple_cnn").value();
  Graph graph = optimize(model.graph, model.weights, Purpose::training).value();
  Isa isa = supported_levels().front();
  KernelGraph step, forward;

  explicit Lesson(Optimizer optimizer, DType precision = DType::f32) {
    graph = with_precision(graph, model.weights, precision, Purpose::training).value();
    TrainingOptions options;
    options.optimizer = optimizer;
    options.micro_batches = train_micro_batches;
    for (const ContentId content : model.weights.formulas()) options.constants.insert(content);
    step = choose_kernels(with_batch(graph, 2).value(), {isa}, {}, options).value();
    model.weights.add_all(step.training->nodes.constants);
    Graph at_two = with_batch(graph, 2).value();
    std::vector<ValueId> trained;
    for (const ValueId weight : step.training->nodes.trained) {
      const std::string& name = step.graph.value(weight).name;
      for (size_t v = 0; v < at_two.values.size(); ++v) {
        if (at_two.values[v].kind == ValueKind::weight && at_two.values[v].name == name) trained.emplace_back(v);
      }
    }
    forward = choose_kernels(std::move(at_two), {isa}, {}, std::nullopt, {}, trained).value();
  }

  Cluster cluster(size_t devices) const {
    Cluster cluster = star(devices);
    for (Device& device : cluster.devices) device.level = isa;
    return cluster;
  }

  // Training and evaluation, all layers shared by two devices; what their pieces hold besides.
  Session split_session(SplitAxis axis) {
    const auto plan = [&](int micro_batches, const std::string& schedule) {
      Plan plan;
      plan.stages.push_back({0, graph.nodes.size(), {DeviceId(0), DeviceId(1)}, Split{axis, false, {1, 1}}});
      plan.micro_batches = micro_batches;
      plan.schedule = schedule;
      return plan;
    };
    const SessionPart parts[] = {{"train", &step, plan(train_micro_batches, "1f1b")},
                                 {"evaluate", &forward, plan(evaluate_micro_batches, "streaming")}};
    CompiledSession made = value_of(compile_session("lesson", parts, cluster(2), {HostId(0), HostId(0)}, nullptr));
    add_slices(made.slices, model.weights);
    for (const auto& training : made.trainings) model.weights.add_all(training->nodes.constants);
    return std::move(made.session);
  }

  Session session(size_t devices) const {
    const auto plan = [&](int micro_batches, const std::string& schedule) {
      Plan plan;
      for (size_t s = 0; s < devices; ++s)
        plan.stages.push_back(
            {graph.nodes.size() * s / devices, graph.nodes.size() * (s + 1) / devices, {DeviceId(s)}});
      plan.micro_batches = micro_batches;
      plan.schedule = schedule;
      return plan;
    };
    const SessionPart parts[] = {{"train", &step, plan(train_micro_batches, "1f1b")},
                                 {"evaluate", &forward, plan(evaluate_micro_batches, "streaming")}};
    auto made = compile_session("lesson", parts, cluster(devices), {HostId(0), HostId(devices - 1)}, nullptr);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return std::move(made->session);
  }

  Program unsplit(const KernelGraph& kernels, int micro_batches) const {
    return compile_unsplit(kernels, micro_batches, cluster(1).devices[0], "a").value();
  }

  Job job(const Session& session) const {
    Job job;
    job.contents = contents_of(model.weights);
    const Program joined = value_of(join(session));
    job.inputs = value_of(wanted_inputs(joined));
    fill_inputs(joined, 5, job.inputs);
    return job;
  }
};

SessionResult run_sequence(const Lesson& lesson, size_t devices, const std::string& sequence) {
  const Session session = lesson.session(devices);
  const std::vector<Choice> choices = value_of(parse_choices(session, sequence));
  return value_of(run_session_threads(session, lesson.job(session), choose_from(choices), test_options()));
}

Tensors tensors_of(const std::vector<OutputTensor>& outputs) {
  Tensors all;
  for (const OutputTensor& output : outputs) all[output.tensor.name] = output.tensor.values;
  return all;
}

Tensors states_alone(const SessionResult& result) {
  Tensors all = tensors_of(result.outputs);
  std::erase_if(all, [](const auto& tensor) { return tensor.first.find('/') != std::string::npos; });  // outputs
  return all;
}

// One run of a Program from these states; those that are not there begin as the Program says.
RunResult run_from(const Lesson& lesson, Program program, const Tensors& states, std::vector<NamedTensor> inputs) {
  WeightStore store = lesson.model.weights;
  for (DeviceProgram& device : program.devices) {
    for (Buffer& buffer : device.buffers) {
      const auto known = states.find(buffer.name);
      if (buffer.kind != BufferKind::state || known == states.end()) continue;
      const std::vector<float>& values = known->second;
      std::string raw(values.size() * sizeof(float), '\0');
      std::memcpy(raw.data(), values.data(), raw.size());
      buffer.has_content = true;
      buffer.content = store.add_bytes(buffer.type, std::move(raw));
    }
  }
  Job job;
  job.contents = contents_of(store);
  job.inputs = std::move(inputs);
  RunOptions options = test_options();
  options.repeats = 1;
  options.warmup = 0;
  options.states = true;
  return value_of(run_threads(program, job, options));
}

// Inputs of one Program of a session, under their own names.
std::vector<NamedTensor> inputs_of(const Job& job, const std::string& program) {
  std::vector<NamedTensor> inputs;
  for (NamedTensor input : job.inputs) {
    if (!input.name.starts_with(program + "/")) continue;
    input.name = input.name.substr(program.size() + 1);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

TEST(TrainingSession, SplitOverDevicesEqualsOneDeviceBitForBit) {
  for (const auto& [optimizer, precision] :
       {std::pair(Optimizer::momentum, DType::f32), {Optimizer::adam, DType::f32}, {Optimizer::adam, DType::bf16}}) {
    const Lesson lesson(optimizer, precision);
    const std::string sequence = "evaluate train*3 evaluate train train*2 evaluate";
    const SessionResult one = run_sequence(lesson, 1, sequence);
    ASSERT_EQ(one.losses.size(), 6u);
    EXPECT_LT(one.losses.back().mean, one.losses.front().mean);
    EXPECT_EQ(one.losses.front().execution, 1);
    for (const size_t devices : {2, 3}) {
      const SessionResult split = run_sequence(lesson, devices, sequence);
      EXPECT_EQ(tensors_of(split.outputs), tensors_of(one.outputs)) << devices << " devices";
      ASSERT_EQ(split.losses.size(), one.losses.size());
      for (size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_EQ(split.losses[i].execution, one.losses[i].execution);
        EXPECT_EQ(split.losses[i].mean, one.losses[i].mean);
      }
    }
  }
}

// In bfloat16 the weights and all sums of gradients are float32, so a step that is smaller than what a bfloat16 can
// tell apart is not lost.
TEST(TrainingSession, InBfloat16TrainsNearlyAsInFloat32) {
  const std::string sequence = "train*6 evaluate";
  const SessionResult plain = run_sequence(Lesson(Optimizer::momentum), 1, sequence);
  const SessionResult mixed = run_sequence(Lesson(Optimizer::momentum, DType::bf16), 2, sequence);
  ASSERT_EQ(mixed.losses.size(), plain.losses.size());
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(mixed.losses[i].mean, plain.losses[i].mean, 0.02 * plain.losses[i].mean) << i;
  const Tensors exact = states_alone(plain), found = states_alone(mixed);
  int finer = 0;
  for (const auto& [name, values] : exact) {
    ASSERT_EQ(found.at(name).size(), values.size()) << name;
    for (const float value : found.at(name)) finer += value != bf16_value(bf16_bits(value)) ? 1 : 0;
  }
  EXPECT_NE(found, exact);
  EXPECT_GT(finer, 100);
}

// Steps of the unsplit Program, each run by itself from the weights that the one before left, then the network with the
// weights of the last one.
TEST(TrainingSession, EqualsStepsOneByOneAndThenTheNetworkWithTheirWeights) {
  const Lesson lesson(Optimizer::sgd);
  const SessionResult session = run_sequence(lesson, 2, "train*4 evaluate");
  const Job job = lesson.job(lesson.session(2));
  const Program step = lesson.unsplit(lesson.step, train_micro_batches);
  Tensors weights;
  for (size_t i = 0; i < 4; ++i) {
    const RunResult one = run_from(lesson, step, weights, inputs_of(job, "train"));
    ASSERT_EQ(one.losses.size(), 1u);
    EXPECT_EQ(session.losses.at(i).mean, one.losses[0]);
    weights = tensors_of(one.outputs);
  }
  Tensors made = tensors_of(session.outputs);
  for (const auto& [name, values] : weights) {
    if (name == "losses") continue;
    EXPECT_EQ(made.at(name), values) << name;
  }
  const RunResult network =
      run_from(lesson, lesson.unsplit(lesson.forward, evaluate_micro_batches), weights, inputs_of(job, "evaluate"));
  const std::string output = lesson.graph.value(lesson.graph.outputs[0]).name;
  EXPECT_EQ(made.at("evaluate/" + output), output_of(network, output));
  // And not what the untrained network makes.
  const RunResult untrained =
      run_from(lesson, lesson.unsplit(lesson.forward, evaluate_micro_batches), {}, inputs_of(job, "evaluate"));
  EXPECT_NE(made.at("evaluate/" + output), output_of(untrained, output));
}

// Two batches by turns: an axis in front of the inputs has an entry for each execution.
TEST(TrainingSession, InputsMayChangeFromOneExecutionToTheNext) {
  const Lesson lesson(Optimizer::sgd);
  const Session session = lesson.session(2);
  Job job = lesson.job(session);
  Job other = job;
  const Program joined = value_of(join(session));
  for (NamedTensor& input : other.inputs) input = {input.name, input.type, {}, {}};
  fill_inputs(joined, 99, other.inputs);
  const std::vector<NamedTensor> batches[] = {inputs_of(job, "train"), inputs_of(other, "train")};
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    NamedTensor& input = job.inputs[i];
    if (!input.name.starts_with("train/")) continue;
    input.type.shape.insert(input.type.shape.begin(), 2);
    input.values.insert(input.values.end(), other.inputs[i].values.begin(), other.inputs[i].values.end());
    input.raw += other.inputs[i].raw;
  }
  const std::vector<Choice> choices = value_of(parse_choices(session, "train*2 train evaluate train*2"));
  const SessionResult result = value_of(run_session_threads(session, job, choose_from(choices), test_options()));
  const Program step = lesson.unsplit(lesson.step, train_micro_batches);
  Tensors weights;
  ASSERT_EQ(result.losses.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const RunResult one = run_from(lesson, step, weights, batches[i % 2]);
    EXPECT_EQ(result.losses[i].mean, one.losses.at(0)) << i;
    weights = tensors_of(one.outputs);
  }
  Tensors made = tensors_of(result.outputs);
  for (const auto& [name, values] : weights) {
    if (name == "losses") continue;
    EXPECT_EQ(made.at(name), values) << name;
  }
  // Of one Program all have the same number of entries.
  Job uneven = job;
  for (NamedTensor& input : uneven.inputs) {
    if (input.name != "train/labels") continue;
    input.type.shape[0] = 1;
    input.raw.resize(input.raw.size() / 2);
  }
  const auto refused = run_session_threads(session, uneven, choose_from(choices), test_options());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("of program train for 2"));
}

// The states of one split, placed under another, go on as if nothing had been.
TEST(TrainingSession, GoesOnWithStatesThatAnotherPlanHasLeft) {
  const Lesson lesson(Optimizer::adam);
  const SessionResult whole = run_sequence(lesson, 3, "train*5");
  const Session halves = lesson.session(2), thirds = lesson.session(3);
  std::vector<StateTensor> states;
  int chosen = 0;
  const ChooseNext two_steps_and_states = [&](const SessionState& at) -> Chosen {
    EXPECT_EQ(at.losses.size(), 0u) << "losses go to the last device";
    switch (chosen++) {
      case 0:
        return Choice{0, 2};
      case 1:
        return states_to([&](std::vector<StateTensor> taken) { states = std::move(taken); });
      default:
        return Choice{0, 0};
    }
  };
  value_of(run_session_threads(halves, lesson.job(halves), two_steps_and_states, test_options()));
  ASSERT_EQ(states.size(), states_of(value_of(join(halves))).size());
  Job job = lesson.job(thirds);
  job.states = states;
  const std::vector<Choice> rest = {{0, 3}};
  const SessionResult again = value_of(run_session_threads(thirds, job, choose_from(rest), test_options()));
  EXPECT_EQ(again.losses.back().mean, whole.losses.back().mean);
  EXPECT_EQ(states_alone(again), states_alone(whole));

  const auto error = [&] {
    const auto run = run_session_threads(thirds, job, choose_from(rest), test_options());
    return run.ok() ? std::string("accepted") : run.error().message;
  };
  const StateTensor first = states[0];
  states[0].name = "else";
  EXPECT_THAT(error(), ::testing::HasSubstr("the session has no state else"));
  states[0] = first;
  states[0].type.shape.push_back(1);
  EXPECT_THAT(error(), ::testing::HasSubstr("was given"));
  states[0] = first;
  states[0].bytes.pop_back();
  EXPECT_THAT(error(), ::testing::HasSubstr(first.name + " is " + to_string(first.type) + ", but has"));
}

// Devices that share layers have parts of the weights; what they leave are whole ones, and what they begin with too.
TEST(TrainingSession, GoesOnWithWholeStatesWhereLayersAreShared) {
  Lesson lesson(Optimizer::momentum);
  const SessionResult whole = run_sequence(lesson, 1, "train*4 evaluate");
  const Tensors wanted = states_alone(whole);
  for (const SplitAxis axis : {SplitAxis::tensor, SplitAxis::channels, SplitAxis::batch, SplitAxis::height}) {
    SCOPED_TRACE(name_of(axis));
    const Session shared = lesson.split_session(axis);
    const Session halves = lesson.session(2);
    std::vector<StateTensor> states;
    int chosen = 0;
    const ChooseNext two_steps_and_states = [&](const SessionState&) -> Chosen {
      switch (chosen++) {
        case 0:
          return Choice{0, 2};
        case 1:
          return states_to([&](std::vector<StateTensor> taken) { states = std::move(taken); });
        default:
          return Choice{0, 0};
      }
    };
    const auto expect_near = [&](const Tensors& found) {
      ASSERT_EQ(found.size(), wanted.size());
      for (const auto& [name, values] : wanted) {
        ASSERT_TRUE(found.contains(name)) << name;
        ASSERT_EQ(found.at(name).size(), values.size()) << name;
        for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(found.at(name)[i], values[i], 1e-5) << name << i;
      }
    };
    const std::vector<Choice> rest = {{0, 2}, {1, 1}};
    for (const bool shared_first : {true, false}) {
      const Session &first = shared_first ? shared : halves, &second = shared_first ? halves : shared;
      chosen = 0;
      value_of(run_session_threads(first, lesson.job(first), two_steps_and_states, test_options()));
      ASSERT_EQ(states.size(), states_of(value_of(join(second))).size());
      Job job = lesson.job(second);
      job.states = states;
      expect_near(states_alone(value_of(run_session_threads(second, job, choose_from(rest), test_options()))));
    }
    const std::vector<Choice> all = {{0, 4}, {1, 1}};
    expect_near(
        states_alone(value_of(run_session_threads(shared, lesson.job(shared), choose_from(all), test_options()))));
  }
}

// Samples of each step: in a row, where each micro-batch gets those of the next step as soon as its own are read, and
// step by step.
TEST(TrainingSession, GetsNewSamplesWhileStepsOverlap) {
  const Lesson lesson(Optimizer::momentum);
  constexpr int steps = 6;
  for (const size_t devices : {1, 2, 3}) {
    const Session session = lesson.session(devices);
    const Job job = lesson.job(session);
    const auto train = [&](int at_once) {
      int done = 0;
      const ChooseNext choose = [&](const SessionState& at) -> Chosen {
        const auto write = [&at](int step, int micro_batch) {
          at.fill("train/input", micro_batch, [&](std::span<std::byte> bytes) {
            std::vector<float> values(bytes.size() / sizeof(float));
            fill_normal(static_cast<uint64_t>(step * 10 + micro_batch), values.data(), std::ssize(values));
            std::memcpy(bytes.data(), values.data(), bytes.size());
          });
        };
        if (done == steps) return Choice{0, 0};
        for (int m = 0; m < train_micro_batches; ++m) write(done, m);
        const int begin = std::exchange(done, done + at_once);
        if (at_once == 1) return Choice{0, 1};
        return {{0, at_once, Refill::read}, [write, begin](int execution, int m) { write(begin + execution, m); }};
      };
      return value_of(run_session_threads(session, job, choose, test_options()));
    };
    const SessionResult one_by_one = train(1), in_rows = train(3);
    ASSERT_EQ(one_by_one.losses.size(), steps);
    EXPECT_NE(one_by_one.losses[1].mean, one_by_one.losses[2].mean);
    for (size_t i = 0; i < steps; ++i) EXPECT_EQ(in_rows.losses[i].mean, one_by_one.losses[i].mean) << devices << i;
    EXPECT_EQ(states_alone(in_rows), states_alone(one_by_one)) << devices;
  }
}

}  // namespace
}  // namespace nlsplit::testing
