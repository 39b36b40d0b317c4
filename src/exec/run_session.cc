#include "exec/run_session.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "exec/device_run.h"
#include "exec/distribute.h"
#include "exec/prepare.h"

namespace nlsplit::inline exec {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Status check_session(const Session& session, const Program& joined, const Transport& transport, const Job& job) {
  RETURN_IF_ERROR(verify_session(session));
  RETURN_IF_ERROR(check_ranks(joined, transport.size()));
  RETURN_IF_ERROR(check_runnable(joined));
  return transport.rank() == 0 ? check_job(joined, job) : ok_status();
}

// All ranks have the same session, and it is sound.
Status check_all(const Session& session, const Result<Program>& joined, const Job& job, Transport& transport,
                 const Waiting& waiting) {
  const std::string mine = joined.ok() ? hex16(hash_text(to_string(session))) : "no sound one";
  std::string first = mine;
  RETURN_IF_ERROR(broadcast(transport, &first, waiting));
  Status sound = joined.ok() ? ok_status() : Status(joined.error());
  if (sound.ok() && first != mine)
    sound = invalid_input(fmt::format("rank {} has session {}, rank 0 has {}", transport.rank(), mine, first));
  if (sound.ok()) sound = check_session(session, *joined, transport, job);
  return agree(transport, sound, waiting);
}

// What is chosen once will be chosen again: its executions are laid out once, unless there are too many to keep.
class Executions {
  static constexpr size_t most_kept = 64;  // each has its dependencies

 public:
  Executions(const Session& session, Backend& backend, Transport& transport, const RunOptions& options,
             const WorkWatch& watch)
      : session_(session),
        backend_(backend),
        transport_(transport),
        options_{
            .watchdog_s = options.watchdog_s,
            .cancelled = options.cancelled,
            .recorder = options.flight == nullptr ? nullptr : &options.flight->of(transport.rank(), transport.size()),
            .watch = &watch} {}

  // Valid until the next call.
  Result<DeviceRun*> of(const Choice& choice) {
    if (made_.size() >= most_kept && !made_.contains({choice.program, choice.times})) made_.clear();
    auto& made = made_[{choice.program, choice.times}];
    if (made.run == nullptr) {
      const std::array choices = {choice};
      ASSIGN_OR_RETURN(Sequence sequence, in_sequence(session_, choices, Choosing::known));
      made.sequence = std::make_unique<Sequence>(std::move(sequence));
      made.run = std::make_unique<DeviceRun>(made.sequence->program, made.sequence->dependencies, transport_.rank(),
                                             backend_, transport_, options_);
    }
    return made.run.get();
  }

 private:
  struct Made {
    std::unique_ptr<Sequence> sequence;
    std::unique_ptr<DeviceRun> run;
  };
  const Session& session_;
  Backend& backend_;
  Transport& transport_;
  DeviceRunOptions options_;
  std::map<std::pair<int, int>, Made> made_;
};

using ChoiceMessage = std::array<int64_t, 2>;
static_assert(sizeof(ChoiceMessage) == static_cast<size_t>(choice_bytes.value()));

// Rank 0's choice on every rank.
Result<Choice> share(Choice choice, Transport& transport, const Waiting& waiting) {
  ChoiceMessage message = {choice.program, choice.times};
  if (transport.rank() != 0) {
    RETURN_IF_ERROR(recv_bytes(transport, 0, std::as_writable_bytes(std::span(message)), waiting));
    return Choice{static_cast<int>(message[0]), static_cast<int>(message[1])};
  }
  for (int peer = 1; peer < transport.size(); ++peer)
    RETURN_IF_ERROR(send_bytes(transport, peer, std::as_bytes(std::span(message)), waiting));
  return choice;
}

const Buffer* find_buffer(const DeviceProgram& device, std::string_view name) {
  for (const Buffer& buffer : device.buffers) {
    if (buffer.name == name && buffer.kind != BufferKind::view) return &buffer;
  }
  return nullptr;
}

// On rank 0, and on others whatever: they are told.
Result<Choice> next_choice(const Session& session, const ChooseNext& choose, const SessionState& state,
                           Transport& transport) {
  if (transport.rank() != 0) return Choice{};
  const Choice choice = choose(state);
  if (choice.times > 0 && (choice.program < 0 || choice.program >= std::ssize(session.programs)))
    return give_up(transport, fmt::format("session {} has no program number {}", session.name, choice.program));
  return choice;
}

}  // namespace

