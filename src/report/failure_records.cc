// Files of flight recorders come from machines that failed: nothing in them is taken for granted.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "base/file.h"
#include "report/failure.h"

namespace nlsplit::inline reports {
namespace {

namespace fs = std::filesystem;

constexpr size_t largest_record = size_t{4} << 20;
constexpr int most_ranks = 4096;
constexpr size_t most_records = 10000;  // of several runs

// One line, taken apart from its beginning.
class RecordLine {
 public:
  RecordLine(std::string_view text, const std::string& file, int number) : text_(text), file_(file), number_(number) {}

  std::string_view word() {
    const size_t end = std::min(text_.find(' '), text_.size());
    const std::string_view first = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    return first;
  }
  std::string rest() { return std::string(std::exchange(text_, {})); }

  Result<int64_t> integer(int64_t least, int64_t most, std::string_view what) {
    const std::string_view text = word();
    int64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc() || end != text.data() + text.size() || value < least || value > most)
      return error(fmt::format("expected {}, from {} to {}", what, least, most), text);
    return value;
  }
  // Nanoseconds; a little may be missing where a note was made meanwhile.
  Result<double> age_s() {
    ASSIGN_OR_RETURN(const int64_t ns, integer(INT64_MIN, INT64_MAX, "nanoseconds"));
    return std::max(0.0, static_cast<double>(ns) * 1e-9);
  }
  Error error(const std::string& message, std::string_view fragment) const {
    Error error = invalid_input(message);
    error.where = {file_, number_, 0};
    error.fragment = std::string(fragment.substr(0, 200));
    return error;
  }

 private:
  std::string_view text_;
  const std::string& file_;
  int number_;
};

Status parse_state(RecordLine& line, FlightRecord& record) {
  using State = FlightRecord::State;
  const std::string_view word = line.word();
  if (word == "outside") {
    record.state = State::outside;
    return ok_status();
  }
  if (word == "computes")
    record.state = State::computes;
  else if (word == "waits")
    record.state = State::waits;
  else if (word == "finished")
    record.state = State::finished;
  else if (word == "between")
    record.state = State::between;
  else
    return line.error("a device is outside, computes, waits, finished or between", word);
  ASSIGN_OR_RETURN(record.since_s, line.age_s());
  record.instruction = line.rest();
  return ok_status();
}

Status parse_fifo(RecordLine& line, int ranks, FlightRecord& record) {
  FlightFifo fifo;
  const std::string_view direction = line.word();
  if (direction != "send" && direction != "recv" && direction != "with")
    return line.error("expected send, recv or with", direction);
  fifo.sends = direction == "send";
  fifo.native = direction == "with";
  ASSIGN_OR_RETURN(const int64_t peer, line.integer(0, ranks - 1, "a rank"));
  ASSIGN_OR_RETURN(const int64_t tag, line.integer(-1, INT32_MAX, "a tag"));
  ASSIGN_OR_RETURN(fifo.completed, line.integer(0, INT64_MAX, "a number of messages"));
  fifo.peer = static_cast<int>(peer);
  fifo.tag = static_cast<int>(tag);
  const std::string_view state = line.word();
  if (state != "open" && state != "closed") return line.error("expected open or closed", state);
  if (state == "open") {
    fifo.open = true;
    ASSIGN_OR_RETURN(fifo.since_s, line.age_s());
    const std::string_view needed = line.word();
    if (needed != "needed" && needed != "ahead") return line.error("expected needed or ahead", needed);
    fifo.needed = needed == "needed";
    fifo.instruction = line.rest();
  }
  record.fifos.push_back(std::move(fifo));
  return ok_status();
}

Status parse_phase(RecordLine& line, int ranks, FlightRecord& record) {
  const std::string_view doing = line.word();
  if (doing != "works" && doing != "waits") return line.error("expected works or waits", doing);
  record.phase_works = doing == "works";
  ASSIGN_OR_RETURN(const int64_t peer, line.integer(-1, ranks - 1, "a rank"));
  record.phase_peer = static_cast<int>(peer);
  ASSIGN_OR_RETURN(record.phase_s, line.age_s());
  record.phase = line.rest();
  return ok_status();
}

Status parse_line(RecordLine& line, FlightRecord& record) {
  const std::string_view key = line.word();
  if (key == "run") {
    record.run = line.rest();
  } else if (key == "rank") {
    ASSIGN_OR_RETURN(const int64_t rank, line.integer(0, most_ranks - 1, "a rank"));
    if (const std::string_view of = line.word(); of != "of") return line.error("expected of", of);
    ASSIGN_OR_RETURN(const int64_t ranks, line.integer(rank + 1, most_ranks, "a number of ranks"));
    record.rank = static_cast<int>(rank);
    record.ranks = static_cast<int>(ranks);
  } else if (key == "device") {
    record.device = line.rest();
  } else if (key == "host") {
    record.host = line.rest();
  } else if (key == "why") {
    record.why = line.rest();
  } else if (key == "phase") {
    RETURN_IF_ERROR(parse_phase(line, record.ranks, record));
  } else if (key == "repeat") {
    ASSIGN_OR_RETURN(const int64_t repeat, line.integer(0, INT32_MAX, "a repeat"));
    record.repeat = static_cast<int>(repeat);
  } else if (key == "state") {
    RETURN_IF_ERROR(parse_state(line, record));
  } else if (key == "fifo") {
    RETURN_IF_ERROR(parse_fifo(line, record.ranks, record));
  } else if (key == "event") {
    FlightMoment moment;
    ASSIGN_OR_RETURN(moment.ago_s, line.age_s());
    moment.event = std::string(line.word());
    moment.instruction = line.rest();
    record.moments.push_back(std::move(moment));
  } else if (key == "end") {
    record.whole = true;
  } else {
    return line.error("no line of a flight record begins like this", key);
  }
  return ok_status();
}

struct Found {
  FlightRecord record;
  fs::path path;
  fs::file_time_type written;
};

}  // namespace

