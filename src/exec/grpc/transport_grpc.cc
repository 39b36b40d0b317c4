#include "exec/grpc/transport_grpc.h"

#include <fmt/format.h>
#include <grpcpp/create_channel.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "exec/grpc/credentials.h"
#include "exec/grpc/hello.h"
#include "exec/grpc/mailbox.h"
#include "exec/grpc/meeting.h"
#include "exec/grpc/stream.h"
#include "exec/heartbeat/greeting.h"
#include "exec/heartbeat/heartbeat.h"
#include "exec/heartbeat/neighbours.h"
#include "exec/process_exit.h"
#include "exec/waker.h"

namespace nlsplit::inline exec {

std::string joined(std::span<const std::span<const std::byte>> parts) {
  std::string text;
  for (const auto part : parts) text.append(reinterpret_cast<const char*>(part.data()), part.size());
  return text;
}

std::vector<Fact> facts_of(const std::string& program) {
  std::vector<Fact> facts = {{"program", program}};
  for (Fact& fact : facts_of_process()) facts.push_back(std::move(fact));
  return facts;
}

// The system clock for waiting: see waker.h.
std::chrono::system_clock::time_point from_now(Clock::duration wait) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(std::max(wait, Clock::duration::zero()));
}

Clock::time_point end_of_start(const TransportOptions& options, Clock::time_point begin, double share) {
  return begin + of_seconds(options.start_timeout_s > 0 ? share * options.start_timeout_s : never_s);
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds longest_beat(1000), farewell(1000), linger(200);
constexpr milliseconds last_run_ends(3000), between_calls(50);
constexpr milliseconds echo(250);    // longer than a broken stream takes to be known
constexpr double grace_share = 0.1;  // of the heartbeat's limit, for last words

Frame text_frame(FrameKind kind, std::string text) { return {{kind, 0, 0, 0}, std::move(text)}; }

Result<std::string> random_run() {
  uint64_t words[2] = {};
  if (::getrandom(words, sizeof(words), 0) != sizeof(words)) return io_error("no random numbers");
  return fmt::format("{:016x}{:016x}", words[0], words[1]);
}

struct Peer {
  std::optional<Hello> hello;  // of a peer that this rank dials
  std::string address;         // where it was dialled, or from where it came
  std::shared_ptr<FrameStream> stream;
  std::optional<AboutRank> about;  // once it has welcomed this rank, or greeted
  bool ready = false;
  bool fresh = false;  // something came since the heartbeat last looked
  std::optional<std::string> ended;
};

class GrpcTransport final : public MeetingRank {
 public:
  GrpcTransport(int rank, int size, TransportOptions options, Credentials credentials)
      : rank_(rank),
        options_(std::move(options)),
        credentials_(std::move(credentials)),
        exit_(options_.last_words, options_.heartbeat_s > 0 ? grace_share * options_.heartbeat_s : 2),
        peers_(static_cast<size_t>(size)),
        mailbox_(
            rank, [this](int peer, Frame frame) { stream(peer).put(std::move(frame)); },
            [this] {
              liveness_.moved();
              waker_.wake();
            }) {}

  ~GrpcTransport() override {
    leave();
    const auto all = streams();
    for (const auto& stream : all) stream->finish();  // to who left earlier, that is this rank's farewell
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, from_now(farewell), [this] { return open_ == 0; });
    lock.unlock();
    for (const auto& stream : all) stream->refuse("the run is over");
    lock.lock();
    changed_.wait(lock, [this] { return open_ == 0; });
  }

  StreamEvents events_of(int peer) override {
    {
      const std::lock_guard lock(mutex_);
      ++open_;
    }
    return {[this, peer](const FrameHeader& header, std::span<const std::span<const std::byte>> parts) {
              return take(peer, header, parts);
            },
            [this, peer](const std::string& why) { ended(peer, why); }};
  }

  void dial_to(int peer, const std::string& address, const Hello& hello) override {
    grpc::ChannelArguments arguments;
    set_limits(arguments);
    if (!options_.remote.credentials.empty()) arguments.SetSslTargetNameOverride(certificate_name);
    Peer& it = peers_[static_cast<size_t>(peer)];
    it.address = address;
    it.hello = hello;
    it.stream = dial(grpc::CreateCustomChannel(address, credentials_.client, arguments), events_of(peer));
    it.stream->put(text_frame(FrameKind::hello, to_string(hello)));
  }

  void attach(int peer, const std::shared_ptr<FrameStream>& stream, const AboutRank& about) override {
    {
      const std::lock_guard lock(mutex_);
      Peer& it = peers_[static_cast<size_t>(peer)];
      it.address = stream->peer();
      it.stream = stream;
      it.about = about;
      changed_.notify_all();
    }
    stream->put(text_frame(FrameKind::welcome, to_string(about_this_process())));
  }

  Status meet(Clock::time_point until, bool (*cancelled)()) override {
    RETURN_IF_ERROR(wait_for_all([](const Peer& peer) { return peer.about.has_value(); }, until, cancelled));
    if (rank_ > 0) {
      stream(0).put(text_frame(FrameKind::ready, ""));
      const auto answered = [this](const Peer& peer) { return &peer != &peers_[0] || peer.ready; };  // rank 0 has to
      return wait_for_all(answered, until, cancelled);
    }
    RETURN_IF_ERROR(wait_for_all([](const Peer& peer) { return peer.ready; }, until, cancelled));
    for (int peer = 1; peer < size(); ++peer) stream(peer).put(text_frame(FrameKind::ready, ""));
    return ok_status();
  }

  void give_up(const std::string& why) override {
    for (const auto& stream : streams()) stream->refuse(why);
  }

  void never_came(int peer, const std::string& why) override {
    const std::lock_guard lock(mutex_);
    peers_[static_cast<size_t>(peer)].ended = why;
    changed_.notify_all();
  }

  void set_up() override {
    const AboutRank own = about_this_process();
    std::vector<std::string> names;
    for (size_t r = 0; r < peers_.size(); ++r) {
      const AboutRank& about = r == static_cast<size_t>(rank_) ? own : *peers_[r].about;
      if (about.machine == own.machine) same_machine_.push_back(static_cast<int>(r));
      names.push_back(fmt::format("rank {} on host {}", r, about.host));
    }
    const double limit_s = options_.heartbeat_s > 0 ? options_.heartbeat_s : never_s;
    const Moment now = Clock::now();
    const std::lock_guard lock(mutex_);
    heartbeat_.emplace(
        rank_, std::move(names), limit_s,
        OwnActivity{[this] { return liveness_.idle_s(); }, [this](int peer) { return liveness_.doing(peer); }});
    for (const int peer : neighbours(rank_, size())) heartbeat_->joined(peer, now);
    heartbeat_->started(now);
    beat_ = std::thread([this] { watch(); });
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::vector<int> same_machine() const override { return same_machine_; }

  Request isend(int peer, int tag, std::span<const std::byte> data) override { return mailbox_.send(peer, tag, data); }
  Request irecv(int peer, int tag, std::span<std::byte> room) override {
    const Request request = mailbox_.receive(peer, tag, room);
    if (const auto wrong = mailbox_.failure()) abort(*wrong);
    return request;
  }
  State test(Request request) override { return mailbox_.test(request); }
  Error error() const override { return failed("unreachable"); }  // this transport does not survive failures

  void pause(int /*rounds*/) override {
    if (options_.polling == Polling::spin)
      std::this_thread::yield();
    else
      waker_.sleep(longest_pause);
  }
  void wake() override { waker_.wake(); }
  void rest() override { waker_.sleep(longest_pause); }

  Liveness& liveness() override { return liveness_; }
  double idle_s() const override {
    const std::lock_guard lock(mutex_);
    return heartbeat_ && options_.heartbeat_s > 0 ? heartbeat_->idle_s() : liveness_.idle_s();
  }

  // See MpiTransport: what went wrong here may be the echo of what another rank is about to tell.
  [[noreturn]] void abort(const Error& why) override {
    std::this_thread::sleep_for(rank_ == 0 ? echo : 2 * echo);
    Error whole = why;
    std::vector<PeerLine> lines;
    bool ends = true;
    {
      const std::lock_guard lock(mutex_);
      if (heartbeat_) {
        if (why.kind == ErrorKind::lost) whole.message += heartbeat_->others();
        ends = heartbeat_->end(whole);
        lines = heartbeat_->take_lines();
      }
    }
    send(std::move(lines));
    if (!ends) wait_for_end();
    flush();
    exit_(whole, true);
  }

  static void set_limits(grpc::ChannelArguments& arguments) {
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // would keep copies of what is sent
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection for each peer
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetMaxReceiveMessageSize(static_cast<int>(largest_frame));
    arguments.SetMaxSendMessageSize(-1);
  }

 private:
  FrameStream& stream(int peer) { return *peers_[static_cast<size_t>(peer)].stream; }

  std::string said(size_t rank) const {
    return fmt::format("rank {}{}", rank, peers_[rank].address.empty() ? "" : " at " + peers_[rank].address);
  }

  Error unreachable(size_t rank, const std::string& why) const {
    return lost(fmt::format("{} does not take part: {}", said(rank), why.empty() ? "it ended" : why));
  }

  std::vector<std::shared_ptr<FrameStream>> streams() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<FrameStream>> all;
    for (const Peer& peer : peers_)
      if (peer.stream) all.push_back(peer.stream);
    return all;
  }

  // Runs follow each other closely: who was at the end of the last one is called again, for a while.
  void call_again(std::unique_lock<std::mutex>& lock) {
    std::vector<size_t> again;
    for (size_t r = 0; r < peers_.size(); ++r) {
      Peer& peer = peers_[r];
      if (!peer.ended || !peer.hello || peer.about) continue;
      if (*peer.ended != in_other_run && *peer.ended != worker_ends && *peer.ended != broken_stream) continue;
      peer.ended.reset();
      std::erase(broken_, static_cast<int>(r));
      again.push_back(r);
    }
    if (again.empty()) return;
    changed_.wait_until(lock, from_now(between_calls));
    lock.unlock();
    for (const size_t r : again) dial_to(static_cast<int>(r), peers_[r].address, Hello(*peers_[r].hello));
    lock.lock();
  }

  template <class Done>
  Status wait_for_all(const Done& done, Clock::time_point until, bool (*cancelled)()) {
    const Clock::time_point begin = Clock::now();
    std::unique_lock lock(mutex_);
    for (;;) {
      if (Clock::now() < std::min(begin + last_run_ends, until)) call_again(lock);
      std::string missing;
      for (size_t r = 0; r < peers_.size(); ++r) {
        if (r == static_cast<size_t>(rank_)) continue;
        if (peers_[r].ended) return unreachable(r, *peers_[r].ended);
        if (!done(peers_[r])) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", said(r));
      }
      if (missing.empty()) return ok_status();
      if (cancelled != nullptr && cancelled()) return failed("interrupted");
      if (Clock::now() >= until)
        return lost(
            fmt::format("rank {} on host {} waited {:.3g} s for {}: nlbench worker does not run there, cannot be "
                        "reached, or {} --tls",
                        rank_, own_host(), options_.start_timeout_s, missing,
                        options_.remote.credentials.empty() ? "wants" : "has another folder for"));
      changed_.wait_until(lock, from_now(longest_pause));
    }
  }

  bool take(int peer, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) {
    liveness_.moved();
    if (header.kind == FrameKind::welcome) {
      auto about = parse_welcome(joined(parts));
      if (!about) return false;
      const std::lock_guard lock(mutex_);
      peers_[static_cast<size_t>(peer)].about = std::move(*about);
      changed_.notify_all();
      return true;
    }
    if (header.kind == FrameKind::ready) {
      const std::lock_guard lock(mutex_);
      peers_[static_cast<size_t>(peer)].ready = true;
      changed_.notify_all();
      return true;
    }
    {
      const std::lock_guard lock(mutex_);
      peers_[static_cast<size_t>(peer)].fresh = true;
    }
    if (header.kind == FrameKind::line) {
      const std::lock_guard lock(mutex_);
      heard_.push_back({peer, joined(parts)});
      changed_.notify_all();
      return true;
    }
    if (const Status taken = mailbox_.take(peer, header, parts); !taken.ok()) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = taken.error();
      changed_.notify_all();
    }
    return true;
  }

  void ended(int peer, const std::string& why) {
    const std::lock_guard lock(mutex_);
    peers_[static_cast<size_t>(peer)].ended = why;
    broken_.push_back(peer);
    --open_;
    changed_.notify_all();
  }

  // The heartbeat's thread.
  void watch() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      const Moment now = Clock::now();
      for (const PeerLine& heard : std::exchange(heard_, {})) heartbeat_->received(heard.peer, heard.line, now);
      const std::vector<int> watched = neighbours(rank_, size());
      for (const int peer : watched)
        if (std::exchange(peers_[static_cast<size_t>(peer)].fresh, false)) heartbeat_->received(peer, "", now);
      for (const int peer : std::exchange(broken_, {})) {
        const std::string& why = *peers_[static_cast<size_t>(peer)].ended;
        if (std::ranges::find(watched, peer) != watched.end())
          heartbeat_->broke(peer, now);
        else if (!why.empty())  // else it has come to its end, of which it tells its neighbours
          heartbeat_->give_up(unreachable(static_cast<size_t>(peer), why).message, now);
      }
      heartbeat_->tick(now);
      const auto failure = std::exchange(failure_, std::nullopt);
      const bool fails = failure && heartbeat_->end(*failure);  // false: the run has ended, or this rank's part in it
      std::vector<PeerLine> lines = heartbeat_->take_lines();
      const auto ending = heartbeat_->ending();
      lock.unlock();
      send(std::move(lines));
      if (ending || fails) flush();
      if (ending) exit_(ending->error, ending->speaks);
      if (fails) exit_(*failure, true);
      changed_.notify_all();
      lock.lock();
      if (stop_ || !heard_.empty() || !broken_.empty() || failure_) continue;
      changed_.wait_until(lock, from_now(std::min<Clock::duration>(heartbeat_->next() - Clock::now(), longest_beat)));
    }
  }

  void send(std::vector<PeerLine> lines) {
    for (PeerLine& line : lines) stream(line.peer).put(text_frame(FrameKind::line, std::move(line.line)));
  }

  // What was put is with the network, or it takes too long.
  void flush() {
    const Clock::time_point until = Clock::now() + linger;
    const auto all_flushed = [all = streams()] {
      return std::ranges::all_of(all, [](const auto& stream) { return stream->flushed(); });
    };
    while (!all_flushed() && Clock::now() < until) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(20));  // from gRPC's threads into the sockets
  }

  // The others' farewells are heard before this rank goes.
  void leave() {
    if (!beat_.joinable()) return;
    std::unique_lock lock(mutex_);
    heartbeat_->leave();
    std::vector<PeerLine> lines = heartbeat_->take_lines();
    lock.unlock();
    send(std::move(lines));
    lock.lock();
    changed_.notify_all();
    changed_.wait_until(lock, from_now(farewell), [this] { return heartbeat_->all_left() || heartbeat_->ending(); });
    stop_ = true;
    changed_.notify_all();
    lock.unlock();
    beat_.join();
  }

  // The heartbeat's thread ends the process.
  [[noreturn]] static void wait_for_end() {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

  const int rank_;
  const TransportOptions options_;
  const Credentials credentials_;
  ProcessExit exit_;
  Liveness liveness_;
  Waker waker_;
  std::vector<int> same_machine_;
  mutable std::mutex mutex_;  // for all below but mailbox_, and for peers_ until set_up()
  std::condition_variable changed_;
  std::vector<Peer> peers_;  // by rank
  Mailbox mailbox_;
  std::optional<Heartbeat> heartbeat_;
  std::vector<PeerLine> heard_;
  std::vector<int> broken_;
  std::optional<Error> failure_;
  int open_ = 0;  // streams whose end is not known
  bool stop_ = false;
  std::thread beat_;
};

}  // namespace

