#include "tools/lowering.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "program/text.h"
#include "program/verify.h"
#include "ranking/split_plan.h"
#include "report/timeline.h"
#include "sim/online.h"
#include "tools/terminal.h"
#include "validate/plan_set.h"
#include "validate/ways.h"

namespace nlsplit {
namespace {

// A device with a clock takes for each computation what the simulation took.
Result<Clocks> clocks_of(const Loaded& loaded, const Program& program) {
  const Cluster& cluster = loaded.scenario.cluster;
  if (std::ranges::none_of(cluster.devices, [](const Device& device) { return device.slowdown > 0; })) return Clocks{};
  const CostTable costs = cost_table(loaded.scenario, loaded.model.graph.name);
  Clocks clocks(program.devices.size());
  for (size_t d = 0; d < clocks.size(); ++d) {
    const DeviceId id = cluster.find_device(program.devices[d].name);
    if (!id.valid() || cluster.device(id).slowdown == 0) continue;
    clocks[d].assign(program.descs.size(), 0);
    for (const Segment& segment : program.devices[d].segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute) continue;
        const auto desc = static_cast<size_t>(instr.desc);
        ASSIGN_OR_RETURN(const Cost cost, costs.cost(id, program.descs[desc], instr.label));
        clocks[d][desc] = cost.time.value();
      }
    }
  }
  return clocks;
}

struct ChosenPlan {
  Plan plan;
  std::string text;
  size_t number = 0;  // PredictedPlan::number
};

// The best ones, then those drawn at random, in the order of their predictions.
Result<std::vector<ChosenPlan>> rank_and_choose(Loaded& loaded, const ValidationSetArguments& arguments) {
  RankOptions options = terminal_options();
  options.samples = arguments.also + arguments.top;  // some will be among the best
  options.seed = arguments.seed;
  ASSIGN_OR_RETURN(const Ranking ranking, rank_plans(loaded.scenario, loaded.model, options));
  std::vector<ChosenPlan> chosen;
  size_t sampled = 0;
  for (size_t i = 0; i < ranking.judged.size(); ++i) {
    const bool drawn = ranking.judged[i].sampled && i >= arguments.top && sampled < arguments.also;
    if (drawn) ++sampled;
    if (drawn || i < arguments.top)
      chosen.push_back({ranking.judged[i].plan, ranking.judged[i].text, i < arguments.top ? i + 1 : 0});
  }
  return chosen;
}

// Those of an earlier set.
Result<std::vector<ChosenPlan>> chosen_before(const Loaded& loaded, const PlanSet& before, const std::string& file) {
  std::vector<ChosenPlan> chosen;
  for (const PredictedPlan& plan : before.plans) {
    UserPlan own{.name = plan.folder,
                 .stages = plan.stages,
                 .micro_batches = {plan.micro_batches},
                 .schedule = plan.schedule,
                 .where = {},
                 .line = {}};
    own.where.file = file;
    ASSIGN_OR_RETURN(std::vector<RankedPlan> ways, resolve_own_plan(loaded.scenario, loaded.model.graph, own));
    ways[0].plan.name.clear();
    chosen.push_back({std::move(ways[0].plan), plan.text, plan.number});
  }
  return chosen;
}

}  // namespace

Result<Program> unsplit_program(const Scenario& scenario, const Graph& optimized, int micro_batches, const Device& like,
                                const KernelPreference& prefer) {
  ASSIGN_OR_RETURN(const PreparedModel prepared, prepare_model(scenario, optimized, micro_batches, prefer));
  return on_one_device(scenario, prepared.kernels, micro_batches, like);
}

Result<Program> on_one_device(const Scenario& scenario, const KernelGraph& kernels, int micro_batches,
                              const Device& like) {
  Device device = like;
  device.memory = bytes(std::numeric_limits<int64_t>::max() / 2);
  ASSIGN_OR_RETURN(Program program,
                   lower_unsplit(kernels, micro_batches, device, scenario.cluster.hosts[like.host.index()].name));
  RETURN_IF_ERROR(verify(program));
  return program;
}

Result<SavedProgram> saved_form(Loaded& loaded, const Plan& plan, TimedPlan timed) {
  add_slices(timed.slices, loaded.model.weights);
  SavedProgram saved;
  saved.promise = std::move(timed.promise);
  saved.has_prediction = true;
  saved.prediction.fingerprint = timed.trace.fingerprint;
  saved.prediction.makespan_s = timed.estimate.makespan_s;
  saved.prediction.latency_mean_s = timed.estimate.latency_mean_s;
  if (timed.graph.online) saved.online = online_of(timed.graph, timed.program);
  for (const DeviceTimes& times : device_times(timed.program, timed.trace))
    saved.prediction.device_compute_s.push_back(times.compute);
  saved.program = std::move(timed.program);
  ASSIGN_OR_RETURN(saved.clocks, clocks_of(loaded, saved.program));
  const Device& first = loaded.scenario.cluster.device(plan.stages[0].devices[0]);
  ASSIGN_OR_RETURN(saved.unsplit, unsplit_program(loaded.scenario, loaded.model.graph, plan.micro_batches, first));
  return saved;
}

