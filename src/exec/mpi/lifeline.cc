#include "exec/mpi/lifeline.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

namespace nlsplit {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::steady_clock;

constexpr double silent_share = 0.7;  // of the limit: then a rank is lost
// A rank that hears nothing of a lower one waits a little longer, so that of two that are cut off the lower one speaks.
constexpr double courtesy_share = 0.1;
constexpr double asleep_share = 0.3;  // this process itself did nothing for so long: it cannot blame others
constexpr int beats_per_limit = 10;
// A rank that ends because it was told to breaks its connections, too: what others were told must have time to arrive.
constexpr std::chrono::milliseconds settling(100);
constexpr size_t longest_text = 4000;

std::string random_token() {
  uint64_t words[2] = {};
  if (::getrandom(words, sizeof(words), 0) != sizeof(words)) return "";
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

// A text of several lines as one, and back.
std::string one_line(std::string text) {
  if (text.size() > longest_text) text.resize(longest_text);
  std::replace(text.begin(), text.end(), '\n', '\x1f');
  return text;
}
std::string farewell(const Error& why) {
  return fmt::format("end {} {}", static_cast<int>(why.kind), one_line(why.message));
}
std::string many_lines(std::string text) {
  std::replace(text.begin(), text.end(), '\x1f', '\n');
  return text;
}

}  // namespace

Lifeline::Lifeline(int rank, Liveness& liveness, LifelineOptions options)
    : rank_(rank),
      liveness_(liveness),
      options_(std::move(options)),
      limit_(of_seconds(options_.limit_s)),
      interval_(limit_ / beats_per_limit) {}

Result<std::unique_ptr<Lifeline>> Lifeline::open(int rank, const std::string& program, Liveness& liveness,
                                                 LifelineOptions options) {
  std::unique_ptr<Lifeline> lifeline(new Lifeline(rank, liveness, std::move(options)));
  lifeline->listener_ = listen_anywhere();
  if (!lifeline->listener_.socket.open()) return io_error(fmt::format("no TCP socket: {}", std::strerror(errno)));
  lifeline->wake_ = Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::string token = random_token();
  if (!lifeline->wake_.open() || token.empty()) return io_error("no event descriptor or random numbers");
  lifeline->greeting_ = {program,    own_layout(),
                         own_host(), lifeline->listener_.port,
                         token,      own_addresses(lifeline->options_.data_network)};
  return lifeline;
}

Lifeline::~Lifeline() { stop(); }

std::string Lifeline::name(int rank) const {
  return fmt::format("rank {} on host {}", rank, greetings_[static_cast<size_t>(rank)].host);
}

// The higher rank calls the lower one, at the first of its addresses where somebody knows its token.
Status Lifeline::meet(int lower, const std::vector<Greeting>& greetings, Deadline deadline) {
  const Greeting& there = greetings[static_cast<size_t>(lower)];
  std::vector<std::string> addresses = there.addresses;
  if (there.host != greeting_.host)  // loopback is no way to another host
    std::erase_if(addresses, [](const std::string& address) { return address.starts_with("127."); });
  for (size_t i = 0; i < addresses.size(); ++i) {
    const Clock::time_point now = Clock::now();
    const Deadline soon = now + (deadline - now) / static_cast<int>(addresses.size() - i);
    LineSocket line(connect_to(addresses[i], there.port, soon));
    if (!line.open()) continue;
    line.send(fmt::format("hello {} {}", there.token, rank_));
    if (line.wait_line(soon) != "hello " + greeting_.token) continue;
    peers_[static_cast<size_t>(lower)].line = std::move(line);
    return ok_status();
  }
  return lost(fmt::format("rank {} on host {} cannot reach {} over TCP at {} port {}", rank_, greeting_.host,
                          name(lower), fmt::join(addresses, ", "), there.port));
}

Status Lifeline::connect(std::vector<Greeting> greetings, Deadline deadline) {
  greetings_ = std::move(greetings);
  peers_.resize(greetings_.size());
  const int size = static_cast<int>(greetings_.size());
  for (int lower = 0; lower < rank_; ++lower) RETURN_IF_ERROR(meet(lower, greetings_, deadline));
  for (int missing = size - rank_ - 1; missing > 0;) {
    LineSocket line(accept_until(listener_.socket, deadline));
    if (!line.open()) {
      std::string names;
      for (int r = rank_ + 1; r < size; ++r) {
        if (!peers_[static_cast<size_t>(r)].line.open()) names += (names.empty() ? "" : ", ") + name(r);
      }
      return lost(fmt::format("{} waited in the start for a connection from {}", name(rank_), names));
    }
    // Whoever it is, it says who at once or is none of ours.
    const auto hello = line.wait_line(std::min(deadline, Clock::now() + interval_ * 2));
    std::istringstream words(hello.value_or(""));
    std::string word, token;
    int rank = -1;
    words >> word >> token >> rank;
    if (!words || word != "hello" || token != greeting_.token || rank <= rank_ || rank >= size) continue;
    line.send("hello " + greetings_[static_cast<size_t>(rank)].token);
    Peer& peer = peers_[static_cast<size_t>(rank)];
    if (!peer.line.open()) --missing;
    peer.line = std::move(line);
  }
  listener_.socket = Socket();
  for (Peer& peer : peers_) peer.heard = Clock::now();
  thread_ = std::thread([this] { watch(); });
  return ok_status();
}

void Lifeline::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(wake_.fd(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

void Lifeline::leave() {
  stop();
  const std::lock_guard lock(mutex_);
  if (!ended_) tell_all("bye");
}

void Lifeline::tell_all(const std::string& line) {
  for (Peer& peer : peers_) peer.line.send(line);
}

bool Lifeline::end(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (ended_) return false;
  ended_ = true;
  tell_all(farewell(why));
  return true;
}

double Lifeline::idle_s() const {
  double least = liveness_.idle_s();
  const std::lock_guard lock(mutex_);
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (static_cast<int>(r) != rank_ && !peers_[r].left) least = std::min(least, peers_[r].idle_s);
  }
  return least;
}

std::string Lifeline::others() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (static_cast<int>(r) == rank_) continue;
    const Peer& peer = peers_[r];
    text += fmt::format("\n  {} {}", name(static_cast<int>(r)), peer.left ? "has ended its run" : peer.doing);
  }
  return text;
}

