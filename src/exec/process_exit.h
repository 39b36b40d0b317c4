// Ends the process of a rank early, from any thread that finds a reason.
#pragma once

#include <functional>
#include <mutex>

#include "base/result.h"

namespace nlsplit::inline exec {

class ProcessExit {
 public:
  // Returns the exit code. `speaks`: this rank reports the reason.
  using LastWords = std::function<int(const Error& why, bool speaks)>;
  // grace_s: seconds that last_words may take.
  ProcessExit(LastWords last_words, double grace_s) : last_words_(std::move(last_words)), grace_s_(grace_s) {}

  // Any thread; the first one in ends the process.
  [[noreturn]] void operator()(const Error& why, bool speaks);

 private:
  std::mutex mutex_;
  LastWords last_words_;
  double grace_s_;
};

}  // namespace nlsplit::inline exec
