#include "exec/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "base/calibration.h"
#include "base/hash.h"
#include "base/resident_memory.h"
#include "exec/backends/instructions.h"
#include "exec/collectives.h"
#include "exec/common_clock.h"
#include "exec/distribute.h"
#include "exec/hand_out.h"
#include "exec/nccl/transport_nccl.h"
#include "exec/prepare.h"
#include "exec/run_results.h"
#include "graph/differentiate/step_graph.h"
#include "program/text.h"
#include "program/trace.h"
#include "program/verify.h"

namespace nlsplit::inline exec {
namespace {

using Clock = std::chrono::steady_clock;

bool runs_once(const RunOptions& options) {
  return options.warmup + std::max(1, options.repeats) == 1 && options.duration_s <= 0;
}

// What changes during an execution and must be as before at the next one.
class Reset {
 public:
  Reset(const DeviceProgram& device, Backend& backend, const RunOptions& options)
      : device_(device), backend_(backend), arena_(backend.host().data()), poison_(options.poison) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.kind != BufferKind::state) continue;
      if (options.keep_states || runs_once(options))
        touch(buffer);
      else
        states_.emplace_back(&buffer, are_zeros(buffer) ? "" : bytes(buffer));
    }
  }

  Status operator()() const {
    for (const auto& [buffer, saved] : states_) {
      if (saved.empty())
        std::memset(arena_ + buffer->offset, 0, static_cast<size_t>(buffer->extent()));
      else
        std::memcpy(arena_ + buffer->offset, saved.data(), saved.size());
    }
    if (!poison_) return backend_.upload(of_kinds({BufferKind::state}));
    poison(device_, arena_);
    return backend_.upload(
        of_kinds({BufferKind::state, BufferKind::output, BufferKind::stash, BufferKind::scratch, BufferKind::comm}));
  }

 private:
  // Memory that was never written is one page of zeros, which is always in a cache.
  void touch(const Buffer& buffer) const {
    constexpr int64_t page = 4096;
    volatile std::byte* const begin = arena_ + buffer.offset;
    for (int64_t at = 0; at < buffer.extent(); at += page) begin[at] = begin[at];
  }
  // Such as an optimizer's tensors: these would take as much memory again.
  bool are_zeros(const Buffer& buffer) const {
    const std::byte* const begin = arena_ + buffer.offset;
    const auto size = static_cast<size_t>(buffer.extent());
    return size == 0 || (*begin == std::byte{0} && std::memcmp(begin, begin + 1, size - 1) == 0);
  }
  std::string bytes(const Buffer& buffer) const {
    return {reinterpret_cast<const char*>(arena_ + buffer.offset), static_cast<size_t>(buffer.extent())};
  }

  const DeviceProgram& device_;
  Backend& backend_;
  std::byte* const arena_;
  const bool poison_;
  std::vector<std::pair<const Buffer*, std::string>> states_;  // empty: zeros
};

uint64_t hash_outputs(const DeviceProgram& device, std::byte* arena) {
  uint64_t hash = 0;
  for (const Buffer& buffer : device.buffers) {
    if (!is_result(device, buffer)) continue;
    for (int instance = 0; instance < buffer.instances; ++instance) {
      hash =
          hash_bytes(instance_data(buffer, instance, arena), static_cast<size_t>(size_of(buffer.type).value()), hash);
    }
  }
  return hash;
}

struct Repeats {
  std::vector<double> makespans;                  // on rank 0: of the slowest device; elsewhere its own
  std::vector<std::vector<double>> calibrations;  // on rank 0: [repeat][device]
  std::vector<double> losses;                     // on rank 0: RunResult::losses
  std::deque<std::vector<Interval>> kept;
  std::deque<std::vector<int>> decided;  // of those
  size_t overruns = 0;
  std::optional<CommonClock> common;
};

