// The CSV of a sweep: a line a point, appended as points are done, so that what was done stays done whatever happens.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/csv.h"
#include "base/result.h"

namespace nlsplit::inline sweeps {

// What is in the file. A last line that was not written to its end does not count. Errors: other columns; a line that
// is no row of them; at file:line.
struct SweepRows {
  std::vector<CsvRow> rows;
  size_t bytes = 0;  // of all whole lines
};
Result<SweepRows> read_sweep_rows(const std::string& path, const CsvRow& columns);

class SweepFile {
 public:
  // Cuts off what is behind `keep` bytes; 0: a new file with these columns, which replaces an old one at once.
  static Result<SweepFile> open(const std::string& path, const CsvRow& columns, size_t keep);
  // They are on the disk when it returns. A full disk may leave the last one without its end: it does not count.
  Status append(const std::vector<CsvRow>& rows);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::string path_;
};

}  // namespace nlsplit::inline sweeps
