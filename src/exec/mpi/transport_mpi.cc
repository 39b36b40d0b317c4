#include "exec/mpi/transport_mpi.h"

#include <fmt/format.h>
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>  // whether it is CUDA-aware
#endif
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "base/check.h"
#include "exec/heartbeat/heartbeat_thread.h"
#include "exec/heartbeat/traffic.h"
#include "exec/mpi/deadline_guard.h"
#include "exec/mpi/greeting_exchange.h"
#include "exec/mpi/socket_waiter.h"
#include "exec/mpi/start_watch.h"
#include "exec/process_exit.h"

namespace nlsplit::inline exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t largest_piece = size_t{1} << 30;  // MPI counts with int: larger messages go in pieces
// Between looks, while nothing tells when to look.
constexpr std::chrono::microseconds shortest_sleep(50), longest_sleep(500);
// Between looks, while sockets tell: only in case they missed something.
constexpr std::chrono::microseconds shortest_watch(1000), longest_watch(16000);
constexpr std::chrono::milliseconds between_searches(50);  // for new sockets
constexpr std::chrono::microseconds between_rests(2000);   // some thousandths of a core
constexpr int tolerated_misses = 3;
// Open MPI 4 looks at its sockets in one of so many calls (opal/runtime/opal_progress.c).
constexpr int calls_of_a_look = 8;
// MPI does not say whether it moved anything. But a look at nothing takes less than a microsecond or two, one that
// copied a fragment (32 KiB through shared memory) longer. On a slow processor it is so many times a look at nothing.
constexpr std::chrono::microseconds least_busy_look(3);
constexpr int busy_look_factor = 3, looks_at_nothing = 65;
constexpr std::chrono::milliseconds echo(250);  // longer than the heartbeat waits after a broken connection
// Of the start's patience: to exchange greetings, to meet, and to get through MPI_Init. What knows less about who is
// missing comes later. Ranks give up one after the other, and mpirun ends the others when one has: so one speaks.
constexpr double exchange_share = 0.85, guard_share = 0.9, turn_share = 0.05;
constexpr int turns = 2;             // the first two ranks have turns of their own, the others one together
constexpr double grace_share = 0.1;  // of the heartbeat's limit, for last words; the heartbeat takes up to 0.9
constexpr double never_s = 1e8;      // some years
// From so many members on Open MPI 4.1 has a faster all-reduce, but not in place
// (ompi/mca/coll/libnbc/nbc_iallreduce.c).
constexpr int64_t least_apart = 4;

double turn_of(int rank) { return turn_share * std::min(rank, turns); }

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
}

// The interfaces or networks Open MPI was told to send messages over, "eth0,10.0.0.0/24"; empty: any. A heartbeat over
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

// Is there a core for polling beside the one that computes?
bool has_spare_core(size_t ranks) {
  const size_t cores = std::thread::hardware_concurrency();
  cpu_set_t mine;
  const size_t usable = sched_getaffinity(0, sizeof(mine), &mine) == 0 ? static_cast<size_t>(CPU_COUNT(&mine)) : cores;
  return usable < cores ? usable >= 2 : cores >= 2 * ranks;  // bound to its own cores, or sharing all of them
}

// The calling thread sleeps most of the time, and a message waits for it when it wakes: before the thread that computes
// on the same core. Since Linux 6.6 who wakes may have to wait for milliseconds unless its turns are short (6.12 lets
// us ask for that); before, it had the right of way.
void ask_for_short_turns() {
  struct Attributes {  // the kernel's sched_attr, first version; its header and the C library's exclude each other
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } attributes{};
  constexpr uint64_t shortest_ns = 100'000;
  constexpr uint64_t not_inherited = 1;  // SCHED_FLAG_RESET_ON_FORK: the threads that compute start from this one
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  attributes.size = sizeof(attributes);
  attributes.runtime = shortest_ns;
  attributes.flags |= not_inherited;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);  // a wish
}

// What MPI adds up, as it knows it.
std::optional<MPI_Datatype> number_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
    default:
      return std::nullopt;
  }
}

// Of an element, in MPI's types: what it does not add up is moved as bytes.
int64_t units_of(DType dtype) { return number_type(dtype) ? 1 : size_of(dtype, 1); }