// The mean of a training step's losses where they are delivered; elsewhere, and of inference, not a number.
double mean_loss(const Program& program, const DeviceProgram& device, std::byte* arena) {
  double sum = 0;
  int count = 0;
  for (const Buffer& buffer : device.buffers) {
    if (buffer.kind != BufferKind::output || buffer.name != losses_name || buffer.type != losses_type()) continue;
    for (int instance = 0; instance < buffer.instances; ++instance, ++count) {
      float loss = 0;
      std::memcpy(&loss, instance_data(buffer, instance, arena), sizeof loss);
      sum += static_cast<double>(loss);
    }
  }
  return is_training(program) && count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

// A rank's record of a repeat.
struct RepeatFigures {
  double makespan = 0, calibration = 0;
  double loss = 0;  // not a number: none here
};

// On rank 0: a repeat takes as long as its slowest device.
Status add_repeat(const RepeatFigures& own, Repeats& repeats, Transport& transport, const Waiting& waiting) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   gather(transport, as_text(std::vector<double>{own.makespan, own.calibration, own.loss}), waiting));
  double makespan = own.makespan;
  std::vector<double> calibrations;
  for (const std::string& text : all) {
    const std::vector<double> of_rank = from_text<double>(text);
    if (of_rank.size() != 3) return give_up(transport, "a rank answered with other figures of a repeat");
    makespan = std::max(makespan, of_rank[0]);
    calibrations.push_back(of_rank[1]);
    if (!std::isnan(of_rank[2])) repeats.losses.push_back(of_rank[2]);
  }
  repeats.makespans.push_back(makespan);
  repeats.calibrations.push_back(std::move(calibrations));
  return ok_status();
}

// Whether there should be another one after so many.
bool wants_another(const RunOptions& options, const Repeats& repeats, double elapsed_s) {
  const auto least = static_cast<size_t>(std::max(1, options.repeats));
  return repeats.makespans.size() < least || elapsed_s < options.duration_s;
}

// What repeats are made of, once everything is prepared.
struct RunParts {
  const Program& program;
  const Dependencies& deps;
  Backend& backend;
  Transport& transport;
  WorkWatch& watch;
  std::vector<double> clock;           // DeviceRunOptions::clock
  std::optional<OnlineDevice> online;  // none: the order of the Program
  double predicted_s = 0;              // the longest computation
};

// All repeats, warm-up first. Rank 0 says after each whether there is another one.
Result<Repeats> repeat(RunParts parts, const RunOptions& options, Waiting waiting) {
  const Program& program = parts.program;
  Backend& backend = parts.backend;
  Transport& transport = parts.transport;
  WorkWatch& watch = parts.watch;
  const int rank = transport.rank();
  const DeviceProgram& device = program.devices[static_cast<size_t>(rank)];
  std::byte* const arena = backend.host().data();
  const Reset reset(device, backend, options);
  DeviceRun device_run(program, parts.deps, rank, backend, transport,
                       {.watchdog_s = options.watchdog_s,
                        .cancelled = options.cancelled,
                        .clock = std::move(parts.clock),
                        .online = std::move(parts.online),
                        .calibrates = true,
                        .recorder = options.flight == nullptr ? nullptr : &options.flight->of(rank, transport.size()),
                        .watch = &watch});
  const WorkWatch::Watched watched(
      watch, {[&device_run] { return device_run.threads(); }, [&device_run] { return device_run.computes(); }});
  double known_s = parts.predicted_s;
  watch.expect(known_s, "the predicted");
  waiting.what = "the comparison of the clocks";
  ASSIGN_OR_RETURN(CommonClock common, CommonClock::measure(transport, options.foreign_clocks_s, waiting));
  Repeats repeats;
  Status same_bits;
  uint64_t first_hash = 0;
  bool enough = false, told = false;
  Clock::time_point counted_from = Clock::now();
  for (int r = -options.warmup;; ++r) {
    if (watch.overdue()) return transport.error();  // alone, no message says so
    if (r == 0) counted_from = Clock::now();
    const double elapsed = r < 0 ? 0 : std::chrono::duration<double>(Clock::now() - counted_from).count();
    waiting.what = fmt::format("the start of repeat {}", r + options.warmup + 1);
    std::string again = !enough && (r < 0 || wants_another(options, repeats, elapsed)) ? "1" : "0";
    RETURN_IF_ERROR(broadcast(transport, &again, waiting));
    if (again != "1") break;
    // An error is the end for all: they are about to start.
    if (const Status status = reset(); !status.ok()) return give_up(transport, status.error().message);
    if (options.flight != nullptr) options.flight->of(rank, transport.size()).repeat(r + options.warmup + 1);
    device_run.arm();
    RETURN_IF_ERROR(common.refresh(transport, waiting));
    ASSIGN_OR_RETURN(const Clock::time_point zero, common.agree_on_start(transport, waiting));
    ASSIGN_OR_RETURN(std::vector<Interval> times, device_run.start(zero));
    if (const double took_s = last_finish(times); took_s > known_s)
      watch.expect(known_s = took_s, "the longest execution's");
    if (const std::string notice = backend.notice(); !notice.empty() && options.notice && !std::exchange(told, true))
      options.notice(notice);
    if (const Status taken = backend.download(of_kinds({BufferKind::output, BufferKind::state})); !taken.ok())
      return give_up(transport, taken.error().message);
    const uint64_t hash = hash_outputs(device, arena);
    if (r == -options.warmup) first_hash = hash;
    if (hash != first_hash && same_bits.ok() && !options.keep_states) {
      same_bits = failed(
          fmt::format("device {}: repeat {} gave other bits than the first one", device.name, r + options.warmup + 1));
    }
    if (r < 0) continue;
    waiting.what = fmt::format("the end of repeat {}", r + options.warmup + 1);
    // Now, not in the end: what was measured is then known whatever happens later.
    const RepeatFigures figures{last_finish(times), device_run.calibration_s(), mean_loss(program, device, arena)};
    RETURN_IF_ERROR(add_repeat(figures, repeats, transport, waiting));
    if (rank == 0 && options.keep_makespan) options.keep_makespan(repeats.makespans.back());
    if (rank == 0 && options.after_repeat) {
      const double now = std::chrono::duration<double>(Clock::now() - counted_from).count();
      enough = !options.after_repeat({r + 1, now, times, device_run.calibration_s()});
    }
    repeats.overruns += device_run.overruns();
    repeats.kept.push_back(std::move(times));
    repeats.decided.push_back(device_run.decided());
    if (repeats.kept.size() > static_cast<size_t>(std::max(1, options.keep))) {
      repeats.kept.pop_front();
      repeats.decided.pop_front();
    }
  }
  repeats.common = common;
  waiting.what = "the end of the last repeat";
  RETURN_IF_ERROR(agree(transport, same_bits, waiting));
  return repeats;
}