Status write_validation_set(Loaded& loaded, const ValidationSetArguments& arguments) {
  std::error_code failure;
  std::filesystem::create_directories(arguments.dir, failure);
  if (failure) return io_error(fmt::format("cannot create {}: {}", arguments.dir, failure.message()));
  Scenario predicted_by = loaded.scenario;
  if (!arguments.corrections.empty()) {
    if (loaded.scenario.corrected)
      return invalid_input(
          fmt::format("{} names corrections already: take them out to learn others", loaded.scenario.file));
    ASSIGN_OR_RETURN(const std::string text, read_file(arguments.corrections));
    ASSIGN_OR_RETURN(const Corrections corrections, parse_corrections(text, arguments.corrections));
    RETURN_IF_ERROR(apply(corrections, predicted_by.cluster, predicted_by.costs));
  }
  PlanSet set{loaded.scenario.file, loaded.model.graph.name, loaded.scenario.batch, {}};
  set.draw = {arguments.top, arguments.also, arguments.seed};
  std::vector<ChosenPlan> chosen;
  if (arguments.plans.empty()) {
    ASSIGN_OR_RETURN(chosen, rank_and_choose(loaded, arguments));
  } else {
    ASSIGN_OR_RETURN(const std::string text, read_file(arguments.plans));
    ASSIGN_OR_RETURN(const PlanSet before, parse_plan_set(text, arguments.plans));
    ASSIGN_OR_RETURN(chosen, chosen_before(loaded, before, arguments.plans));
    set.draw = before.draw;
  }
  for (size_t d = 0; d < loaded.scenario.cluster.devices.size(); ++d) {
    const Profile* profile = std::get_if<Profile>(&loaded.scenario.costs[d]);
    const Device& device = loaded.scenario.cluster.devices[d];
    if (profile != nullptr && profile->gauge_s > 0) set.gauges_s[device.name] = profile->gauge_s;
  }
  std::set<std::string> known;
  for (const ChosenPlan& one : chosen) {
    show_progress("saving plans", set.plans.size(), chosen.size());
    ASSIGN_OR_RETURN(TimedPlan timed,
                     time_plan(loaded.scenario, loaded.model.graph, one.plan, std::nullopt, &predicted_by));
    PredictedPlan plan;
    plan.fingerprint = hex16(timed.trace.fingerprint);
    if (!known.insert(plan.fingerprint).second) continue;
    plan.folder = fmt::format("p{}", set.plans.size() + 1);
    plan.text = one.text;
    plan.stages = stage_parts(one.plan, loaded.model.graph, loaded.scenario.cluster);
    plan.micro_batches = one.plan.micro_batches;
    plan.schedule = one.plan.schedule;
    plan.number = one.number;
    plan.sampled = one.number == 0;
    plan.makespan_s = timed.estimate.makespan_s;
    plan.throughput = timed.estimate.throughput;
    plan.latency_mean_s = timed.estimate.latency_mean_s;
    for (const DeviceProgram& device : timed.program.devices) {
      plan.devices.push_back(device.name);
      plan.hosts.push_back(device.host);
    }
    for (const DeviceTimes& times : device_times(timed.program, timed.trace)) plan.compute_s.push_back(times.compute);
    plan.messages_s = message_seconds(timed.program, timed.trace);
    plan.timeline = timeline_json(timed.program, timed.trace);
    if (arguments.corrections.empty()) {
      const bool cuts_weights = !timed.slices.empty();  // the other folders have only whole ones
      ASSIGN_OR_RETURN(const SavedProgram saved, saved_form(loaded, one.plan, std::move(timed)));
      const std::string dir = arguments.dir + "/" + plan.folder;
      RETURN_IF_ERROR(set.plans.empty() || cuts_weights
                          ? save_program(dir, saved, loaded.model.weights)
                          : save_program_like(dir, saved, arguments.dir + "/" + set.plans[0].folder));
    }
    set.plans.push_back(std::move(plan));
  }
  clear_progress();
  return write_file(arguments.dir + "/plans.json", to_json(set));
}

namespace {

constexpr double long_s = 0.02;  // a message's time that is long beside the agreement on it

// Bytes of one that moves for so long, and that is large beside what a socket takes at once (512 KiB: start_mpi):
// only the rest needs its sender's processor while it moves. On the slowest links no longer than 200 ms.
int64_t large_message(const Route& route) {
  constexpr double longest_s = 0.2;
  const double rate = route.narrowest.value();
  const double size = std::max(rate * long_s, std::min<double>(2 << 20, rate * longest_s));
  return std::clamp<int64_t>(static_cast<int64_t>(size) / 64 * 64, 256 << 10, 32 << 20);
}

}  // namespace

