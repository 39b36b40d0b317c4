// A sweep: all points of an experiment, simulated on all cores, into one CSV that can be resumed.
//
//   ASSIGN_OR_RETURN(Sweep sweep, run_sweep(experiment, {.csv = "points.csv"}));
//   sweep.rows[i]      what is known of grid point i, by sweep.columns
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sweep/points.h"
#include "sweep/sweep_file.h"

namespace nlsplit::inline sweeps {

struct SweepOptions {
  std::string csv;
  bool fresh = false;                                            // forget what is in the file
  std::function<void(size_t done, size_t total)> progress = {};  // may be empty
  std::function<bool()> interrupted = {};                        // asked between batches; true: stop there
};

struct Sweep {
  CsvRow columns;
  size_t settings = 0;               // the first so many columns say which point it is
  std::vector<GridPoint> points;     // the whole grid
  std::vector<CsvRow> rows;          // by point; without cells: not done yet
  size_t done_before = 0, done = 0;  // points found in the file, and all that are there now
  bool interrupted = false;
};

// Columns: setting_columns, then status (ok or impossible), reason, and what was found; docs/sweep.md lists them.
CsvRow sweep_columns(const Experiment& experiment);

// Errors: the file holds points of another experiment, or no points; whatever is wrong for the experiment as a whole.
// What was done until then stays in the file.
Result<Sweep> run_sweep(const Experiment& experiment, PointRunner& runner, const SweepOptions& options);

// The drawings of these points, simulated once more.
Result<std::vector<Drawing>> draw_points(PointRunner& runner, const Sweep& sweep, const std::vector<size_t>& which);

// Where a column is; the columns are known to have it.
size_t column_of(const Sweep& sweep, std::string_view name);

}  // namespace nlsplit::inline sweeps
