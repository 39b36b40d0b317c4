#include "exec/heartbeat/heartbeat_thread.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace nlsplit::inline exec {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int accepted_at_once = 16;  // fewer than the visitors that are kept: all are read before one is dismissed
constexpr milliseconds no_files_rest(100);  // after the system has no file left for a new connection
constexpr milliseconds longest_rest(1000), longest_linger(50), longest_farewell(1000);
constexpr int looks_per_limit = 10;
constexpr size_t longest_line = 16384;

std::string random_token() {
  uint64_t words[2] = {};
  if (::getrandom(words, sizeof(words), 0) != sizeof(words)) return "";
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

}  // namespace

HeartbeatThread::HeartbeatThread(int rank, OwnActivity own, HeartbeatOptions options)
    : rank_(rank), own_(std::move(own)), options_(std::move(options)) {}

Result<std::unique_ptr<HeartbeatThread>> HeartbeatThread::open(int rank, std::vector<Fact> facts, OwnActivity own,
                                                               HeartbeatOptions options) {
  std::unique_ptr<HeartbeatThread> heartbeat(new HeartbeatThread(rank, std::move(own), std::move(options)));
  heartbeat->listener_ = listen_anywhere();
  if (!heartbeat->listener_.socket.open()) return io_error(fmt::format("no TCP socket: {}", std::strerror(errno)));
  heartbeat->wake_ = Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::string token = random_token();
  if (!heartbeat->wake_.open() || token.empty()) return io_error("no event descriptor or random numbers");
  heartbeat->greeting_ = {std::move(facts), own_host(), heartbeat->listener_.port, token,
                          own_addresses(heartbeat->options_.data_network)};
  return heartbeat;
}

HeartbeatThread::~HeartbeatThread() { stop(); }

Status HeartbeatThread::connect(std::vector<Greeting> greetings, double patience_s) {
  PeerWatchOptions options;
  options.limit_s = options_.limit_s;
  options.start.patience_s = patience_s;
  std::unique_lock lock(mutex_);
  watch_.emplace(rank_, std::move(greetings), options, own_, Clock::now());
  thread_ = std::thread([this] { watch(); });
  changed_.wait(lock, [this] { return watch_->all_met() || watch_->ending(); });
  return watch_->ending() ? Status(watch_->ending()->error) : ok_status();
}

void HeartbeatThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  const uint64_t one = 1;
  (void)!::write(wake_.fd(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

void HeartbeatThread::leave() {
  {
    // The others' farewells are read before the connections close: what closes with something unread in it may take
    // back what was sent last.
    std::unique_lock lock(mutex_);
    if (watch_) {
      watch_->leave();
      perform(Clock::now());
      // The system clock: see waker.h.
      changed_.wait_until(lock, std::chrono::system_clock::now() + longest_farewell,
                          [this] { return watch_->all_left() || watch_->ending(); });
    }
  }
  stop();
}

bool HeartbeatThread::end(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (!watch_ || !watch_->end(why)) return false;
  perform(Clock::now());
  linger();
  return true;
}

double HeartbeatThread::idle_s() const {
  const std::lock_guard lock(mutex_);
  return watch_->idle_s();
}

std::string HeartbeatThread::others() const {
  const std::lock_guard lock(mutex_);
  return watch_->others();
}

std::vector<int> HeartbeatThread::descriptors() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> own;
  for (const auto& [number, connection] : connections_) own.push_back(connection.line.fd());
  return own;
}

void HeartbeatThread::watch() {
  ::prctl(PR_SET_NAME, "nls-heartbeat");  // for top -H
  while (serve()) {
  }
}

// false: the thread's work is over.
bool HeartbeatThread::serve() {
  std::vector<pollfd> items;
  std::vector<int> numbers;
  milliseconds patience;
  {
    const std::lock_guard lock(mutex_);
    items.push_back({wake_.fd(), POLLIN, 0});
    const bool accepts = listener_.socket.open() && Clock::now() >= accept_again_;
    items.push_back({accepts ? listener_.socket.fd() : -1, POLLIN, 0});
    for (const auto& [number, connection] : connections_) {
      if (connection.closed) continue;
      items.push_back({connection.line.fd(), static_cast<short>(connection.connecting ? POLLOUT : POLLIN), 0});
      numbers.push_back(number);
    }
    patience = rest();
  }
  (void)::poll(items.data(), items.size(), static_cast<int>(patience.count()));
  std::unique_lock lock(mutex_);
  if (stop_) return false;
  const Moment now = Clock::now();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto it = connections_.find(numbers[i]);
    if (items[i + 2].revents != 0 && it != connections_.end()) read(numbers[i], it->second, now);
  }
  if (items[1].revents != 0 && !watch_->all_met()) accept_some(now);
  count_traffic(now);
  watch_->tick(now);
  perform(now);
  if (watch_->all_met()) listener_.socket = Socket();
  const auto notice = watch_->take_notice();
  const auto ending = watch_->ending();
  if (ending) linger();
  lock.unlock();
  changed_.notify_all();
  if (notice && options_.notice) options_.notice(*notice);
  if (ending && options_.on_end) options_.on_end(*ending);
  return !ending;
}

