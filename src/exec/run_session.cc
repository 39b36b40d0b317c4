#include "exec/run_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/resident_memory.h"
#include "exec/device_run.h"
#include "exec/distribute.h"
#include "exec/hand_out.h"
#include "exec/number_check.h"
#include "exec/prepare.h"
#include "exec/refills.h"
#include "exec/session_inputs.h"
#include "exec/states.h"

namespace nlsplit::inline exec {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What is chosen once will be chosen again: its executions are laid out once, unless there are too many to keep.
class Executions {
  static constexpr size_t most_kept = 16;  // each has its dependencies, and a thread that waits

 public:
  // `session`: this rank's part.
  Executions(const Session& session, Backend& backend, Transport& transport, const RunOptions& options,
             WorkWatch& watch, std::vector<double> clock)
      : session_(session),
        backend_(backend),
        transport_(transport),
        watch_(watch),
        checks_numbers_(options.check_numbers && !backend.runs_ahead()),
        options_{
            .watchdog_s = options.watchdog_s,
            .cancelled = options.cancelled,
            .clock = std::move(clock),
            .recorder = options.flight == nullptr ? nullptr : &options.flight->of(transport.rank(), transport.size()),
            .watch = &watch} {}

  // This device's part. Adds the losses that come here; `before`: executions so far.
  Status run(const Chosen& choice, size_t before, std::vector<ExecutionLoss>& losses) {
    ASSIGN_OR_RETURN(Made* const made, of(choice));
    DeviceRun* const run = made->run.get();
    if (made->refills) made->refills->begin(choice.refill_with);
    const WorkWatch::Watched watched(watch_, {[run] { return run->threads(); }, [run] { return run->computes(); }});
    made->losses->begin();
    run->arm();
    RETURN_IF_ERROR(run->start(Clock::now()));
    if (made->numbers && !made->numbers->found().empty()) {
      const Error why =
          invalid_input(fmt::format("the first that makes no number out of numbers: {}", made->numbers->found()));
      transport_.abort(why);
      return why;
    }
    for (ExecutionLoss loss : made->losses->means()) {
      loss.execution += static_cast<int64_t>(before);
      losses.push_back(loss);
    }
    return ok_status();
  }

 private:
  struct Made {
    std::unique_ptr<Sequence> sequence;
    std::unique_ptr<LossRecord> losses;
    std::optional<Refills> refills;
    std::optional<NumberCheck> numbers;
    std::unique_ptr<DeviceRun> run;
  };

  // Valid until the next call.
  Result<Made*> of(const Choice& choice) {
    const std::tuple key(choice.program, choice.times, choice.refill);
    if (made_.size() >= most_kept && !made_.contains(key)) made_.clear();
    auto& made = made_[key];
    if (made.run == nullptr) {
      const std::array choices = {choice};
      ASSIGN_OR_RETURN(Sequence sequence, in_sequence_of(session_, choices, static_cast<size_t>(transport_.rank())));
      made.sequence = std::make_unique<Sequence>(std::move(sequence));
      made.losses = std::make_unique<LossRecord>(*made.sequence, transport_.rank());
      DeviceRunOptions options = options_;
      if (!made.sequence->refillings.empty()) made.refills.emplace(*made.sequence);
      if (checks_numbers_) made.numbers.emplace(*made.sequence, transport_.rank());
      if (!made.losses->empty() || made.refills || made.numbers)
        options.ended = [&made, this](uint32_t instance) {
          if (made.numbers) made.numbers->ended(instance, backend_.host().data());
          if (!made.losses->empty()) made.losses->ended(instance, backend_.host().data());
          if (made.refills) made.refills->ended(instance);
        };
      made.run = std::make_unique<DeviceRun>(made.sequence->program, made.sequence->dependencies, transport_.rank(),
                                             backend_, transport_, options);
    }
    return &made;
  }

