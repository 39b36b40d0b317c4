#include "exec/nccl/transport_nccl.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "base/check.h"
#include "exec/cuda/backend.h"
#include "exec/cuda/library.h"

namespace nlsplit::inline exec {
namespace {

using nccl::Outcome;

// Requests of this transport have this bit, those of the other one do not.
constexpr Transport::Request own_bit = Transport::Request{1} << 31;
// Of a Program, and free on the other transport: the Program's messages with this peer go over NCCL.
constexpr int pairing_tag = 0;
// How often NCCL is polled while nothing else happens; the same as copies to a GPU.
constexpr std::chrono::microseconds nccl_look(20);
constexpr std::chrono::milliseconds connect_look(1);

std::span<std::byte> record_bytes(PairingRecord& record) { return std::as_writable_bytes(std::span(&record, 1)); }

}  // namespace

NcclTransport::NcclTransport(NcclLibrary library, const OpenGpu& gpu, Transport& control,
                             std::vector<std::string> devices, std::vector<int> members)
    : library_(std::move(library)),
      gpu_(gpu),
      control_(control),
      devices_(std::move(devices)),
      members_(std::move(members)),
      place_(static_cast<size_t>(control.size()), -1),
      pairing_(control.rank()) {
  for (size_t m = 0; m < members_.size(); ++m) place_[static_cast<size_t>(members_[m])] = static_cast<int>(m);
}

NcclTransport::~NcclTransport() {
  // Without close(): operations may be under way, and a GPU would wait for them for ever.
  if (communicator_ != nullptr) static_cast<void>(library_.api.comm_abort(communicator_));
  if (event_ != nullptr) gpu_.module.destroy_event(gpu_.device, event_);
}

std::string NcclTransport::rank_name(int rank) const {
  return fmt::format("rank {} ({})", rank, devices_[static_cast<size_t>(rank)]);
}

// ---- NCCL

Status NcclTransport::outcome_of(Outcome outcome, const char* what) const {
  if (outcome == Outcome::success || outcome == Outcome::in_progress) return ok_status();
  const char* last = library_.api.get_last_error(communicator_);
  std::string text = fmt::format("NCCL on {}: {}: {}", rank_name(rank()), what, library_.api.get_error_string(outcome));
  if (last != nullptr && *last != '\0') text += fmt::format(": {}", last);
  const bool own = outcome == Outcome::invalid_argument || outcome == Outcome::invalid_usage;
  return own ? failed(text) : lost(text);
}

// Waits until the communicator's operations have ended.
Status NcclTransport::settle(const char* what, const Waiting& waiting) {
  const Clock::time_point begin = Clock::now();
  for (;;) {
    Outcome state = Outcome::success;
    RETURN_IF_ERROR(outcome_of(library_.api.comm_get_async_error(communicator_, &state), "ncclCommGetAsyncError"));
    if (state != Outcome::in_progress) return outcome_of(state, what);
    hear();
    if (failure_) return *failure_;
    if (waiting.cancelled != nullptr && waiting.cancelled()) return failed("interrupted");
    const double waited_s = std::chrono::duration<double>(Clock::now() - begin).count();
    if (waiting.patience_s > 0 && waited_s > waiting.patience_s) {
      return lost(fmt::format("{} waited {:.0f} s for the others in {} of NCCL", rank_name(rank()), waited_s, what));
    }
    std::this_thread::sleep_for(connect_look);
  }
}

Status NcclTransport::connect(const nccl::UniqueId& id, const Waiting& waiting) {
  const Liveness::Wait waits(liveness());
  liveness().begin(waiting.what);
  for (const int member : members_) {  // of an abort, too
    if (member == rank()) continue;
    Hearing& from = hearing_[member];
    from.request = control_.irecv(member, pairing_tag, record_bytes(from.record));
  }
  void* stream = nullptr;  // also: the thread's GPU is this one
  if (const char* why = gpu_.module.handle(gpu_.device, cuda::Stream::messages, &stream); why != nullptr)
    return failed(fmt::format("{}: {}", rank_name(rank()), why));
  if (const char* why = gpu_.module.create_event(gpu_.device, &event_); why != nullptr)
    return failed(fmt::format("{}: {}", rank_name(rank()), why));
  nccl::Config config;
  config.blocking = 0;
  const int place = place_[static_cast<size_t>(rank())];
  const auto count = static_cast<int>(members_.size());
  RETURN_IF_ERROR(outcome_of(library_.api.comm_init_rank_config(&communicator_, count, id, place, &config),
                             "ncclCommInitRankConfig"));
  return settle("ncclCommInitRankConfig", waiting);
}

// One group. Each half of a message is as long as the other: pairing_ has compared them.
Status NcclTransport::call_nccl(const PairingBatch& batch) {
  void* stream = nullptr;
  if (const char* why = gpu_.module.handle(gpu_.device, cuda::Stream::messages, &stream); why != nullptr)
    return failed(fmt::format("{}: {}", rank_name(rank()), why));
  const nccl::Api& api = library_.api;
  RETURN_IF_ERROR(outcome_of(api.group_start(), "ncclGroupStart"));
  Status status;
  for (const uint32_t id : batch.ids) {
    const Message& message = messages_[id];
    if (message.end.bytes == 0 || !status.ok()) continue;
    const int place = place_[static_cast<size_t>(message.peer)];
    const auto bytes = static_cast<size_t>(message.end.bytes);
    status =
        message.end.sends
            ? outcome_of(api.send(message.at, bytes, nccl::DataType::int8, place, communicator_, stream), "ncclSend")
            : outcome_of(api.recv(message.at, bytes, nccl::DataType::int8, place, communicator_, stream), "ncclRecv");
  }
  const Status ended = outcome_of(api.group_end(), "ncclGroupEnd");  // in any case
  return status.ok() ? ended : status;
}

// A group of a communicator that does not block is on the stream once NCCL says so; then its end can be recorded.
Result<bool> NcclTransport::has_ended(Running& running) {
  Outcome state = Outcome::success;
  RETURN_IF_ERROR(outcome_of(library_.api.comm_get_async_error(communicator_, &state), "ncclCommGetAsyncError"));
  RETURN_IF_ERROR(outcome_of(state, "its messages"));
  if (state == Outcome::in_progress) return false;
  if (!running.recorded) {
    if (const char* why = gpu_.module.record(gpu_.device, cuda::Stream::messages, event_); why != nullptr)
      return failed(fmt::format("{}: cannot record an event: {}", rank_name(rank()), why));
    running.recorded = true;
  }
  int reached = 0;
  if (const char* why = gpu_.module.query(gpu_.device, event_, &reached); why != nullptr)
    return failed(fmt::format("{}: a message over NCCL failed: {}", rank_name(rank()), why));
  return reached != 0;
}

// ---- messages

Transport::Request NcclTransport::post(int peer, bool sends, int tag, std::byte* at, size_t bytes) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const uint32_t id = free_.back();
  free_.pop_back();
  messages_[id] = {at, {sends, tag, bytes, id}, peer, State::pending};
  if (!failure_) static_cast<void>(check(pairing_.post(peer, messages_[id].end)));
  drive();
  return own_bit | id;
}

