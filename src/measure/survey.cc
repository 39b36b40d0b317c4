#include "measure/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "exec/collectives.h"
#include "exec/transport_part.h"
#include "measure/machine_facts.h"

namespace nlsplit::inline measure {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// What the second of two ranks is to do with the first one's next message.
enum class Play : uint64_t { end, echo, take, give, both };
struct Order {
  Play play = Play::end;
  uint64_t size = 0;
};

constexpr uint64_t smallest_bulk = 64 << 10, largest_bulk = 64 << 20;
constexpr double long_s = 0.06;  // a transfer that is long beside a round trip, and beside what disturbs it
constexpr int repeats = 5;

// Two ranks, alone with each other. The first one gives orders and looks at the clock.
class Pair {
 public:
  Pair(Transport& part, const Waiting& waiting) : part_(part), peer_(1 - part.rank()), waiting_(waiting) {}

  Status follow() {
    for (;;) {
      std::array<uint64_t, 2> order{};
      RETURN_IF_ERROR(recv_at_once(part_, peer_, std::as_writable_bytes(std::span(order)), waiting_));
      if (order[0] == static_cast<uint64_t>(Play::end)) return ok_status();
      if (order[0] > static_cast<uint64_t>(Play::both) || order[1] > largest_bulk)
        return give_up("a rank gave an order that does not exist");
      RETURN_IF_ERROR(play({static_cast<Play>(order[0]), order[1]}, false));
    }
  }

  Result<Path> lead() {
    Path path;
    constexpr int pings = 40;
    constexpr double pings_s = 0.5;
    double least = std::numeric_limits<double>::infinity();
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < pings && (i < repeats || since(begin) < pings_s); ++i) {
      ASSIGN_OR_RETURN(const double taken, time({Play::echo, 0}));
      least = std::min(least, taken);
    }
    path.latency = seconds(least / 2);
    ASSIGN_OR_RETURN(const uint64_t size, long_size());
    ASSIGN_OR_RETURN(path.bandwidth, rate(Play::take, size));
    ASSIGN_OR_RETURN(path.back, rate(Play::give, size));
    ASSIGN_OR_RETURN(path.both_ways, rate(Play::both, size));
    RETURN_IF_ERROR(order({Play::end, 0}));
    return path;
  }

 private:
  Status order(const Order& what) {
    std::array<uint64_t, 2> words = {static_cast<uint64_t>(what.play), what.size};
    return send_bytes(part_, peer_, std::as_bytes(std::span(words)), waiting_);
  }

  Result<double> time(const Order& what) {
    const Clock::time_point begin = Clock::now();
    RETURN_IF_ERROR(order(what));
    RETURN_IF_ERROR(play(what, true));
    return since(begin);
  }

  // Ends with a word from the second rank that it has what it shall have.
  Status play(const Order& what, bool leads) {
    std::byte word{};
    const auto last = [&]() -> Status {
      return leads ? recv_at_once(part_, peer_, std::span(&word, 1), waiting_)
                   : send_bytes(part_, peer_, std::span(&word, 1), waiting_);
    };
    const bool takes = what.play == Play::both || what.play == (leads ? Play::give : Play::take);
    const bool gives = what.play == Play::both || what.play == (leads ? Play::take : Play::give);
    out_.resize(std::max(out_.size(), gives ? what.size : 0));
    in_.resize(std::max(in_.size(), takes ? what.size : 0));
    Transport::Request taking = 0, giving = 0;
    if (takes) taking = part_.irecv(peer_, control_tag, std::span(in_).first(what.size));
    if (gives) giving = part_.isend(peer_, control_tag, std::span(out_).first(what.size));
    if (takes) RETURN_IF_ERROR(wait(part_, peer_, taking, waiting_));
    if (gives) RETURN_IF_ERROR(wait(part_, peer_, giving, waiting_));
    return last();
  }

