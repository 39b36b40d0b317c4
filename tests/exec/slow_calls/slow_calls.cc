// Preloaded (LD_PRELOAD) into the ranks of a run. SLOW_CALLS="1 MPI_Finalize 30" makes this call of rank 1 begin 30 s
// late; several of them with commas between them.
#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>

namespace {

void wait_before(const std::string& call) {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = std::getenv("PMI_RANK");  // MPICH's
  const char* calls = std::getenv("SLOW_CALLS");
  if (rank == nullptr || calls == nullptr) return;
  std::istringstream list(calls);
  for (std::string one; std::getline(list, one, ',');) {
    std::istringstream words(one);
    std::string its_rank, its_call;
    unsigned seconds = 0;
    if (words >> its_rank >> its_call >> seconds && its_rank == rank && its_call == call) ::sleep(seconds);
  }
}

template <class Function>
Function* the_real(Function*, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  wait_before("MPI_Init");
  return the_real(&MPI_Init_thread, "MPI_Init_thread")(argc, argv, required, provided);
}

int MPI_Finalize() {
  wait_before("MPI_Finalize");
  return the_real(&MPI_Finalize, "MPI_Finalize")();
}

int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** list) {
  wait_before("getaddrinfo");
  return the_real(&getaddrinfo, "getaddrinfo")(node, service, hints, list);
}
}
