#include "exec/mpi/transport_mpi.h"

#include <fmt/format.h>
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>  // whether it is CUDA-aware
#endif

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "exec/heartbeat/heartbeat_thread.h"
#include "exec/heartbeat/traffic.h"
#include "exec/mpi/deadline_guard.h"
#include "exec/mpi/greeting_exchange.h"
#include "exec/mpi/mpi_collectives.h"
#include "exec/mpi/mpi_credits.h"
#include "exec/mpi/mpi_requests.h"
#include "exec/mpi/mpi_waiting.h"
#include "exec/mpi/start_watch.h"
#include "exec/process_exit.h"

namespace nlsplit::inline exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds echo(250);  // longer than the heartbeat waits after a broken connection
// Of the start's patience: to exchange greetings, to meet, and to get through MPI_Init. What knows less about who is
// missing comes later. Ranks give up one after the other, and mpirun ends the others when one has: so one speaks.
constexpr double exchange_share = 0.85, guard_share = 0.9, turn_share = 0.05;
constexpr int turns = 2;                    // the first two ranks have turns of their own, the others one together
constexpr double grace_share = 0.1;         // of the heartbeat's limit, for last words; the heartbeat takes up to 0.9
constexpr double never_s = 1e8;             // some years
constexpr size_t small = size_t{64} << 10;  // messages that are not worth a wait
double turn_of(int rank) { return turn_share * std::min(rank, turns); }

// The interfaces or networks that Open MPI uses for messages, "eth0,10.0.0.0/24"; empty: any. A heartbeat over
// another one would not notice when these are cut.
std::string data_network() {
  int provided = 0, index = 0, count = 0;
  std::string value;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return value;
  MPI_T_cvar_handle handle;
  if (MPI_T_cvar_get_index("btl_tcp_if_include", &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
    std::string room(static_cast<size_t>(std::max(count, 0)) + 1, '\0');
    if (count > 0 && MPI_T_cvar_read(handle, room.data()) == MPI_SUCCESS) value = room.c_str();
    MPI_T_cvar_handle_free(&handle);
  }
  MPI_T_finalize();
  return value;
}

// Collective: all ranks call it.
std::vector<int> ranks_of_this_machine() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm neighbours;
  if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &neighbours) != MPI_SUCCESS)
    return {rank};
  int count = 1;
  MPI_Comm_size(neighbours, &count);
  std::vector<int> ranks(static_cast<size_t>(count));
  MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, neighbours);
  MPI_Comm_free(&neighbours);
  return ranks;  // in the order of the key, so ascending
}