void Lifeline::watch() {
  ::prctl(PR_SET_NAME, "nls-lifeline");  // for top -H
  Clock::time_point last_look = Clock::now(), next_beat = last_look;
  std::vector<pollfd> items;
  for (;;) {
    items.assign(1, {wake_.fd(), POLLIN, 0});
    bool settles = false;
    {
      const std::lock_guard lock(mutex_);
      for (const Peer& peer : peers_) {
        if (peer.line.open() && !peer.broke) items.push_back({peer.line.fd(), POLLIN, 0});
        settles = settles || (peer.broke && !peer.left);
      }
    }
    const Clock::duration rest = settles ? std::min<Clock::duration>(interval_ / 2, settling / 2) : interval_ / 2;
    (void)::poll(items.data(), items.size(),
                 static_cast<int>(duration_cast<std::chrono::milliseconds>(rest).count()) + 1);
    const Clock::time_point now = Clock::now();
    std::unique_lock lock(mutex_);
    if (stop_) return;
    if (now - last_look > of_seconds(options_.limit_s * asleep_share)) {
      for (Peer& peer : peers_) peer.heard = now;
    }
    last_look = now;
    read_all(now);
    if (!ended_ && ending_.error.message.empty() && now >= next_beat) {
      beat();
      next_beat = now + interval_;
    }
    if (!ended_ && ending_.error.message.empty()) judge(now);
    if (!ended_ && !ending_.error.message.empty()) {
      ended_ = true;
      const Ending ending = ending_;
      lock.unlock();
      if (options_.on_end) options_.on_end(ending);
      return;
    }
  }
}

