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
#include "exec/backends/instructions.h"
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
  // `task`: whose part is this rank's. It must outlive this, as all that is borrowed.
  Executions(const SessionTask& task, SessionInputs inputs, Backend& backend, Transport& transport,
             const RunOptions& options, WorkWatch& watch)
      : session_(task.part),
        joined_(task.joined),
        inputs_(std::move(inputs)),
        backend_(backend),
        transport_(transport),
        watch_(watch),
        checks_numbers_(options.check_numbers && !backend.runs_ahead()),
        options_{
            .watchdog_s = options.watchdog_s,
            .cancelled = options.cancelled,
            .clock = task.clock,
            .recorder = options.flight == nullptr ? nullptr : &options.flight->of(transport.rank(), transport.size()),
            .watch = &watch} {}

  // This device's part, after the copies within its caches. Adds the losses that come here; `before`: executions so
  // far. Errors that the other ranks do not expect end the run.
  Status run(const Chosen& choice, size_t before, std::vector<ExecutionLoss>& losses) {
    if (!choice.copies.empty())
      RETURN_IF_ERROR(or_give_up(make_copies(choice.copies, joined_, transport_.rank(), backend_)));
    if (!inputs_.change(choice.program)) {
      if (choice.refill != Refill::none && backend_.runs_ahead()) return no_refill();
      return run_at_once(choice, before, losses);
    }
    if (choice.refill != Refill::none) return no_refill();
    Chosen one = choice;
    one.times = 1;
    for (int done = 0; done < choice.times; ++done) {
      inputs_.next(choice.program, backend_.host().data());
      RETURN_IF_ERROR(or_give_up(backend_.upload(of_kinds({BufferKind::input}))));
      RETURN_IF_ERROR(run_at_once(one, before + static_cast<size_t>(done), losses));
    }
    return ok_status();
  }

 private:
  Status or_give_up(const Status& status) {
    if (!status.ok()) return give_up(transport_, status.error().message);
    return ok_status();
  }
  Status no_refill() {
    const std::string& name = joined_.devices[static_cast<size_t>(transport_.rank())].name;
    return give_up(transport_, fmt::format("device {} cannot be given other inputs while it computes", name));
  }

  // All executions of the choice, which overlap.
  Status run_at_once(const Chosen& choice, size_t before, std::vector<ExecutionLoss>& losses) {
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
  const Program& joined_;
  SessionInputs inputs_;
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

// The buffers of rank 0's device, as SessionState offers them.
class OwnBuffers {
 public:
  OwnBuffers(const DeviceProgram& device, Backend& backend) : backend_(backend) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.kind != BufferKind::view) by_name_.emplace(buffer.name, &buffer);
    }
  }

  // The functions of `state` borrow this.
  void offer_to(SessionState& state) {
    state.bytes = [this](std::string_view name, int instance) { return read(name, instance); };
    state.fill = [this](std::string_view name, int instance, const std::function<void(std::span<std::byte>)>& with) {
      with(input(name, instance));
    };
    state.write = [this](std::string_view name, int instance, std::span<const std::byte> bytes) {
      const std::span<std::byte> there = input(name, instance);
      CHECK(bytes.size() == there.size(), name);
      std::ranges::copy(bytes, there.begin());
    };
  }

  // Why a buffer could not be read.
  const Status& looked() const { return looked_; }
  // Inputs that were written since, to where the device computes.
  Status upload_written() {
    return std::exchange(written_, false) ? backend_.upload(of_kinds({BufferKind::input})) : ok_status();
  }

 private:
  const Buffer* find(std::string_view name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  std::span<std::byte> memory_of(const Buffer& buffer, int instance) const {
    return {instance_data(buffer, instance, backend_.host().data()), static_cast<size_t>(size_of(buffer.type).value())};
  }
  std::span<const std::byte> read(std::string_view name, int instance) {
    const Buffer* const buffer = find(name);
    if (buffer == nullptr || instance >= buffer->instances || !looked_.ok()) return {};
    looked_ = backend_.download([buffer](const Buffer& other) { return &other == buffer; });
    if (!looked_.ok()) return {};
    return memory_of(*buffer, instance);
  }
  std::span<std::byte> input(std::string_view name, int instance) {
    const Buffer* const buffer = find(name);
    CHECK(buffer != nullptr && buffer->kind == BufferKind::input && instance < buffer->instances, name);
    written_ = true;
    return memory_of(*buffer, instance);
  }

  Backend& backend_;
  std::unordered_map<std::string_view, const Buffer*> by_name_;
  Status looked_;
  bool written_ = false;
};

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