Transport::Request NcclTransport::isend(int peer, int tag, std::span<const std::byte> data) {
  if (!goes_by_nccl(peer, tag)) return control_.isend(peer, tag, data);
  return post(peer, true, tag, const_cast<std::byte*>(data.data()), data.size());  // NOLINT: it is only read
}

Transport::Request NcclTransport::irecv(int peer, int tag, std::span<std::byte> room) {
  if (!goes_by_nccl(peer, tag)) return control_.irecv(peer, tag, room);
  return post(peer, false, tag, room.data(), room.size());
}

Transport::State NcclTransport::test(Request request) {
  if ((request & own_bit) == 0) return control_.test(request);
  const uint32_t id = request & ~own_bit;
  if (messages_[id].state == State::pending) drive();
  if (messages_[id].state == State::done) {
    free_.push_back(id);
    return State::done;
  }
  return failure_ ? State::failed : State::pending;
}

void NcclTransport::pause(int rounds) {
  if (drive()) return;
  if (running_)
    std::this_thread::sleep_for(nccl_look);
  else
    control_.pause(rounds);
}

void NcclTransport::fail(const Error& why) {
  if (!failure_) failure_ = why;
}

Status NcclTransport::check(const Status& status) {
  if (!status.ok()) fail(status.error());
  return status;
}

