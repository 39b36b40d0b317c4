#include "exec/cuda/copies.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "exec/cuda/launches.h"

namespace nlsplit::inline exec {
namespace {

using cuda::Answer;
using cuda::Event;
using cuda::Stream;
using Clock = std::chrono::steady_clock;

constexpr int at_once = 4;  // copies each way, one behind the other, when both directions are used

// A GPU with memory on both sides for two directions.
class Board {
 public:
  explicit Board(const cuda::Backend& backend) : backend_(backend) {}
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  ~Board() {
    if (device_ != nullptr) {
      if (pinned_) static_cast<void>(backend_.unpin(device_, host_));
      for (Event* event : events_) backend_.destroy_event(device_, event);
      if (memory_ != nullptr) static_cast<void>(backend_.release(device_, memory_));
      backend_.close(device_);
    }
    std::free(host_);
  }

  Status open(int number, int64_t largest) {
    RETURN_IF_ERROR(check(backend_.open(number, &device_), "cannot open it"));
    const char* text = "";
    RETURN_IF_ERROR(check(backend_.describe(device_, &text), "cannot ask what it is"));
    name_ = text;
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    each_ = (static_cast<uint64_t>(largest) + page - 1) / page * page;
    RETURN_IF_ERROR(check(backend_.allocate(device_, 2 * each_, &memory_), "cannot allocate memory"));
    for (int direction = 0; direction < 2; ++direction) {
      Event* event = nullptr;
      RETURN_IF_ERROR(check(backend_.create_event(device_, &event), "cannot make an event"));
      events_.push_back(event);
    }
    host_ = std::aligned_alloc(page, 2 * each_);
    if (host_ == nullptr) return failed("out of memory");
    std::memset(host_, 0, 2 * each_);  // its pages are there
    return ok_status();
  }

  Status pin() {
    RETURN_IF_ERROR(check(backend_.pin(device_, host_, 2 * each_), "cannot page-lock memory"));
    pinned_ = true;
    return ok_status();
  }

  const std::string& name() const { return name_; }

  // So many copies of so many bytes, one behind the other.
  Status begin(bool out, uint64_t bytes, int count) {
    auto* host = static_cast<std::byte*>(host_) + (out ? each_ : 0);
    auto* memory = static_cast<std::byte*>(memory_) + (out ? each_ : 0);
    const Stream stream = out ? Stream::copy_out : Stream::copy_in;
    for (int i = 0; i < count; ++i) {
      RETURN_IF_ERROR(check(out ? backend_.copy_out(device_, stream, host, memory, bytes)
                                : backend_.copy_in(device_, stream, memory, host, bytes),
                            "cannot copy"));
    }
    return check(backend_.record(device_, stream, events_[out ? 1 : 0]), "cannot record an event");
  }
  Status wait(bool out) { return check(backend_.wait(device_, events_[out ? 1 : 0]), "a copy failed"); }

 private:
  Status check(Answer why, std::string_view asked) const { return gpu_status(name_, asked, why); }

  const cuda::Backend& backend_;
  cuda::Device* device_ = nullptr;
  std::string name_ = "?";
  uint64_t each_ = 0;  // bytes of a direction
  void *memory_ = nullptr, *host_ = nullptr;
  std::vector<Event*> events_;
  bool pinned_ = false;
};

// The median of several.
Result<double> seconds_of(int repeats, const std::function<Status()>& copy) {
  std::vector<double> all;
  for (int r = 0; r <= repeats; ++r) {
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(copy());
    if (r > 0) all.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::ranges::sort(all);
  return all[all.size() / 2];
}

Result<CopyLine> measure_line(Board& board, bool out, const CopySizes& sizes) {
  std::map<int64_t, double> medians;
  for (int64_t size = sizes.smallest; size <= sizes.largest; size *= 4) {
    const auto copy = [&]() -> Status {
      RETURN_IF_ERROR(board.begin(out, static_cast<uint64_t>(size), 1));
      return board.wait(out);
    };
    ASSIGN_OR_RETURN(medians[size], seconds_of(sizes.repeats, copy));
  }
  return fit_copies(medians);
}

Result<Copies> measure(Board& board, const CopySizes& sizes) {
  Copies copies;
  ASSIGN_OR_RETURN(copies.in, measure_line(board, false, sizes));
  ASSIGN_OR_RETURN(copies.out, measure_line(board, true, sizes));
  const auto copy = [&]() -> Status {
    RETURN_IF_ERROR(board.begin(false, static_cast<uint64_t>(sizes.largest), at_once));
    RETURN_IF_ERROR(board.begin(true, static_cast<uint64_t>(sizes.largest), at_once));
    RETURN_IF_ERROR(board.wait(false));
    return board.wait(true);
  };
  ASSIGN_OR_RETURN(const double took, seconds_of(sizes.repeats, copy));
  // Never more than alone: what is above that is noise.
  copies.both = std::min({bytes_per_second(at_once * static_cast<double>(sizes.largest) / took),
                          copies.in.cost.bandwidth, copies.out.cost.bandwidth});
  return copies;
}

}  // namespace

Result<HostCopies> measure_copies(const cuda::Backend& backend, int number, const CopySizes& sizes) {
  Board board(backend);
  RETURN_IF_ERROR(board.open(number, sizes.largest));
  HostCopies copies;
  copies.gpu = board.name();
  ASSIGN_OR_RETURN(copies.pageable, measure(board, sizes));
  RETURN_IF_ERROR(board.pin());
  ASSIGN_OR_RETURN(copies.pinned, measure(board, sizes));
  return copies;
}

}  // namespace nlsplit::inline exec
