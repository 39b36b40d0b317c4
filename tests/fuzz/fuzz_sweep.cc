// The CSV of a sweep: whole lines are kept as they are, whatever is behind them.
#include <cstdint>
#include <string>

#include "base/file.h"
#include "fuzz/files.h"
#include "sweep/sweep_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("sweep");
  const std::string_view text = text_of(data, size);
  const auto columns = parse_csv_line(text.substr(0, text.find('\n')));
  if (!accepted(columns)) return 0;
  const std::string line = csv_line(*columns);
  expect(accepted(parse_csv_line(std::string_view(line).substr(0, line.size() - 1))), "a line that is written is read");
  const std::string path = folder.write("sweep.csv", text);
  const auto read = read_sweep_rows(path, *columns);
  if (!accepted(read)) return 0;
  expect(read->bytes <= size, "no more is kept than is there");
  for (const CsvRow& row : read->rows) expect(row.size() == columns->size(), "a row has a cell for each column");
  {
    auto file = SweepFile::open(path, *columns, read->bytes);
    expect(file.ok(), "a file that was read goes on: " + (file.ok() ? "" : file.error().message));
    expect(file->append({CsvRow(columns->size(), "x")}).ok(), "a row can be added");
  }
  const auto again = read_sweep_rows(path, *columns);
  expect(again.ok() && again->rows.size() == read->rows.size() + 1, "and is read again");
  return 0;
}
