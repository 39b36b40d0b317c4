// What a rank is given of a run, and that it trusts nothing of it.
#include <gmock/gmock.h>

#include <deque>
#include <numeric>
#include <thread>

#include "exec/hand_out.h"
#include "exec/programs.h"
#include "exec/transport_threads.h"
#include "program/part.h"
#include "testing/counter_session.h"

namespace nlsplit {
namespace {

using namespace testing;
using ::testing::HasSubstr;

// ---- bytes

// Counts what each rank posts room for.
class CountingEndpoint final : public Transport {
 public:
  CountingEndpoint(Transport& under, size_t& received) : under_(under), received_(received) {}
  int rank() const override { return under_.rank(); }
  int size() const override { return under_.size(); }
  std::vector<int> same_machine() const override { return under_.same_machine(); }
  Request isend(int peer, int tag, std::span<const std::byte> data) override { return under_.isend(peer, tag, data); }
  Request irecv(int peer, int tag, std::span<std::byte> room) override {
    received_ += room.size();
    return under_.irecv(peer, tag, room);
  }
  State test(Request request) override { return under_.test(request); }
  Error error() const override { return under_.error(); }
  void pause(int rounds) override { under_.pause(rounds); }
  void wake() override { under_.wake(); }
  Liveness& liveness() override { return under_.liveness(); }
  double idle_s() const override { return under_.idle_s(); }
  void abort(const Error& why) override { under_.abort(why); }

 private:
  Transport& under_;
  size_t& received_;
};

std::vector<size_t> received;  // [rank] of the last run

class CountingWorld final : public World {
 public:
  explicit CountingWorld(int size) : under_(size, bytes(0)) {
    received.assign(static_cast<size_t>(size), 0);
    for (int rank = 0; rank < size; ++rank)
      endpoints_.emplace_back(under_.endpoint(rank), received[static_cast<size_t>(rank)]);
  }
  Transport& endpoint(int rank) override { return endpoints_[static_cast<size_t>(rank)]; }
  std::optional<Error> failure() const override { return under_.failure(); }