// Rounded up, so that what is due is done at once.
milliseconds HeartbeatThread::rest() const {
  const Moment now = Clock::now();
  Moment next = std::min({watch_->next(), next_look_, now + longest_rest});
  if (accept_again_ > now) next = std::min(next, accept_again_);
  return std::max(std::chrono::ceil<milliseconds>(next - now), milliseconds(0));
}

void HeartbeatThread::accept_some(Moment now) {
  for (int i = 0; i < accepted_at_once; ++i) {
    Socket socket = accept_now(listener_.socket);
    if (!socket.open()) {
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED) accept_again_ = now + no_files_rest;
      return;
    }
    connections_[watch_->accepted(now)].line = LineSocket(std::move(socket));
    perform(now);
  }
}

void HeartbeatThread::read(int number, Connection& connection, Moment now) {
  if (std::exchange(connection.connecting, false)) {
    connection.closed = !is_connected(connection.line.fd());
    if (!connection.closed) watch_->connected(number, now);
  } else {
    const size_t longest = watch_->is_peer(number) ? longest_line : longest_greeting_line;
    for (const std::string& line : connection.line.receive(longest, connection.closed))
      watch_->received(number, line, now);
  }
  if (connection.closed) {
    watch_->closed(number, now);
    if (!watch_->is_peer(number)) connections_.erase(number);
  }
  perform(now);
}

// What the watch wants done.
void HeartbeatThread::perform(Moment now) {
  for (std::vector<Action> actions; !(actions = watch_->take_actions()).empty();) {
    for (const Action& action : actions) {
      switch (action.kind) {
        case Action::Kind::connect: {
          Socket socket = begin_to_connect(action.text, action.port);
          if (!socket.open()) {
            watch_->closed(action.connection, now);
            break;
          }
          Connection& connection = connections_[action.connection];
          connection.line = LineSocket(std::move(socket));
          connection.connecting = true;
          break;
        }
        case Action::Kind::send:
          if (const auto it = connections_.find(action.connection); it != connections_.end())
            it->second.line.send(action.text);
          break;
        case Action::Kind::close:
          connections_.erase(action.connection);
          break;
      }
    }
  }
}

void HeartbeatThread::count_traffic(Moment now) {
  if (now < next_look_) return;
  next_look_ = now + of_seconds(options_.limit_s / looks_per_limit);
  if (!options_.traffic) return;
  std::vector<int> own;
  for (const auto& [number, connection] : connections_) own.push_back(connection.line.fd());
  const uint64_t traffic = options_.traffic(own);
  if (std::exchange(traffic_, traffic) != traffic && options_.on_traffic) options_.on_traffic();
}

// The process is about to end: what was sent has left, and nothing unread remains that would take it back.
void HeartbeatThread::linger() {
  const Moment until = Clock::now() + longest_linger;
  std::vector<pollfd> items;
  for (const auto& [number, connection] : connections_) {
    if (connection.closed || connection.connecting || !watch_->is_peer(number)) continue;
    (void)::shutdown(connection.line.fd(), SHUT_WR);
    items.push_back({connection.line.fd(), POLLIN, 0});
  }
  for (Moment now; !items.empty() && (now = Clock::now()) < until;) {
    (void)::poll(items.data(), items.size(), static_cast<int>(std::chrono::ceil<milliseconds>(until - now).count()));
    char piece[4096];
    std::erase_if(items, [&piece](const pollfd& item) {
      if (item.revents == 0) return false;
      const ssize_t count = ::recv(item.fd, piece, sizeof(piece), MSG_DONTWAIT);
      return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
    });
  }
}

}  // namespace nlsplit::inline exec