  const Session& session_;
  Backend& backend_;
  Transport& transport_;
  WorkWatch& watch_;
  bool checks_numbers_;
  DeviceRunOptions options_;
  std::map<std::tuple<int, int, Refill>, Made> made_;
};

constexpr int of_states = -1;  // a choice that is no Program: rank 0 is given all states

struct ChoiceMessage {
  int32_t program = 0, times = 0;
  int64_t copies = 0;  // so many come in a second message
};
static_assert(sizeof(ChoiceMessage) == static_cast<size_t>(choice_bytes.value()));

// Rank 0's choice on every rank.
Result<Chosen> share(Chosen choice, Transport& transport, const Waiting& waiting) {
  ChoiceMessage message = {choice.program, choice.times, std::ssize(choice.copies)};
  if (transport.rank() != 0) {
    RETURN_IF_ERROR(recv_bytes(transport, 0, std::as_writable_bytes(std::span(&message, 1)), waiting));
    choice = Choice{message.program, message.times};
    choice.copies.resize(static_cast<size_t>(message.copies));
  }
  const std::span<CacheCopy> copies(choice.copies);
  if (transport.rank() != 0 && !copies.empty())
    RETURN_IF_ERROR(recv_bytes(transport, 0, std::as_writable_bytes(copies), waiting));
  for (int peer = 1; transport.rank() == 0 && peer < transport.size(); ++peer) {
    RETURN_IF_ERROR(send_bytes(transport, peer, std::as_bytes(std::span(&message, 1)), waiting));
    if (!copies.empty()) RETURN_IF_ERROR(send_bytes(transport, peer, std::as_bytes(copies), waiting));
  }
  return choice;
}

// Names are the device's.
std::unordered_map<std::string_view, const Buffer*> buffers_by_name(const DeviceProgram& device) {
  std::unordered_map<std::string_view, const Buffer*> by_name;
  for (const Buffer& buffer : device.buffers) {
    if (buffer.kind != BufferKind::view) by_name.emplace(buffer.name, &buffer);
  }
  return by_name;
}

// On rank 0, and on others whatever: they are told.
Result<Chosen> next_choice(const Session& session, const ChooseNext& choose, const SessionState& state,
                           Transport& transport) {
  if (transport.rank() != 0) return Chosen(Choice{});
  Chosen choice = choose(state);
  const bool asks_for_states = choice.program == of_states && choice.take_states;
  if (choice.times > 0 && !asks_for_states && (choice.program < 0 || choice.program >= std::ssize(session.programs)))
    return give_up(transport, fmt::format("session {} has no program number {}", session.name, choice.program));
  CHECK((choice.refill == Refill::none) == (choice.refill_with == nullptr), "a choice that refills says with what");
  return choice;
}

}  // namespace

Chosen states_to(std::function<void(std::vector<StateTensor> states)> take) {
  Chosen chosen(Choice{of_states, 1});
  chosen.take_states = std::move(take);
  return chosen;
}

ChooseNext choose_from(std::span<const Choice> choices) {
  auto next = std::make_shared<size_t>(0);
  return [choices, next](const SessionState&) -> Chosen {
    return *next < choices.size() ? choices[(*next)++] : Choice{0, 0};
  };
}

