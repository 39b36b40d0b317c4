#include "sim/simgrid/simgrid_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/child_process.h"
#include "base/cores.h"
#include "sim/simgrid/engine.h"
#include "sim/simgrid/fair_flows.h"

namespace nlsplit::inline sim {
namespace {

enum class Outcome : uint32_t { none, finished, failed };

// What a child leaves in memory it shares with us, followed by the parts() of a Timing.
struct Header {
  Outcome outcome = Outcome::none;
  ErrorKind kind = ErrorKind::failed;
  uint32_t message_length = 0;
  double makespan = 0;
  std::array<char, 1000> message{};
};
static_assert(sizeof(Header) % alignof(double) == 0);

class SharedMemory {
 public:
  explicit SharedMemory(size_t size) : size_(size) {
    void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) data_ = static_cast<char*>(mapped);
  }
  SharedMemory(SharedMemory&& other) noexcept : size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }
  char* data() const { return data_; }

 private:
  size_t size_;
  char* data_ = nullptr;
};

std::vector<std::vector<double>*> parts(Timing& timing, bool online, bool queues) {
  std::vector<std::vector<double>*> all = {&timing.posted, &timing.start, &timing.moves, &timing.sent, &timing.finish};
  if (online) all.push_back(&timing.turn);
  if (queues) all.push_back(&timing.released);
  return all;
}

// Never returns, and runs none of the parent's exit handlers.
[[noreturn]] void child(const Simulation& simulation, char* shared, int words) {
  // SimGrid flushes and prints when it likes: what it says goes to the parent, and never to the parent's output.
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(words, STDERR_FILENO);
  auto* header = reinterpret_cast<Header*>(shared);
  Timing timing;
  Status status = ok_status();
  if (simulation.disturb) {
    TimedGraph disturbed = *simulation.graph;
    simulation.disturb(disturbed);
    status = run_engine(disturbed, *simulation.cluster, timing);
  } else {
    status = run_engine(*simulation.graph, *simulation.cluster, timing);
  }
  if (status.ok()) {
    auto* values = reinterpret_cast<double*>(shared + sizeof(Header));
    for (const std::vector<double>* part :
         parts(timing, simulation.graph->online.has_value(), simulation.graph->has_queues))
      values = std::copy(part->begin(), part->end(), values);
    header->makespan = timing.makespan;
    header->outcome = Outcome::finished;
  } else {
    const std::string& message = status.error().message;
    header->kind = status.error().kind;
    header->message_length = static_cast<uint32_t>(std::min(message.size(), header->message.size()));
    std::copy_n(message.begin(), header->message_length, header->message.begin());
    header->outcome = Outcome::failed;
  }
  ::_exit(0);
}

// The last of what a child that is gone has written.
std::string last_words(int from) {
  std::string words;
  std::array<char, 1024> part{};
  for (ssize_t got = 0; (got = ::read(from, part.data(), part.size())) > 0;)
    words.append(part.data(), static_cast<size_t>(got));
  constexpr size_t most = 2000;
  if (words.size() > most) words.erase(0, words.size() - most);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

struct Job {
  size_t index = 0, activities = 0;
  bool online = false, queues = false;
  SharedMemory shared;
  pid_t process = -1;
  int words = -1;  // where its standard error can be read, without blocking
};

Result<Job> start(const Simulation& simulation, size_t index) {
  const size_t activities = simulation.graph->activities.size();
  const bool online = simulation.graph->online.has_value(), queues = simulation.graph->has_queues;
  Timing empty;
  Job job{index, activities, online, queues,
          SharedMemory(sizeof(Header) + parts(empty, online, queues).size() * activities * sizeof(double))};
  if (job.shared.data() == nullptr)
    return io_error(fmt::format("no memory to share with a simulation: {}", std::strerror(errno)));
  new (job.shared.data()) Header;
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    return io_error(fmt::format("no pipe to a simulation: {}", std::strerror(errno)));
  }
  std::fflush(nullptr);  // else the child might write what is still in our buffers a second time
  const pid_t parent = ::getpid();
  job.process = ::fork();
  if (job.process == 0) die_with(parent);
  if (job.process == 0) child(simulation, job.shared.data(), pipe[1]);
  const int fork_errno = errno;
  ::close(pipe[1]);
  job.words = pipe[0];
  if (job.process < 0) {
    ::close(job.words);
    return io_error(fmt::format("no child process for a simulation: {}", std::strerror(fork_errno)));
  }
  return job;
}

Result<Timing> collect(const Job& job) {
  int status = 0;
  while (::waitpid(job.process, &status, 0) < 0 && errno == EINTR) {
  }
  const std::string words = last_words(job.words);
  ::close(job.words);
  const auto* header = reinterpret_cast<const Header*>(job.shared.data());
  if (header->outcome == Outcome::failed) {
    Error error =
        failed(std::string(header->message.data(), std::min<size_t>(header->message_length, header->message.size())));
    error.kind = header->kind;  // what the user said may be wrong: decisions that cannot be followed
    return error;
  }
  if (header->outcome != Outcome::finished) {
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
                                : fmt::format("exit status {}", WEXITSTATUS(status));
    return failed(fmt::format("SimGrid died with {}{}{}", how, words.empty() ? "" : ": ", words));
  }
  Timing timing;
  const auto* values = reinterpret_cast<const double*>(job.shared.data() + sizeof(Header));
  for (std::vector<double>* part : parts(timing, job.online, job.queues)) {
    part->assign(values, values + job.activities);
    values += job.activities;
  }
  timing.makespan = header->makespan;
  return timing;
}

