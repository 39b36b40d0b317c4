#include <fmt/format.h>
#include <sqlite3.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/json_place.h"
#include "base/mapped_file.h"
#include "traces/runs.h"

namespace nlsplit::inline traces {
namespace {

constexpr double nanosecond = 1e-9;
constexpr int push_pop_range = 59;  // NVTX_EVENTS.eventType, NvtxPushPopRange

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
struct CloseStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

class Row {
 public:
  explicit Row(sqlite3_stmt* statement) : statement_(statement) {}
  int64_t integer(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string text(int column) const {
    const unsigned char* text = sqlite3_column_text(statement_, column);
    return text == nullptr ? std::string() : reinterpret_cast<const char*>(text);
  }

 private:
  sqlite3_stmt* statement_;
};

class Database {
 public:
  static Result<Database> open(const std::string& path) {
    sqlite3* opened = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr);
    Database database(path, opened);
    if (code != SQLITE_OK) return database.wrong();
    // The file is a stranger's: its schema calls no functions.
    sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    return database;
  }

  // Error: no such table, or it lacks one of the columns. Views are none: they can be of any size.
  Status need(const std::string& table, const std::vector<std::string>& columns) const {
    bool found = false;
    RETURN_IF_ERROR(
        each(fmt::format("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{}'", table), [&](const Row&) {
          found = true;
          return ok_status();
        }));
    if (!found) {
      return in_file(
          path_, invalid_input(fmt::format(
                     "no table {}: this is not an export of Nsight Systems with --trace=cuda,nvtx (docs/profiles.md)",
                     table)));
    }
    std::set<std::string> have;
    RETURN_IF_ERROR(each(fmt::format("PRAGMA table_info({})", table), [&](const Row& row) {
      have.insert(row.text(1));
      return ok_status();
    }));
    for (const std::string& column : columns) {
      if (!have.contains(column))
        return in_file(path_, invalid_input(fmt::format("table {} has no column '{}'", table, column)));
    }
    return ok_status();
  }

  template <typename Take>  // Status take(const Row&)
  Status each(const std::string& query, const Take& take) const {
    sqlite3_stmt* prepared = nullptr;
    if (sqlite3_prepare_v2(database_.get(), query.c_str(), -1, &prepared, nullptr) != SQLITE_OK) return wrong();
    const std::unique_ptr<sqlite3_stmt, CloseStatement> statement(prepared);
    size_t count = 0;
    for (;;) {
      const int code = sqlite3_step(prepared);
      if (code == SQLITE_DONE) return ok_status();
      if (code != SQLITE_ROW) return wrong();
      if (++count > most_operator_times) {
        return in_file(
            path_, invalid_input(fmt::format("more than {} rows of a table: profile fewer runs", most_operator_times)));
      }
      RETURN_IF_ERROR(take(Row(prepared)));
    }
  }

 private:
  Database(std::string path, sqlite3* database) : path_(std::move(path)), database_(database) {}
  Error wrong() const {
    return in_file(
        path_, invalid_input(fmt::format("this is not a usable SQLite database: {}",
                                         database_ == nullptr ? "out of memory" : sqlite3_errmsg(database_.get()))));
  }

  std::string path_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
};

// Global numbers of threads have that of their process above the lower 24 bits, which those of processes have as 0.
int64_t process_of(int64_t global) { return global >> 24; }

class NsysReader {
 public:
  NsysReader(const std::string& path, const Database& database) : path_(path), database_(database) {}

  Result<OperatorTrace> trace(const std::string& range) {
    RETURN_IF_ERROR(check_tables());
    ASSIGN_OR_RETURN(const Ranges ranges, nvtx_ranges());
    RETURN_IF_ERROR(read_launches());
    ASSIGN_OR_RETURN(std::vector<Called> kernels, kernels_of_launches());
    if (ranges.empty() || kernels.empty()) {
      return in_file(path_, invalid_input(fmt::format(
                                "no {}: this profile does not say what ran when",
                                kernels.empty() ? "kernel with its launch" : "NVTX range that was pushed and popped")));
    }
    OperatorTrace trace{path_, "Nsight Systems", {}};
    ASSIGN_OR_RETURN(trace.runs, in_ranges(path_, ranges, range, std::move(kernels), true));
    return trace;
  }

 private:
  Status check_tables() const {
    RETURN_IF_ERROR(database_.need("StringIds", {"id", "value"}));
    RETURN_IF_ERROR(database_.need("NVTX_EVENTS", {"start", "end", "eventType", "text", "textId", "globalTid"}));
    RETURN_IF_ERROR(database_.need("CUPTI_ACTIVITY_KIND_RUNTIME", {"start", "end", "globalTid", "correlationId"}));
    return database_.need("CUPTI_ACTIVITY_KIND_KERNEL", {"start", "end", "globalPid", "correlationId", "shortName"});
  }

  double since_origin(int64_t time) {
    if (!origin_) origin_ = time;
    return (static_cast<double>(time) - static_cast<double>(*origin_)) * nanosecond;
  }

  Result<Ranges> nvtx_ranges() {
    std::vector<TraceRange> ranges;
    RETURN_IF_ERROR(database_.each(
        fmt::format("SELECT e.start, e.\"end\", e.globalTid, COALESCE(e.text, s.value) FROM NVTX_EVENTS e LEFT JOIN "
                    "StringIds s ON s.id = e.textId WHERE e.eventType = {} AND e.\"end\" >= e.start",
                    push_pop_range),
        [&](const Row& row) {
          ranges.push_back({row.text(3), row.integer(2), since_origin(row.integer(0)), since_origin(row.integer(1))});
          return ok_status();
        }));
    return Ranges(std::move(ranges));
  }

  Status read_launches() {
    return database_.each(
        "SELECT start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME", [&](const Row& row) {
          launches_[{process_of(row.integer(1)), row.integer(2)}] = {row.integer(1), since_origin(row.integer(0))};
          return ok_status();
        });
  }

  Result<std::vector<Called>> kernels_of_launches() {
    std::vector<Called> kernels;
    RETURN_IF_ERROR(database_.each(
        "SELECT k.start, k.\"end\", k.globalPid, k.correlationId, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k LEFT JOIN "
        "StringIds s ON s.id = k.shortName WHERE k.\"end\" >= k.start ORDER BY k.start",
        [&](const Row& row) {
          const auto launch = launches_.find({process_of(row.integer(2)), row.integer(3)});
          if (launch == launches_.end()) return ok_status();
          const double start = since_origin(row.integer(0));
          OperatorTime one{row.text(4), "kernel", start, since_origin(row.integer(1)) - start};
          kernels.push_back({std::move(one), launch->second.first, launch->second.second});
          return ok_status();
        }));
    return kernels;
  }

  const std::string& path_;
  const Database& database_;
  std::optional<int64_t> origin_;
  std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, double>> launches_;  // process, correlation: thread, when
};

}  // namespace

Result<OperatorTrace> read_nsys_trace(const std::string& path, const std::string& range) {
  ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));  // SQLite says only that it cannot open a file
  constexpr std::string_view magic = "SQLite format 3";
  if (!file->bytes().starts_with(magic)) {
    return in_file(path, invalid_input("this is no SQLite database: export a report with nsys export --type sqlite"));
  }
  ASSIGN_OR_RETURN(const Database database, Database::open(path));
  return NsysReader(path, database).trace(range);
}

}  // namespace nlsplit::inline traces
