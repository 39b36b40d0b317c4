#include "base/csv.h"

namespace nlsplit::inline base {

std::string csv_line(const CsvRow& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) line += ',';
    std::string cell = cells[i];
    for (char& c : cell) {
      if (c == '\n' || c == '\r') c = ' ';
    }
    if (cell.find_first_of(",\"") == std::string::npos) {
      line += cell;
      continue;
    }
    line += '"';
    for (const char c : cell) line += c == '"' ? "\"\"" : std::string(1, c);
    line += '"';
  }
  return line + "\n";
}

Result<CsvRow> parse_csv_line(std::string_view line) {
  CsvRow cells(1);
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ',') {
      cells.emplace_back();
    } else if (line[i] != '"') {
      cells.back() += line[i];
    } else if (!cells.back().empty() || (i > 0 && line[i - 1] != ',')) {
      return invalid_input("a quote in the middle of a cell");
    } else {
      for (++i;; ++i) {
        if (i >= line.size()) return invalid_input("a quoted cell without its end");
        if (line[i] == '"' && (i + 1 >= line.size() || line[i + 1] != '"')) break;
        if (line[i] == '"') ++i;
        cells.back() += line[i];
      }
      if (i + 1 < line.size() && line[i + 1] != ',') return invalid_input("something after a quoted cell");
    }
  }
  return cells;
}

}  // namespace nlsplit::inline base
