// Ranks over gRPC: processes on machines that share no MPI, no disk and no user. Rank 0 asks workers, who wait for it:
// `nlbench worker`.
//
//   worker:  ASSIGN_OR_RETURN(auto worker, GrpcWorker::open("0.0.0.0:7000", credentials_folder, program));
//            ASSIGN_OR_RETURN(Assigned assigned, worker->wait(options));     // transport, and what to run
//   rank 0:  options.remote.workers = {"b:7000", "c:7000"};
//            ASSIGN_OR_RETURN(auto transport, start_grpc(options));          // ranks 1 and 2
//
// Each pair of ranks has one stream, which the lower one opens: rank 0 needs no open port. A rank that dies, is stopped
// or is cut off is found out by the heartbeat (exec/heartbeat), whose lines travel in the streams. As over MPI, the end
// of a run before its time is the end of the process.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "exec/transport_kind.h"

namespace nlsplit::inline exec {

// Errors: a worker that cannot be reached within start_timeout_s, that refuses (busy, another secret, another build),
// credentials that cannot be read.
Result<std::unique_ptr<Transport>> start_grpc(TransportOptions options);

struct Assigned {
  std::unique_ptr<Transport> transport;
  std::string job;  // TransportOptions::remote.job of rank 0
};

class GrpcWorker {
 public:
  virtual ~GrpcWorker() = default;
  // Error: the address cannot be listened at, is not of this machine alone and has no credentials; credentials that
  // cannot be read. Port 0: any.
  static Result<std::unique_ptr<GrpcWorker>> open(const std::string& address, const std::string& credentials,
                                                  const std::string& program);
  virtual int port() const = 0;
  // Until rank 0 comes. program, heartbeat_s and start_timeout_s of the options do not count. Once. cancelled: gives up
  // with an error.
  virtual Result<Assigned> wait(TransportOptions options, bool (*cancelled)()) = 0;
};

}  // namespace nlsplit::inline exec
