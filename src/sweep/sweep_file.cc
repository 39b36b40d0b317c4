#include "sweep/sweep_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"

namespace nlsplit::inline sweeps {
namespace {

Error at_line(const std::string& path, int line, std::string message) {
  Error error = invalid_input(std::move(message));
  error.where = {path, line, 1};
  return error;
}

}  // namespace

Result<SweepRows> read_sweep_rows(const std::string& path, const CsvRow& columns) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  SweepRows found;
  int line = 0;
  while (found.bytes < text.size()) {
    const size_t end = text.find('\n', found.bytes);
    if (end == std::string::npos) break;
    ++line;
    const std::string_view content = std::string_view(text).substr(found.bytes, end - found.bytes);
    auto cells = parse_csv_line(content);
    if (!cells) return at_line(path, line, cells.error().message);
    if (line == 1 && *cells != columns)
      return at_line(path, 1, "these are not the columns of this experiment; --fresh starts anew");
    if (cells->size() != columns.size())
      return at_line(path, line, fmt::format("{} cells, and there are {} columns", cells->size(), columns.size()));
    if (line > 1) found.rows.push_back(std::move(cells).value());
    found.bytes = end + 1;
  }
  // A file that ends within its first line is ours only if it began like ours.
  if (line == 0 && !csv_line(columns).starts_with(text))
    return at_line(path, 1, "these are not the columns of this experiment; --fresh starts anew");
  return found;
}

Result<SweepFile> SweepFile::open(const std::string& path, const CsvRow& columns, size_t keep) {
  if (keep == 0) {
    RETURN_IF_ERROR(write_file(path, csv_line(columns)));
  } else {
    std::error_code failure;
    std::filesystem::resize_file(path, keep, failure);
    if (failure) return io_error(fmt::format("cannot write {}: {}", path, failure.message()));
  }
  SweepFile file;
  file.path_ = path;
  file.file_.reset(std::fopen(path.c_str(), "ab"));
  if (file.file_ == nullptr) return io_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  return file;
}

Status SweepFile::append(const std::vector<CsvRow>& rows) {
  std::string text;
  for (const CsvRow& row : rows) text += csv_line(row);
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0 ||
      ::fsync(::fileno(file_.get())) != 0)
    return io_error(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  return ok_status();
}

}  // namespace nlsplit::inline sweeps