Status write_network_set(const Loaded& loaded, const std::string& dir, Bytes eager_limit) {
  const Cluster& cluster = loaded.scenario.cluster;
  std::vector<int> devices(cluster.hosts.size(), 0);  // and endpoints: who may send or receive there
  for (const Device& device : cluster.devices) ++devices[device.host.index()];
  for (const HostId end : {loaded.scenario.endpoints.source, loaded.scenario.endpoints.sink}) {
    if (devices[end.index()] == 0) devices[end.index()] = 1;
  }
  std::error_code failure;
  std::filesystem::create_directories(dir, failure);
  if (failure) return io_error(fmt::format("cannot create {}: {}", dir, failure.message()));
  GameSet set{eager_limit, {}, {}, {}, {}};
  const auto device_on = [&](size_t host) {
    return std::ranges::find_if(cluster.devices, [&](const Device& device) { return device.host == HostId(host); });
  };
  for (size_t a = 0; a < devices.size(); ++a) {
    for (size_t b = a; b < devices.size(); ++b) {
      if (devices[a] == 0 || devices[b] == 0 || (a == b && devices[a] < 2)) continue;
      PingPong game = ping_pong(cluster.hosts[a].name, cluster.hosts[b].name, eager_limit);
      RETURN_IF_ERROR(verify(game.program));
      const std::string folder = fmt::format("g{}", set.games.size() + 1);
      RETURN_IF_ERROR(
          save_program(dir + "/" + folder, {game.program, game.program, false, {}, {}}, loaded.model.weights));
      set.games.push_back({folder, cluster.hosts[a].name, cluster.hosts[b].name, std::move(game.sizes)});
      if (a != b) {
        ASSIGN_OR_RETURN(const Route route, find_path(cluster, HostId(a), HostId(b)));
        const CrossingOptions options{large_message(route), eager_limit};
        const Program program = crossing(cluster.hosts[a].name, cluster.hosts[b].name, options);
        RETURN_IF_ERROR(verify(program));
        MessageGame both{fmt::format("c{}", set.crossings.size() + 1), cluster.hosts[a].name, cluster.hosts[b].name,
                         options.message_bytes * options.messages, options.messages};
        RETURN_IF_ERROR(save_program(dir + "/" + both.folder, {program, program, false, {}, {}}, loaded.model.weights));
        set.crossings.push_back(std::move(both));
      }
      for (const auto& [from, to] : {std::pair{a, b}, {b, a}}) {
        const auto sender = device_on(from), receiver = device_on(to);
        if (a == b || sender == cluster.devices.end() || receiver == cluster.devices.end()) continue;
        // A device clock mostly sleeps, and its processor has time for messages.
        if (sender->slowdown > 0 || receiver->slowdown > 0) continue;
        ASSIGN_OR_RETURN(const Route route, find_path(cluster, HostId(from), HostId(to)));
        // Shorter than the computing it falls into, so that all of it counts: that takes 4 ms with AVX-512 on a Zen 5
        // core (kernels_bench, single/v4/erf), longer with less.
        constexpr double busy_s = 0.003;
        const int64_t size =
            std::clamp<int64_t>(static_cast<int64_t>(route.narrowest.value() * busy_s) / 64 * 64, 64 << 10, 32 << 20);
        BusyPair pair{fmt::format("q{}", set.pairs.size() + 1), fmt::format("l{}", set.pairs.size() + 1),
                      cluster.hosts[from].name, cluster.hosts[to].name, 0};
        for (const bool messages : {false, true}) {
          Program program = busy_pair(pair.a, pair.b, sender->isa, receiver->isa, {size, eager_limit, messages});
          RETURN_IF_ERROR(verify(program));
          if (messages) pair.bytes = size * program.micro_batches;
          RETURN_IF_ERROR(save_program(dir + "/" + (messages ? pair.loud : pair.quiet),
                                       {program, program, false, {}, {}}, loaded.model.weights));
        }
        set.pairs.push_back(std::move(pair));

        // Large messages, as long as those above, within computing that takes longer.
        BusyPairOptions busy{large_message(route), eager_limit};
        const double moves_s = static_cast<double>(busy.message_bytes) / route.narrowest.value();
        busy.slots = 6, busy.chores = static_cast<int>(6000 * std::clamp(moves_s / long_s, 1.0, 20.0));
        const Program slowed =
            busy_pair(cluster.hosts[from].name, cluster.hosts[to].name, sender->isa, receiver->isa, busy);
        RETURN_IF_ERROR(verify(slowed));
        MessageGame game{fmt::format("s{}", set.slowed.size() + 1), cluster.hosts[from].name, cluster.hosts[to].name,
                         busy.message_bytes * busy.slots, busy.slots};
        RETURN_IF_ERROR(save_program(dir + "/" + game.folder, {slowed, slowed, false, {}, {}}, loaded.model.weights));
        set.slowed.push_back(std::move(game));
      }
    }
  }
  return write_file(dir + "/network.json", to_json(set));
}

}  // namespace nlsplit
