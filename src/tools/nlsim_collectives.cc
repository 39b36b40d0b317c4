#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "compile/collective_costs.h"
#include "compile/collective_program.h"
#include "program/verify.h"
#include "report/table.h"
#include "scenario/scenario.h"
#include "sim/tiers/tiers.h"
#include "tools/commands.h"
#include "tools/exit.h"
#include "tools/option_values.h"

namespace nlsplit::inline tools {
namespace {

struct CollectivesArguments {
  std::string scenario, size, kind, json;
  std::vector<std::string> devices;
};

// One algorithm of one kind.
struct TimedCollective {
  Collective collective;
  size_t rounds = 0;
  Bytes sent, received;  // by the member that sends most; of what a member needs beside its value the most
  double estimate_s = 0;
  std::vector<double> makespan_s;  // by tier
};

struct GroupMembers {
  std::vector<DeviceId> devices;
  std::vector<HostId> hosts;
};

Result<GroupMembers> members_of(const Scenario& scenario, const std::vector<std::string>& names) {
  GroupMembers members;
  std::vector<std::string> known;
  for (size_t d = 0; d < scenario.cluster.devices.size(); ++d) {
    const std::string& name = scenario.cluster.devices[d].name;
    known.push_back(name);
    if (names.empty()) members.devices.push_back(DeviceId(d));
  }
  for (const std::string& name : names) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end())
      return invalid_input(fmt::format("--devices: {} has no device '{}'", scenario.file, name));
    members.devices.push_back(DeviceId(static_cast<size_t>(found - known.begin())));
  }
  if (members.devices.size() < 2) return invalid_input("a collective needs two devices at least");
  for (const DeviceId device : members.devices) members.hosts.push_back(scenario.cluster.device(device).host);
  return members;
}

Result<TimedCollective> time_collective(const Collective& collective, const GroupMembers& members,
                                        const Scenario& scenario, const CostTable& costs) {
  constexpr int64_t element_bytes = 4;  // f32
  TimedCollective result{collective, 0, bytes(0), bytes(0), 0, {}};
  const Rounds rounds = rounds_of(collective, members.hosts);
  result.rounds = static_cast<size_t>(std::ranges::count_if(rounds, [](const std::vector<Piece>& round) {
    return std::ranges::any_of(round, [](const Piece& piece) { return piece.from != piece.to; });
  }));
  const std::vector<Rounds> of_members = rounds_of_members(rounds, members.hosts.size());
  for (int m = 0; m < std::ssize(of_members); ++m) {
    int64_t sent = 0;
    for (const std::vector<Piece>& round : of_members[static_cast<size_t>(m)]) {
      for (const Piece& piece : round) sent += piece.from == m && piece.to != m ? piece.count() : 0;
    }
    result.sent = std::max(result.sent, bytes(sent * element_bytes));
    result.received =
        std::max(result.received, bytes(received_elements(of_members[static_cast<size_t>(m)], m) * element_bytes));
  }
  CollectiveCosts all{members.hosts, scenario.cluster, element_bytes};
  all.sum = sums_by(&costs, members.devices);
  ASSIGN_OR_RETURN(result.estimate_s, seconds_of(rounds, all));
  const Program program = collective_program(collective, members.devices, scenario.cluster);
  ASSIGN_OR_RETURN(const Dependencies dependencies, verified(program));
  ASSIGN_OR_RETURN(const TimedGraph graph, build_timed_graph(program, dependencies, scenario.cluster, costs));
  for (const Tier* tier : all_tiers()) {
    ASSIGN_OR_RETURN(const std::vector<Timing> timings, simulate_all(*tier, scenario.cluster, {&graph}));
    result.makespan_s.push_back(timings.front().makespan);
  }
  return result;
}

std::string collectives_text(const std::vector<TimedCollective>& rows, size_t members, Bytes size) {
  std::vector<Table::Column> columns = {{"collective"},
                                        {"algorithm"},
                                        {"rounds", Align::right},
                                        {"a member\nsends", Align::right},
                                        {"needs\nbeside", Align::right},
                                        {"estimate", Align::right}};
  for (const Tier* tier : all_tiers()) columns.push_back({std::string(tier->title()), Align::right});
  Table table(std::move(columns));
  for (const TimedCollective& row : rows) {
    std::vector<std::string> cells = {std::string(name_of(row.collective.kind)),
                                      std::string(name_of(row.collective.algorithm)),
                                      std::to_string(row.rounds),
                                      to_string(row.sent),
                                      to_string(row.received),
                                      to_string(seconds(row.estimate_s))};
    for (const double makespan : row.makespan_s) cells.push_back(to_string(seconds(makespan)));
    table.add(std::move(cells));
  }
  return fmt::format("{} over {}, quickest first\n\n{}", to_string(size),
                     counted(static_cast<int64_t>(members), "device"), table.to_string());
}