class MpiTransport : public Transport {
 public:
  MpiTransport(TransportOptions options, SocketWaiter waiter, std::unique_ptr<ProcessExit> exit)
      : options_(std::move(options)), exit_(std::move(exit)), waiting_(std::move(waiter)) {
    ask_for_short_turns();
    MPI_Comm_rank(MPI_COMM_WORLD, &failure_.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    deferred_.resize(static_cast<size_t>(size_));
  }

  // Before any other word between ranks. `begin`: of the start.
  Status meet(Clock::time_point begin, const StartWatch& watch) {
    if (size_ == 1) return ok_status();
    std::vector<Fact> facts = {{"program", options_.program}};
    for (Fact& fact : facts_of_process()) facts.push_back(std::move(fact));
    facts.push_back({"--heartbeat", fmt::format("{} s", options_.heartbeat_s)});
    facts.push_back({"--start-timeout", fmt::format("{} s", options_.start_timeout_s)});
    HeartbeatOptions options;
    options.limit_s = options_.heartbeat_s > 0 ? options_.heartbeat_s : never_s;
    options.data_network = data_network();
    options.traffic = tcp_traffic;
    options.on_traffic = [this] { liveness_.moved(); };
    options.on_end = [this](const Ending& ending) { (*exit_)(ending.error, ending.speaks); };
    options.notice = options_.notice;
    const OwnActivity own{[this] { return liveness_.idle_s(); }, [this](int peer) { return liveness_.doing(peer); }};
    ASSIGN_OR_RETURN(auto heartbeat, HeartbeatThread::open(failure_.rank, std::move(facts), own, std::move(options)));
    const double patience_s = options_.start_timeout_s > 0 ? options_.start_timeout_s : never_s;
    GreetingExchange exchange(heartbeat->greeting(), failure_.rank, size_);
    ASSIGN_OR_RETURN(const std::vector<Greeting> greetings,
                     exchange.finish(begin, (exchange_share + turn_of(failure_.rank)) * patience_s, watch));
    if (options_.heartbeat_s <= 0) return ok_status();
    const double spent_s = std::chrono::duration<double>(Clock::now() - begin).count();
    heartbeat_ = std::move(heartbeat);
    if (!heartbeat_->connect(greetings, (guard_share + turn_of(failure_.rank)) * patience_s - spent_s).ok())
      wait_for_end();
    return ok_status();
  }

  void set_up() {
    MPI_Comm_dup(MPI_COMM_WORLD, &program_);
    MPI_Comm_dup(MPI_COMM_WORLD, &control_);
    MPI_Comm_set_errhandler(program_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    same_machine_ = ranks_of_this_machine();
    collectives_.use(program_);
    credits_.open(MPI_COMM_WORLD);
    waiting_.set_up(options_.polling, control_, heartbeat_ ? heartbeat_->descriptors() : std::vector<int>(),
                    same_machine_.size());
  }

  ~MpiTransport() override {
    {
      // Waits for all ranks, so the heartbeat lasts until then.
      const DeadlineGuard guard(finalize_patience_s(), [this](double waited_s) {
        abort(
            lost(fmt::format("rank {} on host {} waited {:.3g} s in MPI_Finalize: another rank does not come to its "
                             "end, or MPI hangs",
                             failure_.rank, own_host(), waited_s)));
      });
      collectives_.free_groups();
      credits_.close();
      MPI_Comm_free(&program_);
      MPI_Comm_free(&control_);
      MPI_Finalize();
    }
    if (heartbeat_) heartbeat_->leave();
  }

  int rank() const override { return failure_.rank; }
  int size() const override { return size_; }
  std::vector<int> same_machine() const override { return same_machine_; }

  bool takes_device_memory() const override {
#ifdef MPIX_CUDA_AWARE_SUPPORT
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
  }

  Request isend(int peer, int tag, std::span<const std::byte> data) override {
    const Request request = requests_.add(false, waiting_.pauses());
    if (tag == control_tag) {
      // Receivers may have much to do before they look, so large ones do not leave before.
      requests_.send(request, peer, wire_tag(tag), control_, data, data.size() > small);
      return request;
    }
    requests_[request].peer = peer;
    deferred_[static_cast<size_t>(peer)].push_back({request, tag, data});
    send_deferred(peer);
    return request;
  }

  Request irecv(int peer, int tag, std::span<std::byte> room) override {
    const Request request = requests_.receive(peer, wire_tag(tag), channel(tag), room, waiting_.pauses());
    requests_[request].counts = tag != control_tag;
    return request;
  }

  State test(Request request) override {
    const MpiRequest& it = requests_[request];
    if (it.pieces.empty()) send_deferred(it.peer);
    if (!requests_.test(request, waiting_.longest_look())) return State::pending;
    waiting_.ended(it);
    if (it.counts) credits_.received(it.peer, it.bytes());
    requests_.release(request);
    return State::done;
  }

  NativeCollectives* collectives() override { return &collectives_; }

  Error error() const override { return failed("unreachable"); }  // this transport does not survive failures

  void pause(int rounds) override { waiting_.pause(rounds); }
  void rest() override { waiting_.rest(); }
  void wake() override { waiting_.wake(); }

  Liveness& liveness() override { return liveness_; }
  double idle_s() const override { return heartbeat_ ? heartbeat_->idle_s() : liveness_.idle_s(); }

  [[noreturn]] void abort(const Error& why) override {
    if (!heartbeat_) (*exit_)(why, true);
    // What went wrong here may be the echo of a rank that died, which the heartbeat is about to tell; and of a hang,
    // which all find at once, rank 0 is to tell.
    std::this_thread::sleep_for(failure_.rank == 0 ? echo : 2 * echo);
    Error whole = why;
    if (why.kind == ErrorKind::lost) whole.message += heartbeat_->others();
    if (!heartbeat_->end(whole)) wait_for_end();
    (*exit_)(whole, true);
  }

 private:
  // The heartbeat's thread ends the process.
  [[noreturn]] static void wait_for_end() {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

  // Ranks enter MPI_Finalize together. What is stopped or died then, the heartbeat finds before.
  double finalize_patience_s() const {
    const double patience_s = options_.heartbeat_s > 0 ? options_.heartbeat_s : options_.start_timeout_s;
    return (1 + turn_of(failure_.rank)) * patience_s;
  }

  // Those to the peer that may leave now, in their order.
  void send_deferred(int peer) {
    std::deque<Deferred>& deferred = deferred_[static_cast<size_t>(peer)];
    for (; !deferred.empty() && credits_.may_send(peer); deferred.pop_front()) {
      const auto& [request, tag, data] = deferred.front();
      requests_[request].begun = waiting_.pauses();
      requests_.send(request, peer, wire_tag(tag), program_, data, false);
      credits_.sent(peer, data.size());
    }
  }

  struct Deferred {
    Request request;
    int tag;
    std::span<const std::byte> data;
  };

  static int wire_tag(int tag) { return tag == control_tag ? 0 : tag; }
  MPI_Comm channel(int tag) const { return tag == control_tag ? control_ : program_; }

  TransportOptions options_;
  std::unique_ptr<ProcessExit> exit_;
  Liveness liveness_;
  std::unique_ptr<HeartbeatThread> heartbeat_;  // none: one rank, or not wanted
  std::vector<int> same_machine_;
  MpiFailure failure_{0, [this](const Error& why) { abort(why); }};
  int size_ = 1;
  std::vector<std::deque<Deferred>> deferred_;  // by peer: what may not leave yet
  MPI_Comm program_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  MpiWaiting waiting_;
  MpiRequests requests_{failure_};
  MpiCredits credits_{failure_};
  MpiCollectives collectives_{failure_, requests_, waiting_.pauses()};
};

// What this process does when it crashes stays. UCX takes these signals for itself when MPI starts, and says less of a
// crash than base/memory_faults.h and a run's flight records do.
class KeptCrashSignals {
 public:
  KeptCrashSignals() {
    for (size_t i = 0; i < kept_.size(); ++i) ::sigaction(signals[i], nullptr, &kept_[i]);
  }
  ~KeptCrashSignals() {
    for (size_t i = 0; i < kept_.size(); ++i) ::sigaction(signals[i], &kept_[i], nullptr);
  }
  KeptCrashSignals(const KeptCrashSignals&) = delete;
  KeptCrashSignals& operator=(const KeptCrashSignals&) = delete;

 private:
  static constexpr std::array signals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  std::array<struct sigaction, signals.size()> kept_{};
};

int start_mpi_library(int& provided) {
  const KeptCrashSignals kept;
  return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
}

// Before MPI starts. What the user has set stays.
void set_up_mpi([[maybe_unused]] bool by_launcher) {
#ifdef OPEN_MPI
  // Over TCP Open MPI 4.1 has the receiver ask for each piece of a large message, and both ends' processors compute
  // meanwhile. So the sender is to send all of it, and up to 16 MiB without a handshake: that would wait behind all
  // that moves (docs/performance.md). What the other side must know of a larger message waits behind what the socket
  // holds of one that goes there: so it holds little.
  ::setenv("OMPI_MCA_btl_tcp_flags", "send,inplace,hetero-rdma", 0);
  ::setenv("OMPI_MCA_btl_tcp_eager_limit", "16777216", 0);
  ::setenv("OMPI_MCA_btl_tcp_sndbuf", "524288", 0);
#else
  // When a rank is gone MPICH's launcher sends this to the others. It is no interrupt, and the heartbeat says which
  // one.
  if (by_launcher) std::signal(SIGUSR1, SIG_IGN);
#endif
}

}  // namespace

Result<std::unique_ptr<Transport>> start_mpi(TransportOptions options) {
  auto exit = std::make_unique<ProcessExit>(options.last_words,
                                            options.heartbeat_s > 0 ? grace_share * options.heartbeat_s : 2);
  const Clock::time_point begin = Clock::now();
  StartWatch watch(options.as.rank, options.as.is_first_on_host, options.notice);
  // Ends the process if MPI_Init takes too long: until the ranks know each other, MPI waits for a stopped one for ever.
  std::optional<DeadlineGuard> guard;
  guard.emplace((guard_share + turn_of(options.as.rank)) * options.start_timeout_s, [&](double waited_s) {
    (*exit)(lost(fmt::format("rank {} on host {} waited {:.3g} s in MPI_Init: another rank died, hangs or is stopped, "
                             "or its host cannot be reached{}",
                             options.as.rank, own_host(), waited_s, watch.slow_name())),
            true);
  });
  watch.resolve_name();
  int provided = MPI_THREAD_SINGLE;
  set_up_mpi(options.as.by_launcher);
  if (const int code = start_mpi_library(provided); code != MPI_SUCCESS)
    return failed("MPI does not start: " + mpi_error_text(code));
  watch.mpi_has_started();
  guard.reset();  // what follows keeps its own time
  if (provided < MPI_THREAD_FUNNELED) {
    MPI_Finalize();
    return unsupported("this MPI was built without threads (MPI_THREAD_FUNNELED)");
  }
  auto waiter = SocketWaiter::open();
  if (!waiter) {
    MPI_Finalize();
    return waiter.error();
  }
  ProcessExit& leave = *exit;
  auto transport = std::make_unique<MpiTransport>(std::move(options), std::move(*waiter), std::move(exit));
  // Whoever is missing or different: MPI_Finalize would wait for it.
  if (const Status met = transport->meet(begin, watch); !met.ok()) {
    const bool all_know = met.error().kind != ErrorKind::lost;
    if (all_know && transport->rank() != 0) std::this_thread::sleep_for(2 * echo);  // rank 0 is to say it
    leave(met.error(), !all_know || transport->rank() == 0);
  }
  transport->set_up();
  return std::unique_ptr<Transport>(std::move(transport));
}

LaunchedAs launched_by_mpi() {
  // The first of these variables that is a number.
  const auto number = [](std::initializer_list<const char*> names) -> std::optional<int> {
    for (const char* name : names) {
      const char* text = std::getenv(name);
      if (text == nullptr) continue;
      int value = 0;
      if (std::from_chars(text, text + std::strlen(text), value).ec == std::errc()) return value;
    }
    return std::nullopt;
  };
  // Of Open MPI's mpirun; of PMIx, which srun speaks; of PMI, which MPICH's launcher and srun speak. Not SLURM_PROCID,
  // which a batch script has as well.
  const std::optional<int> rank = number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"});
  if (!rank) return {};
  return {true, *rank, number({"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}).value_or(0) == 0};
}

}  // namespace nlsplit::inline exec
