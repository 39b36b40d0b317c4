#include "planning/network_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/output_lock.h"
#include "cost/pair_classes.h"
#include "program/saved.h"
#include "program/verify.h"
#include "validate/network_tests.h"

namespace nlsplit::inline planning {
namespace {

constexpr double long_s = 0.02;  // a message's time that is long beside the agreement on it

// Bytes of one that moves for so long, and that is large beside what a socket takes at once (512 KiB: start_mpi):
// only the rest needs its sender's processor while it moves. On the slowest links no longer than 200 ms.
int64_t large_message(const Route& route) {
  constexpr double longest_s = 0.2;
  const double rate = route.narrowest.value();
  const double size = std::max(rate * long_s, std::min<double>(2 << 20, rate * longest_s));
  return std::clamp<int64_t>(static_cast<int64_t>(size) / 64 * 64, 256 << 10, 32 << 20);
}

// No message of a ping-pong is larger. What a message takes for each byte is best seen where latencies are small beside
// it; of the largest ones there are few, so they may take longer than those of other tests.
int64_t largest_message(const Route& route) {
  constexpr double longest_s = 0.2;
  return std::clamp<int64_t>(static_cast<int64_t>(route.narrowest.value() * longest_s), 4 << 20, 64 << 20);
}

// Time of one computation of the tests with AVX-512 (kernels_bench, single/v4/erf: Zen 5); up to five times as long on
// other levels.
constexpr double computation_s = 5e-6;

// Of a ping-pong between devices with emulated compute: the computations between two messages, and their time by the
// clock. A clock can only add to the kernels' time, so there are few computations.
constexpr int emulated_computations = 8;
constexpr double stage_s = 1e-3;

constexpr double late_by = 6;  // messages' times

class NetworkSet {
 public:
  NetworkSet(const Loaded& loaded, std::string dir, Bytes eager_limit)
      : loaded_(loaded), cluster_(loaded.scenario.cluster), dir_(std::move(dir)) {
    set_.eager_limit = eager_limit;
  }

  Status write(size_t most_pairs) {
    std::error_code failure;
    std::filesystem::create_directories(dir_, failure);
    if (failure) return io_error(fmt::format("cannot create {}: {}", dir_, failure.message()));
    ASSIGN_OR_RETURN(const OutputLock lock, OutputLock::of_folder(dir_));
    const std::vector<HostPair> pairs = all_pairs();
    ASSIGN_OR_RETURN(const std::set<HostPair> measured, choose(pairs, most_pairs));
    for (const HostPair& pair : pairs) {
      if (measured.contains(pair)) RETURN_IF_ERROR(add_tests(pair.a.index(), pair.b.index()));
    }
    return write_file(dir_ + "/network.json", to_json(set_));
  }

 private:
  // Of hosts that may exchange messages.
  std::vector<HostPair> all_pairs() const {
    std::vector<int> ends(cluster_.hosts.size(), 0);  // devices and endpoints: who may send or receive there
    for (const Device& device : cluster_.devices) ++ends[device.host.index()];
    for (const HostId end : {loaded_.scenario.endpoints.source, loaded_.scenario.endpoints.sink})
      ends[end.index()] = std::max(ends[end.index()], 1);
    std::vector<HostPair> pairs;
    for (size_t a = 0; a < ends.size(); ++a) {
      for (size_t b = a; b < ends.size(); ++b) {
        if (ends[a] == 0 || ends[b] == 0 || (a == b && ends[a] < 2)) continue;
        pairs.push_back({HostId(a), HostId(b)});
      }
    }
    return pairs;
  }

  // Those to measure; set_.alike gets the others.
  Result<std::set<HostPair>> choose(const std::vector<HostPair>& pairs, size_t most_pairs) {
    ASSIGN_OR_RETURN(const std::vector<PairClass> classes, pair_classes(cluster_, loaded_.scenario.costs, pairs));
    const std::vector<std::vector<size_t>> chosen = spread_over_hosts(classes, most_pairs);
    std::set<HostPair> measured;
    for (size_t c = 0; c < classes.size(); ++c) {
      AlikePairs alike{{}, {}, classes[c].symmetric};
      for (size_t p = 0; p < classes[c].pairs.size(); ++p) {
        const auto [a, b] = classes[c].pairs[p];
        const bool is_chosen = std::ranges::binary_search(chosen[c], p);
        (is_chosen ? alike.measured : alike.others).push_back({name(a.index()), name(b.index())});
        if (is_chosen) measured.insert({std::min(a, b), std::max(a, b)});
      }
      if (!alike.others.empty()) set_.alike.push_back(std::move(alike));
    }
    return measured;
  }