// Numbers of elements, and where each member's begin: MPI reads them until the collective has ended.
struct Counts {
  std::vector<int> counts, begins;
};
Counts counts_of(std::span<const int64_t> elements, int64_t factor) {
  Counts all;
  int64_t begin = 0;
  for (const int64_t count : elements) {
    all.counts.push_back(static_cast<int>(count * factor));
    all.begins.push_back(static_cast<int>(begin * factor));
    begin += count;
  }
  return all;
}

class MpiTransport : public Transport, private NativeCollectives {
 public:
  MpiTransport(TransportOptions options, SocketWaiter waiter, std::unique_ptr<ProcessExit> exit)
      : options_(std::move(options)), exit_(std::move(exit)), waiter_(std::move(waiter)) {
    ask_for_short_turns();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
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
    ASSIGN_OR_RETURN(auto heartbeat, HeartbeatThread::open(rank_, std::move(facts), own, std::move(options)));
    const double patience_s = options_.start_timeout_s > 0 ? options_.start_timeout_s : never_s;
    GreetingExchange exchange(heartbeat->greeting(), rank_, size_);
    ASSIGN_OR_RETURN(const std::vector<Greeting> greetings,
                     exchange.finish(begin, (exchange_share + turn_of(rank_)) * patience_s, watch));
    if (options_.heartbeat_s <= 0) return ok_status();
    const double spent_s = std::chrono::duration<double>(Clock::now() - begin).count();
    heartbeat_ = std::move(heartbeat);
    if (!heartbeat_->connect(greetings, (guard_share + turn_of(rank_)) * patience_s - spent_s).ok()) wait_for_end();
    heartbeat_sockets_ = heartbeat_->descriptors();
    return ok_status();
  }

  void set_up() {
    MPI_Comm_dup(MPI_COMM_WORLD, &program_);
    MPI_Comm_dup(MPI_COMM_WORLD, &control_);
    MPI_Comm_set_errhandler(program_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    same_machine_ = ranks_of_this_machine();
    const bool spare = has_spare_core(same_machine_.size());
    spins_ = options_.polling == Polling::spin || (options_.polling == Polling::automatic && spare);
    time_looks_at_nothing();
  }

  ~MpiTransport() override {
    {
      // Waits for all ranks, so the heartbeat lasts until then.
      const DeadlineGuard guard(finalize_patience_s(), [this](double waited_s) {
        abort(
            lost(fmt::format("rank {} on host {} waited {:.3g} s in MPI_Finalize: another rank does not come to its "
                             "end, or MPI hangs",
                             rank_, own_host(), waited_s)));
      });
      for (auto& [group, channel] : groups_) MPI_Comm_free(&channel);
      MPI_Comm_free(&program_);
      MPI_Comm_free(&control_);
      MPI_Finalize();
    }
    if (heartbeat_) heartbeat_->leave();
  }

  int rank() const override { return rank_; }
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
    const Request request = new_request(false);
    in_pieces(data.size(), [&](size_t at, int count) {
      MPI_Request& piece = requests_[request].pieces.emplace_back(MPI_REQUEST_NULL);
      check(MPI_Isend(data.data() + at, count, MPI_BYTE, peer, wire_tag(tag), channel(tag), &piece), "MPI_Isend");
      requests_[request].sizes.push_back(count);
    });
    return request;
  }

  Request irecv(int peer, int tag, std::span<std::byte> room) override {
    const Request request = new_request(true);
    in_pieces(room.size(), [&](size_t at, int count) {
      MPI_Request& piece = requests_[request].pieces.emplace_back(MPI_REQUEST_NULL);
      check(MPI_Irecv(room.data() + at, count, MPI_BYTE, peer, wire_tag(tag), channel(tag), &piece), "MPI_Irecv");
      requests_[request].sizes.push_back(count);
    });
    return request;
  }