// One choice after the other, until rank 0 chooses the end. Without the losses of other ranks, outputs and states.
Result<SessionResult> run_choices(const SessionTask& task, const ChooseNext& choose, Executions& executions,
                                  Backend& backend, Transport& transport, const RunOptions& options,
                                  const WorkWatch& watch, Waiting waiting) {
  SessionResult result;
  SessionState state;
  OwnBuffers buffers(task.joined.devices[static_cast<size_t>(transport.rank())], backend);
  buffers.offer_to(state);
  state.still_here = [&] { transport.liveness().moved(); };
  while (true) {
    if (watch.overdue()) return transport.error();
    const Clock::time_point start = Clock::now();
    state.losses = result.losses;
    waiting.what = fmt::format("the choice after {} executions", state.executions);
    waiting.may_last = true;
    ASSIGN_OR_RETURN(Chosen choice, next_choice(task.part, choose, state, transport));
    if (!buffers.looked().ok()) return give_up(transport, buffers.looked().error().message);
    ASSIGN_OR_RETURN(choice, share(std::move(choice), transport, waiting));
    waiting.may_last = false;
    if (choice.times <= 0) return result;
    if (choice.program == of_states) {
      waiting.what = "the states of all devices";
      RETURN_IF_ERROR(agree(transport, backend.download(of_kinds({BufferKind::state})), waiting));
      ASSIGN_OR_RETURN(std::vector<StateTensor> states,
                       collect_states(task.joined, backend.host().data(), transport, waiting));
      if (choice.take_states) choice.take_states(std::move(states));
      continue;
    }
    if (const Status there = buffers.upload_written(); !there.ok()) return give_up(transport, there.error().message);
    RETURN_IF_ERROR(executions.run(choice, state.executions, result.losses));
    state.executions += static_cast<size_t>(choice.times);
    if (!options.keep_choices) continue;
    result.chosen.push_back(choice);
    result.seconds.push_back(since(start));
  }
}

// On rank 0 those of all ranks, in the order of their executions.
Status collect_losses(std::vector<ExecutionLoss>& losses, Transport& transport, const Waiting& waiting) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(transport, as_text(losses), waiting));
  losses.clear();
  for (const std::string& text : all) std::ranges::copy(from_text<ExecutionLoss>(text), std::back_inserter(losses));
  std::ranges::sort(losses, {}, &ExecutionLoss::execution);
  return ok_status();
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
  const Program& joined = task.joined;
  const DeviceProgram& device = joined.devices[static_cast<size_t>(transport.rank())];
  if (recorder != nullptr) recorder->name_device(device.name);
  ASSIGN_OR_RETURN(const Job first, job_of_execution(joined, job, 0));
  waiting.what = "the choice of cores";
  ASSIGN_OR_RETURN(const ChosenCores cores, claim_cores(joined, transport, options, waiting));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                   prepare(joined, first, transport, options, cores.pins, waiting));
  std::byte* const arena = backend->host().data();
  ASSIGN_OR_RETURN(SessionInputs inputs, SessionInputs::receive(task.part, joined, job, arena, transport, waiting));
  if (options.poison) poison(device, arena);
  const auto place = [&](const Buffer& buffer, std::string_view raw) { return backend->place(buffer, raw); };
  RETURN_IF_ERROR(place_states(joined, job.states, place, transport, waiting));
  RETURN_IF_ERROR(agree(transport, backend->upload(every_buffer), waiting));
  give_back_freed();  // what weights and states were received in
  waiting.patience_s = options.watchdog_s;
  if (options.check_numbers && backend->runs_ahead() && options.notice)
    options.notice(
        fmt::format("device {} does not look for NaN and infinity: the values stay on its GPU", device.name));
  Executions executions(task, std::move(inputs), *backend, transport, options, watch);
  waiting.what = "the start of the session";
  RETURN_IF_ERROR(barrier(transport, false, waiting));
  const Clock::time_point begun = Clock::now();
  ASSIGN_OR_RETURN(SessionResult result,
                   run_choices(task, choose, executions, *backend, transport, options, watch, waiting));
  waiting.what = "the end of the session";
  RETURN_IF_ERROR(barrier(transport, false, waiting));
  result.elapsed_s = since(begun);
  RETURN_IF_ERROR(collect_losses(result.losses, transport, waiting));
  const Status taken = backend->download(options.leave_states ? of_kinds({BufferKind::output})
                                                              : of_kinds({BufferKind::output, BufferKind::state}));
  RETURN_IF_ERROR(agree(transport, taken, waiting));
  if (const std::string notice = backend->notice(); !notice.empty() && options.notice) options.notice(notice);
  ASSIGN_OR_RETURN(result.ran_on, gather_ran_on(*backend, transport, waiting));
  ASSIGN_OR_RETURN(result.outputs, collect_outputs(joined, !options.leave_states, arena, transport, waiting));
  return result;
}

}  // namespace nlsplit::inline exec
