// Workers: the threads that share the computations of one device (`cores` of the Program), pinned to cores of their own
// where the machine has enough. The caller of a kernel is worker 0; the others spin for a moment between kernels, then
// sleep.
//
//   Workers workers(device.cores, pins);
//   workers.pin_caller();
//   kernel.run({…, workers.crew()});
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "base/core_claim.h"
#include "exec/transport.h"
#include "kernels/module/kernel.h"
#include "program/program.h"

namespace nlsplit::inline exec {

struct ChosenCores {
  // For the workers of a device, one each; empty: there are not enough for all devices of this machine, another run has
  // them, or the only device here has one worker only, and the system may place it. (It would at times place two
  // devices on one core.)
  std::vector<int> pins;
  CoreClaim claim;      // as long as it lives other runs choose other cores
  bool shared = false;  // with another run: there are not enough for both
};
// `run`, `claims`: as of CoreClaim.
ChosenCores choose_cores(const Program& program, int device, const std::vector<int>& devices_of_this_machine,
                         uint64_t run, const std::string& claims = {});

void pin_thread(int core);  // the calling one; where it is refused nothing is lost but speed

// For the calling thread, which computes: another one moves messages, perhaps on the same core. Since Linux 6.6 a
// thread that has used more than its share waits for milliseconds when it wakes up. Workers do so themselves, but for
// the caller.
void let_messages_go_first();

class Workers {
 public:
  // pins: none, or one core for each worker.
  Workers(int count, std::vector<int> pins);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void pin_caller() const;             // the calling thread will be worker 0
  Crew crew();                         // one thread at a time may use it
  std::vector<pid_t> threads() const;  // of all but the caller, those that have begun

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace nlsplit::inline exec