  State test(Request request) override {
    InFlight& it = requests_[request];
    for (; it.next < it.pieces.size(); ++it.next) {
      int done = 0, count = 0;
      MPI_Status status;
      const Clock::time_point before = Clock::now();
      check(MPI_Test(&it.pieces[it.next], &done, &status), "MPI_Test");
      longest_look_ = std::max(longest_look_, Clock::now() - before);
      if (!done) return State::pending;
      if (!it.receives) continue;
      MPI_Get_count(&status, MPI_BYTE, &count);
      if (count != it.sizes[it.next]) {
        abort(failed(fmt::format("rank {} sent {} B where rank {} expected {} B", status.MPI_SOURCE, count, rank_,
                                 it.sizes[it.next])));
      }
    }
    it.aside = {};  // as large as a value: not kept for whom the request is next
    free_.push_back(request);
    if (slept_in_vain_ && sockets_missed(it)) ++misses_;
    slept_in_vain_ = false;
    return State::done;
  }

  NativeCollectives* collectives() override { return this; }

  Status accepts(const Collective& collective, DType dtype) const override {
    if (adds_up(collective.kind) && !number_type(dtype))
      return unsupported(fmt::format("MPI adds up no {}", name_of(dtype)));
    const int64_t members = std::ssize(collective.group);
    int64_t largest = value_elements(collective);
    for (int64_t m = 0; m < members; ++m)
      largest = std::max(largest, result_elements(collective, static_cast<size_t>(m)));
    if (largest * units_of(dtype) <= std::numeric_limits<int>::max()) return ok_status();
    return unsupported(fmt::format("MPI counts with int: a collective of {} {} is too large", largest, name_of(dtype)));
  }