  // Of a message that takes long enough.
  Result<uint64_t> long_size() {
    for (uint64_t size = smallest_bulk;; size *= 4) {
      RETURN_IF_ERROR(time({Play::take, size}));  // its memory is there
      ASSIGN_OR_RETURN(const double taken, time({Play::take, size}));
      if (taken >= long_s || size * 4 > largest_bulk) return size;
    }
  }

  // What a large message takes more than one of a quarter: the same round trips and agreements are in both.
  Result<BytesPerSecond> rate(Play play, uint64_t size) {
    const uint64_t small_size = size / 4;
    double whole = std::numeric_limits<double>::infinity(), quarter = whole;
    for (int i = 0; i < repeats; ++i) {
      ASSIGN_OR_RETURN(const double large, time({play, size}));
      ASSIGN_OR_RETURN(const double small, time({play, small_size}));
      whole = std::min(whole, large);
      quarter = std::min(quarter, small);
    }
    const double more = whole > quarter ? whole - quarter : whole * 3 / 4;
    return bytes_per_second(static_cast<double>(size - small_size) / more);
  }

  Status give_up(const std::string& why) {
    const Error error = failed(why);
    part_.abort(error);
    return error;
  }

  Transport& part_;
  const int peer_;
  const Waiting& waiting_;
  std::vector<std::byte> out_, in_;
};

class Surveyor {
 public:
  Surveyor(const SurveyRequest* request, Transport& transport, const SurveyOptions& options)
      : request_(request),
        transport_(transport),
        options_(options),
        waiting_{0, options.cancelled, "the survey", true} {}

  Result<Survey> run() {
    RETURN_IF_ERROR(share_request());
    RETURN_IF_ERROR(look_at_machines());
    RETURN_IF_ERROR(measure_paths());
    return std::move(survey_);
  }

 private:
  size_t size() const { return static_cast<size_t>(transport_.size()); }
  void progress(const std::string& doing, size_t done, size_t all) const {
    if (options_.progress) options_.progress(doing, done, all);
  }

  // Cores of each.
  Status share_request() {
    std::vector<int> cores(size(), 0);
    Status fits;
    if (request_ != nullptr) {
      for (const size_t said : {request_->names.size(), request_->cores.size()}) {
        if (said > 0 && said != size())
          fits =
              invalid_input(fmt::format("{} hosts are named, and {} ranks are there: one rank a host", said, size()));
      }
      if (fits.ok() && !request_->cores.empty()) cores = request_->cores;
    }
    RETURN_IF_ERROR(agree(transport_, fits, waiting_));
    std::string text = as_text(cores);
    RETURN_IF_ERROR(broadcast(transport_, &text, waiting_));
    cores = from_text<int>(text);
    cores.resize(size());
    wanted_cores_ = cores[static_cast<size_t>(transport_.rank())];
    return ok_status();
  }