// Waits until fewer than `width` processes run, and returns their number. Returns more on an error: the caller then
// waits for the first.
size_t await_fewer(const std::deque<Job>& jobs, size_t width) {
  while (true) {
    std::vector<pollfd> ends;
    for (const Job& job : jobs) ends.push_back({job.words, 0, 0});  // the other end closes with its process
    if (ends.size() < width) return ends.size();
    if (::poll(ends.data(), ends.size(), 0) < 0 && errno != EINTR) return ends.size();
    std::erase_if(ends, [](const pollfd& end) { return (end.revents & POLLHUP) != 0; });
    if (ends.size() < width) return ends.size();
    if (::poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) return ends.size();
  }
}

// None: it needs SimGrid.
std::optional<Timing> time_here(const Simulation& simulation) {
  std::optional<Timing> timing(std::in_place);
  bool timed = false;
  if (simulation.disturb) {
    TimedGraph disturbed = *simulation.graph;
    simulation.disturb(disturbed);
    timed = run_here(disturbed, *simulation.cluster, *timing);
  } else {
    timed = run_here(*simulation.graph, *simulation.cluster, *timing);
  }
  if (!timed) timing.reset();
  return timing;
}

// Runs simulations as they come; those that need SimGrid run in children meanwhile. `take` gets the timings in
// order.
class InOrder {
 public:
  InOrder(size_t count, const std::function<bool(size_t, Timing)>& take) : count_(count), take_(take) {}
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;
  ~InOrder() {
    go_on_ = false;
    while (!running_.empty()) collect_first();  // so that no child is left
  }

  bool goes_on() const { return go_on_ && !trouble_; }

  // timed: none: it needs SimGrid.
  void add(size_t index, const Simulation& simulation, std::optional<Timing> timed) {
    if (timed) {
      timed_.emplace(index, *std::move(timed));
    } else {
      while (goes_on() && await_fewer(running_, core_count()) >= core_count()) collect_first();
      if (!goes_on()) return;
      auto job = start(simulation, index);
      if (job)
        running_.push_back(std::move(job).value());
      else
        trouble_ = job.error();
    }
    ++added_;
  }

  // Until no more than so many are not taken.
  void take_until(size_t left) {
    take_timed();
    while (goes_on() && added_ - next_ > left) collect_first();
  }

  Status finish() {
    take_until(0);
    while (!running_.empty()) collect_first();
    if (trouble_) return *std::move(trouble_);
    return ok_status();
  }

 private:
  void take_timed() {
    for (auto first = timed_.begin(); goes_on() && first != timed_.end() && first->first == next_;) {
      go_on_ = take_(next_++, std::move(first->second));
      first = timed_.erase(first);
    }
  }

  void collect_first() {
    const Job job = std::move(running_.front());
    running_.pop_front();
    auto timing = collect(job);  // also after trouble
    if (!goes_on()) return;
    if (!timing) {
      trouble_ = timing.error();
      trouble_->message = fmt::format("simulation {} of {}: {}", job.index + 1, count_, trouble_->message);
      return;
    }
    timed_.emplace(job.index, std::move(timing).value());
    take_timed();
  }

  const size_t count_;
  const std::function<bool(size_t, Timing)>& take_;
  std::deque<Job> running_;         // in order; those whose process has ended may wait for one before them
  std::map<size_t, Timing> timed_;  // and not taken
  size_t added_ = 0, next_ = 0;     // the next one to be taken
  std::optional<Error> trouble_;
  bool go_on_ = true;
};

class SimGridTier final : public Tier {
 public:
  std::string_view name() const override { return "simgrid"; }
  std::string_view title() const override { return "SimGrid"; }
  bool shares_links() const override { return true; }

  Status simulate(const Simulation& simulation, Timing& timing) const override {
    return simulate_each(
        1, [&](size_t) { return simulation; },
        [&](size_t, Timing result) {
          timing = std::move(result);
          return true;
        });
  }

  Status simulate_each(size_t count, const std::function<Simulation(size_t)>& simulation,
                       const std::function<bool(size_t, Timing)>& take) const override {
    const size_t at_once = 4 * core_count();  // simulations that are started; up to twice as many wait for `take`
    InOrder in_order(count, take);
    for (size_t begin = 0; begin < count && in_order.goes_on(); begin += at_once) {
      std::vector<Simulation> simulations;
      for (size_t i = begin; i < std::min(count, begin + at_once); ++i) simulations.push_back(simulation(i));
      std::vector<std::optional<Timing>> timed(simulations.size());
      on_all_cores(simulations.size(), [&](size_t i) { timed[i] = time_here(simulations[i]); });
      for (size_t i = 0; i < simulations.size() && in_order.goes_on(); ++i)
        in_order.add(begin + i, simulations[i], std::move(timed[i]));
      in_order.take_until(2 * at_once);
    }
    return in_order.finish();
  }
};

}  // namespace

const Tier& simgrid_tier() {
  static const SimGridTier tier;
  return tier;
}

}  // namespace nlsplit::inline sim
