#include "exec/hand_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "exec/distribute.h"
#include "exec/prepare.h"
#include "exec/session_inputs.h"
#include "program/part.h"
#include "program/saved.h"
#include "program/text.h"
#include "program/verify.h"

namespace nlsplit::inline exec {
namespace {

// The clock of a device by the computations of its part, and what it is predicted to compute in an execution.
struct Figures {
  std::vector<double> clock;
  double predicted_s = 0;
};

Status check_clocks_of(const Job& job, const Program& program) {
  return job.clocks.empty() ? ok_status() : check_clocks(job.clocks, program, "the job's clocks");
}

// Rank 0 judges the whole and the job.
Result<Dependencies> check_whole(const Program& program, const Job& job, int ranks) {
  RETURN_IF_ERROR(check_structure(program));
  RETURN_IF_ERROR(check_ranks(program, ranks));
  ASSIGN_OR_RETURN(Dependencies deps, verified(program));
  RETURN_IF_ERROR(check_runnable(program));
  RETURN_IF_ERROR(check_job(program, job));
  RETURN_IF_ERROR(check_clocks_of(job, program));
  return deps;
}

Result<Program> check_whole(const Session& session, const Job& job, int ranks) {
  ASSIGN_OR_RETURN(Program joined, join(session));
  RETURN_IF_ERROR(verify_session(session));
  RETURN_IF_ERROR(check_ranks(joined, ranks));
  RETURN_IF_ERROR(check_runnable(joined));
  ASSIGN_OR_RETURN(const Job first, job_of_execution(joined, job, 0));
  RETURN_IF_ERROR(check_job(joined, first));
  RETURN_IF_ERROR(check_clocks_of(job, joined));
  return joined;
}

// What decides how many messages follow.
std::string options_text(const RunOptions& options) {
  return fmt::format("{} warm-up and {} kept repeats{}", options.warmup, options.keep,
                     options.gpu.messages == GpuMessages::nccl ? ", messages between GPUs over NCCL" : "");
}

std::vector<double> clock_of(const Job& job, size_t device, const std::vector<int>& descs) {
  std::vector<double> clock;
  if (device >= job.clocks.size() || job.clocks[device].empty()) return clock;
  for (const int desc : descs) clock.push_back(job.clocks[device][static_cast<size_t>(desc)]);
  return clock;
}

Figures figures_of(const Job& job, size_t device, const std::vector<int>& descs) {
  Figures figures{clock_of(job, device, descs), 0};
  if (device < job.predicted_compute_s.size() && std::isfinite(job.predicted_compute_s[device]))
    figures.predicted_s = job.predicted_compute_s[device];
  return figures;
}

void take(Figures figures, Task& task) {
  task.longest_computation_s = figures.predicted_s;
  for (const double s : figures.clock) task.longest_computation_s = std::max(task.longest_computation_s, s);
  task.clock = std::move(figures.clock);
}

Status send_part(const Part& part, const Figures& figures, int rank, Transport& transport, const Waiting& waiting) {
  RETURN_IF_ERROR(send_text(transport, rank, to_string(part.program), waiting));
  std::vector<double> all = {figures.predicted_s};
  all.insert(all.end(), figures.clock.begin(), figures.clock.end());
  return send_text(transport, rank, as_text(all), waiting);
}

// Seconds that rank 0 sent: of each of so many computations, or of none.
Status check_sent(std::span<const double> clock, const Program& program) {
  const bool fits = clock.empty() || clock.size() == program.descs.size();
  if (fits && std::ranges::all_of(clock, [](double s) { return std::isfinite(s) && s >= 0; })) return ok_status();
  return failed("rank 0 sent other figures than this program's");
}

// What rank 0 sent.
struct Received {
  std::string outline, part;
  std::vector<double> figures;
};

Result<Received> receive(Transport& transport, const Waiting& waiting) {
  Received received;
  RETURN_IF_ERROR(broadcast(transport, &received.outline, waiting));
  ASSIGN_OR_RETURN(received.part, recv_text(transport, 0, waiting));
  ASSIGN_OR_RETURN(const std::string figures, recv_text(transport, 0, waiting));
  received.figures = from_text<double>(figures);
  return received;
}

Status take_part(const Received& received, size_t rank, int ranks, Task& task) {
  ASSIGN_OR_RETURN(const Program outline, parse_program(received.outline, "rank 0's outline"));
  RETURN_IF_ERROR(check_ranks(outline, ranks));
  ASSIGN_OR_RETURN(const Program part, parse_program(received.part, "rank 0's program"));
  ASSIGN_OR_RETURN(Program own, in_outline(outline, part, rank));
  ASSIGN_OR_RETURN(task.dependencies, verified_part(own, rank));
  const std::vector<double>& figures = received.figures;
  if (figures.empty() || !(figures[0] >= 0)) return failed("rank 0 sent other figures than this program's");
  RETURN_IF_ERROR(check_sent(std::span(figures).subspan(1), own));
  take({{figures.begin() + 1, figures.end()}, figures[0]}, task);
  task.part = std::move(own);
  return ok_status();
}

Status take_part(Received received, size_t rank, int ranks, SessionTask& task) {
  ASSIGN_OR_RETURN(const Program outline, parse_program(received.outline, "rank 0's outline"));
  RETURN_IF_ERROR(check_ranks(outline, ranks));
  ASSIGN_OR_RETURN(const Session part, parse_session(received.part, "rank 0's session"));
  ASSIGN_OR_RETURN(task.part, in_outline(outline, part, rank));
  for (const Program& program : task.part.programs) {
    if (const auto sound = verified_part(program, rank); !sound) return sound.error();
  }
  ASSIGN_OR_RETURN(task.joined, join(task.part));
  RETURN_IF_ERROR(check_sent(received.figures, task.joined));
  task.clock = std::move(received.figures);
  return ok_status();
}

// A session's part joined has its computations in another order than the whole: as join() takes them up.
std::vector<int> descs_of(const Session& part, const Program& whole) {
  Program own;
  for (const Program& program : part.programs) {
    for (const ComputeDesc& desc : program.descs) intern_desc(own, desc);
  }
  std::vector<int> descs;
  for (const ComputeDesc& desc : own.descs)
    descs.push_back(static_cast<int>(std::ranges::find(whole.descs, desc) - whole.descs.begin()));
  return descs;
}

// Rank 0 hands the others theirs and keeps its own.
Status hand_out_parts(const Session& whole, const Job& job, SessionTask& task, Transport& transport,
                      const Waiting& waiting) {
  const Program outline = outline_of(task.joined);
  std::string text = to_string(outline);
  RETURN_IF_ERROR(broadcast(transport, &text, waiting));
  for (int rank = transport.size() - 1; rank >= 0; --rank) {
    const auto device = static_cast<size_t>(rank);
    Session part = part_of(whole, device);
    std::vector<double> clock;
    if (!job.clocks.empty()) clock = clock_of(job, device, descs_of(part, task.joined));
    if (rank > 0) {
      RETURN_IF_ERROR(send_text(transport, rank, to_string(part), waiting));
      RETURN_IF_ERROR(send_text(transport, rank, as_text(clock), waiting));
    } else {
      ASSIGN_OR_RETURN(task.part, in_outline(outline, part, device));
      task.clock = std::move(clock);
    }
  }
  return ok_status();
}

}  // namespace

Result<Task> hand_out(const Program* whole, const Job& job, Transport& transport, const RunOptions& options,
                      const Waiting& waiting) {
  const int rank = transport.rank();
  CHECK((whole != nullptr) == (rank == 0), "rank 0 has the program");
  Task task;
  task.whole = whole;
  std::string first = options_text(options);
  RETURN_IF_ERROR(broadcast(transport, &first, waiting));
  Status sound;
  if (const std::string mine = options_text(options); mine != first)
    sound = invalid_input(fmt::format("rank {} runs with {}, rank 0 has {}", rank, mine, first));
  if (rank == 0) {
    auto deps = check_whole(*whole, job, transport.size());
    if (deps)
      task.dependencies = std::move(*deps);
    else
      sound = deps.error();
  }
  RETURN_IF_ERROR(agree(transport, sound, waiting));

  std::string number = rank == 0 ? as_text(std::vector<uint64_t>{fingerprint(*whole)}) : "";
  RETURN_IF_ERROR(broadcast(transport, &number, waiting));
  const std::vector<uint64_t> told = from_text<uint64_t>(number);
  if (told.size() != 1) return give_up(transport, "rank 0 gave no fingerprint of the program");
  task.fingerprint = told[0];
  if (rank == 0) {
    std::vector<int> all(whole->descs.size());
    std::iota(all.begin(), all.end(), 0);
    take(figures_of(job, 0, all), task);
    std::string outline = to_string(outline_of(*whole));
    RETURN_IF_ERROR(broadcast(transport, &outline, waiting));
    for (int peer = 1; peer < transport.size(); ++peer) {
      const auto device = static_cast<size_t>(peer);
      // A policy chooses by what all devices may still do, so an online run needs the whole everywhere.
      const Part part = job.online ? Part{*whole, all} : part_of(*whole, device);
      RETURN_IF_ERROR(send_part(part, figures_of(job, device, part.descs), peer, transport, waiting));
    }
  } else {
    ASSIGN_OR_RETURN(const Received received, receive(transport, waiting));
    sound = take_part(received, static_cast<size_t>(rank), transport.size(), task);
  }
  RETURN_IF_ERROR(agree(transport, sound, waiting));
  return task;
}

Result<SessionTask> hand_out(const Session* whole, const Job& job, Transport& transport, const Waiting& waiting) {
  CHECK((whole != nullptr) == (transport.rank() == 0), "rank 0 has the session");
  SessionTask task;
  Status sound;
  if (whole != nullptr) {
    auto joined = check_whole(*whole, job, transport.size());
    if (joined)
      task.joined = std::move(*joined);
    else
      sound = joined.error();
  }
  RETURN_IF_ERROR(agree(transport, sound, waiting));
  if (whole != nullptr) {
    RETURN_IF_ERROR(hand_out_parts(*whole, job, task, transport, waiting));
  } else {
    ASSIGN_OR_RETURN(Received received, receive(transport, waiting));
    sound = take_part(std::move(received), static_cast<size_t>(transport.rank()), transport.size(), task);
  }
  RETURN_IF_ERROR(agree(transport, sound, waiting));
  return task;
}

}  // namespace nlsplit::inline exec
