#include "exec/mpi/transport_mpi.h"

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX 1  // the C bindings are enough; those for C++ are long deprecated
#include <mpi.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/check.h"
#include "exec/mpi/socket_waiter.h"

namespace nlsplit {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t largest_piece = size_t{1} << 30;  // MPI counts with int: larger messages go in pieces
// Between looks, while nothing tells when to look.
constexpr std::chrono::microseconds shortest_sleep(50), longest_sleep(500);
// Between looks, while sockets tell: only in case they missed something.
constexpr std::chrono::microseconds shortest_watch(1000), longest_watch(16000);
constexpr std::chrono::milliseconds between_searches(50);  // for new sockets
constexpr int tolerated_misses = 3;
// Open MPI 4 looks at its sockets in one of so many calls (opal/runtime/opal_progress.c).
constexpr int calls_of_a_look = 8;
// MPI does not say whether it moved anything. But a look at nothing takes less than a microsecond or two, one that
// copied a fragment (32 KiB through shared memory) longer.
constexpr std::chrono::microseconds busy_look(3);

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<size_t>(length)};
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
  if (::syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  attributes.size = sizeof(attributes);
  attributes.runtime = shortest_ns;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);  // a wish
}

class MpiTransport : public Transport {
 public:
  MpiTransport(MpiOptions options, SocketWaiter waiter) : options_(std::move(options)), waiter_(std::move(waiter)) {
    ask_for_short_turns();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm_dup(MPI_COMM_WORLD, &program_);
    MPI_Comm_dup(MPI_COMM_WORLD, &control_);
    MPI_Comm_set_errhandler(program_, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN);
    same_machine_ = ranks_of_this_machine();
    const bool spare = has_spare_core(same_machine_.size());
    spins_ = options_.polling == Polling::spin || (options_.polling == Polling::automatic && spare);
  }

  ~MpiTransport() override {
    MPI_Comm_free(&program_);
    MPI_Comm_free(&control_);
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<int> same_machine() const override { return same_machine_; }

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
        abort(fmt::format("rank {} sent {} B where rank {} expected {} B", status.MPI_SOURCE, count, rank_,
                          it.sizes[it.next]));
      }
    }
    free_.push_back(request);
    if (slept_in_vain_) ++misses_;
    slept_in_vain_ = false;
    return State::done;
  }

  std::string error() const override { return {}; }  // this transport does not survive failures

  // Messages under way move on only while we look: so look again at once while they do. Else sleep until a socket has
  // news; or, where other ways than TCP lead to somebody, longer the longer nothing moves.
  void pause(int rounds) override {
    const bool moving = longest_look_ > busy_look;
    longest_look_ = {};
    slept_in_vain_ = false;
    if (rounds == 0 || moving) quiet_ = 0;
    if (spins_ || moving) {
      std::this_thread::yield();
      return;
    }
    const bool watch = sockets_tell();
    const auto shortest = watch ? shortest_watch : shortest_sleep, longest = watch ? longest_watch : longest_sleep;
    const SocketWaiter::Woken woken = waiter_.sleep(std::min(longest, shortest * (1 << std::min(quiet_++, 4))));
    slept_in_vain_ = watch && woken == SocketWaiter::Woken::by_time;
    if (woken != SocketWaiter::Woken::by_wake) look();
  }

  void wake() override {
    if (!spins_) waiter_.wake();
  }

  [[noreturn]] void abort(const std::string& why) override {
    int code = 1;
    if (options_.last_words)
      code = options_.last_words(why);
    else
      std::fprintf(stderr, "error: %s\n", why.c_str());
    std::fflush(nullptr);
    // Not MPI_Abort: with a dead link it may wait itself. mpirun ends the other ranks when one is gone.
    std::_Exit(code);
  }

 private:
  struct InFlight {
    std::vector<MPI_Request> pieces;  // mostly one
    std::vector<int> sizes;
    size_t next = 0;
    bool receives = false;
  };

  template <class Piece>
  static void in_pieces(size_t size, const Piece& piece) {
    size_t at = 0;
    do {
      const size_t count = std::min(size - at, largest_piece);
      piece(at, static_cast<int>(count));
      at += count;
    } while (at < size);
  }

  static int wire_tag(int tag) { return tag == control_tag ? 0 : tag; }
  MPI_Comm channel(int tag) const { return tag == control_tag ? control_ : program_; }

  void check(int code, const char* what) {
    if (code != MPI_SUCCESS) abort(fmt::format("{} failed on rank {}: {}", what, rank_, text_of(code)));
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

  // Whether everything that comes is announced. Not what comes from this machine, or over a fabric that is no network
  // for the kernel: that shows when messages end after sleeps in which no socket had news.
  bool sockets_tell() {
    if (same_machine_.size() > 1 || misses_ > tolerated_misses) return false;
    if (const Clock::time_point now = Clock::now(); now >= next_search_) {
      waiter_.find_sockets();
      next_search_ = now + between_searches;
    }
    return waiter_.has_sockets();
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
    return request;
  }

  MpiOptions options_;
  std::vector<int> same_machine_;
  int rank_ = 0, size_ = 1;
  MPI_Comm program_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  bool spins_ = false;
  int quiet_ = 0;                   // sleeps since something moved
  Clock::duration longest_look_{};  // in MPI_Test since the last pause
  SocketWaiter waiter_;
  Clock::time_point next_search_{};
  bool slept_in_vain_ = false;  // the sleep before ended without news; then nothing should have ended meanwhile
  int misses_ = 0;
  std::vector<InFlight> requests_;
  std::vector<Request> free_;
};

}  // namespace

Result<std::unique_ptr<Transport>> start_mpi(MpiOptions options) {
  int provided = MPI_THREAD_SINGLE;
  if (const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided); code != MPI_SUCCESS) {
    return failed("MPI does not start: " + text_of(code));
  }
  if (provided < MPI_THREAD_FUNNELED) {
    MPI_Finalize();
    return unsupported("this MPI was built without threads (MPI_THREAD_FUNNELED)");
  }
  auto waiter = SocketWaiter::open();
  if (!waiter) {
    MPI_Finalize();
    return waiter.error();
  }
  return std::unique_ptr<Transport>(std::make_unique<MpiTransport>(std::move(options), std::move(*waiter)));
}

}  // namespace nlsplit