// Rank 0 knows who decides; all ranks get the same knowledge.
Result<std::optional<Online>> shared_online(const Program& program, const std::optional<Online>& mine,
                                            Transport& transport, const Waiting& waiting) {
  std::string text = mine ? online_text(*mine) : "";
  RETURN_IF_ERROR(broadcast(transport, &text, waiting));
  if (text.empty()) return std::optional<Online>();
  auto online = parse_online(text, program, "the online run of rank 0");
  const Status fits = online.ok() ? ok_status() : Status(online.error());
  RETURN_IF_ERROR(agree(transport, fits, waiting));
  return std::optional<Online>(std::move(*online));
}

// The policy of this device.
Result<OnlineDevice> online_device(const Program& program, const Dependencies& bound, Online& online, size_t rank,
                                   const RunOptions& options) {
  OnlineDevice device;
  ASSIGN_OR_RETURN(device.policy, find_online_policy(online.policy));
  if (device.policy == &replay_policy()) RETURN_IF_ERROR(check_table(program, bound, online.table));
  if (options.policy != nullptr) device.policy = options.policy;
  device.remaining_s = std::move(online.remaining_s[rank]);
  if (rank < online.table.size()) device.table = std::move(online.table[rank]);
  return device;
}

}  // namespace

Status check_ranks(const Program& program, int ranks) {
  const size_t devices = program.devices.size();
  if (static_cast<size_t>(ranks) == devices) return ok_status();
  std::string names;
  for (const DeviceProgram& device : program.devices) names += (names.empty() ? "" : ", ") + device.name;
  const std::string workers = devices > 1 ? fmt::format(", or as `--transport grpc` with {} worker{} (--workers)",
                                                        devices - 1, devices == 2 ? "" : "s")
                                          : "";
  return invalid_input(fmt::format(
      "this plan runs on {} {} ({}), and {} rank{} started. Run it in one process with `--transport threads`, over MPI "
      "with `mpirun -np {}`{}",
      devices, devices == 1 ? "device" : "devices", names, ranks, ranks == 1 ? " was" : "s were", devices, workers));
}

