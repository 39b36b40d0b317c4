#include "exec/mpi/deadline_guard.h"

#include <chrono>
#include <utility>

namespace nlsplit::inline exec {
namespace {

constexpr int steps = 20;

}  // namespace

DeadlineGuard::DeadlineGuard(double patience_s, std::function<void(double)> late) {
  if (patience_s <= 0) return;
  thread_ = std::thread([this, patience_s, late = std::move(late)] {
    std::unique_lock lock(mutex_);
    // In short steps, so that time this process was itself stopped for counts as one of them: otherwise a stopped rank
    // that mpirun continues in order to end it would accuse the others.
    const auto step = std::chrono::duration_cast<std::chrono::system_clock::duration>(
        std::chrono::duration<double>(patience_s / steps));
    for (int i = 0; i < steps; ++i) {
      // The system clock: see waker.h.
      if (changed_.wait_until(lock, std::chrono::system_clock::now() + step, [this] { return done_; })) return;
    }
    lock.unlock();
    late(patience_s);
  });
}

DeadlineGuard::~DeadlineGuard() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace nlsplit::inline exec