std::unique_ptr<MeetingRank> MeetingRank::make(int rank, int size, TransportOptions options, Credentials credentials) {
  return std::make_unique<GrpcTransport>(rank, size, std::move(options), std::move(credentials));
}

Result<std::unique_ptr<Transport>> start_grpc(TransportOptions options) {
  const std::vector<std::string>& workers = options.remote.workers;
  if (workers.empty()) return invalid_input("--transport grpc needs --workers HOST:PORT,…");
  for (const std::string& worker : workers) RETURN_IF_ERROR(check_address(worker));
  if (options.remote.credentials.empty()) {
    for (const std::string& worker : workers)
      if (!is_loopback(worker))
        return invalid_input(
            fmt::format("worker {} is another machine: a folder of credentials is needed (--tls)", worker));
  }
  ASSIGN_OR_RETURN(Credentials credentials, read_credentials(options.remote.credentials));
  ASSIGN_OR_RETURN(const std::string run, random_run());
  const Clock::time_point begin = Clock::now();
  Hello hello{credentials.secret, run, 0, 0, about_this_process(), facts_of(options.program)};
  hello.addresses = {""};
  hello.addresses.insert(hello.addresses.end(), workers.begin(), workers.end());
  hello.heartbeat_s = options.heartbeat_s;
  hello.start_timeout_s = options.start_timeout_s;
  hello.job = options.remote.job;
  const int size = static_cast<int>(hello.addresses.size());
  auto transport = MeetingRank::make(0, size, options, std::move(credentials));
  for (hello.to = 1; hello.to < size; ++hello.to)
    transport->dial_to(hello.to, hello.addresses[static_cast<size_t>(hello.to)], hello);
  RETURN_IF_ERROR(transport->meet(end_of_start(options, begin), options.remote.cancelled));
  transport->set_up();
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace nlsplit::inline exec
