// Heartbeats of several ranks in one process, over real sockets: who notices what, who says it, and when.
#include "exec/heartbeat/heartbeat_thread.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <deque>
#include <filesystem>
#include <functional>
#include <future>

#include "exec/heartbeat/traffic.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// The limit is short for a test but long for a busy machine.
constexpr double heartbeat_limit_s = 1;

bool is_ready(int fd, short events) {
  pollfd item{fd, events, 0};
  return ::poll(&item, 1, 5000) > 0;
}

Socket accept_soon(const Socket& listener) { return is_ready(listener.fd(), POLLIN) ? accept_now(listener) : Socket(); }

Socket connect_here(uint16_t port) {
  Socket socket = begin_to_connect("127.0.0.1", port);
  return is_ready(socket.fd(), POLLOUT) && is_connected(socket.fd()) ? std::move(socket) : Socket();
}

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
    const Socket in = accept_soon(listener_.socket);
    const Socket out = connect_here(to_);
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

// What a rank does: it waits, or computes.
struct Doing {
  std::string phase;
  std::atomic<bool> computes{false};
  std::atomic<Clock::time_point> since{Clock::now()};
  OwnActivity activity() {
    return {[this] { return computes ? 0.0 : std::chrono::duration<double>(Clock::now() - since.load()).count(); },
            [this](int) { return computes ? "computes" : "waits in " + phase; }};
  }
};

struct Ranks {
  std::deque<Doing> doings;
  std::deque<std::promise<Ending>> promises;
  std::vector<std::future<Ending>> endings;
  std::unique_ptr<CuttableLink> link;  // between ranks 0 and 1, if wanted
  std::vector<std::unique_ptr<HeartbeatThread>> heartbeats;

  Clock::duration meeting{};  // took so long

  using Before = std::function<void(const std::vector<Greeting>&)>;
  explicit Ranks(int size, bool with_link = false, const Before& before = nullptr)
      : doings(static_cast<size_t>(size)), promises(static_cast<size_t>(size)) {
    std::vector<Greeting> greetings;
    for (size_t r = 0; r < doings.size(); ++r) {
      doings[r].phase = "phase of rank " + std::to_string(r);
      endings.push_back(promises[r].get_future());
      HeartbeatOptions options;
      options.limit_s = heartbeat_limit_s;
      options.on_end = [this, r](const Ending& ending) { promises[r].set_value(ending); };
      auto opened = HeartbeatThread::open(static_cast<int>(r), {{"test", "1"}}, doings[r].activity(), options);
      EXPECT_TRUE(opened.ok());
      heartbeats.push_back(std::move(*opened));
      greetings.push_back(heartbeats.back()->greeting());
    }
    if (before) before(greetings);
    const auto begin = Clock::now();
    std::vector<std::thread> threads;
    std::vector<Greeting> through_link = greetings;
    if (with_link) {
      link = std::make_unique<CuttableLink>(greetings[0].port);
      through_link[0].port = link->port();
    }
    for (auto& heartbeat : heartbeats) {
      const bool second = heartbeat == heartbeats[1];
      threads.emplace_back([&, second] { EXPECT_TRUE(heartbeat->connect(second ? through_link : greetings, 5).ok()); });
    }
    for (std::thread& thread : threads) thread.join();
    meeting = Clock::now() - begin;
  }

  // Together, as after MPI_Finalize.
  void leave(const std::vector<size_t>& which) {
    std::vector<std::thread> threads;
    for (const size_t r : which) threads.emplace_back([this, r] { heartbeats[r]->leave(); });
    for (std::thread& thread : threads) thread.join();
  }
};

TEST(HeartbeatThread, ADeadRankIsNamedOnceAndAllEnd) {
  Ranks ranks(3);
  const auto begin = Clock::now();
  ranks.heartbeats[1].reset();  // its connections close without a farewell
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
  EXPECT_LT(Clock::now() - begin, std::chrono::duration<double>(heartbeat_limit_s));
}

TEST(HeartbeatThread, FarewellsAreNoAlarm) {
  Ranks ranks(3);
  ranks.leave({1});
  ranks.heartbeats[1].reset();
  EXPECT_EQ(ranks.endings[0].wait_for(1500ms), std::future_status::timeout);
  ranks.leave({0, 2});
}