bool NcclTransport::drive() {
  bool any = false;
  for (bool more = true; more && !failure_; any = any || more) {
    more = hear();
    more = begin() || more;
    more = say() || more;
    more = look() || more;
  }
  return any;
}

bool NcclTransport::hear() {
  bool any = false;
  for (auto& [member, from] : hearing_) {
    while (!failure_ && !from.over) {
      const State state = control_.test(from.request);
      if (state == State::failed) fail(control_.error());
      if (state != State::done) break;
      any = true;
      from.over = from.record.what == PairingRecord::What::bye;
      if (from.over || !check(pairing_.hear(member, from.record)).ok()) break;
      from.request = control_.irecv(member, pairing_tag, record_bytes(from.record));
    }
  }
  return any;
}

// What is to be said goes at once; its bytes stay until they have left.
bool NcclTransport::say() {
  bool any = false;
  for (const auto& [peer, record] : pairing_.take_said()) {
    Saying& made = saying_[peer].emplace_back(Saying{record, 0});
    made.request = control_.isend(peer, pairing_tag, record_bytes(made.record));
    any = true;
  }
  for (auto& [peer, all] : saying_) {
    while (!failure_ && !all.empty()) {
      const State state = control_.test(all.front().request);
      if (state == State::failed) fail(control_.error());
      if (state != State::done) break;
      all.pop_front();
    }
  }
  return any;
}

bool NcclTransport::begin() {
  std::optional<PairingBatch> batch = pairing_.take_batch();
  if (!batch || failure_) return false;
  CHECK(!running_, "a second group of NCCL operations beside one that is under way");
  if (!check(call_nccl(*batch)).ok()) return true;
  running_ = Running{std::move(*batch), Clock::now(), false};
  return true;
}

bool NcclTransport::look() {
  if (!running_ || failure_) return false;
  const Result<bool> ended = has_ended(*running_);
  if (!ended.ok()) {
    fail(ended.error());
    return true;
  }
  if (!*ended) return false;
  for (const uint32_t id : running_->batch.ids) messages_[id].state = State::done;
  running_.reset();
  pairing_.batch_ended();
  return true;
}

std::string NcclTransport::under_way() const {
  std::string text = pairing_.waits_for();
  if (running_) {
    const double since_s = std::chrono::duration<double>(Clock::now() - running_->since).count();
    const std::string moves =
        fmt::format("{} moves {} message{} with {} since {:.1f} s", rank_name(rank()), running_->batch.ids.size(),
                    running_->batch.ids.size() == 1 ? "" : "s", rank_name(running_->batch.peer), since_s);
    text = text.empty() ? moves : fmt::format("{}; {}", moves, text);
  }
  return text.empty() ? text : "NCCL: " + text;
}

Status NcclTransport::close(const Waiting& waiting) {
  if (failure_) return *failure_;
  for (const int member : members_) {
    if (member == rank()) continue;
    Saying& bye = saying_[member].emplace_back(Saying{{.what = PairingRecord::What::bye}, 0});
    bye.request = control_.isend(member, pairing_tag, record_bytes(bye.record));
  }
  for (auto& [member, all] : saying_) {
    for (const Saying& said : all) RETURN_IF_ERROR(check(wait(control_, member, said.request, waiting)));
    all.clear();
  }
  for (auto& [member, from] : hearing_) {
    if (from.over) continue;
    RETURN_IF_ERROR(check(wait(control_, member, from.request, waiting)));
    if (from.record.what != PairingRecord::What::bye)
      return check(failed(fmt::format("{} has more to say about NCCL after the last message", rank_name(member))));
    from.over = true;
  }
  RETURN_IF_ERROR(check(outcome_of(library_.api.comm_finalize(communicator_), "ncclCommFinalize")));
  RETURN_IF_ERROR(check(settle("ncclCommFinalize", waiting)));
  return check(outcome_of(library_.api.comm_destroy(std::exchange(communicator_, nullptr)), "ncclCommDestroy"));
}

}  // namespace nlsplit::inline exec
