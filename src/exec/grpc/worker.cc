// Workers: a process that waits for rank 0, and then is one of its ranks.
#include <fmt/format.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "exec/grpc/meeting.h"
#include "exec/grpc/transport_grpc.h"

namespace nlsplit::inline exec {
namespace {

constexpr double worker_share = 0.85;   // of the start's patience
constexpr ptrdiff_t most_early = 4096;  // ranks that came before rank 0 did

// Outlives its transport: streams come in through it.
class Waiter final : public GrpcWorker {
 public:
  Waiter(Credentials credentials, std::string folder, std::string program)
      : credentials_(std::move(credentials)),
        folder_(std::move(folder)),
        program_(std::move(program)),
        facts_(facts_of(program_)) {}

  ~Waiter() override {
    std::vector<std::shared_ptr<FrameStream>> left;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      for (const auto& [number, visitor] : visitors_)
        if (visitor.stream) left.push_back(visitor.stream);  // else it is ending
    }
    for (const auto& stream : left) stream->refuse(worker_ends);
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return visitors_.empty(); });
  }

  Status listen(const std::string& address) {
    RETURN_IF_ERROR(check_address(address));
    if (folder_.empty() && !is_loopback(address))
      return invalid_input(fmt::format(
          "{} can be reached from other machines: a folder of credentials is needed (nlbench certificates)", address));
    service_ = std::make_unique<FrameService>([this](const auto& stream) { return admit(stream); });
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, credentials_.server, &port_);
    builder.RegisterCallbackGenericService(service_.get());
    builder.SetMaxReceiveMessageSize(static_cast<int>(largest_frame));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two workers at one port are a mistake
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0)
      return io_error(
          fmt::format("cannot listen at {}: the port is taken, or the address not of this machine", address));
    return ok_status();
  }

  int port() const override { return port_; }

  Result<Assigned> wait(TransportOptions options, bool (*cancelled)()) override {
    std::unique_lock lock(mutex_);
    while (!first_) {
      if (cancelled != nullptr && cancelled()) return failed("interrupted");
      changed_.wait_until(lock, from_now(longest_pause));
    }
    const Hello hello = *first_;
    const Clock::time_point begin = Clock::now();
    const int rank = hello.to, size = static_cast<int>(hello.addresses.size());
    options.program = program_;
    options.heartbeat_s = hello.heartbeat_s;
    options.start_timeout_s = hello.start_timeout_s;
    options.remote.credentials = folder_;
    Assigned assigned;
    assigned.job = hello.job;
    auto transport = MeetingRank::make(rank, size, options, credentials_);
    transport_ = transport.get();
    phase_ = Phase::meets;
    std::vector<int> early;  // rank 0's, and of ranks that were faster
    std::vector<std::shared_ptr<FrameStream>> strangers;
    for (auto& [number, visitor] : visitors_) {
      if (!visitor.hello) continue;
      if (belongs(*visitor.hello))
        early.push_back(number);
      else
        strangers.push_back(visitor.stream);
    }
    lock.unlock();
    for (const auto& stream : strangers) stream->refuse(in_other_run);
    for (const int number : early) attach(number);
    for (int peer = rank + 1; peer < size; ++peer) {
      transport->dial_to(peer, hello.addresses[static_cast<size_t>(peer)],
                         {hello.secret, hello.run, rank, peer, about_this_process(), facts_});
    }
    // Rank 0 hears from it why before it gives up itself.
    const Status met = transport->meet(end_of_start(options, begin, worker_share), cancelled);
    if (!met.ok()) transport->give_up(met.error().message);
    lock.lock();
    phase_ = Phase::has_met;
    transport_ = nullptr;
    lock.unlock();
    RETURN_IF_ERROR(met);
    transport->set_up();
    assigned.transport = std::move(transport);
    return assigned;
  }

 private:
  struct Visitor {
    std::shared_ptr<FrameStream> stream;
    std::optional<Hello> hello;
    bool attached = false;
    StreamEvents events;  // the transport's, once it is attached
  };

  StreamEvents admit(const std::shared_ptr<FrameStream>& stream) {
    const std::lock_guard lock(mutex_);
    const int number = next_++;
    visitors_[number].stream = stream;
    return {[this, number](const FrameHeader& header, std::span<const std::span<const std::byte>> parts) {
              return take(number, header, parts);
            },
            [this, number](const std::string& why) { ended(number, why); }};
  }

  bool take(int number, const FrameHeader& header, std::span<const std::span<const std::byte>> parts) {
    StreamEvents events;
    std::shared_ptr<FrameStream> stream;
    {
      const std::lock_guard lock(mutex_);
      const Visitor& visitor = visitors_.at(number);
      if (visitor.attached) events = visitor.events;
      if (!visitor.attached && (visitor.hello || header.kind != FrameKind::hello)) return false;
      stream = visitor.stream;
    }
    if (events.frame) return events.frame(header, parts);
    const std::string why = greet(number, parse_hello(joined(parts)));
    if (!why.empty()) stream->refuse(why);
    return true;
  }

  // Empty: it is welcome, or may wait.
  std::string greet(int number, const Result<Hello>& hello) {
    if (!hello) return hello.error().message;
    if (!same_secret(hello->secret, credentials_.secret)) return "another secret than the worker's";
    const Status same = check_facts({{fmt::format("rank {} on host {}", hello->from, hello->about.host), hello->facts},
                                     {fmt::format("the worker on host {}", own_host()), facts_}});
    if (!same.ok()) return same.error().message;
    for (size_t r = 1; r < hello->addresses.size(); ++r) {
      const std::string& address = hello->addresses[r];
      if (const Status fine = check_address(address); !fine.ok()) return fine.error().message;
      if (folder_.empty() && !is_loopback(address)) return "without --tls all workers are of one machine";
    }
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return worker_ends;
      const bool is_first = hello->from == 0;
      if (is_first ? first_.has_value() : phase_ == Phase::has_met || (phase_ == Phase::meets && !belongs(*hello)))
        return in_other_run;
      const auto early = std::ranges::count_if(visitors_, [](const auto& it) { return it.second.hello.has_value(); });
      if (!is_first && phase_ == Phase::waits && early >= most_early) return "too many ranks came before rank 0";
      visitors_.at(number).hello = *hello;
      if (is_first) first_ = *hello;
      changed_.notify_all();
      if (phase_ != Phase::meets) return "";  // wait() attaches it, or sends it away
    }
    attach(number);
    return "";
  }

  // With the lock.
  bool belongs(const Hello& hello) const {
    return hello.run == first_->run && hello.to == first_->to && hello.from < first_->to;
  }

  void attach(int number) {
    std::unique_lock lock(mutex_);
    const auto found = visitors_.find(number);
    if (found == visitors_.end() || transport_ == nullptr || found->second.attached) return;
    const Hello hello = *found->second.hello;
    if (!ranks_.insert(hello.from).second) {
      const auto twice = found->second.stream;
      lock.unlock();
      twice->refuse(fmt::format("rank {} is here already", hello.from));
      return;
    }
    found->second.attached = true;
    found->second.events = transport_->events_of(hello.from);
    const auto stream = found->second.stream;
    MeetingRank& transport = *transport_;
    lock.unlock();
    transport.attach(hello.from, stream, hello.about);
  }

  void ended(int number, const std::string& why) {
    Visitor gone;
    {
      const std::lock_guard lock(mutex_);
      gone = std::move(visitors_.at(number));
      const bool greeted = gone.hello.has_value() && !gone.attached;
      // Rank 0 has gone before its run was begun: the next may come.
      if (greeted && phase_ == Phase::waits && gone.hello->from == 0) first_.reset();
      if (greeted && phase_ == Phase::meets && belongs(*gone.hello) && !ranks_.contains(gone.hello->from))
        transport_->never_came(gone.hello->from, why);
    }
    if (gone.attached) gone.events.ended(why);
    const std::lock_guard lock(mutex_);
    visitors_.erase(number);
    changed_.notify_all();
  }

  enum class Phase { waits, meets, has_met };

  const Credentials credentials_;
  const std::string folder_, program_;
  const std::vector<Fact> facts_;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Visitor> visitors_;
  int next_ = 0;
  std::set<int> ranks_;         // that were attached
  std::optional<Hello> first_;  // of rank 0: which run this is
  Phase phase_ = Phase::waits;
  MeetingRank* transport_ = nullptr;  // while it meets the others
  bool closing_ = false;
  std::unique_ptr<FrameService> service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

Result<std::unique_ptr<GrpcWorker>> GrpcWorker::open(const std::string& address, const std::string& folder,
                                                     const std::string& program) {
  ASSIGN_OR_RETURN(Credentials credentials, read_credentials(folder));
  auto worker = std::make_unique<Waiter>(std::move(credentials), folder, program);
  RETURN_IF_ERROR(worker->listen(address));
  return std::unique_ptr<GrpcWorker>(std::move(worker));
}

}  // namespace nlsplit::inline exec
