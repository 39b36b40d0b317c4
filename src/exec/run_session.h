// run_session(): executes the Programs of a session (program/session.h), one device a rank, in the order that rank 0
// chooses while they run.
//
//   const ChooseNext choose = [&](const SessionState& at) { return at.executions < 1000 ? push : end; };
//   ASSIGN_OR_RETURN(const SessionResult result, run_session(&session, job, choose, transport, options));
//
// Weights, states and inputs are placed once, under the names of the joined Program (program/session.h). Inputs may
// change from one execution of their Program to the next (exec/session_inputs.h), or be written by who chooses.
// Executions chosen at once overlap as far as their dependencies let them; where inputs change, a rank ends its own
// part of one before it begins the next. Before a choice rank 0 has ended its own part of those chosen before; the
// choice is a message to each other rank, which begins when it is there and its own part has ended. Nothing else keeps
// the ranks together. Before the executions each rank makes the copies within its caches that the choice names.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "exec/cache_copies.h"
#include "exec/losses.h"
#include "exec/run.h"
#include "program/session.h"

namespace nlsplit::inline exec {

// The session as rank 0 sees it when it chooses; it may write inputs.
struct SessionState {
  size_t executions = 0;                       // so far
  std::span<const ExecutionLoss> losses = {};  // of the executions so far, those that come to rank 0's device
  // Bytes of an instance of a buffer of rank 0's device, by its name in the joined Program; empty: there is none. They
  // are as the executions so far have left them. Of an output, instance m is micro-batch m's.
  std::function<std::span<const std::byte>(std::string_view buffer, int instance)> bytes;
  // An instance of an input of rank 0's device, for the executions from now on. CHECK-fails: there is no such input or
  // instance, or it has another size.
  std::function<void(std::string_view buffer, int instance, std::span<const std::byte> bytes)> write;
  // The same of bytes that `with` writes where they belong.
  std::function<void(std::string_view buffer, int instance,
                     const std::function<void(std::span<std::byte> bytes)>& with)>
      fill;
  // A ChooseNext that waits for a user or a request calls this every second, so that the wait does not count as a hang
  // of rank 0.
  std::function<void()> still_here;
};

// Rank 0's choice. A choice with a refill calls `refill` when a micro-batch may be given its inputs of the next
// execution, which is number `execution` of the choice (from 1); its outputs of the one before may be read then if the
// choice says `answered`. Called by any thread of the device, one at a time; what waits for the inputs waits for it.
struct Chosen : Choice {
  Chosen(Choice choice) : Choice(choice) {}  // NOLINT(google-explicit-constructor): most choices are only that
  Chosen(Choice choice, std::function<void(int execution, int micro_batch)> refill_with)
      : Choice(choice), refill_with(std::move(refill_with)) {}
  std::function<void(int execution, int micro_batch)> refill_with;
  // Instead of executions: the states of all devices as they are now, which rank 0 is given.
  std::function<void(std::vector<StateTensor> states)> take_states;
  std::vector<CacheCopy> copies = {};  // before the executions, in this order
};
Chosen states_to(std::function<void(std::vector<StateTensor> states)> take);

// The next executions; times 0: the session ends. Asked on rank 0 only.
using ChooseNext = std::function<Chosen(const SessionState&)>;
// One choice after the other. They are borrowed.
ChooseNext choose_from(std::span<const Choice> choices);

struct SessionResult {
  std::vector<Choice> chosen;         // with options.keep_choices
  std::vector<double> seconds;        // [choice]: on rank 0, from before the choice to the end of its own part
  double elapsed_s = 0;               // from before the first choice until all ranks have ended
  std::vector<ExecutionLoss> losses;  // on rank 0: of the training steps, in their order
  std::vector<OutputTensor> outputs;  // on rank 0, by device and buffer: outputs and states as they are in the
                                      // end; no states with options.leave_states
  RanOn ran_on = {};                  // on rank 0
};

// `session`: on rank 0, else nullptr: every other rank is given its part (exec/hand_out.h). Of the job: its clocks are
// by computation of the joined Program. Of the options: watchdog_s, deadlines, flight, on_failure, on_stuck, poison
// (once, at the start), keep_choices, kernels, gpu, cancelled and notice count. Errors, the same on all ranks: as
// run()'s; a session that verify_session rejects; a choice of a Program that is not there.
Result<SessionResult> run_session(const Session* session, const Job& job, const ChooseNext& choose,
                                  Transport& transport, const RunOptions& options);

}  // namespace nlsplit::inline exec
