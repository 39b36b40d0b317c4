// The suite of all transports over MPI, for transport_test.cc:   mpirun -np 3 mpi_conformance
#include <cstdio>

#include "exec/mpi/transport_mpi.h"
#include "testing/transport_conformance.h"

int main() {
  using namespace nlsplit;
  auto transport = start_mpi({});
  if (!transport) {
    std::fprintf(stderr, "%s\n", transport.error().message.c_str());
    return 2;
  }
  testing::HostMemory memory;
  const std::string wrong = testing::conform(**transport, memory);
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  return 1;
}
