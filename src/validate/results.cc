#include "validate/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/descriptor.h"
#include "base/file.h"
#include "base/json_number.h"
#include "base/sync.h"

namespace nlsplit::inline validation {
namespace {

using nlohmann::json;

std::string line_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"; }

json header_of(const PlanSet& set, const std::string& machine) {
  return {{"format", "nlsplit-validation"},
          {"version", 4},
          {"model", set.model},
          {"batch", set.batch},
          {"machine", machine}};
}

json to_json(const PlanRun& run) {
  json value = {
      {"fingerprint", run.fingerprint}, {"round", run.round}, {"launch", run.launch}, {"control", run.control}};
  if (!run.error.empty()) {
    value["error"] = run.error;
    return value;
  }
  value.update({{"makespans_s", run.makespans_s},
                {"latency_mean_s", run.latency_mean_s},
                {"compute_s", run.compute_s},
                {"messages_s", run.messages_s},
                {"calibrations_s", run.calibrations_s},
                {"timeline", json::parse(run.timeline)}});
  return value;
}

PlanRun run_of(const json& value) {
  PlanRun run;
  value.at("fingerprint").get_to(run.fingerprint);
  run.round = whole_number<int>(value.at("round"));
  run.launch = whole_number<int>(value.at("launch"));
  value.at("control").get_to(run.control);
  if (value.contains("error")) {
    value.at("error").get_to(run.error);
    return run;
  }
  value.at("makespans_s").get_to(run.makespans_s);
  value.at("calibrations_s").get_to(run.calibrations_s);
  value.at("latency_mean_s").get_to(run.latency_mean_s);
  value.at("compute_s").get_to(run.compute_s);
  value.at("messages_s").get_to(run.messages_s);
  run.timeline = value.at("timeline").dump();
  return run;
}

// Appends and waits until it is on disk. On a full disk nothing is appended.
Status append_line(const std::string& path, const std::string& line) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  struct stat before {};
  if (file.get() < 0 || ::fstat(file.get(), &before) != 0) return os_error("write", path, errno);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(file.get(), line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    done += static_cast<size_t>(n);
  }
  if (done == line.size() && ::fsync(file.get()) == 0) return ok_status();
  const int why = errno;
  // Refused too: open() leaves out a line without its end.
  [[maybe_unused]] const int cut = ::ftruncate(file.get(), before.st_size);
  return os_error("write", path, why);
}

}  // namespace

Result<ResultsFile> ResultsFile::open(const std::string& path, const PlanSet& set, const std::string& machine) {
  ResultsFile file;
  file.path_ = path;
  std::error_code failure;
  const json header = header_of(set, machine);
  if (!std::filesystem::exists(path, failure)) {
    RETURN_IF_ERROR(write_file(path, line_of(header)));
    return file;
  }
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const size_t end = text.rfind('\n');
  const std::string whole = end == std::string::npos ? "" : text.substr(0, end + 1);
  std::istringstream lines(whole);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    try {
      const json value = json::parse(line);
      if (number > 1) {
        file.runs_.push_back(run_of(value));
      } else if (value != header) {
        return invalid_input(
            fmt::format("{} is of something else: {} instead of {}; give another --output or remove it", path, line,
                        header.dump()));
      }
    } catch (const json::exception& e) {
      return invalid_input(fmt::format("{}:{}: {}", path, number, e.what()));
    }
  }
  if (number == 0) return invalid_input(fmt::format("{} holds no results", path));
  if (whole.size() < text.size()) std::filesystem::resize_file(path, whole.size(), failure);
  if (failure) return io_error(fmt::format("cannot shorten {}: {}", path, failure.message()));
  return file;
}

bool ResultsFile::has(const std::string& fingerprint, int round) const {
  return std::ranges::any_of(runs_, [&](const PlanRun& run) {
    return run.error.empty() && !run.control && run.fingerprint == fingerprint && run.round == round;
  });
}

int ResultsFile::next_launch() const {
  int next = 0;
  for (const PlanRun& run : runs_) next = std::max(next, run.launch + 1);
  return next;
}

Status ResultsFile::append(const PlanRun& run) {
  RETURN_IF_ERROR(append_line(path_, line_of(to_json(run))));
  runs_.push_back(run);
  return ok_status();
}

Result<PlanRun> parse_run(const std::string& text, const std::string& file) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-run" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: not the figures of a run of version 1", file));
    PlanRun run;
    value.at("fingerprint").get_to(run.fingerprint);
    value.at("makespans_s").get_to(run.makespans_s);
    value.at("latency_mean_s").get_to(run.latency_mean_s);
    value.at("messages_s").get_to(run.messages_s);
    for (const json& device : value.at("devices")) {
      run.compute_s.push_back(device.at("compute_s").get<double>());
      device.at("calibrations_s").get_to(run.calibrations_s[device.at("name").get<std::string>()]);
    }
    run.timeline = value.at("timeline").dump();
    if (run.makespans_s.empty()) return invalid_input(fmt::format("{}: a run without repeats", file));
    return run;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", file, e.what()));
  }
}

}  // namespace nlsplit::inline validation