  Status look_at_machines() {
    Machine machine;
    Status mine;
    const auto keep = [&](Result<Machine> facts) {
      if (facts)
        machine = std::move(*facts);
      else
        mine = facts.error();
    };
    keep(machine_facts());
    if (mine.ok() && wanted_cores_ > 0) machine.cores = std::min(machine.cores, wanted_cores_);
    // Ranks of one machine compute one after the other.
    const std::vector<int> here = transport_.same_machine();
    const auto place = static_cast<int>(std::ranges::find(here, transport_.rank()) - here.begin());
    ASSIGN_OR_RETURN(const std::vector<std::string> neighbors, gather(transport_, as_text(here), waiting_));
    int turns = 0;
    for (size_t r = 0; r < neighbors.size(); ++r) {
      const std::vector<int> ranks = from_text<int>(neighbors[r]);
      turns = std::max(turns, static_cast<int>(ranks.size()));
      if (ranks.size() > 1 && ranks.front() == static_cast<int>(r))
        survey_.one_machine.emplace_back(ranks.begin(), ranks.end());
    }
    std::string told = as_text(std::vector<int>{turns});
    RETURN_IF_ERROR(broadcast(transport_, &told, waiting_));
    for (const int one : from_text<int>(told)) turns = one;
    for (int turn = 0; turn < turns; ++turn) {
      progress("measuring how fast machines compute", static_cast<size_t>(turn), static_cast<size_t>(turns));
      if (turn == place && mine.ok()) {
        const Liveness::Work work(transport_.liveness());
        mine = measure_speed(machine.cores, machine);
        machine.gpus = gpu_facts(options_.gpu_backend);
      }
      RETURN_IF_ERROR(barrier(transport_, false, waiting_));
    }
    if (!mine.ok()) {
      Error error = mine.error();
      error.message = fmt::format("rank {} on host {}: {}", transport_.rank(), machine.name, error.message);
      mine = error;
    }
    RETURN_IF_ERROR(agree(transport_, mine, waiting_));
    ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(transport_, to_json(machine), waiting_));
    Status read;
    for (size_t r = 0; r < all.size() && read.ok(); ++r) {
      auto one = parse_machine(all[r], fmt::format("rank {}", r));
      if (!one) {
        read = one.error();
        break;
      }
      if (!request_->names.empty()) one->name = request_->names[r];
      survey_.machines.push_back(std::move(*one));
    }
    return agree(transport_, read, waiting_);
  }

  // Rank 0 says whose turn it is.
  Status measure_paths() {
    constexpr int nobody = -1;
    if (transport_.rank() != 0) {
      for (;;) {
        ASSIGN_OR_RETURN(const std::string text, recv_text(transport_, 0, waiting_));
        const std::vector<int> pair = from_text<int>(text);
        if (pair.size() != 2 || pair[0] == nobody) return ok_status();
        ASSIGN_OR_RETURN(const Path path, measure_path(pair[0], pair[1]));
        if (transport_.rank() != pair[0]) continue;
        const std::vector<double> figures = {path.latency.value(), path.bandwidth.value(), path.back.value(),
                                             path.both_ways.value()};
        RETURN_IF_ERROR(send_text(transport_, 0, as_text(figures), waiting_));
      }
    }
    const auto pairs = pairs_to_measure(size());
    for (size_t p = 0; p < pairs.size(); ++p) {
      progress("measuring messages between hosts", p, pairs.size());
      const int a = static_cast<int>(pairs[p].first), b = static_cast<int>(pairs[p].second);
      for (const int rank : {a, b})
        if (rank != 0) RETURN_IF_ERROR(send_text(transport_, rank, as_text(std::vector<int>{a, b}), waiting_));
      Path path;
      if (a == 0) {
        ASSIGN_OR_RETURN(path, measure_path(a, b));
      } else {
        ASSIGN_OR_RETURN(const std::string text, recv_text(transport_, a, waiting_));
        const std::vector<double> figures = from_text<double>(text);
        if (figures.size() != 4) return failed("a rank answered with other figures of a path");
        path = {0,
                0,
                seconds(figures[0]),
                bytes_per_second(figures[1]),
                bytes_per_second(figures[2]),
                bytes_per_second(figures[3])};
      }
      path.a = pairs[p].first;
      path.b = pairs[p].second;
      survey_.paths.push_back(path);
    }
    for (int rank = 1; rank < transport_.size(); ++rank)
      RETURN_IF_ERROR(send_text(transport_, rank, as_text(std::vector<int>{nobody, nobody}), waiting_));
    return ok_status();
  }

  Result<Path> measure_path(int a, int b) {
    TransportPart part(transport_, {a, b});
    const Waiting waiting{0, options_.cancelled, fmt::format("messages between ranks {} and {}", a, b)};
    Pair pair(part, waiting);
    if (part.rank() == 0) return pair.lead();
    RETURN_IF_ERROR(pair.follow());
    return Path{};
  }

  const SurveyRequest* const request_;
  Transport& transport_;
  const SurveyOptions& options_;
  const Waiting waiting_;
  int wanted_cores_ = 0;
  Survey survey_;
};

}  // namespace

Result<Survey> run_survey(const SurveyRequest* request, Transport& transport, const SurveyOptions& options) {
  return Surveyor(request, transport, options).run();
}

}  // namespace nlsplit::inline measure