std::string collectives_json(const std::vector<TimedCollective>& rows, size_t members, Bytes size) {
  nlohmann::json all = nlohmann::json::array();
  for (const TimedCollective& row : rows) {
    nlohmann::json times = nlohmann::json::object();
    for (size_t t = 0; t < row.makespan_s.size(); ++t) times[std::string(all_tiers()[t]->name())] = row.makespan_s[t];
    all.push_back({{"collective", name_of(row.collective.kind)},
                   {"algorithm", name_of(row.collective.algorithm)},
                   {"rounds", row.rounds},
                   {"sent_bytes", row.sent.value()},
                   {"received_bytes", row.received.value()},
                   {"estimate_s", row.estimate_s},
                   {"makespan_s", std::move(times)}});
  }
  const nlohmann::json file = {{"format", "nlsplit-collectives"},
                               {"version", 1},
                               {"devices", members},
                               {"bytes", size.value()},
                               {"algorithms", std::move(all)}};
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status time_collectives(const CollectivesArguments& arguments) {
  ASSIGN_OR_RETURN(const Scenario scenario, read_scenario(arguments.scenario));
  ASSIGN_OR_RETURN(const Bytes size, size_option("--size", arguments.size));
  ASSIGN_OR_RETURN(const GroupMembers members, members_of(scenario, arguments.devices));
  std::vector<CollectiveKind> kinds(all_kinds().begin(), all_kinds().end());
  if (!arguments.kind.empty()) {
    ASSIGN_OR_RETURN(const CollectiveKind kind, parse_collective(arguments.kind));
    kinds = {kind};
  }
  const CostTable costs = cost_table(scenario, scenario.model);
  const int64_t elements = size.value() / 4, n = std::ssize(members.devices);
  if (elements < 1) return invalid_input("--size: less than an element of 4 B");
  std::vector<TimedCollective> rows;
  for (const CollectiveKind kind : kinds) {
    Collective collective{kind, {}, std::vector<int>(members.devices.size()), {elements}};
    if (!is_whole(kind)) {
      collective.elements.clear();
      for (int64_t k = 0; k < n; ++k) collective.elements.push_back((k + 1) * elements / n - k * elements / n);
    }
    const auto first = static_cast<std::ptrdiff_t>(rows.size());
    for (const CollectiveAlgorithm algorithm : algorithms_of(kind)) {
      collective.algorithm = algorithm;
      ASSIGN_OR_RETURN(rows.emplace_back(), time_collective(collective, members, scenario, costs));
    }
    std::ranges::stable_sort(rows.begin() + first, rows.end(), {},
                             [](const TimedCollective& row) { return row.makespan_s[judging_tier()]; });
  }
  const size_t count = members.devices.size();
  if (arguments.json == "-") {
    fmt::print("{}", collectives_json(rows, count, size));
    return ok_status();
  }
  if (!arguments.json.empty()) RETURN_IF_ERROR(write_file(arguments.json, collectives_json(rows, count, size)));
  fmt::print("{}", collectives_text(rows, count, size));
  return ok_status();
}

}  // namespace

void add_collectives_command(CLI::App& app, int& code) {
  CLI::App* command = app.add_subcommand("collectives",
                                         "Time collectives on a scenario's machines, by every algorithm.\n"
                                         "  nlsim collectives scenarios/training.yaml --size 100MiB --kind all-reduce\n"
                                         "estimate: what the compiler chooses by. docs/program.md has what each does.");
  const auto a = std::make_shared<CollectivesArguments>();
  command->add_option("SCENARIO", a->scenario, "The scenario with the devices, links and costs")
      ->type_name("FILE")
      ->required();
  command->add_option("--size", a->size, "Size of the value, all shares together, e.g. 64MiB")->required();
  command->add_option("--kind", a->kind,
                      "all-reduce, reduce-scatter, all-gather, all-to-all or broadcast; default: all");
  command->add_option("--devices", a->devices, "The members, e.g. A,B,C; default: all of the scenario")->delimiter(',');
  command->add_option("--json", a->json, "Write the times to FILE (-: to standard output)")->type_name("FILE");
  command->callback([a, &code] {
    const Status status = time_collectives(*a);
    code = status.ok() ? 0 : report(status.error());
  });
}

}  // namespace nlsplit::inline tools
