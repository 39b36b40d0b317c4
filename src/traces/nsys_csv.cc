#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/csv.h"
#include "base/file.h"
#include "traces/runs.h"

namespace nlsplit::inline traces {
namespace {

// Reads a line after the other.
class NsysCsvReader {
 public:
  explicit NsysCsvReader(const std::string& path) : path_(path) {}

  // Lines before the header are what nsys says while it works.
  Status take(std::string_view line) {
    ++line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) return ok_status();
    auto cells = parse_csv_line(line);
    if (!header_) {
      if (cells.ok() && std::ranges::find(*cells, column_names[projected_duration]) != cells->end())
        return take_header(*cells);
      return ok_status();
    }
    if (!cells) return wrong(cells.error().message);
    if (cells->size() != width_) return wrong(fmt::format("{} cells below {} columns", cells->size(), width_));
    return take_row(*cells);
  }

  Result<OperatorTrace> trace(const std::string& range) && {
    if (!header_) {
      line_ = 1;
      return wrong(
          fmt::format("no line has the column '{}': this is no CSV of nsys stats --report nvtx_gpu_proj_trace "
                      "--timeunit nsec",
                      column_names[projected_duration]));
    }
    OperatorTrace trace{path_, "Nsight Systems", {}};
    ASSIGN_OR_RETURN(trace.runs, in_ranges(path_, Ranges(std::move(ranges_)), range, std::move(called_), true));
    return trace;
  }

 private:
  enum Column : size_t { name, projected_start, projected_duration, start, duration, style, thread, children, columns };
  static constexpr std::array<std::string_view, columns> column_names = {"Name",
                                                                         "Projected Start (ns)",
                                                                         "Projected Duration (ns)",
                                                                         "Orig Start (ns)",
                                                                         "Orig Duration (ns)",
                                                                         "Style",
                                                                         "TID",
                                                                         "NumChild"};

  Error wrong(std::string message) const {
    Error error = invalid_input(std::move(message));
    error.where = {path_, line_, 1};
    return error;
  }

  Status take_header(const CsvRow& cells) {
    header_ = true;
    width_ = cells.size();
    for (size_t c = 0; c < columns; ++c) {
      const auto found = std::ranges::find(cells, column_names[c]);
      if (found == cells.end()) return wrong(fmt::format("no column '{}'", column_names[c]));
      at_[c] = static_cast<size_t>(found - cells.begin());
    }
    return ok_status();
  }

  Result<int64_t> number(const CsvRow& cells, Column column) const {
    const std::string& text = cells[at_[column]];
    int64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code == std::errc() && end == text.data() + text.size() && value >= 0) return value;
    return wrong(fmt::format("'{}' is not an integer from 0 up, as column '{}' needs", text, column_names[column]));
  }

  double since_origin(int64_t time) {
    if (!origin_) origin_ = time;
    return (static_cast<double>(time) - static_cast<double>(*origin_)) * nanosecond;
  }

  Status take_row(const CsvRow& cells) {
    if (cells[at_[style]] != "PushPop") return ok_status();
    if (ranges_.size() == most_operator_times)
      return wrong(fmt::format("more than {} ranges: profile fewer runs", most_operator_times));
    std::array<int64_t, columns> values = {};
    for (const Column column : {projected_start, projected_duration, start, duration, thread, children}) {
      ASSIGN_OR_RETURN(values[column], number(cells, column));
    }
    std::string_view called = cells[at_[name]];
    if (called.starts_with(':')) called.remove_prefix(1);  // before it stands the domain; the usual one has no name
    const double begin = since_origin(values[start]);
    ranges_.push_back(
        {std::string(called), values[thread], begin, begin + static_cast<double>(values[duration]) * nanosecond});
    if (values[children] > 0) return ok_status();
    OperatorTime one{std::string(called), "range", since_origin(values[projected_start]),
                     static_cast<double>(values[projected_duration]) * nanosecond};
    called_.push_back({std::move(one), values[thread], begin});
    return ok_status();
  }

  static constexpr double nanosecond = 1e-9;
  const std::string& path_;
  int line_ = 0;
  bool header_ = false;
  size_t width_ = 0;
  std::array<size_t, columns> at_ = {};
  std::optional<int64_t> origin_;
  std::vector<TraceRange> ranges_;
  std::vector<Called> called_;
};

}  // namespace

Result<OperatorTrace> read_nsys_csv(const std::string& path, const std::string& range) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  NsysCsvReader reader(path);
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    RETURN_IF_ERROR(reader.take(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::move(reader).trace(range);
}

}  // namespace nlsplit::inline traces
