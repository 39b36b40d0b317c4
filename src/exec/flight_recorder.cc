#include "exec/flight_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace nlsplit::inline exec {
namespace {

constexpr size_t longest_piece = 2000;

std::string_view name_of(FlightEvent event) {
  switch (event) {
    case FlightEvent::begins:
      return "begins";
    case FlightEvent::ends:
      return "ends";
    case FlightEvent::waits:
      return "waits";
    case FlightEvent::posts:
      return "posts";
    case FlightEvent::completes:
      return "completes";
    case FlightEvent::finishes:
      return "finishes";
  }
  return "unknown";  // no CHECK: this may be a signal handler
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

}  // namespace

FlightWriter& FlightWriter::put(char c) {
  if (used_ == buffer_.size()) flush();
  buffer_[used_++] = c;
  return *this;
}

FlightWriter& FlightWriter::text(std::string_view text) {
  for (const char c : text.substr(0, longest_piece)) put(static_cast<unsigned char>(c) < ' ' ? ' ' : c);
  return *this;
}

FlightWriter& FlightWriter::number(int64_t number) {
  std::array<char, 24> digits;
  size_t at = digits.size();
  uint64_t rest = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  do {
    digits[--at] = static_cast<char>('0' + rest % 10);
    rest /= 10;
  } while (rest > 0);
  if (number < 0) digits[--at] = '-';
  return text({digits.data() + at, digits.size() - at});
}

bool FlightWriter::flush() {
  for (size_t at = 0; at < used_ && !failed_;) {
    const ssize_t written = ::write(fd_, buffer_.data() + at, used_ - at);
    if (written < 0 && errno == EINTR) continue;
    failed_ = written <= 0;
    at += failed_ ? 0 : static_cast<size_t>(written);
  }
  used_ = 0;
  return !failed_;
}

FlightRecorder::FlightRecorder(int rank, int ranks) : rank_(rank), ranks_(ranks), host_(host_name()) {
  phase("the preparations", -1);
}

void FlightRecorder::name_device(const std::string& device) {
  names_.push_back(std::make_unique<std::string>(device));
  device_.store(names_.back().get(), std::memory_order_release);
}

void FlightRecorder::phase(std::string_view what, int peer) {
  what = what.substr(0, phase_words * sizeof(uint64_t));
  for (size_t w = 0; w < phase_words; ++w) {
    uint64_t word = 0;
    const std::string_view rest = what.substr(std::min(what.size(), w * sizeof(word)));
    std::memcpy(&word, rest.data(), std::min(rest.size(), sizeof(word)));
    phase_[w].store(word, std::memory_order_relaxed);
  }
  peer_.store(peer, std::memory_order_relaxed);
  phase_since_.store(FlightLane::Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

void FlightRecorder::ask(const FlightSource* source) {
  source_.store(source);
  while (readers_.load() > 0) ::sched_yield();
}

void FlightRecorder::write_lane(FlightWriter& out, const FlightLane& lane, const FlightSource* source,
                                int64_t now_ns) const {
  const uint32_t end = lane.count();
  // A few of the oldest may be overwritten meanwhile.
  constexpr uint32_t margin = 8;
  for (uint32_t n = end - std::min(end, FlightLane::size - margin); n != end; ++n) {
    const FlightLane::Note note = lane.get(n);
    if (lane.count() - n > FlightLane::size - 1) continue;  // overwritten
    out.text("event ").number(now_ns - note.at_ns).text(" ").text(name_of(note.event)).text(" ");
    source->write_instance(out, note.instance);
    out.line();
  }
}

bool FlightRecorder::write(int fd, std::string_view run, std::string_view why) const {
  FlightWriter out(fd);
  const int64_t now_ns = FlightLane::Clock::now().time_since_epoch().count();
  out.text("nlsplit flight 1").line().text("run ").text(run).line();
  out.text("rank ").number(rank_).text(" of ").number(ranks_).line();
  const std::string* device = device_.load(std::memory_order_acquire);
  out.text("device ")
      .text(device != nullptr ? *device : "?")
      .line()
      .text("host ")
      .text(host_)
      .line()
      .text("why ")
      .text(why)
      .line();
  std::array<char, phase_words * sizeof(uint64_t) + 1> text{};
  for (size_t w = 0; w < phase_words; ++w) {
    const uint64_t word = phase_[w].load(std::memory_order_relaxed);
    std::memcpy(text.data() + w * sizeof(word), &word, sizeof(word));
  }
  out.text("phase ").text(works_.load(std::memory_order_relaxed) ? "works " : "waits ");
  out.number(peer_.load(std::memory_order_relaxed))
      .text(" ")
      .number(now_ns - phase_since_.load(std::memory_order_relaxed));
  out.text(" ").text(text.data()).line();
  out.text("repeat ").number(repeat_.load(std::memory_order_relaxed)).line();
  readers_.fetch_add(1);
  if (const FlightSource* source = source_.load(); source != nullptr) {
    source->write_state(out, now_ns);
    write_lane(out, computations, source, now_ns);
    write_lane(out, transfers, source, now_ns);
  }
  readers_.fetch_sub(1);
  out.text("end").line();
  return out.flush();
}

FlightRecords::FlightRecords(std::string dir, std::string run) : dir_(std::move(dir)), run_(std::move(run)) {}

FlightRecords::~FlightRecords() {
  written_ = true;
  for (std::atomic<One*>& one : all_) delete one.load();
}

FlightRecorder& FlightRecords::of(int rank, int ranks) {
  const std::lock_guard lock(making_);
  for (int i = 0; i < count_; ++i) {
    if (One* one = all_[static_cast<size_t>(i)].load(); one->recorder.rank() == rank) return one->recorder;
  }
  const int place = count_.load();
  CHECK(place < most, "more ranks in a process than can be recorded");
  const std::string path = fmt::format("{}/rank-{}.flight", dir_, rank);
  auto one = std::unique_ptr<One>(new One{{rank, ranks}, path, path + ".tmp"});
  FlightRecorder& recorder = one->recorder;
  all_[static_cast<size_t>(place)].store(one.release());
  count_.store(place + 1, std::memory_order_release);
  return recorder;
}

bool FlightRecords::write(std::string_view why) {
  if (written_.exchange(true) || dir_.empty()) return true;
  const int count = count_.load(std::memory_order_acquire);
  if (count > 0 && ::mkdir(dir_.c_str(), 0777) != 0 && errno != EEXIST) return false;
  bool all = true;
  for (int i = 0; i < count; ++i) {
    const One& one = *all_[static_cast<size_t>(i)].load();
    const int fd = ::open(one.temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
      all = false;
      continue;
    }
    const bool whole = one.recorder.write(fd, run_, why);
    ::close(fd);
    if (whole && ::rename(one.temporary.c_str(), one.path.c_str()) == 0) continue;
    ::unlink(one.temporary.c_str());
    all = false;
  }
  return all;
}

}  // namespace nlsplit::inline exec
