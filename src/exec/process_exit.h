// The end of the process before its time, whichever thread finds a reason: of a rank that is a process of its own.
#pragma once

#include <functional>
#include <mutex>

#include "base/result.h"

namespace nlsplit::inline exec {

class ProcessExit {
 public:
  // Answers the exit code. `speaks`: this rank is the one to say why.
  using LastWords = std::function<int(const Error& why, bool speaks)>;
  // grace_s: what the last words may take, seconds.
  ProcessExit(LastWords last_words, double grace_s) : last_words_(std::move(last_words)), grace_s_(grace_s) {}

  // Any thread; the first one in ends the process.
  [[noreturn]] void operator()(const Error& why, bool speaks);

 private:
  std::mutex mutex_;
  LastWords last_words_;
  double grace_s_;
};

}  // namespace nlsplit::inline exec
