// run(): executes a Program, one device a rank, and measures it. `run(Program, Transport) → Trace`.
//
//   ASSIGN_OR_RETURN(RunResult result, run(&program, job, transport, options));   // rank 0, who knows the answer
//   RETURN_IF_ERROR(run(nullptr, {}, transport, options));                        // every other rank
//
// Executions that go on with the states of the ones before are sessions: exec/run_session.h.
//
// Rank 0 brings the Program, the weights and the inputs and gives each rank its own part of them (exec/hand_out.h); the
// others need no files. Weights are placed (and packed) once. Each repeat begins with all devices together and every
// state as it was, so all repeats must give the same bits. For all devices in one process there is exec/run_threads.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/cuda/library.h"
#include "exec/device_run.h"
#include "exec/transport.h"
#include "exec/work_watch.h"
#include "kernels/module/kernel.h"
#include "program/online.h"
#include "program/program.h"
#include "program/saved.h"
#include "program/state_parts.h"
#include "program/trace.h"

namespace nlsplit::inline exec {

struct NamedTensor {
  std::string name;
  TensorType type;            // of the whole batch
  std::vector<float> values;  // of f32; empty for all other types
  std::string raw = {};       // row-major bytes of all other types; empty for f32
};
std::span<const std::byte> bytes_of(const NamedTensor& tensor);

// A state of a session as it is at one moment: name (the Program's), type, row-major bytes.
using StateTensor = PartsJoined::Whole;

// Row-major bytes of a content, valid until the next call.
using ContentLookup = std::function<Result<std::string_view>(ContentId)>;
using ChecksumLookup = std::function<Result<Checksum>(ContentId)>;

// The inputs, weights and options of a run, on rank 0. Contents that other ranks have too are not sent to them.
struct Job {
  ContentLookup contents;
  std::vector<NamedTensor> inputs;               // by the names of the Program's input buffers
  Clocks clocks = {};                            // program/saved.h
  std::optional<Online> online = {};             // none: every device in the order of the Program
  std::vector<double> predicted_compute_s = {};  // by device, in an execution: for deadlines; empty: not known
  ChecksumLookup checksums = {};                 // of the contents when they were saved; none: as rank 0 has them now
  // Of a session, borrowed: what these states hold first, instead of their contents.
  std::span<const StateTensor> states = {};
};

struct Repeat {
  int count = 0;                       // with this one
  double elapsed_s = 0;                // since the first counted one began
  const std::vector<Interval>& times;  // when each of rank 0's instances ran
  double calibration_s = 0;            // of rank 0's core before it: base/calibration.h
};

struct RunOptions {
  int warmup = 1;   // repeats that are not counted: caches, page tables and connections settle
  int repeats = 5;  // at least so many
  // And at least so long, warm-up not counted.
  double duration_s = 0;
  int keep = 64;  // so many of the last repeats keep their times; more costs memory
  // A training step's results too: weights and the optimizer's states, once each. Costs their size in messages.
  bool states = false;
  // Repeats begin with the states that the one before has left, as executions of a session do, and not with the first
  // ones: nothing is written over them, which would bring them into caches. Results may then differ.
  bool keep_states = false;
  bool leave_states = false;  // of a session: in the end its states stay where they are, and are no results
  bool keep_choices = true;   // of a session: what was chosen, and its times, are results; else nothing grows with them
  // Of a session: ends it where a computation makes a float32 that is no number out of numbers alone, and names it. On
  // a GPU nothing is looked at, which is a notice.
  bool check_numbers = false;
  bool poison = false;     // fills all but weights, states and inputs with NaN before each repeat: for tests
  double watchdog_s = 10;  // see DeviceRunOptions
  Deadlines deadlines = {};
  FlightRecords* flight = nullptr;  // keeps what the ranks of this process did last; none: nothing is kept
  // Over threads: called with the reason before the run is aborted, while the devices' state is still unchanged.
  std::function<void(const Error& why)> on_failure = nullptr;
  // A computation is overdue and does not notice that the run has ended; over a transport whose abort() ends the
  // process it is not called. Default: prints why, and ends the process.
  std::function<void(const Error& why)> on_stuck = nullptr;
  const OnlinePolicy* policy = nullptr;  // instead of the one that the job's `online` names: for tests
  // Instead of the library's kernels: for tests.
  std::function<const KernelCode*(KernelId kernel)> kernels = nullptr;
  // [rank]: not 0: as if on a machine whose clock is so far ahead: for tests.
  std::vector<double> foreign_clocks_s = {};
  bool (*cancelled)() = nullptr;  // becomes true when the user cancels; called often
  // Called on rank 0 after each counted repeat with its makespan, so that measurements are kept even if the run fails
  // later.
  std::function<void(double makespan_s)> keep_makespan = nullptr;
  GpuOptions gpu = {};  // for devices of kind cuda
  // Called on any rank, on its thread, with notices for the user about how the run goes, such as that a CPU computes in
  // place of a GPU.
  std::function<void(const std::string& notice)> notice = nullptr;
  // On rank 0, after each counted repeat. false: that is enough.
  std::function<bool(const Repeat&)> after_repeat;
};

struct OutputTensor {
  std::string device;
  NamedTensor tensor;  // all micro-batches
};

// What computed the devices of a run, and where.
struct RanOn {
  std::vector<int> machine;     // of each device: the lowest of those on its machine
  std::vector<char> stands_in;  // of each device: whether a CPU computed in place of its GPU
  // Of each device: its process, the same number for the same one; the most bytes that this held meanwhile (0: unknown;
  // base/resident_memory.h); and the arena, which is a part of that.
  std::vector<int64_t> process, peak_resident, arena;
};

struct RunResult {
  Trace trace;                                      // the kept repeat whose makespan is nearest the median of all
  std::vector<double> makespans_s;                  // of each repeat
  std::vector<std::vector<double>> calibrations_s;  // [repeat][device]: base/calibration.h
  std::vector<double> losses;             // of each repeat of a training step: the mean over its micro-batches
  std::vector<OutputTensor> outputs;      // by device and buffer; of the last repeat
  std::vector<std::vector<int>> decided;  // [device]: the order of its slots in the repeat of the trace
  size_t overruns = 0;                    // of emulated compute, in all repeats
  double clock_error_s = 0;  // times of two devices may be apart by so much; 0: all ranks have the same clock
  RanOn ran_on = {};         // on rank 0
};

// `program`: on rank 0, else nullptr. Errors, the same on all ranks: too many or too few ranks, a Program that verify
// rejects, inputs that do not fit, missing contents, an online run of another Program, not enough memory, a CPU without
// the level the kernels need, a GPU that is missing or refuses, a hang (the watchdog says where), repeats that differ
// in their bits, a training on a GPU (gradients have no kernels there).
Result<RunResult> run(const Program* program, const Job& job, Transport& transport, const RunOptions& options);

// "this plan runs on 3 devices (A, B, C), and 1 rank was started. Run it in one process with `--transport threads`, …"
Status check_ranks(const Program& program, int ranks);

// The inputs a Program wants, by name, with the shape of the whole batch. Error: two devices disagree.
Result<std::vector<NamedTensor>> wanted_inputs(const Program& program);

double median(std::vector<double> values);  // of at least one

}  // namespace nlsplit::inline exec
