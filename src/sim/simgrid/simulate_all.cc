#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <thread>

#include "sim/simgrid/simgrid_tier.h"

namespace nlsplit {
namespace {

// Memory that a child writes and we read.
class Shared {
 public:
  explicit Shared(size_t doubles) : size_(doubles * sizeof(double)) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    values_ = mapped == MAP_FAILED ? nullptr : static_cast<double*>(mapped);
  }
  Shared(Shared&& other) noexcept : size_(other.size_), values_(std::exchange(other.values_, nullptr)) {}
  Shared& operator=(Shared&&) = delete;
  ~Shared() {
    if (values_ != nullptr) ::munmap(values_, size_);
  }
  double* values() const { return values_; }

 private:
  size_t size_;
  double* values_;
};

// done, makespan, then start, sent and finish of every activity.
constexpr size_t header = 2;
constexpr double done_mark = 1;

[[noreturn]] void child(const Cluster& cluster, const TimedGraph& graph, double* out) {
  int status = 1;
  try {
    SimGridRun run(cluster, graph);
    const auto timing = run.run();
    if (timing.ok()) {
      const size_t count = graph.activities.size();
      std::copy(timing->start.begin(), timing->start.end(), out + header);
      std::copy(timing->sent.begin(), timing->sent.end(), out + header + count);
      std::copy(timing->finish.begin(), timing->finish.end(), out + header + 2 * count);
      out[1] = timing->makespan;
      out[0] = done_mark;
      status = 0;
    } else {
      std::fprintf(stderr, "%s\n", timing.error().to_string().c_str());
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "SimGrid: %s\n", e.what());
  }
  std::fflush(stderr);
  ::_exit(status);   // no destructors: SimGrid's would run twice
}

struct Job {
  Shared shared;
  pid_t process;
  size_t index;
};

}  // namespace

Result<std::vector<Timing>> simulate_all(const Cluster& cluster, const std::vector<const TimedGraph*>& graphs) {
  std::vector<Timing> timings(graphs.size());
  std::deque<Job> running;
  const size_t width = std::max(1u, std::thread::hardware_concurrency());
  Status status;

  const auto collect = [&](Job& job) -> Status {
    int result = 0;
    while (::waitpid(job.process, &result, 0) < 0 && errno == EINTR) {
    }
    const double* values = job.shared.values();
    const size_t count = graphs[job.index]->activities.size();
    if (values[0] != done_mark) {
      return failed(WIFSIGNALED(result) ? fmt::format("SimGrid died of signal {} on plan {}", WTERMSIG(result), job.index)
                                        : fmt::format("SimGrid could not simulate plan {}", job.index));
    }
    Timing& timing = timings[job.index];
    timing.makespan = values[1];
    timing.start.assign(values + header, values + header + count);
    timing.sent.assign(values + header + count, values + header + 2 * count);
    timing.finish.assign(values + header + 2 * count, values + header + 3 * count);
    return ok_status();
  };
  const auto collect_first = [&] {
    const Status one = collect(running.front());
    if (status.ok()) status = one;
    running.pop_front();
  };

  std::fflush(stdout);   // a child must not print what we have buffered
  std::fflush(stderr);
  for (size_t i = 0; i < graphs.size() && status.ok(); ++i) {
    if (running.size() >= width) collect_first();
    Shared shared(header + 3 * graphs[i]->activities.size());
    if (shared.values() == nullptr) {
      status = io_error(fmt::format("no memory to share with a child process: {}", std::strerror(errno)));
      break;
    }
    const pid_t process = ::fork();
    if (process < 0) {
      status = io_error(fmt::format("cannot start a child process: {}", std::strerror(errno)));
      break;
    }
    if (process == 0) child(cluster, *graphs[i], shared.values());
    running.push_back({std::move(shared), process, i});
  }
  while (!running.empty()) collect_first();
  RETURN_IF_ERROR(status);
  return timings;
}

}  // namespace nlsplit