void Lifeline::read_all(Clock::time_point now) {
  for (size_t r = 0; r < peers_.size(); ++r) {
    Peer& peer = peers_[r];
    if (!peer.line.open() || peer.broke) continue;
    bool closed = false;
    for (const std::string& line : peer.line.receive(closed)) {
      peer.heard = now;
      take(static_cast<int>(r), line);
    }
    if (!closed) continue;
    peer.broke = true;
    peer.broke_at = now;
  }
}

void Lifeline::take(int rank, const std::string& line) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  std::istringstream words(line);
  std::string what;
  words >> what;
  const auto rest = [&words] {
    std::string text;
    std::getline(words >> std::ws, text);
    return many_lines(text);
  };
  if (what == "beat") {
    words >> peer.idle_s;
    peer.doing = rest();
  } else if (what == "bye") {
    peer.left = true;
  } else if (what == "lost") {  // it found a rank lost, and leaves it to this one to say so
    conclude({lost(rest()), true});
  } else if (what == "end") {
    int kind = 0;
    words >> kind;
    Error why = failed(rest());
    if (kind >= 0 && kind <= static_cast<int>(ErrorKind::lost)) why.kind = static_cast<ErrorKind>(kind);
    conclude({why, false});
  }
}

void Lifeline::beat() {
  if (options_.traffic) {
    const uint64_t traffic = options_.traffic(descriptors());
    if (std::exchange(traffic_, traffic) != traffic) liveness_.moved();
  }
  const std::string doing = liveness_.computes() ? "computes" : "waits in " + liveness_.waits_in(-1);
  tell_all(fmt::format("beat {:.3f} {}", liveness_.idle_s(), one_line(doing)));
}

std::vector<int> Lifeline::descriptors() const {
  std::vector<int> own;
  for (const Peer& peer : peers_) own.push_back(peer.line.fd());
  return own;
}

bool Lifeline::is_suspect(int rank, Clock::time_point now) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  if (rank == rank_ || peer.left) return false;
  if (peer.broke) return now - peer.broke_at >= settling;
  const double share = silent_share + (rank < rank_ ? courtesy_share : 0);
  return now - peer.heard > of_seconds(options_.limit_s * share);
}

void Lifeline::judge(Clock::time_point now) {
  std::vector<int> suspects;
  int speaker = rank_;
  for (int r = static_cast<int>(peers_.size()) - 1; r >= 0; --r) {
    if (is_suspect(r, now))
      suspects.insert(suspects.begin(), r);
    else if (r < rank_ && !peers_[static_cast<size_t>(r)].left && !peers_[static_cast<size_t>(r)].broke)
      speaker = r;
  }
  if (suspects.empty()) return;
  const std::string why = accuse(suspects, now);
  if (speaker == rank_ || (accused_ && now - accused_at_ > interval_)) {
    conclude({lost(why), true});
  } else if (!accused_) {
    accused_ = true;
    accused_at_ = now;
    peers_[static_cast<size_t>(speaker)].line.send("lost " + one_line(why));
  }
}

std::string Lifeline::accuse(const std::vector<int>& suspects, Clock::time_point now) const {
  std::string names;
  for (const int r : suspects) names += (names.empty() ? "" : ", ") + name(r);
  const Peer& first = peers_[static_cast<size_t>(suspects[0])];
  const std::string how = first.broke ? "its connection broke: it died or was cut off"
                                      : fmt::format("it was silent for {:.1f} s: it hangs, is stopped or cut off",
                                                    duration<double>(now - first.heard).count());
  const std::string own = liveness_.computes() ? "computed" : "waited in " + liveness_.waits_in(suspects[0]);
  return fmt::format("lost {} ({})\n  {} {}\n  the last that was heard of rank {}: it {}", names, how, name(rank_), own,
                     suspects[0], first.doing.empty() ? "had begun" : first.doing);
}

// The first reason counts.
void Lifeline::conclude(Ending ending) {
  if (ended_ || !ending_.error.message.empty()) return;
  if (ending.error.message.empty()) ending.error.message = "ended by another rank";
  // Also what was heard: between the one who said it and another the link may be cut.
  tell_all(farewell(ending.error));
  ending_ = std::move(ending);
}

}  // namespace nlsplit