Result<RunResult> run(const Program* whole, const Job& job, Transport& transport, const RunOptions& options) {
  forget_peak_resident();
  Waiting waiting{options.deadlines.prepare_s, options.cancelled, "the preparations"};
  FlightRecorder* recorder =
      options.flight == nullptr ? nullptr : &options.flight->of(transport.rank(), transport.size());
  transport.liveness().record_in(recorder);
  const Liveness::Work work(transport.liveness());
  WorkWatch watch(transport.liveness(), watch_options(transport, options));
  ASSIGN_OR_RETURN(Task task, hand_out(whole, job, transport, options, waiting));
  const Program& program = task.program();
  const auto rank = static_cast<size_t>(transport.rank());
  if (recorder != nullptr) recorder->name_device(program.devices[rank].name);
  waiting.what = "the choice of cores";
  ASSIGN_OR_RETURN(const ChosenCores cores, claim_cores(program, transport, options, waiting));
  waiting.what = "the search for NCCL";
  ASSIGN_OR_RETURN(const std::optional<NcclLibrary> library, find_nccl(program, options.gpu, transport, waiting));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   prepare(program, job, transport, options, cores.pins, waiting));
  RETURN_IF_ERROR(upload_prepared(*backend, transport, waiting));
  give_back_freed();  // what weights were received in
  waiting.patience_s = options.watchdog_s;

  RunResult result;
  waiting.what = "the distribution of the online policy";
  ASSIGN_OR_RETURN(std::optional<Online> online, shared_online(program, job.online, transport, waiting));
  std::optional<Dependencies> free;
  std::optional<OnlineDevice> turns;
  if (online) {
    auto order = free_dependencies(program);
    if (order.ok()) free = std::move(*order);
    auto device = order.ok() ? online_device(program, *free, *online, rank, options) : order.error();
    RETURN_IF_ERROR(agree(transport, device.ok() ? ok_status() : Status(device.error()), waiting));
    turns = std::move(*device);
  }
  // Rank 0 has those of the whole, in which native collectives are written out.
  std::optional<Dependencies> as_run;
  if (has_native(program.devices[rank])) as_run = dependencies_of(program, rank);
  const Dependencies& bound = free ? *free : as_run ? *as_run : task.dependencies;
  std::unique_ptr<NcclTransport> nccl;
  if (options.gpu.messages == GpuMessages::nccl) {
    const Waiting start{options.deadlines.prepare_s, options.cancelled, "the start of NCCL"};
    ASSIGN_OR_RETURN(nccl, open_nccl(program, library, *backend, transport, start));
  }
  Transport& moves = nccl ? static_cast<Transport&>(*nccl) : transport;
  auto repeated = repeat({.program = program,
                          .deps = bound,
                          .backend = *backend,
                          .transport = moves,
                          .watch = watch,
                          .clock = std::move(task.clock),
                          .online = std::move(turns),
                          .predicted_s = task.longest_computation_s},
                         options, waiting);
  if (options.gpu.messages == GpuMessages::nccl) {
    waiting.what = "the end of NCCL";
    const Status closed = agree(transport, nccl ? nccl->close(waiting) : ok_status(), waiting);
    nccl.reset();
    if (repeated.ok()) RETURN_IF_ERROR(closed);
  }
  ASSIGN_OR_RETURN(Repeats repeats, std::move(repeated));
  waiting.what = "the collection of results";
  result.makespans_s = std::move(repeats.makespans);
  result.calibrations_s = std::move(repeats.calibrations);
  result.losses = std::move(repeats.losses);
  ASSIGN_OR_RETURN(result.overruns, sum_of_all(repeats.overruns, transport, waiting));
  ASSIGN_OR_RETURN(result.clock_error_s, repeats.common->worst_error_s(transport, waiting));
  ASSIGN_OR_RETURN(result.ran_on, gather_ran_on(*backend, transport, waiting));
  ASSIGN_OR_RETURN(const size_t chosen, choose_repeat(result.makespans_s, repeats.kept.size(), transport, waiting));
  ASSIGN_OR_RETURN(result.trace, gather_trace(task, repeats.kept[chosen], *backend, transport, waiting));
  if (online) {
    ASSIGN_OR_RETURN(result.decided, gather_decided(repeats.decided[chosen], transport, waiting));
  } else {
    result.decided = static_order(program);
  }
  ASSIGN_OR_RETURN(result.outputs,
                   collect_outputs(program, options.states, backend->host().data(), transport, waiting));
  return result;
}

}  // namespace nlsplit::inline exec
