// GreetingExchange: how the ranks tell each other their greetings, by way of rank 0, so that there are few messages;
// but not as a collective: that cannot say whose greeting is missing.
//
//   GreetingExchange exchange(own, rank, size);
//   ASSIGN_OR_RETURN(const std::vector<Greeting> greetings, exchange.finish(begin, patience_s, watch));
//
// Each rank gets the greetings of its neighbours (exec/heartbeat/neighbours.h). Unless these are all others it cannot
// check that all fit together: what rank 0 found comes behind them, as a text; empty: they do.
#pragma once

#include <mpi.h>

#include <chrono>
#include <string>
#include <vector>

#include "exec/heartbeat/greeting.h"
#include "exec/mpi/start_watch.h"

namespace nlsplit::inline exec {

class GreetingExchange {
 public:
  GreetingExchange(const Greeting& own, int rank, int size);

  // By rank; those that this rank is not given are empty. Errors: two ranks must not run together; not all have come in
  // time. The requests are then left as they are: the process is to end.
  Result<std::vector<Greeting>> finish(std::chrono::steady_clock::time_point begin, double patience_s,
                                       const StartWatch& watch);

 private:
  std::vector<int> known_to(int rank) const;
  bool are_all(const std::vector<int>& known) const { return static_cast<int>(known.size()) == size_; }
  size_t places_for(const std::vector<int>& known) const { return known.size() + (are_all(known) ? 0 : 1); }
  char* at(size_t place) { return all_.data() + greeting_size * place; }
  std::string text_at(size_t place);
  Result<std::vector<Greeting>> checked();
  std::vector<std::string> answer_all(const std::string& verdict);
  std::string missing() const;
  Status complete(std::chrono::steady_clock::time_point begin, double patience_s, const StartWatch& watch);

  const int rank_, size_;
  const std::string host_;
  const std::vector<int> known_;  // ascending; on rank 0 all
  std::string own_, all_;         // all_: of known_, and the verdict
  std::vector<MPI_Request> requests_;
};

}  // namespace nlsplit::inline exec