  Status add_tests(size_t a, size_t b) {
    RETURN_IF_ERROR(add_ping_pong(a, b));
    if (a == b) return ok_status();
    RETURN_IF_ERROR(add_crossing(a, b));
    for (const auto& [from, to] : {std::pair{a, b}, {b, a}}) {
      const Device *sender = device_on(from), *receiver = device_on(to);
      if (sender == nullptr || receiver == nullptr) continue;
      RETURN_IF_ERROR(add_clear_to_send(*sender, *receiver));
      RETURN_IF_ERROR(add_late_receiver(*sender, *receiver));
      // Emulated compute mostly sleeps, and its processor has time for messages.
      if (sender->slowdown == 0 && receiver->slowdown == 0) RETURN_IF_ERROR(add_busy_pairs(*sender, *receiver));
    }
    return ok_status();
  }

  const std::string& name(size_t host) const { return cluster_.hosts[host].name; }

  const Device* device_on(size_t host) const {
    const auto found = std::ranges::find(cluster_.devices, HostId(host), &Device::host);
    return found == cluster_.devices.end() ? nullptr : &*found;
  }

  Status save(const std::string& folder, const Program& program, const Clocks& clocks = {}) const {
    RETURN_IF_ERROR(verify(program));
    return save_program(dir_ + "/" + folder, {program, program, false, {}, clocks}, loaded_.model.weights);
  }

  Status add_ping_pong(size_t a, size_t b) {
    const Device *ping = device_on(a), *pong = device_on(b);
    PingPongOptions options{.eager_limit = set_.eager_limit};
    if (a != b) {
      ASSIGN_OR_RETURN(const Route route, find_path(cluster_, HostId(a), HostId(b)));
      options.largest_bytes = largest_message(route);
    }
    // What a GPU's messages take besides, its copies, has its own figures: its host computes nothing here.
    if (ping != nullptr && !is_gpu(ping->level.isa)) options.level_a = ping->level;
    if (pong != nullptr && !is_gpu(pong->level.isa)) options.level_b = pong->level;
    // Stages with emulated compute sleep, and a thread that sleeps wakes up later than one that computes.
    const bool emulated = options.level_a && options.level_b && ping->slowdown > 0 && pong->slowdown > 0;
    if (emulated) options.computations = emulated_computations;
    PingPong test = ping_pong(name(a), name(b), options);
    const std::string folder = fmt::format("g{}", set_.tests.size() + 1);
    set_.tests.push_back({folder, name(a), name(b), std::move(test.sizes)});
    return save(folder, test.program, emulated ? busy_clock(test.program, stage_s) : Clocks());
  }

  Status add_crossing(size_t a, size_t b) {
    ASSIGN_OR_RETURN(const Route route, find_path(cluster_, HostId(a), HostId(b)));
    // One message in each direction, so that no clear to send queues behind another message; as long as several.
    const int64_t size = std::min<int64_t>(4 * large_message(route), 64 << 20);
    const MessageTest test{fmt::format("c{}", set_.crossings.size() + 1), name(a), name(b), size, 1};
    set_.crossings.push_back(test);
    return save(test.folder, crossing(test.a, test.b, size, set_.eager_limit));
  }

  Status add_clear_to_send(const Device& sender, const Device& receiver) {
    ASSIGN_OR_RETURN(const Route route, find_path(cluster_, sender.host, receiver.host));
    // When the short message is requested, the long one is in progress, has filled the buffers of Open MPI and the
    // socket (1 MiB), and has several times as much left to send.
    constexpr double waits_s = 0.1;
    const double lasts_s = std::max(waits_s, 40 * route.rendezvous.latency.value());
    ClearToSendOptions options;
    options.eager_limit = set_.eager_limit;
    options.message_bytes = above_limit();
    options.bulk_bytes =
        std::clamp<int64_t>(static_cast<int64_t>(route.narrowest.value() * lasts_s), 2 << 20, 64 << 20) / 64 * 64;
    const double moves_s = static_cast<double>(options.bulk_bytes) / route.narrowest.value();
    options.computations = std::max(1, static_cast<int>(moves_s / 20 / computation_s));
    const size_t number = set_.clear_to_send.size() + 1;
    const ClearToSendTest test{fmt::format("x{}", number), fmt::format("y{}", number), name(sender.host.index()),
                               name(receiver.host.index())};
    set_.clear_to_send.push_back(test);
    for (const bool bulk : {false, true}) {
      options.bulk = bulk;
      RETURN_IF_ERROR(save(bulk ? test.with_bulk : test.alone,
                           clear_to_send_pair(test.a, test.b, sender.level, receiver.level, options)));
    }
    return ok_status();
  }

