#include "exec/transports/transports.h"

#include <fmt/format.h>

#ifdef NLS_GRPC
#include "exec/grpc/frame.h"
#include "exec/grpc/transport_grpc.h"
#endif
#include "exec/mpi/transport_mpi.h"
#include "exec/transport_threads.h"

namespace nlsplit::inline exec {

std::span<const TransportKind> all_transports() {
  static constexpr TransportKind kinds[] = {
      // Open MPI's own over TCP: 64 KiB with its header of 56 bytes. Larger ones do not wait for their receiver either
      // (start_mpi), which `nlbench network` finds out.
      {.name = "mpi",
       .about = "a rank a device",
       .start = start_mpi,
       .launched_as = launched_by_mpi,
       .eager_bytes = 65480},
      // A Program's own; this is what programs that are to measure it have.
      {.name = "threads",
       .about = "all devices in this process, without mpirun",
       .make_world = make_thread_world,
       .eager_bytes = 65480},
#ifdef NLS_GRPC
      {.name = "grpc",
       .about = "a rank on this machine, the others on --workers",
       .start = start_grpc,
       .of_workers = true,
       .eager_bytes = eager_bytes},
#endif
  };
  return kinds;
}

std::string about_transports() {
  std::string about;
  for (const TransportKind& kind : all_transports()) {
    about +=
        fmt::format("{}{}: {}{}", about.empty() ? "" : "; ", kind.name, kind.about, about.empty() ? " (default)" : "");
  }
  return about;
}

const TransportKind* find_transport(std::string_view name) {
  for (const TransportKind& kind : all_transports()) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

}  // namespace nlsplit::inline exec
