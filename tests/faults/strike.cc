// Preloaded into nlbench or nlsim (LD_PRELOAD), kills or stops the process itself at a moment that no signal from
// outside hits reliably. Read from the environment:
//
//   STRIKE_FINALIZE=9    MPI_Finalize: this signal on entry, of the rank STRIKE_RANK
//   STRIKE_SAVE=3        SIGKILL before the third call that puts something into a folder, or takes something out of it
//   STRIKE_BLOCK=t.json  the call that gives a file this name never returns, in the thread that makes it
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void count_save() {
  static std::atomic<int> calls{0};
  const char* at = std::getenv("STRIKE_SAVE");
  if (at != nullptr && ++calls == std::atoi(at)) ::kill(::getpid(), SIGKILL);
}

void block_for_ever(const char* name) {
  const char* blocked = std::getenv("STRIKE_BLOCK");
  while (blocked != nullptr && std::strstr(name, blocked) != nullptr) ::pause();
}

}  // namespace

extern "C" {

int MPI_Finalize() {
  const char *signal = std::getenv("STRIKE_FINALIZE"), *wanted = std::getenv("STRIKE_RANK"),
             *rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = std::getenv("PMI_RANK");  // MPICH's
  if (signal != nullptr && wanted != nullptr && rank != nullptr && std::strcmp(wanted, rank) == 0)
    ::kill(::getpid(), std::atoi(signal));
  return next<int()>("MPI_Finalize")();
}

int rename(const char* from, const char* to) noexcept {
  count_save();
  block_for_ever(to);
  return next<int(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  count_save();
  return next<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from, to_folder, to, flags);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  count_save();
  block_for_ever(to);
  return next<int(int, const char*, int, const char*, int)>("linkat")(from_folder, from, to_folder, to, flags);
}

int fsync(int fd) {
  count_save();
  return next<int(int)>("fsync")(fd);
}

int unlinkat(int folder, const char* name, int flags) noexcept {
  count_save();
  return next<int(int, const char*, int)>("unlinkat")(folder, name, flags);
}

int mkdir(const char* name, mode_t mode) noexcept {
  count_save();
  return next<int(const char*, mode_t)>("mkdir")(name, mode);
}

}  // extern "C"
