#include "exec/process_exit.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace nlsplit::inline exec {

// Not MPI_Abort: with a dead link it may wait itself. mpirun ends the other ranks when one is gone.
void ProcessExit::operator()(const Error& why, bool speaks) {
  mutex_.lock();  // for good
  int code = exit_code(why);
  // Whatever hangs while last words are said, a file or a lock, does not keep the process.
  std::thread([code, grace = std::chrono::duration<double>(grace_s_)] {
    std::this_thread::sleep_for(grace);
    std::_Exit(code);
  }).detach();
  if (last_words_)
    code = last_words_(why, speaks);
  else if (speaks)
    std::fprintf(stderr, "error: %s\n", why.message.c_str());
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace nlsplit::inline exec