Result<SessionResult> run_session(const Session* whole, const Job& job, const ChooseNext& choose, Transport& transport,
                                  const RunOptions& options) {
  if (options.gpu.messages == GpuMessages::nccl)
    return unsupported("--gpu-messages nccl: executions that go on with each other's states do not run over NCCL");
  forget_peak_resident();
  Waiting waiting{options.deadlines.prepare_s, options.cancelled, "the preparations"};
  FlightRecorder* recorder =
      options.flight == nullptr ? nullptr : &options.flight->of(transport.rank(), transport.size());
  transport.liveness().record_in(recorder);
  const Liveness::Work work(transport.liveness());
  WorkWatch watch(transport.liveness(), watch_options(transport, options));
  ASSIGN_OR_RETURN(SessionTask task, hand_out(whole, job, transport, waiting));
  const Session& session = task.part;
  const Program& joined = task.joined;
  const DeviceProgram& device = joined.devices[static_cast<size_t>(transport.rank())];
  if (recorder != nullptr) recorder->name_device(device.name);
  ASSIGN_OR_RETURN(const Job first, job_of_execution(joined, job, 0));
  waiting.what = "the choice of cores";
  ASSIGN_OR_RETURN(const ChosenCores cores, claim_cores(joined, transport, options, waiting));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   prepare(joined, first, transport, options, cores.pins, waiting));
  std::byte* const arena = backend->host().data();
  ASSIGN_OR_RETURN(SessionInputs inputs, SessionInputs::receive(session, joined, job, arena, transport, waiting));
  if (options.poison) poison(device, arena);
  const auto place = [&](const Buffer& buffer, std::string_view raw) { return backend->place(buffer, raw); };
  RETURN_IF_ERROR(place_states(joined, job.states, place, transport, waiting));
  RETURN_IF_ERROR(agree(transport, backend->upload(every_buffer), waiting));
  give_back_freed();  // what weights and states were received in
  waiting.patience_s = options.watchdog_s;
  if (options.check_numbers && backend->runs_ahead() && options.notice)
    options.notice(
        fmt::format("device {} does not look for NaN and infinity: the values stay on its GPU", device.name));
  Executions executions(session, *backend, transport, options, watch, std::move(task.clock));

  SessionResult result;
  SessionState state;
  const auto by_name = buffers_by_name(device);
  const auto find_buffer = [&](std::string_view name) {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
  };
  Status looked;  // of reading the buffers that rank 0 requests
  state.bytes = [&](std::string_view name, int instance) -> std::span<const std::byte> {
    const Buffer* const buffer = find_buffer(name);
    if (buffer == nullptr || instance >= buffer->instances || !looked.ok()) return {};
    looked = backend->download([buffer](const Buffer& other) { return &other == buffer; });
    if (!looked.ok()) return {};
    return {arena + buffer->offset + instance * buffer->stride(), static_cast<size_t>(size_of(buffer->type).value())};
  };
  bool written = false;
  state.fill = [&](std::string_view name, int instance, const std::function<void(std::span<std::byte>)>& with) {
    const Buffer* const buffer = find_buffer(name);
    CHECK(buffer != nullptr && buffer->kind == BufferKind::input && instance < buffer->instances, name);
    with({arena + buffer->offset + instance * buffer->stride(), static_cast<size_t>(size_of(buffer->type).value())});
    written = true;
  };
  state.write = [&](std::string_view name, int instance, std::span<const std::byte> bytes) {
    state.fill(name, instance, [&](std::span<std::byte> there) {
      CHECK(bytes.size() == there.size(), name);
      std::ranges::copy(bytes, there.begin());
    });
  };
  state.still_here = [&] { transport.liveness().moved(); };
  waiting.what = "the start of the session";
  RETURN_IF_ERROR(barrier(transport, false, waiting));
  const Clock::time_point begun = Clock::now();
  while (true) {
    if (watch.overdue()) return transport.error();
    const Clock::time_point start = Clock::now();
    state.losses = result.losses;
    waiting.what = fmt::format("the choice after {} executions", state.executions);
    waiting.may_last = true;
    ASSIGN_OR_RETURN(Chosen choice, next_choice(session, choose, state, transport));
    if (!looked.ok()) return give_up(transport, looked.error().message);
    ASSIGN_OR_RETURN(choice, share(std::move(choice), transport, waiting));
    waiting.may_last = false;
    if (choice.times <= 0) break;
    if (choice.program == of_states) {
      waiting.what = "the states of all devices";
      RETURN_IF_ERROR(agree(transport, backend->download(of_kinds({BufferKind::state})), waiting));
      ASSIGN_OR_RETURN(std::vector<StateTensor> states, collect_states(joined, arena, transport, waiting));
      if (choice.take_states) choice.take_states(std::move(states));
      continue;
    }
    if (std::exchange(written, false)) {
      const Status uploaded = backend->upload(of_kinds({BufferKind::input}));
      if (!uploaded.ok()) return give_up(transport, uploaded.error().message);
    }
    if (!choice.copies.empty()) {
      const Status copied = make_copies(choice.copies, joined, transport.rank(), *backend);
      if (!copied.ok()) return give_up(transport, copied.error().message);
    }
    const bool one_by_one = inputs.change(choice.program);
    if (choice.refill != Refill::none && (one_by_one || backend->runs_ahead()))
      return give_up(transport, fmt::format("device {} cannot be given other inputs while it computes", device.name));
    for (int done = 0; done < choice.times; done += one_by_one ? 1 : choice.times) {
      if (one_by_one) {
        inputs.next(choice.program, arena);
        const Status uploaded = backend->upload(of_kinds({BufferKind::input}));
        if (!uploaded.ok()) return give_up(transport, uploaded.error().message);
      }
      Chosen now = choice;
      if (one_by_one) now.times = 1;
      RETURN_IF_ERROR(executions.run(now, state.executions + static_cast<size_t>(done), result.losses));
    }
    state.executions += static_cast<size_t>(choice.times);
    if (!options.keep_choices) continue;
    result.chosen.push_back(choice);
    result.seconds.push_back(since(start));
  }
  waiting.what = "the end of the session";
  RETURN_IF_ERROR(barrier(transport, false, waiting));
  result.elapsed_s = since(begun);
  ASSIGN_OR_RETURN(const std::vector<std::string> losses, gather(transport, as_text(result.losses), waiting));
  result.losses.clear();
  for (const std::string& text : losses)
    std::ranges::copy(from_text<ExecutionLoss>(text), std::back_inserter(result.losses));
  std::ranges::sort(result.losses, {}, &ExecutionLoss::execution);
  const Status taken = backend->download(options.leave_states ? of_kinds({BufferKind::output})
                                                              : of_kinds({BufferKind::output, BufferKind::state}));
  RETURN_IF_ERROR(agree(transport, taken, waiting));
  if (const std::string notice = backend->notice(); !notice.empty() && options.notice) options.notice(notice);
  ASSIGN_OR_RETURN(result.ran_on, gather_ran_on(*backend, transport, waiting));
  ASSIGN_OR_RETURN(result.outputs, collect_outputs(joined, !options.leave_states, arena, transport, waiting));
  return result;
}

}  // namespace nlsplit::inline exec
