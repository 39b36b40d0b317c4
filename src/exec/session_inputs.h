// Inputs of a session that change from one execution of their Program to the next.
//
// A tensor with one more leading axis than its input has an entry for each execution of the Program; after the last
// entry the first one follows. All other inputs are the same in every execution.
#pragma once

#include <vector>

#include "exec/collectives.h"
#include "exec/run.h"
#include "program/session.h"

namespace nlsplit::inline exec {

// The job with the inputs of one execution: entry `execution` of those that change. On rank 0.
Result<Job> job_of_execution(const Program& joined, const Job& job, size_t execution);

class SessionInputs {
 public:
  // All ranks call it, once the inputs of the first executions are placed. Keeps the others where their device is.
  static Result<SessionInputs> receive(const Session& session, const Program& joined, const Job& job, std::byte* arena,
                                       Transport& transport, const Waiting& waiting);
  bool change(int program) const { return entries_[static_cast<size_t>(program)] > 1; }
  // Puts the next ones of this Program into the arena. Nothing that reads them may be under way on this device.
  void next(int program, std::byte* arena);

 private:
  struct Kept {
    const Buffer* buffer;
    std::vector<std::string> entries;  // of all instances
  };
  std::vector<uint64_t> entries_;        // [Program]: of inputs that change; 1: none do
  std::vector<uint64_t> executions_;     // [Program]: so far
  std::vector<std::vector<Kept>> kept_;  // [Program]: of this device
};

}  // namespace nlsplit::inline exec
