// Lifelines of several ranks in one process: who notices what, who says it, and when.
#include "exec/mpi/lifeline.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <deque>
#include <future>

#include "exec/mpi/traffic.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// The limit is short for a test but long for a busy machine.
constexpr double lifeline_limit_s = 1;

// A link that can be cut: bytes go through until then, and afterwards nowhere, without any end of the connection.
class CuttableLink {
 public:
  explicit CuttableLink(uint16_t to) : listener_(listen_anywhere()), to_(to), thread_([this] { serve(); }) {}
  ~CuttableLink() {
    done_ = true;
    thread_.join();
  }
  uint16_t port() const { return listener_.port; }
  void cut() { cut_ = true; }

 private:
  void serve() {
    const Socket in = accept_until(listener_.socket, Clock::now() + 5s);
    const Socket out = connect_to("127.0.0.1", to_, Clock::now() + 5s);
    pollfd ends[2] = {{in.fd(), POLLIN, 0}, {out.fd(), POLLIN, 0}};
    while (!done_) {
      if (cut_ || ::poll(ends, 2, 5) <= 0) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      for (const int side : {0, 1}) {
        char piece[1024];
        const ssize_t count = ::recv(ends[side].fd, piece, sizeof(piece), MSG_DONTWAIT);
        if (count > 0) (void)::send(ends[1 - side].fd, piece, static_cast<size_t>(count), MSG_NOSIGNAL);
      }
    }
  }

  Listener listener_;
  const uint16_t to_;
  std::atomic<bool> cut_{false}, done_{false};
  std::thread thread_;
};

struct Ranks {
  std::deque<Liveness> livenesses;
  std::deque<std::promise<Ending>> promises;
  std::vector<std::future<Ending>> endings;
  std::unique_ptr<CuttableLink> link;  // between ranks 0 and 1, if wanted
  std::vector<std::unique_ptr<Lifeline>> lifelines;

