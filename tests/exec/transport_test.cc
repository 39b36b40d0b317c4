#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "exec/collectives.h"
#include "exec/transport_part.h"
#include "exec/transport_threads.h"
#include "testing/paths.h"
#include "testing/transport_conformance.h"

namespace nlsplit {
namespace {

using State = Transport::State;

std::span<std::byte> room(std::string& text) { return std::as_writable_bytes(std::span(text)); }

TEST(ThreadTransport, EagerMessagesLeaveAtOnceLargerOnesWait) {
  ThreadWorld world(2, bytes(4));
  Transport &a = world.endpoint(0), &b = world.endpoint(1);
  std::string small = "abcd", large = "efghi", small_room(4, ' '), large_room(5, ' ');
  const auto eager = a.isend(1, 7, room(small));
  const auto rendezvous = a.isend(1, 8, room(large));
  EXPECT_EQ(a.test(eager), State::done);
  EXPECT_EQ(a.test(rendezvous), State::pending);
  small = "????";  // the sender may use its bytes again
  const auto second = b.irecv(0, 8, room(large_room));
  const auto first = b.irecv(0, 7, room(small_room));
  EXPECT_EQ(a.test(rendezvous), State::done);
  EXPECT_EQ(b.test(first), State::done);
  EXPECT_EQ(b.test(second), State::done);
  EXPECT_EQ(small_room, "abcd");
  EXPECT_EQ(large_room, "efghi");
}

TEST(ThreadTransport, MessagesOfOneTagKeepTheirOrder) {
  ThreadWorld world(2, bytes(0));
  Transport &a = world.endpoint(0), &b = world.endpoint(1);
  std::vector<std::string> sent = {"one", "two", "six"}, received(3, "???");
  for (std::string& text : sent) (void)a.isend(1, 0, room(text));
  for (std::string& text : received) (void)b.irecv(0, 0, room(text));
  EXPECT_EQ(received, sent);
}

TEST(ThreadTransport, AnotherSizeThanExpectedFailsOnBothSides) {
  ThreadWorld world(2, bytes(0));
  std::string sent = "abc", received = "????";
  const auto out = world.endpoint(0).isend(1, 0, room(sent));
  const auto in = world.endpoint(1).irecv(0, 0, room(received));
  EXPECT_EQ(world.endpoint(0).test(out), State::failed);
  EXPECT_EQ(world.endpoint(1).test(in), State::failed);
  ASSERT_TRUE(world.failure().has_value());
  EXPECT_THAT(world.failure()->message, ::testing::HasSubstr("3 B arrived where 4 B were expected"));
}

TEST(ThreadTransport, AbortEndsEverybodysWaiting) {
  ThreadWorld world(3, bytes(0));
  std::string never(4, ' ');
  Status status;
  std::thread waiter([&] { status = recv_bytes(world.endpoint(1), 0, room(never), {}); });
  world.endpoint(2).abort(failed("device C: had enough"));
  waiter.join();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "device C: had enough");
}

// Every rank does `body` in a thread of its own.
template <class Body>
void on_all(int size, const Body& body) {
  ThreadWorld world(size, bytes(16));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { body(world.endpoint(rank)); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TransportConformance, Threads) {
  for (const int size : {2, 3, 4}) {
    on_all(size, [](Transport& transport) {
      testing::HostMemory memory;
      EXPECT_EQ(testing::conform(transport, memory), "");
    });
  }
}

TEST(TransportConformance, Mpi) {
  for (const int size : {2, 3, 4}) {
    const std::string command = fmt::format(
        "ASAN_OPTIONS=detect_leaks=0 mpirun {} --oversubscribe --mca btl_vader_single_copy_mechanism none -np {} "
        "{}/mpi_conformance",
        ::geteuid() == 0 ? "--allow-run-as-root" : "", size, NLS_BIN_DIR);
    EXPECT_EQ(std::system(command.c_str()), 0) << size << " ranks";
  }
}

TEST(Collectives, BroadcastAndGather) {
  for (const int size : {1, 2, 3, 5}) {
    on_all(size, [](Transport& transport) {
      std::string text = transport.rank() == 0 ? std::string(100, 'x') + "end" : "";
      EXPECT_TRUE(broadcast(transport, &text, {}).ok());
      EXPECT_EQ(text, std::string(100, 'x') + "end");
      const auto all = gather(transport, std::string(static_cast<size_t>(transport.rank()), 'r'), {});
      ASSERT_TRUE(all.ok());
      ASSERT_EQ(all->size(), transport.rank() == 0 ? static_cast<size_t>(transport.size()) : 0u);
      for (size_t r = 0; r < all->size(); ++r) EXPECT_EQ((*all)[r].size(), r);
    });
  }
}

TEST(Collectives, NobodyLeavesABarrierBeforeTheLastHasCome) {
  for (const int size : {1, 2, 3, 4, 7}) {
    std::atomic<int> arrived{0};
    on_all(size, [&](Transport& transport) {
      for (int round = 1; round <= 20; ++round) {
        ++arrived;
        EXPECT_TRUE(barrier(transport, round % 2 == 0, {}).ok());
        EXPECT_GE(arrived.load(), round * transport.size());
      }
    });
  }
}

TEST(Collectives, AgreeGivesAllTheFirstError) {
  on_all(4, [](Transport& transport) {
    Status mine;
    if (transport.rank() == 2) mine = invalid_input("rank 2 dislikes it");
    if (transport.rank() == 3) mine = failed("rank 3 too");
    const Status all = agree(transport, mine, {});
    ASSERT_FALSE(all.ok());
    EXPECT_EQ(all.error().message, "rank 2 dislikes it");
    EXPECT_EQ(all.error().kind, ErrorKind::invalid_input);
    EXPECT_TRUE(agree(transport, ok_status(), {}).ok());
  });
}

TEST(Collectives, AgreeRefusesAReportThatSaysNothing) {
  on_all(3, [](Transport& transport) {
    if (transport.rank() == 1) {  // takes part as agree() does, without a word
      std::string verdict;
      EXPECT_TRUE(gather(transport, verdict, {}).ok());
      EXPECT_TRUE(broadcast(transport, &verdict, {}).ok());
      return;
    }
    const Status all = agree(transport, ok_status(), {});
    ASSERT_FALSE(all.ok());
    EXPECT_THAT(all.error().message, ::testing::HasSubstr("its report is empty"));
  });
}

TEST(Collectives, PatienceEndsAndSaysWhatIsMissing) {
  on_all(2, [](Transport& transport) {
    if (transport.rank() == 1) return;  // never comes
    const Status status = barrier(transport, false, {0.05, nullptr, "the start of repeat 3"});
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("the start of repeat 3"));
  });
}

// Ranks 3 and 1 of four are ranks 0 and 1; ranks 0 and 2 do something else meanwhile.
TEST(PartOfATransport, HasRanksOfItsOwn) {
  ThreadWorld world(4, bytes(0));
  std::array<std::string, 4> heard;
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      const std::vector<int> members = r % 2 == 1 ? std::vector{3, 1} : std::vector{0, 2};
      TransportPart part(world.endpoint(r), members);
      EXPECT_EQ(part.size(), 2);
      EXPECT_EQ(members[static_cast<size_t>(part.rank())], r);
      EXPECT_EQ(part.same_machine(), (std::vector{0, 1}));
      std::string text = part.rank() == 0 ? fmt::format("of rank {}", r) : "";
      EXPECT_TRUE(broadcast(part, &text, {}).ok());
      heard[static_cast<size_t>(r)] = text;
      EXPECT_TRUE(barrier(world.endpoint(r), false, {}).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heard, (std::array<std::string, 4>{"of rank 0", "of rank 3", "of rank 0", "of rank 3"}));
}

}  // namespace
}  // namespace nlsplit
