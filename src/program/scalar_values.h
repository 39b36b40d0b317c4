// Which values the scalars (program/scalars.h) of a Program or Sequence have in each of its instructions: found by
// carrying the integers they come from through copies, slices, messages and integer operators, without computing
// anything else.
//
//   ASSIGN_OR_RETURN(const ScalarTable table, scalar_values(sequence.program, sequence.dependencies, given));
//   const auto values = table.of(instance);
//
// Values that come from computed floats, from inputs that were not given, or from missing contents are unknown, and
// count as their declared maximum.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "program/dependencies.h"
#include "program/program.h"

namespace nlsplit::inline program {

struct GivenScalars {
  std::map<std::string, std::string> inputs;  // by the name of an input buffer: row-major bytes of the whole batch
  std::function<Result<std::string>(ContentId)> contents = nullptr;  // of states and weights; none: unknown
};

struct ScalarTable {
  std::vector<int> row;                                   // [instance]: index into `values`; -1: none is known
  std::vector<std::vector<std::vector<int64_t>>> values;  // [row][input]: empty: no scalar, or unknown
  std::vector<std::string> unknown;  // the buffers that scalars with unknown values are read from: "device B buffer at"

  ScalarValues of(uint32_t instance) const {
    if (instance >= row.size() || row[instance] < 0) return {};
    return values[static_cast<size_t>(row[instance])];
  }
};

// Expects what verify accepts. Errors: a value outside of 0 … maximum, as the executor finds it; an input of another
// size; contents that cannot be read; instructions that wait for each other.
Result<ScalarTable> scalar_values(const Program& program, const Dependencies& dependencies, const GivenScalars& given);

}  // namespace nlsplit::inline program
