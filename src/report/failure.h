// What the flight recorders of a run's ranks say of its end: who waited for whom since when, and where that began. For
// `nlbench explain-failure`; exec/flight_recorder.h writes the files, docs/running.md describes them.
//
//   ASSIGN_OR_RETURN(const std::vector<FlightRecord> records, read_flight_records("nlbench.flight"));
//   std::fputs(failure_text(explain_failure(records), 5).c_str(), stdout);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline reports {

// One direction of messages with one rank.
struct FlightFifo {
  bool sends = false;
  bool native = false;  // collectives of the transport's own, with this rank and maybe others, instead
  int peer = 0;
  int tag = -1;           // -1: of all tags
  int64_t completed = 0;  // messages, in this execution
  bool open = false;      // the one after them is under way
  double since_s = 0;
  bool needed = false;  // what this rank waits to compute cannot run before
  std::string instruction;
};

struct FlightMoment {
  double ago_s = 0;
  std::string event, instruction;  // "begins", "ends", "waits", "posts", "completes", "finishes"
};

// One rank's file. Times are before it was written.
struct FlightRecord {
  enum class State : uint8_t {
    outside,   // of an execution: `phase` says where
    computes,  // instruction
    waits,     // to run instruction
    finished,  // all computations of the execution
    between,   // two computations
  };
  std::string run;
  int rank = 0, ranks = 1;
  std::string device, host, why;
  bool phase_works = false;  // in the phase; else it waits
  int phase_peer = -1;       // for this rank; -1: none, or any
  double phase_s = 0;
  std::string phase;
  int repeat = 0;  // 0: none had begun
  State state = State::outside;
  double since_s = 0;
  std::string instruction;
  std::vector<FlightFifo> fifos;
  std::vector<FlightMoment> moments;  // oldest first
  bool whole = false;                 // the file has its end
};

// Errors, with file and line: not such a file, or larger than one can be.
Result<FlightRecord> parse_flight_record(std::string_view text, const std::string& file);

// DIR/rank-*.flight, by rank. Of several runs the one that was written last. Errors also: no such folder or files, two
// files of one rank.
Result<std::vector<FlightRecord>> read_flight_records(const std::string& dir);

struct Failure {
  enum class Kind : uint8_t { no_record, computes, works, message, circle, unknown };
  struct Rank {
    int rank = 0;
    std::string name;   // "rank 1 (B on host b)"
    std::string doing;  // "waits for rank 2 since 3.2 s: …"
    int waits_for = -1;
    double since_s = 0;
    Kind kind = Kind::unknown;  // of one that waits for nobody
    std::vector<FlightMoment> moments = {};
  };
  // Where waiting ends, and for how many ranks.
  struct Cause {
    Kind kind = Kind::unknown;
    std::vector<int> chain;  // of ranks, each waiting for the next; the last is the cause
    int waiting = 0;         // ranks that wait for it, directly or not
    std::string text;
  };
  std::string run;
  std::vector<std::string> whys;
  std::vector<Rank> ranks;
  std::vector<Cause> causes;  // the one that most wait for first
};
Failure explain_failure(const std::vector<FlightRecord>& records);

// `last`: how many of its last moments are shown of each rank.
std::string failure_text(const Failure& failure, size_t last);
// {"format": "nlsplit-failure", "version": 1, "run", "why", "causes": […], "ranks": […]}
std::string failure_json(const Failure& failure);

}  // namespace nlsplit::inline reports