ChooseNext choose_from(std::span<const Choice> choices) {
  auto next = std::make_shared<size_t>(0);
  return [choices, next](const SessionState&) { return *next < choices.size() ? choices[(*next)++] : Choice{0, 0}; };
}

Result<SessionResult> run_session(const Session& session, const Job& job, const ChooseNext& choose,
                                  Transport& transport, const RunOptions& options) {
  Waiting waiting{options.deadlines.prepare_s, options.cancelled, "the preparations"};
  FlightRecorder* recorder =
      options.flight == nullptr ? nullptr : &options.flight->of(transport.rank(), transport.size());
  transport.liveness().record_in(recorder);
  const Liveness::Work work(transport.liveness());
  WorkWatch watch(transport.liveness(), watch_options(transport, options));
  const auto joined = join(session);
  RETURN_IF_ERROR(check_all(session, joined, job, transport, waiting));
  const auto rank = static_cast<size_t>(transport.rank());
  const DeviceProgram& device = joined->devices[rank];
  if (recorder != nullptr) recorder->name_device(device.name);
  waiting.what = "the choice of cores";
  ASSIGN_OR_RETURN(const ChosenCores cores, claim_cores(*joined, transport, options, waiting));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   prepare(*joined, job, transport, options, cores.pins, waiting));
  std::byte* const arena = backend->host().data();
  if (options.poison) poison(device, arena);
  RETURN_IF_ERROR(agree(transport, backend->upload(every_buffer), waiting));
  waiting.patience_s = options.watchdog_s;
  Executions executions(session, *backend, transport, options, watch);

  SessionResult result;
  SessionState state;
  Status looked;  // at the buffers that rank 0 asks for
  state.bytes = [&](std::string_view name) -> std::span<const std::byte> {
    const Buffer* const buffer = find_buffer(device, name);
    if (buffer == nullptr || !looked.ok()) return {};
    looked = backend->download([buffer](const Buffer& other) { return &other == buffer; });
    if (!looked.ok()) return {};
    return {arena + buffer->offset, static_cast<size_t>(size_of(buffer->type).value())};
  };
  waiting.what = "the start of the session";
  RETURN_IF_ERROR(barrier(transport, false, waiting));
  const Clock::time_point begun = Clock::now();
  while (true) {
    if (watch.overdue()) return transport.error();
    const Clock::time_point start = Clock::now();
    waiting.what = fmt::format("the choice after {} executions", state.executions);
    ASSIGN_OR_RETURN(Choice choice, next_choice(session, choose, state, transport));
    if (!looked.ok()) return give_up(transport, looked.error().message);
    ASSIGN_OR_RETURN(choice, share(choice, transport, waiting));
    if (choice.times <= 0) break;
    ASSIGN_OR_RETURN(DeviceRun* const run, executions.of(choice));
    const WorkWatch::Watched watched(watch, {[run] { return run->threads(); }, [run] { return run->computes(); }});
    run->arm();
    RETURN_IF_ERROR(run->start(Clock::now()));
    state.executions += static_cast<size_t>(choice.times);
    result.chosen.push_back(choice);
    result.seconds.push_back(since(start));
  }
  waiting.what = "the end of the session";
  RETURN_IF_ERROR(barrier(transport, false, waiting));
  result.elapsed_s = since(begun);
  const Status taken = backend->download(of_kinds({BufferKind::output, BufferKind::state}));
  RETURN_IF_ERROR(agree(transport, taken, waiting));
  if (const std::string notice = backend->notice(); !notice.empty() && options.notice) options.notice(notice);
  ASSIGN_OR_RETURN(result.outputs, collect_outputs(*joined, true, arena, transport, waiting));
  return result;
}

}  // namespace nlsplit::inline exec