TEST(HeartbeatThread, OneRankEndsTheRunForAllWithItsError) {
  Ranks ranks(3);
  EXPECT_TRUE(ranks.heartbeats[2]->end(failed("device C: out of patience\n  for good")));
  EXPECT_FALSE(ranks.heartbeats[2]->end(failed("again")));
  for (const size_t r : {0, 1}) {
    ASSERT_EQ(ranks.endings[r].wait_for(2s), std::future_status::ready);
    const Ending ending = ranks.endings[r].get();
    EXPECT_EQ(ending.error.message, "device C: out of patience\n  for good");
    EXPECT_EQ(exit_code(ending.error), 1);
    EXPECT_FALSE(ending.speaks);
  }
}

TEST(HeartbeatThread, ACutLinkEndsAllWithOneMessage) {
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
    EXPECT_LT(Clock::now() - begin, std::chrono::duration<double>(heartbeat_limit_s));
    // Two that are alone cannot tell each other; the second to speak is late enough for mpirun to have ended it.
    EXPECT_EQ(spoke, size == 2 ? 2 : 1);
  }
}

size_t open_files() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// Before the ranks meet, others are on the port: silent ones, and ones that talk.
TEST(HeartbeatThread, StrangersOnThePortCostNothing) {
  const size_t before = open_files();
  std::vector<Socket> strangers;
  {
    Ranks ranks(3, false, [&strangers](const std::vector<Greeting>& greetings) {
      for (int i = 0; i < 150; ++i) {
        strangers.push_back(connect_here(greetings[static_cast<size_t>(i % 3)].port));
        const std::string loud(i % 2 == 0 ? 0 : 10'000, i % 4 == 1 ? 'x' : '\n');
        (void)::send(strangers.back().fd(), loud.data(), loud.size(), MSG_NOSIGNAL);
      }
    });
    EXPECT_LT(ranks.meeting, 1s);
    // Each end of the ranks' connections is here.
    EXPECT_LE(open_files(), before + strangers.size() + 3 * 2 + 3) << "the others are closed";
    ranks.leave({0, 1, 2});
  }
  strangers.clear();
  EXPECT_EQ(open_files(), before);
}

// One computes, however long: nobody calls that a hang. All idle: everybody knows for how long.
TEST(HeartbeatThread, IdleIsWhatAllRanksAre) {
  Ranks ranks(3);
  ranks.doings[2].computes = true;
  std::this_thread::sleep_for(700ms);
  EXPECT_EQ(ranks.heartbeats[0]->idle_s(), 0);
  EXPECT_THAT(ranks.heartbeats[0]->others(), AllOf(HasSubstr("rank 1"), HasSubstr("waits in phase of rank 1"),
                                                   HasSubstr("rank 2"), HasSubstr("computes")));
  ranks.doings[2].since = Clock::now();
  ranks.doings[2].computes = false;
  std::this_thread::sleep_for(700ms);
  EXPECT_GT(ranks.heartbeats[0]->idle_s(), 0.3);
  ranks.leave({0, 1, 2});
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

// Otherwise the heartbeat would make its rank look busy for ever.
TEST(Traffic, CountsWhatConnectionsCarried) {
  const Listener listener = listen_anywhere();
  LineSocket here(connect_here(listener.port));
  LineSocket there(accept_soon(listener.socket));
  ASSERT_TRUE(here.open() && there.open());
  const uint64_t before = tcp_traffic({}), without = tcp_traffic({here.fd(), there.fd()});
  here.send(std::string(1000, 'x'));
  ASSERT_TRUE(is_ready(there.fd(), POLLIN));
  bool closed = false;
  EXPECT_THAT(there.receive(longest_greeting_line, closed), ::testing::IsEmpty());
  EXPECT_TRUE(closed) << "a line of this length is none of ours";
  EXPECT_GE(tcp_traffic({}), before + 1001);
  EXPECT_EQ(tcp_traffic({here.fd(), there.fd()}), without);
}

}  // namespace
}  // namespace nlsplit
