// Lines of comma-separated values, as RFC 4180 has them, but for line breaks within cells.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nlsplit::inline base {

using CsvRow = std::vector<std::string>;

// One line with its end. Cells with commas or quotes are quoted; a line break in a cell becomes a space, so that a row
// stays a line.
std::string csv_line(const CsvRow& cells);
// The cells of a line without its end. Error: a quote that does not end, or stands in the middle of a cell.
Result<CsvRow> parse_csv_line(std::string_view line);

}  // namespace nlsplit::inline base
