#include "survey/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_number.h"
#include "base/limits.h"

namespace nlsplit::inline survey {
namespace {

using nlohmann::json;

json json_of(const Machine& machine) {
  json caches = json::array(), gpus = json::array(), levels = json::array();
  for (const Cache& cache : machine.caches)
    caches.push_back({{"level", cache.level}, {"bytes", cache.size.value()}, {"count", cache.count}});
  for (const Isa isa : machine.levels) levels.push_back(name_of(isa));
  for (const Gpu& gpu : machine.gpus) {
    gpus.push_back({{"about", gpu.about},
                    {"memory_bytes", gpu.memory.value()},
                    {"flops_per_s", gpu.compute.value()},
                    {"memory_bytes_per_s", gpu.memory_rate.value()},
                    {"bus_latency_s", gpu.bus_latency.value()},
                    {"bus_bytes_per_s", gpu.bus_bandwidth.value()},
                    {"trouble", gpu.trouble}});
  }
  return {{"name", machine.name},
          {"about", machine.about},
          {"cores", machine.cores},
          {"measured_cores", machine.measured_cores},
          {"memory_bytes", machine.memory.value()},
          {"free_memory_bytes", machine.free_memory.value()},
          {"caches", std::move(caches)},
          {"levels", std::move(levels)},
          {"flops_per_s", machine.compute.value()},
          {"memory_bytes_per_s", machine.memory_rate.value()},
          {"trouble", machine.trouble},
          {"gpus", std::move(gpus)}};
}

// Reads figures, and keeps the first that cannot be.
class Reader {
 public:
  explicit Reader(std::string& wrong) : wrong_(wrong) {}