 private:
  ThreadWorld under_;
  std::deque<CountingEndpoint> endpoints_;
};

std::unique_ptr<World> make_counting_world(int size, Bytes /*eager_limit*/,
                                           std::function<void(const Error&)> /*on_failure*/) {
  return std::make_unique<CountingWorld>(size);
}

// A pipeline of so many devices, each with one computation of its own.
Program pipeline(int devices) {
  std::string text = "nlsplit program 1\nprogram pipeline batch 1 micro_batches 1\n";
  for (int d = 0; d < devices; ++d) {
    const auto name = [](int device) { return "D" + std::to_string(1000 + device); };
    text += "device " + name(d) + " cpu host " + name(d) + " isa v2 memory 4096\n";
    text += d == 0 ? "  buffer x f32[8] input\n" : "  buffer x f32[8] comm\n";
    text += d + 1 == devices ? "  buffer y f32[8] output\n" : "  buffer y f32[8] comm\n";
    text += "  segment F stage " + std::to_string(d) + " phase F\n";
    if (d > 0) text += "    recv x from " + name(d - 1) + " tag 0\n";
    text += "    y = Tanh(x) kernel unary_v2 as \"hyperbolic tangents\"\n";
    if (d + 1 < devices) text += "    send y to " + name(d + 1) + " tag 0\n";
    text += "  order\n    F.0\n";
  }
  return value_of(parse_program(text, "pipeline"));
}

size_t received_by_second(int devices) {
  const Program program = pipeline(devices);
  RunOptions options;
  options.warmup = 0;
  options.repeats = 1;
  const auto result = run_threads(program, seeded_job(program), options, make_counting_world);
  EXPECT_TRUE(result.ok()) << error_of(result);
  return received[1];
}

// Each further rank costs the others its description, a line, and some bytes when all of them agree.
TEST(Scale, WhatARankReceivesIsItsOwnPart) {
  const size_t few = received_by_second(4), many = received_by_second(36);
  const std::string line = "\ndevice D1000 cpu host D1000 isa v2 memory 4096 arena 0\n  order\n";
  EXPECT_LE(many, few + 32 * (line.size() + 8));
  EXPECT_GT(many, few);
  EXPECT_LT(many, to_string(pipeline(36)).size());
}

// ---- a rank 0 that sends something else

struct Sent {
  std::string outline, text;
  std::vector<double> figures = {0};
  size_t fingerprints = 1;
};

std::string answer_to(const Sent& sent, double patience_s = 5) {
  ThreadWorld world(2, bytes(0));
  const RunOptions options = test_options();
  const Waiting waiting{patience_s, nullptr, "the test"};
  std::optional<Result<Task>> task;
  std::thread second(
      [&] { task.emplace(hand_out(static_cast<const Program*>(nullptr), {}, world.endpoint(1), options, waiting)); });
  Transport& transport = world.endpoint(0);
  const auto play = [&]() -> Status {
    std::string text = "1 warm-up and 64 kept repeats";
    RETURN_IF_ERROR(broadcast(transport, &text, waiting));
    RETURN_IF_ERROR(agree(transport, ok_status(), waiting));
    text = as_text(std::vector<uint64_t>(sent.fingerprints, 7));
    RETURN_IF_ERROR(broadcast(transport, &text, waiting));
    text = sent.outline;
    RETURN_IF_ERROR(broadcast(transport, &text, waiting));
    RETURN_IF_ERROR(send_text(transport, 1, sent.text, waiting));
    RETURN_IF_ERROR(send_text(transport, 1, as_text(sent.figures), waiting));
    return agree(transport, ok_status(), waiting);
  };
  const Status played = play();
  second.join();
  EXPECT_EQ(played.ok(), task->ok());
  return task->ok() ? "accepted" : task->error().to_string();
}

TEST(HandOut, ARankTrustsNothing) {
  const Program two = pipeline(2);
  const Program part = part_of(two, 1).program;
  const std::string outline = to_string(outline_of(two)), text = to_string(part);
  EXPECT_EQ(answer_to({outline, text}), "accepted");
  EXPECT_EQ(answer_to({outline, text, {1, 0.5}}), "accepted");
  EXPECT_THAT(answer_to({outline, text, {}}), HasSubstr("other figures"));
  EXPECT_THAT(answer_to({outline, text, {1, 2, 3}}), HasSubstr("other figures"));
  EXPECT_THAT(answer_to({outline, text, {-1}}), HasSubstr("other figures"));
  EXPECT_THAT(answer_to({outline, text, {0}, 0}), HasSubstr("no fingerprint"));
  EXPECT_THAT(answer_to({"nlsplit", text}), HasSubstr("rank 0's outline:1"));
  EXPECT_THAT(answer_to({outline, "nlsplit"}), HasSubstr("rank 0's program:1"));
  EXPECT_THAT(answer_to({to_string(outline_of(pipeline(3))), text}), HasSubstr("this plan runs on 3 devices"));
  EXPECT_THAT(answer_to({outline, to_string(part_of(pipeline(4), 2).program)}), HasSubstr("there is no device D1002"));
  std::string changed = text;
  changed[changed.find("memory 4096") + 7] = '5';
  EXPECT_THAT(answer_to({outline, changed}), HasSubstr("fingerprint"));
  Program broken = part;
  broken.devices[1].buffers[0].offset = 4096;  // beyond its arena
  EXPECT_NE(answer_to({outline, to_string(broken)}), "accepted");
  broken = part;
  broken.descs[0].kernel = {KernelName::softmax, Isa::v2};
  EXPECT_THAT(answer_to({outline, to_string(broken)}), HasSubstr("device D1001 segment F"));
  broken = part;
  broken.devices[1].memory = bytes(16);
  EXPECT_THAT(answer_to({outline, to_string(broken)}), HasSubstr("device D1001 has 16 B of memory"));
}

// Computations have other numbers in a part than in the whole.
TEST(HandOut, ASessionsRanksHaveTheirPartsAndClocks) {
  const Session session = counter_session();
  const Program joined = value_of(join(session));
  Job job;
  for (size_t d = 0; d < joined.devices.size(); ++d) {
    std::vector<double>& clock = job.clocks.emplace_back();
    for (size_t desc = 0; desc < joined.descs.size(); ++desc) clock.push_back(static_cast<double>(100 * d + desc));
  }
  const int ranks = static_cast<int>(joined.devices.size());
  ThreadWorld world(ranks, bytes(0));
  const Waiting waiting{5, nullptr, "the test"};
  std::vector<std::optional<Result<SessionTask>>> tasks(joined.devices.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      tasks[static_cast<size_t>(rank)].emplace(
          hand_out(rank == 0 ? &session : nullptr, rank == 0 ? job : Job{}, world.endpoint(rank), waiting));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t d = 0; d < tasks.size(); ++d) {
    SCOPED_TRACE(d);
    ASSERT_TRUE(tasks[d]->ok()) << error_of(*tasks[d]);
    const SessionTask& task = **tasks[d];
    EXPECT_EQ(task.part, value_of(in_outline(outline_of(joined), part_of(session, d), d)));
    EXPECT_EQ(task.joined.devices[d].buffers, joined.devices[d].buffers);
    EXPECT_EQ(task.joined.devices[d].segments.size(), joined.devices[d].segments.size());
    const Program own = value_of(join(task.part));
    ASSERT_EQ(task.clock.size(), own.descs.size());
    for (size_t desc = 0; desc < own.descs.size(); ++desc) {
      const auto whole = std::ranges::find(joined.descs, own.descs[desc]) - joined.descs.begin();
      EXPECT_EQ(task.clock[desc], job.clocks[d][static_cast<size_t>(whole)]);
    }
  }
}

TEST(HandOut, RanksMustHaveTheSameOptions) {
  const Program program = pipeline(2);
  const Job job = seeded_job(program);
  ThreadWorld world(2, bytes(0));
  RunOptions options = test_options();
  std::optional<Result<RunResult>> other;
  std::thread second([&] {
    RunOptions more = options;
    more.warmup = 2;
    other.emplace(run(nullptr, {}, world.endpoint(1), more));
  });
  const auto first = run(&program, job, world.endpoint(0), options);
  second.join();
  EXPECT_THAT(error_of(first), HasSubstr("rank 1 runs with 2 warm-up and 64 kept repeats, rank 0 has 1 warm-up"));
  EXPECT_EQ(error_of(*other), error_of(first));
}

}  // namespace
}  // namespace nlsplit