  explicit Ranks(int size, bool with_link = false)
      : livenesses(static_cast<size_t>(size)), promises(static_cast<size_t>(size)) {
    std::vector<Greeting> greetings;
    for (size_t r = 0; r < livenesses.size(); ++r) {
      livenesses[r].begin("phase of rank " + std::to_string(r));
      endings.push_back(promises[r].get_future());
      auto opened = Lifeline::open(
          static_cast<int>(r), "test", livenesses[r],
          {lifeline_limit_s, "", nullptr, [this, r](const Ending& ending) { promises[r].set_value(ending); }});
      EXPECT_TRUE(opened.ok());
      lifelines.push_back(std::move(*opened));
      greetings.push_back(lifelines.back()->greeting());
    }
    std::vector<std::thread> threads;
    std::vector<Greeting> through_link = greetings;
    if (with_link) {
      link = std::make_unique<CuttableLink>(greetings[0].port);
      through_link[0].port = link->port();
    }
    for (auto& lifeline : lifelines) {
      const bool second = lifeline == lifelines[1];
      threads.emplace_back(
          [&, second] { EXPECT_TRUE(lifeline->connect(second ? through_link : greetings, Clock::now() + 5s).ok()); });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

TEST(Lifeline, ADeadRankIsNamedOnceAndAllEnd) {
  Ranks ranks(3);
  const auto begin = Clock::now();
  ranks.lifelines[1].reset();  // its connections close without a farewell
  int spoke = 0;
  for (const size_t r : {0, 2}) {
    ASSERT_EQ(ranks.endings[r].wait_for(2s), std::future_status::ready);
    const Ending ending = ranks.endings[r].get();
    EXPECT_EQ(exit_code(ending.error), 3);
    EXPECT_THAT(ending.error.message, AllOf(HasSubstr("lost rank 1 on host "), HasSubstr("waited in phase of rank ")));
    spoke += ending.speaks ? 1 : 0;
    EXPECT_EQ(ending.speaks, r == 0);
  }
  EXPECT_EQ(spoke, 1);
  EXPECT_LT(Clock::now() - begin, std::chrono::duration<double>(lifeline_limit_s));
}

TEST(Lifeline, FarewellsAreNoAlarm) {
  Ranks ranks(3);
  ranks.lifelines[1]->leave();
  ranks.lifelines[1].reset();
  EXPECT_EQ(ranks.endings[0].wait_for(1500ms), std::future_status::timeout);
  ranks.lifelines[0]->leave();
  ranks.lifelines[2]->leave();
}

TEST(Lifeline, OneRankEndsTheRunForAllWithItsError) {
  Ranks ranks(3);
  EXPECT_TRUE(ranks.lifelines[2]->end(failed("device C: out of patience\n  for good")));
  EXPECT_FALSE(ranks.lifelines[2]->end(failed("again")));
  for (const size_t r : {0, 1}) {
    ASSERT_EQ(ranks.endings[r].wait_for(2s), std::future_status::ready);
    const Ending ending = ranks.endings[r].get();
    EXPECT_EQ(ending.error.message, "device C: out of patience\n  for good");
    EXPECT_EQ(exit_code(ending.error), 1);
    EXPECT_FALSE(ending.speaks);
  }
}

TEST(Lifeline, ACutLinkEndsAllWithOneMessage) {
  for (const int size : {2, 3}) {
    Ranks ranks(size, true);
    std::this_thread::sleep_for(300ms);
    const auto begin = Clock::now();
    ranks.link->cut();
    int spoke = 0;
    for (auto& ended : ranks.endings) {
      ASSERT_EQ(ended.wait_for(2s), std::future_status::ready);
      const Ending ending = ended.get();
      EXPECT_EQ(exit_code(ending.error), 3);
      EXPECT_THAT(ending.error.message, AllOf(HasSubstr("lost rank "), HasSubstr("silent for 0.")));
      spoke += ending.speaks ? 1 : 0;
    }
    EXPECT_LT(Clock::now() - begin, std::chrono::duration<double>(lifeline_limit_s));
    // Two that are alone cannot tell each other; the second to speak is late enough for mpirun to have ended it.
    EXPECT_EQ(spoke, size == 2 ? 2 : 1);
  }
}

// One computes, however long: nobody calls that a hang. All idle: everybody knows for how long.
TEST(Lifeline, IdleIsWhatAllRanksAre) {
  Ranks ranks(3);
  ranks.livenesses[2].computing(true);
  std::this_thread::sleep_for(700ms);
  EXPECT_GT(ranks.livenesses[0].idle_s(), 0.5);
  EXPECT_EQ(ranks.lifelines[0]->idle_s(), 0);
  EXPECT_THAT(ranks.lifelines[0]->others(), AllOf(HasSubstr("rank 1"), HasSubstr("waits in phase of rank 1"),
                                                  HasSubstr("rank 2"), HasSubstr("computes")));
  ranks.livenesses[2].computing(false);
  std::this_thread::sleep_for(700ms);
  EXPECT_GT(ranks.lifelines[0]->idle_s(), 0.3);
  for (auto& lifeline : ranks.lifelines) lifeline->leave();
}

TEST(Greeting, SurvivesItsTextAndTellsVersionsApart) {
  const Greeting a{"nlbench 1.0", own_layout(), "alpha", 1234, "0badcafe", {"127.0.0.1", "10.0.0.1"}};
  const auto parsed = parse_greeting(to_string(a), 0);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, a);
  Greeting b = a;
  b.host = "beta";
  EXPECT_TRUE(check_greetings({a, b}).ok());
  b.program = "nlbench 1.1";
  const Status status = check_greetings({a, b});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(exit_code(status.error()), 2);
  EXPECT_EQ(status.error().message,
            "rank 1 on host beta runs nlbench 1.1, rank 0 on host alpha runs nlbench 1.0: all ranks must agree");
  const auto other = parse_greeting("nlsplit-ranks 0\nwhat came before", 4);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(exit_code(other.error()), 2);
}

TEST(Greeting, ManyAddressesFindNoRoom) {
  Greeting a{"p", own_layout(), "h", 1, "t", {}};
  a.addresses.assign(200, "192.168.100.100");
  EXPECT_LE(to_string(a).size(), greeting_size);
}

TEST(OwnAddresses, AreThoseOfTheNetworkNamed) {
  const std::vector<std::string> all = own_addresses();
  ASSERT_FALSE(all.empty());
  EXPECT_THAT(own_addresses("nosuch0,192.0.2.0/24,10.0.0.0/99,x/"), ::testing::ElementsAreArray(all));
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].starts_with("127.")) continue;
    for (const std::string& address : own_addresses("nosuch0," + all[i] + "/32"))
      EXPECT_TRUE(address == all[i] || address.starts_with("127."));
  }
}

// The lifeline's own descriptors would make it look busy for ever.
TEST(Traffic, CountsWhatConnectionsCarried) {
  const Listener listener = listen_anywhere();
  LineSocket here(connect_to("127.0.0.1", listener.port, Clock::now() + 5s));
  LineSocket there(accept_until(listener.socket, Clock::now() + 5s));
  ASSERT_TRUE(here.open() && there.open());
  const uint64_t before = tcp_traffic({}), without = tcp_traffic({here.fd(), there.fd()});
  here.send(std::string(1000, 'x'));
  ASSERT_TRUE(there.wait_line(Clock::now() + 5s) == std::nullopt) << "a line of this length is none of ours";
  EXPECT_GE(tcp_traffic({}), before + 1001);
  EXPECT_EQ(tcp_traffic({here.fd(), there.fd()}), without);
}

}  // namespace
}  // namespace nlsplit
