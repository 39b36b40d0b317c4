// The Program carries what is to come: training, interleaved stages, collectives, replicas, many instances. Programs
// written by hand, run by threads, against plain arithmetic.
#include <cmath>

#include "exec/programs.h"

namespace nlsplit {
namespace {

using namespace testing;

RunResult run_it(const Program& program, const Job& job) {
  auto result = run_threads(program, job, test_options());
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().to_string());
  return result.ok() ? std::move(*result) : RunResult{};
}

TEST(Contract, OneForwardOneBackwardTrainingStep) {
  const Program program = program_of("train_1f1b");
  const Job job = seeded_job(program);
  const RunResult result = run_it(program, job);

  const Matrix x(8, 4, input_of(job, "x")), t(8, 2, input_of(job, "t"));
  const double lr = content_values(0x1f, 1)[0];
  Matrix wa(4, 5, content_values(0xa1, 20)), wb(5, 3, content_values(0xb1, 15)), wc(3, 2, content_values(0xc1, 6));
  // The whole batch at once: micro-batches only cut the sums.
  const Matrix ya = product(x, wa), yb = product(ya, wb);
  Matrix e = product(yb, wc);
  for (size_t i = 0; i < e.v.size(); ++i) e.v[i] -= t.v[i];
  const Matrix gb = product(e, transpose(wc)), ga = product(gb, transpose(wb));
  const auto descend = [lr](Matrix& w, const Matrix& gradient) {
    for (size_t i = 0; i < w.v.size(); ++i) w.v[i] -= lr * gradient.v[i];
  };
  descend(wa, product(transpose(x), ga));
  descend(wb, product(transpose(ya), gb));
  descend(wc, product(transpose(yb), e));
  expect_near(output_of(result, "e"), e);
  expect_near(output_of(result, "w_A"), wa);
  expect_near(output_of(result, "w_B"), wb);
  expect_near(output_of(result, "w_C"), wc);
}

TEST(Contract, StatesBeginEveryRepeatAsAtFirst) {
  const Program program = program_of("train_1f1b");
  const Job job = seeded_job(program);
  RunOptions once = test_options(), often = test_options();
  once.warmup = 0;
  once.repeats = 1;
  often.repeats = 7;
  const auto a = run_threads(program, job, once), b = run_threads(program, job, often);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(b->makespans_s.size(), 7u);
  for (const char* name : {"w_A", "w_B", "w_C"}) EXPECT_EQ(output_of(*a, name), output_of(*b, name));
}

TEST(Contract, InterleavedStages) {
  const Program program = program_of("interleaved");
  const Job job = seeded_job(program);
  const RunResult result = run_it(program, job);
  const Matrix x(8, 4, input_of(job, "x"));
  const Matrix y0 = relu(product(x, Matrix(4, 5, content_values(0xa0, 20))));
  const Matrix y1 = relu(product(y0, Matrix(5, 3, content_values(0xb1, 15))));
  const Matrix y2 = relu(product(y1, Matrix(3, 6, content_values(0xa2, 18))));
  expect_near(output_of(result, "y"), product(y2, Matrix(6, 2, content_values(0xb3, 12))));
}

TEST(Contract, RingAllReduce) {
  const Program program = program_of("ring_all_reduce");
  const Job job = seeded_job(program);
  const RunResult result = run_it(program, job);
  // The three partial results, then each chunk of 4 summed once around the ring.
  std::vector<Matrix> partial;
  for (size_t d = 0; d < 3; ++d) {
    const std::string name = std::string("x_") + "ABC"[d];
    partial.push_back(product(Matrix(4, 4, input_of(job, name)), Matrix(4, 6, content_values(0xf0 + d, 24))));
  }
  Matrix sum(4, 6);
  for (size_t i = 0; i < sum.v.size(); ++i) sum.v[i] = partial[0].v[i] + partial[1].v[i] + partial[2].v[i];
  expect_near(output_of(result, "y_A"), sum);
  EXPECT_EQ(output_of(result, "y_A"),
            output_of(result, "y_B"));  // each chunk is summed at one place: the same bits everywhere
  EXPECT_EQ(output_of(result, "y_A"), output_of(result, "y_C"));
}

TEST(Contract, ReplicasTakeTurns) {
  const Program program = program_of("replicas");
  const Job job = seeded_job(program);
  const RunResult result = run_it(program, job);
  const Matrix h = relu(product(Matrix(8, 4, input_of(job, "x")), Matrix(4, 5, content_values(0xa0, 20))));
  expect_near(output_of(result, "y"), product(h, Matrix(5, 3, content_values(0xb0, 15))));
}

TEST(Contract, SeveralInstancesInFlight) {
  const Program program = program_of("instances");
  const Job job = seeded_job(program);
  const RunResult result = run_it(program, job);
  const std::vector<float>&x = input_of(job, "x"), &y = output_of(result, "y");
  ASSERT_EQ(y.size(), x.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], (i % 4 < 2 ? 4 : 2) * x[i]) << "at " << i;
}

TEST(Contract, EagerMessagesChangeNothingButTimes) {
  for (const char* name : {"train_1f1b", "interleaved", "ring_all_reduce", "replicas", "instances"}) {
    Program program = program_of(name);
    const Job job = seeded_job(program);
    const RunResult rendezvous = run_it(program, job);
    program.eager_limit = bytes(1 << 20);
    const RunResult eager = run_it(program, job);
    ASSERT_EQ(rendezvous.outputs.size(), eager.outputs.size());
    for (size_t i = 0; i < eager.outputs.size(); ++i) {
      EXPECT_EQ(rendezvous.outputs[i].tensor.values, eager.outputs[i].tensor.values)
          << name << " " << eager.outputs[i].tensor.name;
    }
  }
}

// Whatever happened happened in an order the Program allows.
TEST(Contract, TracesObeyTheDependencies) {
  for (const char* name : {"train_1f1b", "interleaved", "ring_all_reduce", "replicas", "instances"}) {
    const Program program = program_of(name);
    const RunResult result = run_it(program, seeded_job(program));
    const Trace& trace = result.trace;
    const auto deps = dependencies(program);
    ASSERT_TRUE(deps.ok());
    ASSERT_EQ(trace.spans.size(), deps->instances.size());
    EXPECT_EQ(trace.fingerprint, fingerprint(program));
    for (uint32_t i = 0; i < trace.spans.size(); ++i) {
      const Span& span = trace.spans[i];
      EXPECT_EQ((Instance{span.device, span.slot, span.instr}), deps->instances[i]);
      EXPECT_LE(span.start, span.finish);
      EXPECT_LE(span.finish, trace.makespan);
      const Opcode opcode = instr_of(program, deps->instances[i]).opcode;
      for (const Edge& edge : deps->into(i)) {
        const Span& before = trace.spans[edge.from];
        if (opcode == Opcode::recv && edge.kind == EdgeKind::stream)
          EXPECT_LE(before.start, span.start);  // posted ahead, in order
        else
          EXPECT_LE(before.finish, span.start) << name << ": " << describe_instance(program, deps->instances[i]);
      }
    }
  }
}

}  // namespace
}  // namespace nlsplit
