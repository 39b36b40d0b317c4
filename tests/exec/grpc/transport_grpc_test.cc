#include "exec/grpc/transport_grpc.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "exec/collectives.h"
#include "testing/transport_conformance.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

TransportOptions options_of_test() {
  TransportOptions options;
  options.program = "test";
  options.start_timeout_s = 20;
  return options;
}

// Workers of this machine in threads of this process, which all do `body`.
template <class Body>
void on_all(int size, const Body& body) {
  std::vector<std::unique_ptr<GrpcWorker>> workers;
  TransportOptions first = options_of_test();
  first.remote.job = "what to run";
  for (int rank = 1; rank < size; ++rank) {
    workers.push_back(GrpcWorker::open("127.0.0.1:0", "", "test").value());
    first.remote.workers.push_back(fmt::format("127.0.0.1:{}", workers.back()->port()));
  }
  std::vector<std::thread> threads;
  for (auto& worker : workers) {
    threads.emplace_back([&worker, &body] {
      auto assigned = worker->wait(options_of_test(), nullptr);
      ASSERT_TRUE(assigned.ok()) << assigned.error().message;
      EXPECT_EQ(assigned->job, "what to run");
      body(*assigned->transport);
    });
  }
  {
    auto transport = start_grpc(first);
    EXPECT_TRUE(transport.ok()) << transport.error().message;
    if (transport) body(**transport);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(GrpcTransport, RanksMeetAndAgree) {
  for (const int size : {2, 3, 4}) {
    on_all(size, [size](Transport& transport) {
      EXPECT_EQ(transport.size(), size);
      EXPECT_EQ(transport.same_machine().size(), static_cast<size_t>(size));
      std::string text = transport.rank() == 0 ? std::string(300'000, 'x') + "end" : "";
      ASSERT_TRUE(broadcast(transport, &text, {}).ok());
      EXPECT_EQ(text, std::string(300'000, 'x') + "end");
      const auto all = gather(transport, std::string(static_cast<size_t>(transport.rank()), 'r'), {});
      ASSERT_TRUE(all.ok());
      for (size_t r = 0; r < all->size(); ++r) EXPECT_EQ((*all)[r].size(), r);
      Status mine;
      if (transport.rank() == 1) mine = invalid_input("rank 1 dislikes it");
      EXPECT_EQ(agree(transport, mine, {}).error().message, "rank 1 dislikes it");
    });
  }
}

TEST(GrpcTransport, NobodyLeavesABarrierBeforeTheLastHasCome) {
  std::atomic<int> arrived{0};
  on_all(3, [&](Transport& transport) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      EXPECT_TRUE(barrier(transport, round % 2 == 0, {}).ok());
      EXPECT_GE(arrived.load(), round * transport.size());
    }
  });
}

TEST(TransportConformance, Grpc) {
  for (const int size : {2, 3, 4}) {
    on_all(size, [](Transport& transport) {
      testing::HostMemory memory;
      EXPECT_EQ(testing::conform(transport, memory), "");
    });
  }
}

TEST(GrpcTransport, SaysWhichWorkerIsMissing) {
  TransportOptions options = options_of_test();
  options.start_timeout_s = 0.5;
  options.remote.workers = {"127.0.0.1:1"};
  const auto transport = start_grpc(options);
  ASSERT_FALSE(transport.ok());
  EXPECT_EQ(transport.error().kind, ErrorKind::lost);
  EXPECT_THAT(transport.error().message, HasSubstr("rank 1 at 127.0.0.1:1"));
}

// Rank 1 cannot reach rank 2, and rank 0 can reach both: the reason comes from where it is known.
TEST(GrpcTransport, SaysWhoDoesNotReachWhom) {
  TransportOptions options = options_of_test();
  options.start_timeout_s = 2;
  auto worker = GrpcWorker::open("127.0.0.1:0", "", "test").value();
  options.remote.workers = {fmt::format("127.0.0.1:{}", worker->port()), "127.0.0.1:1"};
  std::thread waits([&] { EXPECT_FALSE(worker->wait(options_of_test(), nullptr).ok()); });
  const auto transport = start_grpc(options);
  ASSERT_FALSE(transport.ok());
  EXPECT_THAT(transport.error().message, HasSubstr("rank 1 on host"));
  EXPECT_THAT(transport.error().message, HasSubstr("for rank 2 at 127.0.0.1:1"));
  waits.join();
}

// More ranks than the heartbeat connects each with each: who ends early is not lost.
TEST(GrpcTransport, ManyRanksEndInAnyOrder) {
  on_all(19, [](Transport& transport) {
    EXPECT_TRUE(barrier(transport, false, {}).ok());
    if (transport.rank() % 3 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50 * transport.rank()));
  });
}

// Without a heartbeat a rank knows its own idleness.
TEST(GrpcTransport, KnowsIdlenessWithoutAHeartbeat) {
  auto worker = GrpcWorker::open("127.0.0.1:0", "", "test").value();
  TransportOptions options = options_of_test();
  options.heartbeat_s = 0;
  options.remote.workers = {fmt::format("127.0.0.1:{}", worker->port())};
  std::thread works([&] {
    const auto assigned = worker->wait(options_of_test(), nullptr);
    ASSERT_TRUE(assigned.ok());
    EXPECT_TRUE(barrier(*assigned->transport, false, {}).ok());
  });
  {
    const auto transport = start_grpc(options);
    ASSERT_TRUE(transport.ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_GE((*transport)->idle_s(), 0.1);
    EXPECT_TRUE(barrier(**transport, false, {}).ok());
  }
  works.join();
}

TEST(GrpcTransport, OtherBuildsAreRefused) {
  auto worker = GrpcWorker::open("127.0.0.1:0", "", "test").value();
  static std::atomic<bool> enough;
  enough = false;
  std::thread waits([&] { EXPECT_FALSE(worker->wait(options_of_test(), [] { return enough.load(); }).ok()); });
  TransportOptions options = options_of_test();
  options.program = "another build";
  options.remote.workers = {fmt::format("127.0.0.1:{}", worker->port())};
  const auto transport = start_grpc(options);
  ASSERT_FALSE(transport.ok());
  EXPECT_THAT(transport.error().message, HasSubstr("another build"));
  enough = true;
  waits.join();
}

TEST(GrpcTransport, OneRunAtATime) {
  auto worker = GrpcWorker::open("127.0.0.1:0", "", "test").value();
  TransportOptions options = options_of_test();
  options.remote.workers = {fmt::format("127.0.0.1:{}", worker->port())};
  std::thread works([&] {
    const auto assigned = worker->wait(options_of_test(), nullptr);
    ASSERT_TRUE(assigned.ok());
    EXPECT_TRUE(barrier(*assigned->transport, false, {}).ok());
  });
  {
    const auto first = start_grpc(options);
    ASSERT_TRUE(first.ok()) << first.error().message;
    const auto second = start_grpc(options);
    ASSERT_FALSE(second.ok());
    EXPECT_THAT(second.error().message, HasSubstr("takes part in another run"));
    EXPECT_TRUE(barrier(**first, false, {}).ok());
  }
  works.join();
}

TEST(GrpcTransport, OtherMachinesNeedCredentials) {
  const auto open = GrpcWorker::open("0.0.0.0:0", "", "test");
  ASSERT_FALSE(open.ok());
  EXPECT_THAT(open.error().message, HasSubstr("credentials"));
  TransportOptions options = options_of_test();
  options.remote.workers = {"10.0.0.1:7000"};
  EXPECT_THAT(start_grpc(options).error().message, HasSubstr("credentials"));
}

TEST(GrpcTransport, APortIsTakenOnce) {
  auto worker = GrpcWorker::open("127.0.0.1:0", "", "test").value();
  const auto second = GrpcWorker::open(fmt::format("127.0.0.1:{}", worker->port()), "", "test");
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("the port is taken"));
}

}  // namespace
}  // namespace nlsplit
