// Lifeline: how the ranks of a run notice that one of them died, hangs, is stopped or is cut off, which MPI does not
// tell. Each rank has a thread of its own for it and a TCP connection to each other rank, apart from MPI. Ten times in
// the limit every rank tells every other how long it has been idle and what it waits in. What MPI's connections carry
// counts as no idleness, so that a long message over a slow link is none.
//
//   auto lifeline = Lifeline::open(rank, "nlbench 0.1.0", liveness, {10, end_the_process});
//   … all ranks exchange greeting() …
//   RETURN_IF_ERROR(lifeline->connect(greetings, deadline));
//   lifeline->leave();                                        // the run is over for this rank, and all is well
//
// A rank is lost when its connection breaks, or when nothing was heard of it for 0.7 of the limit; the rest is for
// ending. The lowest rank that is not lost says so, whoever found out, so the message appears once. Two ranks that are
// cut off from each other alone both speak up to that one; without a third, the lower one speaks first.
// A process that was stopped and goes on finds that the others declared it lost, and ends too.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "exec/liveness.h"
#include "exec/mpi/greeting.h"
#include "exec/mpi/line_socket.h"

namespace nlsplit {

struct Ending {
  Error error;          // why; of kind `lost` if a rank is
  bool speaks = false;  // this is the rank to say it
};

struct LifelineOptions {
  double limit_s = 10;  // all ranks have ended so long after one is lost; smaller: a busy machine raises false alarms
  std::string data_network;  // as of own_addresses(): where the messages pass
  // What connections have carried, but these: see traffic.h. Without it a long message looks idle.
  std::function<uint64_t(const std::vector<int>& except)> traffic;
  std::function<void(const Ending&)> on_end;  // once, on the lifeline's thread, which then ends: the run is over
};

class Lifeline {
 public:
  // `liveness` is this rank's own, and outlives this; it is told of traffic. Error: the system gives no socket.
  static Result<std::unique_ptr<Lifeline>> open(int rank, const std::string& program, Liveness& liveness,
                                                LifelineOptions options);
  ~Lifeline();  // without leave(): to the others this rank has died

  const Greeting& greeting() const { return greeting_; }
  // With each other rank; all must call it. Error: one does not answer in time; it is named.
  Status connect(std::vector<Greeting> greetings, Deadline deadline);

  void leave();
  // Ends the run for the others, too. false: it has ended already, and on_end is being called.
  bool end(const Error& why);

  // The least of all ranks, by what was heard last.
  double idle_s() const;
  // Its connections. Constant after connect().
  std::vector<int> descriptors() const;
  // What the other ranks wait in, a line each.
  std::string others() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    LineSocket line;
    Clock::time_point heard, broke_at;
    double idle_s = 0;
    std::string doing;
    bool left = false, broke = false;
  };

  Lifeline(int rank, Liveness& liveness, LifelineOptions options);
  Status meet(int lower, const std::vector<Greeting>& greetings, Deadline deadline);
  void watch();
  void read_all(Clock::time_point now);
  void take(int rank, const std::string& line);
  void beat();
  void judge(Clock::time_point now);
  bool is_suspect(int rank, Clock::time_point now) const;
  std::string accuse(const std::vector<int>& suspects, Clock::time_point now) const;
  void conclude(Ending ending);
  void tell_all(const std::string& line);
  std::string name(int rank) const;
  void stop();

  const int rank_;
  Liveness& liveness_;
  const LifelineOptions options_;
  const Clock::duration limit_, interval_;
  Listener listener_;
  Greeting greeting_;
  std::vector<Greeting> greetings_;

  mutable std::mutex mutex_;  // for all below
  std::vector<Peer> peers_;   // by rank; its own is unused
  bool stop_ = false, ended_ = false;
  Ending ending_;                 // what the thread will tell its owner
  Clock::time_point accused_at_;  // this rank told the speaker of its suspicion
  bool accused_ = false;
  uint64_t traffic_ = 0;  // of the process at the last beat, but these connections
  Socket wake_;
  std::thread thread_;
};

}  // namespace nlsplit
