// HeartbeatThread: runs a PeerWatch (peer_watch.h) on a thread of its own, with TCP sockets and this machine's clock.
//
//   auto heartbeat = HeartbeatThread::open(rank, facts, own_activity, {.limit_s = 10, .on_end = end_the_process});
//   … all ranks exchange greeting() …
//   RETURN_IF_ERROR(heartbeat->connect(greetings, patience_s));
//   heartbeat->leave();                                       // the run is over for this rank, and all is well
//
// A rank whose connections carry data is not idle, so a long message over a slow link is not taken for a hang.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "exec/heartbeat/greeting.h"
#include "exec/heartbeat/line_socket.h"
#include "exec/heartbeat/peer_watch.h"

namespace nlsplit::inline exec {

struct HeartbeatOptions {
  double limit_s = 10;  // from the loss of a rank to the end of all others; smaller: false alarms on a busy machine
  std::string data_network = {};  // as of own_addresses(): where the messages pass
  // What connections have carried, but these: see traffic.h. Without it a long message looks idle.
  std::function<uint64_t(const std::vector<int>& except)> traffic = nullptr;
  std::function<void()> on_traffic = nullptr;                // on the thread: connections have carried something
  std::function<void(const Ending&)> on_end = nullptr;       // once, on the thread, which then ends: the run is over
  std::function<void(const std::string&)> notice = nullptr;  // on the thread: what the start waits for
};

class HeartbeatThread {
 public:
  // Listens. `facts` are for the greeting; `own` is called on the thread. Error: the system gives no socket.
  static Result<std::unique_ptr<HeartbeatThread>> open(int rank, std::vector<Fact> facts, OwnActivity own,
                                                       HeartbeatOptions options);
  ~HeartbeatThread();  // without leave() the other ranks see a rank that died

  const Greeting& greeting() const { return greeting_; }
  // Connects to the neighbours; only their greetings are used. All ranks must call it. Then on_end may be called.
  // Error: the run has ended.
  Status connect(std::vector<Greeting> greetings, double patience_s);

  void leave();
  // Ends the run for the others, too. false: it has ended already, and on_end is being called.
  bool end(const Error& why);

  // The smallest of all ranks' idle times, by their last heartbeats.
  double idle_s() const;
  // Its connections. Constant after connect().
  std::vector<int> descriptors() const;
  // What its neighbours do, a line each.
  std::string others() const;

 private:
  struct Connection {
    LineSocket line;
    bool connecting = false, closed = false;
  };

  HeartbeatThread(int rank, OwnActivity own, HeartbeatOptions options);
  void watch();
  bool serve();
  std::chrono::milliseconds rest() const;
  void accept_some(Moment now);
  void read(int number, Connection& connection, Moment now);
  void perform(Moment now);
  void count_traffic(Moment now);
  void linger();
  void stop();

  const int rank_;
  const OwnActivity own_;
  const HeartbeatOptions options_;
  Greeting greeting_;

  mutable std::mutex mutex_;  // for all below
  std::condition_variable changed_;
  Listener listener_;
  std::optional<PeerWatch> watch_;
  std::map<int, Connection> connections_;  // by the watch's numbers
  bool stop_ = false;
  uint64_t traffic_ = 0;  // of the process at the last look, but these connections
  Moment next_look_{}, accept_again_{};
  Socket wake_;
  std::thread thread_;
};

}  // namespace nlsplit::inline exec
