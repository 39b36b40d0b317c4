// Training steps under plans that split layers: Programs are evaluated by the reference in their arenas, and their
// updates held against the unsplit network's. Weights that shards have parts of are put together; copies must be equal.
//
//   NLSPLIT_TRAINING_GRAPHS=1000 build/release/bin/test_compile --gtest_filter='TrainingSplits.*'
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "compile/lesson.h"
#include "graph/zoo/zoo.h"
#include "kernels/without_kernel.h"
#include "program/text.h"
#include "testing/random_graph.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr int micro_batches = 4;

Lesson lesson_of(Model model, TrainingOptions options) {
  Lesson lesson;
  lesson.network = optimize(model.graph, model.weights, Purpose::training).value();
  for (const ContentId content : model.weights.formulas()) options.constants.insert(content);
  lesson.weights = std::move(model.weights);
  lesson.options = std::move(options);
  lesson.options.micro_batches = micro_batches;
  return lesson;
}
Lesson lesson_of(const std::string& zoo, TrainingOptions options = {}) {
  return lesson_of(zoo_model(zoo).value(), std::move(options));
}

// What is executed, and its Program.
struct Step {
  Program program;
  WeightStore constants;
};

Result<Step> step_of(const Lesson& lesson, int64_t samples, const std::vector<std::string>& stages,
                     const std::string& schedule, size_t devices, CompileOptions compile_options = {}) {
  const Graph network = with_batch(lesson.network, samples).value();
  const KernelGraph kernels = choose_kernels(network, {Isa::v3}, {}, lesson.options).value();
  const Cluster cluster = star(devices, bytes(int64_t{1} << 36));
  Plan plan;
  std::vector<PlanNote> notes;
  ASSIGN_OR_RETURN(plan.stages, parse_stages(stages, network, cluster, &notes));
  plan.micro_batches = micro_batches;
  plan.schedule = schedule;
  ASSIGN_OR_RETURN(Compiled compiled,
                   compile(kernels, plan, cluster, {HostId(0), HostId(0)}, nullptr, compile_options));
  Step step;
  RETURN_IF_ERROR(verify(compiled.program));
  EXPECT_EQ(to_string(parse_program(to_string(compiled.program), "step.nls").value()), to_string(compiled.program));
  step.program = std::move(compiled.program);
  step.constants.add_all(lesson.weights);
  add_slices(compiled.slices, step.constants);
  step.constants.add_all((compiled.training ? compiled.training : kernels.training)->nodes.constants);
  return step;
}

void expect_trains(Lesson& lesson, const std::vector<std::string>& stages, const std::string& schedule, size_t devices,
                   int64_t samples = 2) {
  SCOPED_TRACE(fmt::format("{} {} {}", lesson.network.name, fmt::join(stages, ", "), schedule));
  std::mt19937 random(7);
  const Weights wanted = updated_unsplit(lesson, samples * micro_batches, random);
  const auto step = step_of(lesson, samples, stages, schedule, devices);
  ASSERT_TRUE(step.ok()) << step.error().message;
  Machine machine(step->program, lesson, step->constants);
  machine.run();
  expect_close(machine.weights(), wanted, lesson, stages[0]);
}

std::string refusal(const Lesson& lesson, const std::vector<std::string>& stages, const std::string& schedule = "1f1b",
                    CompileOptions options = {}) {
  const auto step = step_of(lesson, 2, stages, schedule, 4, options);
  return step.ok() ? "no error" : step.error().message;
}

constexpr const char* small_mlp = "mlp?layers=4&inputs=6&hidden=8&classes=6";
constexpr const char* small_bert = "bert_base?layers=2&hidden=8&heads=4&length=4&vocab=12";
constexpr const char* small_gpt2 = "gpt2?layers=2&hidden=8&heads=4&length=4&vocab=12";
constexpr const char* small_cnn = "simple_cnn";

TEST(TrainingSplits, OfEveryAxisUpdateAsTheUnsplitNetwork) {
  const OneThread alone;
  Lesson mlp = lesson_of(small_mlp), bert = lesson_of(small_bert), gpt2 = lesson_of(small_gpt2),
         cnn = lesson_of(small_cnn);
  for (const std::string devices : {"A+B", "A:2+B", "A+B+C"}) {
    for (const std::string axis : {"tensor", "channels", "batch"}) {
      if (axis == "batch" && devices == "A+B+C") continue;
      const std::vector<std::string> stages{fmt::format("rest@{}({})", axis, devices)};
      for (Lesson* lesson : {&mlp, &bert, &gpt2, &cnn}) expect_trains(*lesson, stages, "1f1b", 3);
    }
    expect_trains(bert, {fmt::format("rest@sequence({})", devices)}, "1f1b", 3);
    expect_trains(gpt2, {fmt::format("rest@sequence({})", devices)}, "1f1b", 3);
    for (const std::string axis : {"height", "width", "height-recompute"})
      expect_trains(cnn, {fmt::format("rest@{}({})", axis, devices)}, "1f1b", 3);
  }
}