Result<FlightRecord> parse_flight_record(std::string_view text, const std::string& file) {
  FlightRecord record;
  int number = 0;
  while (!text.empty() && !record.whole) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos && number > 0) break;  // cut off in the middle: what came before counts
    RecordLine line(text.substr(0, end), file, ++number);
    text.remove_prefix(std::min(end, text.size() - 1) + 1);
    if (number == 1) {
      if (const std::string first = line.rest(); first != "nlsplit flight 1")
        return line.error("not a flight record: it begins with `nlsplit flight 1`", first);
      continue;
    }
    RETURN_IF_ERROR(parse_line(line, record));
  }
  if (number == 0) return invalid_input(fmt::format("{} is empty: no flight record", file));
  std::ranges::stable_sort(record.moments, std::greater<>(), &FlightMoment::ago_s);
  return record;
}

Result<std::vector<FlightRecord>> read_flight_records(const std::string& dir) {
  std::error_code failure;
  fs::directory_iterator files(dir, failure);
  if (failure) return io_error(fmt::format("cannot read {}: {}", dir, failure.message()));
  std::vector<Found> all;
  for (; files != fs::directory_iterator(); files.increment(failure)) {
    if (failure) return io_error(fmt::format("cannot read {}: {}", dir, failure.message()));
    const fs::path& path = files->path();
    const std::string name = path.filename().string();
    if (!name.starts_with("rank-") || !name.ends_with(".flight")) continue;
    if (all.size() >= most_records)
      return invalid_input(fmt::format("{} holds more than {} records", dir, most_records));
    if (!files->is_regular_file(failure)) return invalid_input(fmt::format("{} is not a file", path.string()));
    if (files->file_size(failure) > largest_record)
      return invalid_input(fmt::format("{} has more than {} B: no flight record", path.string(), largest_record));
    ASSIGN_OR_RETURN(const std::string text, read_file(path.string()));
    ASSIGN_OR_RETURN(FlightRecord record, parse_flight_record(text, path.string()));
    all.push_back({std::move(record), path, files->last_write_time(failure)});
  }
  if (all.empty())
    return invalid_input(
        fmt::format("{} holds no flight record (rank-N.flight): ranks write them when a run ends before "
                    "its time",
                    dir));
  const Found& newest = *std::ranges::max_element(all, {}, &Found::written);
  std::map<int, const Found*> by_rank;
  for (const Found& found : all) {
    if (found.record.run != newest.record.run) continue;
    const auto [other, is_new] = by_rank.try_emplace(found.record.rank, &found);
    if (!is_new)
      return invalid_input(fmt::format("{} and {} are both of rank {}", other->second->path.string(),
                                       found.path.string(), found.record.rank));
    if (found.record.ranks != newest.record.ranks)
      return invalid_input(fmt::format("{} says that there are {} ranks, {} says {}", found.path.string(),
                                       found.record.ranks, newest.path.string(), newest.record.ranks));
  }
  std::vector<FlightRecord> records;
  for (const auto& [rank, found] : by_rank) records.push_back(found->record);
  return records;
}

}  // namespace nlsplit::inline reports
