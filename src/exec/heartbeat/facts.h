// What ranks of a run must have in common, as names and values: the build, the versions of libraries.
// Where a difference could change bits or corrupt memory, the run must not begin.
//
//   RETURN_IF_ERROR(check_facts({{"rank 0 on host a", facts_of_process()}, {"rank 1 on host b", theirs}}));
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline exec {

struct Fact {
  std::string what;   // "C library"
  std::string value;  // "glibc 2.36"
  friend bool operator==(const Fact&, const Fact&) = default;
};

struct RankFacts {
  std::string rank;  // "rank 1 on host b"
  std::vector<Fact> facts;
};

// Of the running process and the calling thread: layout of numbers, build, C library, libm, floating-point mode.
std::vector<Fact> facts_of_process();

// The bits that decide how results are rounded and what becomes of the smallest numbers: MXCSR or FPCR without the
// flags of what has happened, such as "MXCSR 0x1f80". Threads inherit it from the thread that starts them.
Fact floating_point_mode();

// A line each, and back. Lines that are not of that form are left out.
std::string to_text(const std::vector<Fact>& facts);
std::vector<Fact> facts_from(std::string_view text);

// Error (invalid input): two ranks state different values of one fact. Names both ranks and both values.
Status check_facts(const std::vector<RankFacts>& ranks);

}  // namespace nlsplit::inline exec