  // The receiver computes for several times as long as a message takes. Few bytes in all: a transport does not keep any
  // number of them (start_mpi).
  Status add_late_receiver(const Device& sender, const Device& receiver) {
    ASSIGN_OR_RETURN(const Route route, find_path(cluster_, sender.host, receiver.host));
    LateReceiverOptions options;
    options.eager_limit = set_.eager_limit;
    const auto bytes = static_cast<int64_t>(route.narrowest.value() * long_s) / 64 * 64;
    options.message_bytes = std::max(std::min<int64_t>(bytes, 3 << 20), above_limit());
    const double moves_s = static_cast<double>(options.message_bytes) / route.narrowest.value();
    options.computations = static_cast<int>(std::clamp(late_by * moves_s, late_by * 1e-3, 0.6) / computation_s);
    const MessageTest test{fmt::format("l{}", set_.late.size() + 1), name(sender.host.index()),
                           name(receiver.host.index()), options.message_bytes * options.messages, options.messages};
    set_.late.push_back(test);
    return save(test.folder, late_receiver(test.a, test.b, sender.level, receiver.level, options));
  }

  Status add_busy_pairs(const Device& sender, const Device& receiver) {
    const std::string &a = name(sender.host.index()), &b = name(receiver.host.index());
    ASSIGN_OR_RETURN(const Route route, find_path(cluster_, sender.host, receiver.host));
    // Shorter than the computing it falls into, so that all of it counts.
    BusyPairOptions options;
    options.eager_limit = set_.eager_limit;
    options.slots = 16;
    options.also_without_messages = true;
    const double busy_s = 0.75 * options.computations * computation_s;
    options.message_bytes =
        std::clamp<int64_t>(static_cast<int64_t>(route.narrowest.value() * busy_s) / 64 * 64, 64 << 10, 32 << 20);
    BusyPair pair{fmt::format("b{}", set_.pairs.size() + 1), a, b, options.message_bytes};
    RETURN_IF_ERROR(save(pair.folder, busy_pair(a, b, sender.level, receiver.level, options)));
    set_.pairs.push_back(std::move(pair));

    // Large messages, as long as those that cross, and small ones above the limit, within computing that takes longer.
    RETURN_IF_ERROR(add_busy_messages(sender, receiver, {large_message(route), 6}, "s", set_.slowed));
    constexpr double half_s = 0.5;
    const double small_s = static_cast<double>(above_limit()) / route.narrowest.value();
    const int slots = static_cast<int>(std::clamp(half_s / small_s, 8.0, 64.0));
    return add_busy_messages(sender, receiver, {above_limit(), slots}, "p", set_.busy);
  }

  struct BusyMessages {
    int64_t bytes = 0;
    int count = 0;
  };
  // `nlbench network` takes fewer computations where they are slower.
  Status add_busy_messages(const Device& sender, const Device& receiver, const BusyMessages& messages,
                           const std::string& prefix, std::vector<MessageTest>& tests) {
    const std::string &a = name(sender.host.index()), &b = name(receiver.host.index());
    ASSIGN_OR_RETURN(const Route route, find_path(cluster_, sender.host, receiver.host));
    const double moves_s = static_cast<double>(messages.bytes) / route.narrowest.value();
    BusyPairOptions options;
    options.eager_limit = set_.eager_limit;
    options.message_bytes = messages.bytes;
    options.slots = messages.count;
    options.computations = static_cast<int>(6000 * std::clamp(moves_s / long_s, 1.0, 20.0));
    tests.push_back(
        {fmt::format("{}{}", prefix, tests.size() + 1), a, b, messages.bytes * messages.count, messages.count});
    return save(tests.back().folder, busy_pair(a, b, sender.level, receiver.level, options));
  }

  int64_t above_limit() const { return std::clamp<int64_t>(2 * set_.eager_limit.value(), 4 << 10, 32 << 20) / 64 * 64; }

  const Loaded& loaded_;
  const Cluster& cluster_;
  std::string dir_;
  NetworkTests set_;
};

}  // namespace

Status write_network_set(const Loaded& loaded, const std::string& dir, Bytes eager_limit, size_t most_pairs) {
  return NetworkSet(loaded, dir, eager_limit).write(most_pairs);
}

}  // namespace nlsplit::inline planning