TEST(TrainingSplits, ArePartsOfPipelinesUnderEverySchedule) {
  const OneThread alone;
  Lesson lesson = lesson_of(small_gpt2);
  const std::vector<std::vector<std::string>> plans = {
      {"..transformer.h.0@tensor(A+B)", "rest@tensor(C+D)"},
      {"..transformer.h.0@tensor(A+B)", "rest@C"},
      {"..transformer.h.0@A", "rest@tensor(B+C)"},
      {"..transformer.h.0@tensor(A+B)", "rest@tensor(A+B)"},
      {"rest@tensor(A+B)+tensor(C+D)"},
      {"..transformer.h.0@tensor(A+B)", "rest@A+B"},
      {"..transformer.h.0@sequence(A+B)", "rest@tensor(C+D)"},
  };
  std::map<std::string, int> made;
  for (const SchedulePolicy& policy : all_schedules()) {
    if (policy.mode == ScheduleMode::inference || policy.name == "search") continue;
    for (const auto& plan : plans) {
      const std::string name(policy.name);
      if (const auto step = step_of(lesson, 2, plan, name, 4); !step.ok()) {
        EXPECT_THAT(step.error().message, HasSubstr("schedule " + name + " needs"));
        continue;
      }
      ++made[name];
      expect_trains(lesson, plan, name, 4);
    }
  }
  EXPECT_EQ(made["gpipe"], 7);
  EXPECT_EQ(made["list"], 7);
  EXPECT_GE(made["1f1b"], 5);
  EXPECT_GE(made["zb_h1"], 5);
  EXPECT_GE(made["interleaved"], 1);
}

TEST(TrainingSplits, GoWithOptimizersClippingAndRecomputation) {
  const OneThread alone;
  for (const Optimizer optimizer : {Optimizer::momentum, Optimizer::adam, Optimizer::adamw}) {
    TrainingOptions options;
    options.optimizer = optimizer;
    options.clip = 0.25;
    Lesson lesson = lesson_of(small_mlp, options);
    expect_trains(lesson, {"rest@tensor(A+B)"}, "1f1b", 2);
  }
  TrainingOptions options;
  options.recompute = Recompute::full;
  options.loss = Loss::mean_squared_error;
  Lesson lesson = lesson_of(small_bert, options);
  expect_trains(lesson, {"..encoder.layer.0@tensor(A+B)", "rest@tensor(C+D)"}, "1f1b", 4);
}

// Each shard has its columns of the first matrix, and its rows of the second.
TEST(TrainingSplits, PartsOfAWeightAreTrainedWhereTheyAre) {
  const auto step = step_of(lesson_of(small_mlp), 2, {"rest@tensor(A+B)"}, "1f1b", 2);
  ASSERT_TRUE(step.ok()) << step.error().message;
  std::map<std::string, int> parts, wholes;
  for (const DeviceProgram& device : step->program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.kind == BufferKind::state) ++(buffer.part ? parts : wholes)[whole_name(buffer)];
    }
  }
  for (const auto& [name, count] : parts) EXPECT_EQ(count, 2) << name;
  EXPECT_GE(parts.size(), 4u);
}

TEST(TrainingSplits, OfRandomNetworksUpdateAsTheUnsplitOne) {
  const char* wanted = std::getenv("NLSPLIT_TRAINING_GRAPHS");
  const int graphs = wanted == nullptr ? 10 : std::atoi(wanted);
  const OneThread alone;
  int trained = 0;
  for (int seed = 0; seed < graphs; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    TrainingOptions options;
    options.optimizer = seed % 2 == 0 ? Optimizer::sgd : Optimizer::momentum;
    options.settings.rate = RateSchedule{1};
    if (seed % 4 > 1) options.clip = 0.25;
    options.loss = seed % 3 == 0 ? Loss::mean_squared_error : Loss::softmax_cross_entropy;
    Lesson lesson = lesson_of(random_graph(static_cast<uint64_t>(seed), 3 + seed % 10), options);
    if (!step_graph(lesson.network, lesson.options).ok()) continue;  // none of its layers has weights
    const std::vector<std::string> axes{"tensor", "channels", "batch", "height", "width", "height-recompute"};
    for (const std::string& axis : axes) {
      const std::string devices = random() % 2 == 0 ? "A+B" : "A:2+B";
      const std::vector<std::string> stages{fmt::format("rest@{}({})", axis, devices)};
      const auto step = step_of(lesson, 2, stages, "1f1b", 2);
      if (!step.ok()) {
        EXPECT_THAT(step.error().message,
                    ::testing::AnyOf(HasSubstr("cannot be split"), HasSubstr("cannot be trained")));
        continue;
      }
      ++trained;
      expect_trains(lesson, stages, random() % 2 == 0 ? "1f1b" : "gpipe", 2);
      if (HasFailure()) {
        ADD_FAILURE() << "seed " << seed;
        return;
      }
    }
  }
  EXPECT_GE(trained, graphs);
}

TEST(TrainingSplits, RefuseWhatWouldTrainOtherwise) {
  const std::vector<std::string> stages{"rest@tensor(A+B)"};
  const Lesson mlp = lesson_of(small_mlp);
  CompileOptions zero, exact;
  zero.zero = 1;
  exact.exact = true;
  EXPECT_THAT(refusal(mlp, stages, "1f1b", zero), HasSubstr("zero: 1 is for plans of layers and replicas"));
  EXPECT_THAT(refusal(mlp, stages, "1f1b", exact), HasSubstr("all_reduce: exact is for plans of layers and replicas"));
  EXPECT_THAT(refusal(mlp, stages, "online:longest_path"), HasSubstr("training that splits layers has an order"));
  TrainingOptions by_samples;
  by_samples.batch_norm = BatchNorm::batch;
  const Lesson resnet = lesson_of("resnet18?image=32", by_samples);
  EXPECT_THAT(refusal(resnet, stages), HasSubstr("batch_norm: batch: node"));
}

}  // namespace
}  // namespace nlsplit
