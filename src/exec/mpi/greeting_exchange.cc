#include "exec/mpi/greeting_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <thread>

#include "exec/heartbeat/neighbours.h"

namespace nlsplit::inline exec {
namespace {

constexpr std::chrono::microseconds between_looks(500);

}  // namespace

GreetingExchange::GreetingExchange(const Greeting& own, int rank, int size)
    : rank_(rank), size_(size), host_(own.host), known_(known_to(rank)), own_(to_string(own)) {
  own_.resize(greeting_size);
  all_.resize(greeting_size * places_for(known_));
  if (rank != 0) {
    MPI_Isend(own_.data(), greeting_size, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &requests_.emplace_back());
    MPI_Irecv(all_.data(), static_cast<int>(all_.size()), MPI_CHAR, 0, 1, MPI_COMM_WORLD, &requests_.emplace_back());
    return;
  }
  own_.copy(at(0), greeting_size);
  for (int peer = 1; peer < size; ++peer)
    MPI_Irecv(at(static_cast<size_t>(peer)), greeting_size, MPI_CHAR, peer, 0, MPI_COMM_WORLD,
              &requests_.emplace_back());
}

Result<std::vector<Greeting>> GreetingExchange::finish(std::chrono::steady_clock::time_point begin, double patience_s,
                                                       const StartWatch& watch) {
  RETURN_IF_ERROR(complete(begin, patience_s, watch));
  if (rank_ != 0) {
    const std::string verdict = are_all(known_) ? "" : text_at(known_.size());
    if (!verdict.empty()) return invalid_input(verdict);
    return checked();
  }
  auto greetings = checked();
  const std::vector<std::string> answers = answer_all(greetings.ok() ? "" : greetings.error().message);
  RETURN_IF_ERROR(complete(begin, patience_s, watch));
  return greetings;
}

std::vector<int> GreetingExchange::known_to(int rank) const {
  std::vector<int> known(static_cast<size_t>(size_));
  std::iota(known.begin(), known.end(), 0);
  if (rank == 0) return known;
  known = neighbours(rank, size_);
  known.insert(std::ranges::lower_bound(known, rank), rank);
  return known;
}

// As long as it is, but at most its room.
std::string GreetingExchange::text_at(size_t place) { return {at(place), strnlen(at(place), greeting_size)}; }

Result<std::vector<Greeting>> GreetingExchange::checked() {
  std::vector<Greeting> greetings(static_cast<size_t>(size_));
  for (size_t place = 0; place < known_.size(); ++place) {
    const int peer = known_[place];
    ASSIGN_OR_RETURN(greetings[static_cast<size_t>(peer)], parse_greeting(text_at(place), peer));
  }
  if (are_all(known_)) RETURN_IF_ERROR(check_greetings(greetings));
  return greetings;
}

// They must live until all have arrived.
std::vector<std::string> GreetingExchange::answer_all(const std::string& verdict) {
  requests_.clear();
  std::vector<std::string> answers(static_cast<size_t>(size_));
  for (int peer = 1; peer < size_; ++peer) {
    const std::vector<int> known = known_to(peer);
    std::string& answer = answers[static_cast<size_t>(peer)];
    for (const int other : known) answer.append(at(static_cast<size_t>(other)), greeting_size);
    answer.append(verdict, 0, greeting_size);
    answer.resize(greeting_size * places_for(known));
    MPI_Isend(answer.data(), static_cast<int>(answer.size()), MPI_CHAR, peer, 1, MPI_COMM_WORLD,
              &requests_.emplace_back());
  }
  return answers;
}

// "1, 3"; for others than rank 0 it is all that is known.
std::string GreetingExchange::missing() const {
  if (rank_ != 0) return "0";
  std::string ranks;
  for (size_t r = 0; r < requests_.size(); ++r) {
    if (requests_[r] != MPI_REQUEST_NULL) ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", r + 1);
  }
  return ranks;
}

Status GreetingExchange::complete(std::chrono::steady_clock::time_point begin, double patience_s,
                                  const StartWatch& watch) {
  for (int done = 0;;) {
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) return ok_status();
    std::this_thread::sleep_for(between_looks);
    const double waited_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (rank_ == 0) watch.say_what_is_missing("rank " + missing());
    if (waited_s < patience_s) continue;
    return lost(
        fmt::format("rank {} on host {} waited {:.3g} s in the start for rank {}: it has died, hangs, is stopped or "
                    "cut off{}",
                    rank_, host_, waited_s, missing(), watch.slow_name()));
  }
}

}  // namespace nlsplit::inline exec
