#include "sweep/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/cores.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text_reader.h"

namespace nlsplit::inline sweeps {
namespace {

std::string optional_number(const std::optional<double>& value) { return value ? shortest(*value) : ""; }

CsvRow row_of(const GridPoint& point, const PointResult& result) {
  CsvRow row = point.cells;
  const bool possible = result.impossible.empty();
  row.emplace_back(possible ? "ok" : "impossible");
  row.push_back(result.impossible);
  if (possible) {
    row.push_back(shortest(result.makespan_s));
    row.push_back(optional_number(result.throughput));
    for (const double value : {result.latency_mean_s, result.bubble, result.inner_bubble_s})
      row.push_back(shortest(value));
    row.push_back(result.busiest_device);
    row.push_back(shortest(result.busiest_device_share));
    row.push_back(result.busiest_link);
    row.push_back(result.busiest_link.empty() ? "" : shortest(result.busiest_link_share));
    row.push_back(result.peak_memory_bytes ? fmt::format("{}", *result.peak_memory_bytes) : "");
    row.push_back(result.kept_micro_batches ? fmt::format("{}", *result.kept_micro_batches) : "");
  } else {
    row.resize(row.size() + 11);
  }
  row.push_back(hex16(point.fingerprint));
  return row;
}

// Puts the rows of the file at their points. Answers whether they stand in the grid's order there.
Result<bool> take_known(const std::string& csv, const std::vector<CsvRow>& known, Sweep& sweep) {
  std::map<std::string, size_t> points;
  for (size_t i = 0; i < sweep.points.size(); ++i) points.emplace(hex16(sweep.points[i].fingerprint), i);
  bool ordered = true;
  size_t last = 0;
  for (size_t r = 0; r < known.size(); ++r) {
    const auto at = points.find(known[r].back());
    if (at == points.end()) {
      Error error = invalid_input(fmt::format(
          "this point ({}, fingerprint {}) is not one of this experiment, or something it depends on has "
          "changed; --fresh starts anew, -o DIR keeps this file",
          fmt::join(CsvRow(known[r].begin(), known[r].begin() + static_cast<std::ptrdiff_t>(sweep.settings)), ", "),
          known[r].back()));
      error.where = {csv, static_cast<int>(r) + 2, 1};
      return error;
    }
    if (!sweep.rows[at->second].empty()) {
      Error error = invalid_input(fmt::format("the point with fingerprint {} is there twice", known[r].back()));
      error.where = {csv, static_cast<int>(r) + 2, 1};
      return error;
    }
    ordered = ordered && at->second == (r == 0 ? 0 : last + 1);
    last = at->second;
    sweep.rows[at->second] = known[r];
    ++sweep.done_before;
  }
  return ordered;
}

// A grid that has grown: its new points were appended behind the old ones.
Status write_in_order(const std::string& csv, const Sweep& sweep) {
  std::string text = csv_line(sweep.columns);
  for (const CsvRow& row : sweep.rows) {
    if (!row.empty()) text += csv_line(row);
  }
  return write_file(csv, text);
}

}  // namespace

CsvRow sweep_columns(const Experiment& experiment) {
  CsvRow columns = setting_columns(experiment);
  for (const char* name : {"status", "reason", "makespan_s", "throughput_samples_per_s", "latency_mean_s", "bubble",
                           "inner_bubble_s", "busiest_device", "busiest_device_share", "busiest_link",
                           "busiest_link_share", "peak_memory_bytes", "kept_micro_batches", "fingerprint"})
    columns.emplace_back(name);
  return columns;
}

size_t column_of(const Sweep& sweep, std::string_view name) {
  const auto found = std::ranges::find(sweep.columns, name);
  CHECK(found != sweep.columns.end(), "a column that is not there");
  return static_cast<size_t>(found - sweep.columns.begin());
}

Result<Sweep> run_sweep(const Experiment& experiment, PointRunner& runner, const SweepOptions& options) {
  Sweep sweep;
  sweep.columns = sweep_columns(experiment);
  sweep.settings = setting_columns(experiment).size();
  ASSIGN_OR_RETURN(sweep.points, grid_of(experiment));
  sweep.rows.resize(sweep.points.size());
  SweepRows known;
  std::error_code failure;
  if (!options.fresh && std::filesystem::exists(options.csv, failure)) {
    ASSIGN_OR_RETURN(known, read_sweep_rows(options.csv, sweep.columns));
  }
  ASSIGN_OR_RETURN(bool ordered, take_known(options.csv, known.rows, sweep));
  ASSIGN_OR_RETURN(SweepFile file, SweepFile::open(options.csv, sweep.columns, known.bytes));
  sweep.done = sweep.done_before;

  std::vector<size_t> left;
  for (size_t i = 0; i < sweep.rows.size(); ++i) {
    if (sweep.rows[i].empty()) left.push_back(i);
  }
  // What is left is all behind what is there, or else has to be put between it.
  ordered = ordered && (left.empty() || left.front() == sweep.done_before);
  // Small, so that an interrupt loses little time; large enough that the slowest point of one keeps few cores idle.
  const size_t batch = 8 * core_count();
  for (size_t begin = 0; begin < left.size() && !sweep.interrupted; begin += batch) {
    if (options.progress) options.progress(sweep.done, sweep.points.size());
    const size_t end = std::min(left.size(), begin + batch);
    std::vector<Setting> settings;
    for (size_t i = begin; i < end; ++i) settings.push_back(sweep.points[left[i]].setting);
    ASSIGN_OR_RETURN(const std::vector<PointResult> results, runner.run(settings, false));
    std::vector<CsvRow> rows;
    for (size_t i = begin; i < end; ++i) {
      sweep.rows[left[i]] = row_of(sweep.points[left[i]], results[i - begin]);
      rows.push_back(sweep.rows[left[i]]);
    }
    RETURN_IF_ERROR(file.append(rows));
    sweep.done += rows.size();
    sweep.interrupted = end < left.size() && options.interrupted && options.interrupted();
  }
  if (!ordered && !sweep.interrupted) RETURN_IF_ERROR(write_in_order(options.csv, sweep));
  return sweep;
}

Result<std::vector<Drawing>> draw_points(PointRunner& runner, const Sweep& sweep, const std::vector<size_t>& which) {
  std::vector<Drawing> drawings;
  const size_t batch = 8 * core_count();
  for (size_t begin = 0; begin < which.size(); begin += batch) {
    std::vector<Setting> settings;
    for (size_t i = begin; i < std::min(which.size(), begin + batch); ++i)
      settings.push_back(sweep.points[which[i]].setting);
    ASSIGN_OR_RETURN(std::vector<PointResult> results, runner.run(settings, true));
    for (PointResult& result : results) drawings.push_back(std::move(result.drawing));
  }
  return drawings;
}

}  // namespace nlsplit::inline sweeps
