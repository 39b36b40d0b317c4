// MPI's own collectives.
#pragma once

#include <mpi.h>

#include <map>
#include <vector>

#include "exec/mpi/mpi_requests.h"
#include "exec/transport.h"

namespace nlsplit::inline exec {

class MpiCollectives : public NativeCollectives {
 public:
  // All of these outlive it. `pauses`: how often the transport has paused.
  MpiCollectives(const MpiFailure& failure, MpiRequests& requests, const uint64_t& pauses)
      : failure_(failure), requests_(requests), pauses_(pauses) {}

  void use(MPI_Comm all) { all_ = all; }  // of all ranks, before join()
  void free_groups();                     // before MPI_Finalize

  Status accepts(const Collective& collective, DType dtype) const override;
  void join(std::span<const std::vector<int>> groups) override;
  Transport::Request begin(const Collective& collective, DType dtype, std::span<std::byte> value,
                           std::span<std::byte> result) override;

 private:
  const MpiFailure& failure_;
  MpiRequests& requests_;
  const uint64_t& pauses_;
  MPI_Comm all_ = MPI_COMM_NULL;
  std::map<std::vector<int>, MPI_Comm> groups_;  // by ranks
};

}  // namespace nlsplit::inline exec