  double number(const json& value, const char* key) const {
    const double number = value.at(key).get<double>();
    if (!(number >= 0) || !std::isfinite(number)) say(key);
    return number;
  }
  int64_t whole(const json& value, const char* key, int64_t most) const {
    const auto number = whole_number<int64_t>(value.at(key));
    if (number < 0 || number > most) say(key);
    return number;
  }
  std::string text(const json& value, const char* key) const {
    constexpr size_t longest = 4096;
    std::string text = value.at(key).get<std::string>();
    if (text.size() > longest) say(key);
    // Stands in comments of a line.
    std::ranges::replace_if(
        text, [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
    return text;
  }

 private:
  void say(const char* key) const {
    if (wrong_.empty()) wrong_ = fmt::format("its {} cannot be", key);
  }
  std::string& wrong_;
};

Machine machine_of(const json& value, const Reader& read) {
  constexpr int64_t most_parts = 1 << 20;
  Machine machine;
  machine.name = read.text(value, "name");
  machine.about = read.text(value, "about");
  machine.cores = static_cast<int>(read.whole(value, "cores", most_cores));
  machine.measured_cores = static_cast<int>(read.whole(value, "measured_cores", most_cores));
  machine.memory = bytes(read.whole(value, "memory_bytes", most_bytes));
  machine.free_memory = bytes(read.whole(value, "free_memory_bytes", most_bytes));
  for (const json& entry : value.at("caches")) {
    machine.caches.push_back({static_cast<int>(read.whole(entry, "level", most_parts)),
                              bytes(read.whole(entry, "bytes", most_bytes)),
                              static_cast<int>(read.whole(entry, "count", most_parts))});
  }
  for (const json& entry : value.at("levels")) {
    const auto level = parse_level(entry.get<std::string>());
    if (level) machine.levels.push_back(level->isa);  // one that a later version knows is no trouble
  }
  machine.compute = flops_per_second(read.number(value, "flops_per_s"));
  machine.memory_rate = bytes_per_second(read.number(value, "memory_bytes_per_s"));
  machine.trouble = read.text(value, "trouble");
  for (const json& entry : value.at("gpus")) {
    Gpu gpu;
    gpu.about = read.text(entry, "about");
    gpu.memory = bytes(read.whole(entry, "memory_bytes", most_bytes));
    gpu.compute = flops_per_second(read.number(entry, "flops_per_s"));
    gpu.memory_rate = bytes_per_second(read.number(entry, "memory_bytes_per_s"));
    gpu.bus_latency = seconds(read.number(entry, "bus_latency_s"));
    gpu.bus_bandwidth = bytes_per_second(read.number(entry, "bus_bytes_per_s"));
    gpu.trouble = read.text(entry, "trouble");
    machine.gpus.push_back(std::move(gpu));
  }
  return machine;
}

Path path_of(const json& value, const Reader& read, size_t machines, std::string& wrong) {
  Path path;
  path.a = static_cast<size_t>(read.whole(value, "a", most_devices));
  path.b = static_cast<size_t>(read.whole(value, "b", most_devices));
  path.latency = seconds(read.number(value, "latency_s"));
  path.bandwidth = bytes_per_second(read.number(value, "bytes_per_s"));
  path.back = bytes_per_second(read.number(value, "back_bytes_per_s"));
  path.both_ways = bytes_per_second(read.number(value, "both_ways_bytes_per_s"));
  if (wrong.empty() && (path.a >= path.b || path.b >= machines)) wrong = "a path between machines that are not there";
  if (wrong.empty() && (path.bandwidth.value() <= 0 || path.back.value() <= 0 || path.both_ways.value() <= 0))
    wrong = "a path without bandwidth";
  return path;
}

// Lists of at least two, upwards, each machine in one of them at most.
std::vector<std::vector<size_t>> shared_of(const json& value, size_t machines, std::string& wrong) {
  std::vector<std::vector<size_t>> lists;
  std::set<size_t> known;
  for (const json& entry : value) {
    std::vector<size_t>& list = lists.emplace_back();
    for (const json& one : entry) {
      const auto index = whole_number<int64_t>(one);
      const bool fits = index >= 0 && static_cast<size_t>(index) < machines &&
                        (list.empty() || list.back() < static_cast<size_t>(index)) &&
                        known.insert(static_cast<size_t>(index)).second;
      if (fits)
        list.push_back(static_cast<size_t>(index));
      else if (wrong.empty())
        wrong = "its one_machine cannot be";
    }
    if (list.size() < 2 && wrong.empty()) wrong = "its one_machine cannot be";
  }
  return lists;
}

}  // namespace

std::vector<std::pair<size_t, size_t>> pairs_to_measure(size_t machines) {
  std::set<std::pair<size_t, size_t>> pairs;
  for (size_t a = 0; a < machines; ++a) {
    for (size_t away = 1; away < machines; away += machines <= all_pairs_of ? 1 : away)
      pairs.insert(std::minmax(a, (a + away) % machines));
  }
  return {pairs.begin(), pairs.end()};
}

std::string to_json(const Machine& machine) {
  return json_of(machine).dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Machine> parse_machine(const std::string& text, const std::string& from) {
  try {
    std::string wrong;
    Machine machine = machine_of(json::parse(text), Reader(wrong));
    if (!wrong.empty()) return invalid_input(fmt::format("{}: {}", from, wrong));
    return machine;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", from, e.what()));
  }
}

std::string to_json(const Survey& survey) {
  json machines = json::array(), paths = json::array();
  for (const Machine& machine : survey.machines) machines.push_back(json_of(machine));
  for (const Path& path : survey.paths) {
    paths.push_back({{"a", path.a},
                     {"b", path.b},
                     {"latency_s", path.latency.value()},
                     {"bytes_per_s", path.bandwidth.value()},
                     {"back_bytes_per_s", path.back.value()},
                     {"both_ways_bytes_per_s", path.both_ways.value()}});
  }
  json value = {{"format", "nlsplit-survey"},
                {"version", 1},
                {"transport", survey.transport},
                {"machines", std::move(machines)},
                {"paths", std::move(paths)}};
  if (!survey.one_machine.empty()) value["one_machine"] = survey.one_machine;
  return value.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<Survey> parse_survey(const std::string& text, const std::string& from) {
  try {
    const json value = json::parse(text);
    if (value.at("format") != "nlsplit-survey" || value.at("version") != 1)
      return invalid_input(fmt::format("{}: no survey of version 1 (nlbench survey makes them)", from));
    std::string wrong;
    const Reader read(wrong);
    Survey survey;
    survey.transport = read.text(value, "transport");
    for (const json& entry : value.at("machines")) survey.machines.push_back(machine_of(entry, read));
    for (const json& entry : value.at("paths"))
      survey.paths.push_back(path_of(entry, read, survey.machines.size(), wrong));
    if (const auto shared = value.find("one_machine"); shared != value.end())
      survey.one_machine = shared_of(*shared, survey.machines.size(), wrong);
    if (wrong.empty() && survey.machines.empty()) wrong = "no machine in it";
    if (!wrong.empty()) return invalid_input(fmt::format("{}: {}", from, wrong));
    return survey;
  } catch (const json::exception& e) {
    return invalid_input(fmt::format("{}: {}", from, e.what()));
  }
}

}  // namespace nlsplit::inline survey