  void join(std::span<const std::vector<int>> groups) override {
    MPI_Group all = MPI_GROUP_NULL;
    check(MPI_Comm_group(program_, &all), "MPI_Comm_group");
    for (const std::vector<int>& ranks : groups) {
      const auto [known, is_new] = groups_.try_emplace(ranks, MPI_COMM_NULL);
      if (!is_new) continue;
      MPI_Group group = MPI_GROUP_NULL;
      check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &group), "MPI_Group_incl");
      check(MPI_Comm_create_group(program_, group, 0, &known->second), "MPI_Comm_create_group");
      MPI_Comm_set_errhandler(known->second, MPI_ERRORS_RETURN);
      MPI_Group_free(&group);
    }
    MPI_Group_free(&all);
  }

  Request begin(const Collective& collective, DType dtype, std::span<std::byte> value,
                std::span<std::byte> result) override {
    const Request request = new_request(false);
    InFlight& it = requests_[request];
    it.collective = true;
    it.sizes = {0};
    MPI_Request* const made = &it.pieces.emplace_back(MPI_REQUEST_NULL);
    const MPI_Comm channel = groups_.at(collective.group);
    const auto member = static_cast<size_t>(std::ranges::find(collective.group, rank_) - collective.group.begin());
    const auto members = static_cast<int64_t>(collective.group.size());
    const MPI_Datatype type = number_type(dtype).value_or(MPI_BYTE);
    const int64_t factor = units_of(dtype);
    const int count = static_cast<int>(value_elements(collective) * factor);
    it.sent = counts_of(collective.elements, factor);
    switch (collective.kind) {
      case CollectiveKind::all_reduce: {
        const void* from = MPI_IN_PLACE;
        if (members >= least_apart) from = copy_aside(it, value);
        check(MPI_Iallreduce(from, value.data(), count, type, MPI_SUM, channel, made), "MPI_Iallreduce");
        break;
      }
      case CollectiveKind::reduce_scatter: {  // in place MPI would put the share at the value's beginning
        int64_t begin = 0;
        for (size_t m = 0; m < member; ++m) begin += collective.elements[m];
        check(MPI_Ireduce_scatter(copy_aside(it, value), value.data() + size_of(dtype, begin), it.sent.counts.data(),
                                  type, MPI_SUM, channel, made),
              "MPI_Ireduce_scatter");
        break;
      }
      case CollectiveKind::all_gather:
        check(MPI_Iallgatherv(MPI_IN_PLACE, 0, type, value.data(), it.sent.counts.data(), it.sent.begins.data(), type,
                              channel, made),
              "MPI_Iallgatherv");
        break;
      case CollectiveKind::all_to_all:
        it.received = counts_of(std::vector<int64_t>(collective.group.size(), collective.elements[member]), factor);
        check(MPI_Ialltoallv(value.data(), it.sent.counts.data(), it.sent.begins.data(), type, result.data(),
                             it.received.counts.data(), it.received.begins.data(), type, channel, made),
              "MPI_Ialltoallv");
        break;
      case CollectiveKind::broadcast:
        check(MPI_Ibcast(value.data(), count, type, 0, channel, made), "MPI_Ibcast");
        break;
    }
    return request;
  }

  Error error() const override { return failed("unreachable"); }  // this transport does not survive failures

  // Messages under way move on only while we look: so look again at once while they do. Else sleep until a socket has
  // news; or, where other ways than TCP lead to somebody, longer the longer nothing moves.
  void pause(int rounds) override {
    const bool moving = longest_look_ > busy_look_;
    longest_look_ = {};
    slept_in_vain_ = false;
    ++pauses_;
    if (rounds == 0 || moving) quiet_ = 0;
    if (spins_) {
      std::this_thread::yield();
      return;
    }
    // Not yield(): whoever yields to a thread that computes gets the core back with the kernel's next tick, up to 4 ms
    // later. wake() wakes only who sleeps.
    if (moving) return;
    const bool watch = sockets_tell();
    const auto shortest = watch ? shortest_watch : shortest_sleep, longest = watch ? longest_watch : longest_sleep;
    asleep_.store(true, std::memory_order_relaxed);
    const SocketWaiter::Woken woken = waiter_.sleep(std::min(longest, shortest * (1 << std::min(quiet_++, 4))));
    asleep_.store(false, std::memory_order_relaxed);
    slept_in_vain_ = watch && woken == SocketWaiter::Woken::by_time;
    if (woken != SocketWaiter::Woken::by_wake) look();
  }

  // Where sockets tell, they end the sleep.
  void rest() override {
    slept_in_vain_ = false;
    sockets_tell();
    if (waiter_.sleep(between_rests) != SocketWaiter::Woken::by_wake) look();
  }

  void wake() override {
    if (spins_) return;
    waiter_.wake();
    // Only who sleeps comes before the thread that computes. Who is awake and moves messages may have lost this core to
    // it, until the kernel's next tick.
    if (!asleep_.load(std::memory_order_relaxed)) std::this_thread::yield();
  }

  Liveness& liveness() override { return liveness_; }
  double idle_s() const override { return heartbeat_ ? heartbeat_->idle_s() : liveness_.idle_s(); }

  [[noreturn]] void abort(const Error& why) override {
    if (!heartbeat_) (*exit_)(why, true);
    // What went wrong here may be the echo of a rank that died, which the heartbeat is about to tell; and of a hang,
    // which all find at once, rank 0 is to tell.
    std::this_thread::sleep_for(rank_ == 0 ? echo : 2 * echo);
    Error whole = why;
    if (why.kind == ErrorKind::lost) whole.message += heartbeat_->others();
    if (!heartbeat_->end(whole)) wait_for_end();
    (*exit_)(whole, true);
  }

 private:
  struct InFlight {
    std::vector<MPI_Request> pieces;  // mostly one
    std::vector<int> sizes;
    size_t next = 0;
    bool receives = false;
    bool collective = false;
    uint64_t begun = 0;            // before which pause
    Counts sent, received;         // of a collective, each member's
    std::vector<std::byte> aside;  // of a collective: its value as it was
  };

  // The heartbeat's thread ends the process.
  [[noreturn]] static void wait_for_end() {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

  // Ranks enter MPI_Finalize together. What is stopped or died then, the heartbeat finds before.
  double finalize_patience_s() const {
    const double patience_s = options_.heartbeat_s > 0 ? options_.heartbeat_s : options_.start_timeout_s;
    return (1 + turn_of(rank_)) * patience_s;
  }

  template <class Piece>
  static void in_pieces(size_t size, const Piece& piece) {
    size_t at = 0;
    do {
      const size_t count = std::min(size - at, largest_piece);
      piece(at, static_cast<int>(count));
      at += count;
    } while (at < size);
  }

  static const void* copy_aside(InFlight& it, std::span<const std::byte> value) {
    it.aside.assign(value.begin(), value.end());
    return it.aside.data();
  }

  static int wire_tag(int tag) { return tag == control_tag ? 0 : tag; }
  MPI_Comm channel(int tag) const { return tag == control_tag ? control_ : program_; }

  // What MPI calls an error is nearly always a connection that broke.
  void check(int code, const char* what) {
    if (code != MPI_SUCCESS) abort(lost(fmt::format("{} failed on rank {}: {}", what, rank_, text_of(code))));
  }

  // Makes MPI look at its sockets. What has ended, test() finds.
  void look() {
    for (int call = 0; call < calls_of_a_look; ++call) {
      int found = 0;
      const Clock::time_point before = Clock::now();
      MPI_Iprobe(MPI_ANY_SOURCE, 0, control_, &found, MPI_STATUS_IGNORE);
      longest_look_ = std::max(longest_look_, Clock::now() - before);
    }
  }

  void time_looks_at_nothing() {
    std::vector<Clock::duration> looks(looks_at_nothing);
    for (Clock::duration& took : looks) {
      longest_look_ = {};
      look();
      took = longest_look_;
    }
    longest_look_ = {};
    std::ranges::nth_element(looks, looks.begin() + looks_at_nothing / 2);
    busy_look_ = std::max<Clock::duration>(least_busy_look, busy_look_factor * looks[looks_at_nothing / 2]);
  }

  // Whether everything that comes is announced. Not what comes from this machine, or over a fabric that is no network
  // for the kernel: that shows when messages end after sleeps in which no socket had news.
  bool sockets_tell() {
    if (same_machine_.size() > 1 || misses_ > tolerated_misses) return false;
    if (const Clock::time_point now = Clock::now(); now >= next_search_) {
      waiter_.find_sockets(heartbeat_sockets_);
      next_search_ = now + between_searches;
    }
    return waiter_.has_sockets();
  }

  // Of what ended after a sleep in vain: whether it came another way than through a socket that is watched. Not what
  // began after that sleep, or came between its end and now, as on a busy machine it often does. A collective ends some
  // looks after its last message.
  bool sockets_missed(const InFlight& it) {
    if (it.collective || it.begun == pauses_ || waiter_.has_news()) return false;
    return waiter_.find_sockets(heartbeat_sockets_) == 0;  // a new connection is no other way
  }

  Request new_request(bool receives) {
    if (free_.empty()) {
      free_.push_back(static_cast<Request>(requests_.size()));
      requests_.emplace_back();
    }
    const Request request = free_.back();
    free_.pop_back();
    InFlight& it = requests_[request];
    it.pieces.clear();
    it.sizes.clear();
    it.next = 0;
    it.receives = receives;
    it.collective = false;
    it.begun = pauses_;
    return request;
  }

  TransportOptions options_;
  std::unique_ptr<ProcessExit> exit_;
  Liveness liveness_;
  std::unique_ptr<HeartbeatThread> heartbeat_;  // none: one rank, or not wanted
  std::vector<int> heartbeat_sockets_;          // no business of this thread
  std::vector<int> same_machine_;
  int rank_ = 0, size_ = 1;
  MPI_Comm program_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  std::map<std::vector<int>, MPI_Comm> groups_;  // of native collectives, by ranks
  bool spins_ = false;
  std::atomic<bool> asleep_ = false;  // the thread that owns MPI, until a socket has news
  int quiet_ = 0;                     // sleeps since something moved
  Clock::duration longest_look_{};    // in MPI_Test since the last pause
  Clock::duration busy_look_ = least_busy_look;
  SocketWaiter waiter_;
  Clock::time_point next_search_{};
  uint64_t pauses_ = 0;
  bool slept_in_vain_ = false;  // the sleep before ended without news; then nothing should have ended meanwhile
  int misses_ = 0;
  std::vector<InFlight> requests_;
  std::vector<Request> free_;
};

// Before MPI starts. What the user has set stays.
void set_up_mpi([[maybe_unused]] bool by_launcher) {
#ifdef OPEN_MPI
  // Over TCP Open MPI 4.1 has the receiver ask for each piece of a large message, and both ends' processors compute
  // meanwhile: so the sender is to send all of it once the receiver is ready. What the other side must know of a
  // message waits behind what the socket holds of one that goes there: so it holds little (docs/performance.md).
  ::setenv("OMPI_MCA_btl_tcp_flags", "send,inplace,hetero-rdma", 0);
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
  int provided = MPI_THREAD_SINGLE;
  set_up_mpi(options.as.by_launcher);
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided); code != MPI_SUCCESS) {
    return failed("MPI does not start: " + text_of(code));
  }
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
