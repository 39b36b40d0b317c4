#include "sim/smpi/replay_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/file.h"
#include "base/folder_writer.h"
#include "base/html_text.h"
#include "sim/fast.h"
#include "sim/smpi/rank_actions.h"

namespace nlsplit::inline sim {
namespace {

constexpr double flops_per_second = 1e9;  // of every host: a compute has its seconds times this
// SMPI adds these to each message (Request::start, SimGrid 3.32).
constexpr int64_t envelope_bytes = 16;

int64_t payload_of(const Activity& transfer) {
  return std::max<int64_t>(0, std::llround(transfer.bytes) - envelope_bytes);
}

// Messages smaller than this start without their receivers in SMPI, and their senders' memory is free at once. Where
// ways were measured a message has as many bytes as make it take its time, so the limit is where it parts those that do
// not wait here from those that do, if there is such a place.
int64_t eager_below(const Program& program, const TimedGraph& graph) {
  int64_t largest = -1, smallest_other = std::numeric_limits<int64_t>::max();
  for (const Activity& activity : graph.activities) {
    if (!activity.is_transfer || activity.route < 0) continue;
    if (activity.waits) {
      smallest_other = std::min(smallest_other, payload_of(activity));
    } else {
      largest = std::max(largest, payload_of(activity));
    }
  }
  if (largest < smallest_other) return largest + 1;
  return program.eager_limit.value() - envelope_bytes + 1;
}

using Ranks = std::pair<int, int>;  // from, to

std::string platform_text(const Program& program, const TimedGraph& graph, const Cluster& cluster) {
  std::string links, routes;
  std::vector<bool> written(cluster.links.size() * 2, false);
  std::map<Ranks, int> ways;
  for (const Activity& activity : graph.activities)
    if (activity.is_transfer && activity.route >= 0) ways.try_emplace({activity.device, activity.peer}, activity.route);
  // All messages between two ranks have the same latency: it is their way's.
  for (const auto& [ranks, number] : ways) {
    const Route& route = graph.routes[static_cast<size_t>(number)];
    routes += fmt::format("    <route src=\"rank{}\" dst=\"rank{}\" symmetrical=\"NO\">", ranks.first, ranks.second);
    for (const Hop& hop : route.hops) {
      const size_t lane = lane_of(cluster, hop);
      routes += fmt::format("<link_ctn id=\"l{}\"/>", lane);
      if (written[lane]) continue;
      written[lane] = true;
      const Link& link = cluster.links[hop.link.index()];
      links += fmt::format(
          "    <link id=\"l{}\" bandwidth=\"{}Bps\" latency=\"0s\" sharing_policy=\"{}\">"
          "<prop id=\"name\" value=\"{}\"/></link>\n",
          lane, link.bandwidth.value(), link.shared ? "SHARED" : "FATPIPE", html_escaped(name_of(cluster, hop)));
    }
    if (const double latency = route.eager.latency.value(); latency > 0) {
      const std::string id = fmt::format("latency{}-{}", ranks.first, ranks.second);
      links += fmt::format("    <link id=\"{}\" bandwidth=\"1e30Bps\" latency=\"{}s\" sharing_policy=\"FATPIPE\"/>\n",
                           id, latency);
      routes += fmt::format("<link_ctn id=\"{}\"/>", id);
    }
    routes += "</route>\n";
  }
  std::string text =
      "<?xml version=\"1.0\"?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
      "<platform version=\"4.1\">\n  <zone id=\"cluster\" routing=\"Full\">\n";
  for (size_t d = 0; d < program.devices.size(); ++d) {
    text += fmt::format("    <host id=\"rank{}\" speed=\"1Gf\"><prop id=\"device\" value=\"{}\"/></host>\n", d,
                        html_escaped(program.devices[d].name));
  }
  return text + links + routes + "  </zone>\n</platform>\n";
}

// [activity] of a transfer: its number among those of its two ranks.
std::vector<int> tags_of(const TimedGraph& graph) {
  std::vector<int> tags(graph.activities.size(), -1);
  std::map<Ranks, int> count;
  for (size_t i = 0; i < graph.activities.size(); ++i) {
    const Activity& activity = graph.activities[i];
    if (activity.is_transfer && activity.route >= 0) tags[i] = count[{activity.device, activity.peer}]++;
  }
  return tags;
}

std::string trace_text(const TimedGraph& graph, const std::vector<int>& tags, size_t rank,
                       const std::vector<RankAction>& actions) {
  std::string text = fmt::format("{} init\n", rank);
  for (const RankAction& action : actions) {
    const Activity& activity = graph.activities[action.activity];
    const int tag = tags[action.activity];
    switch (action.kind) {
      case RankAction::Kind::compute:
        text += fmt::format("{} compute {}\n", rank, activity.duration * flops_per_second);
        break;
      case RankAction::Kind::isend:
        text += fmt::format("{} isend {} {} {}\n", rank, activity.peer, tag, payload_of(activity));
        break;
      case RankAction::Kind::irecv:
        text += fmt::format("{} irecv {} {} {}\n", rank, activity.device, tag, payload_of(activity));
        break;
      case RankAction::Kind::wait_send:
      case RankAction::Kind::wait_recv:
        text += fmt::format("{} wait {} {} {}\n", rank, activity.device, activity.peer, tag);
        break;
    }
  }
  return text + fmt::format("{} finalize\n", rank);
}

// The network model is latency + bytes / bandwidth, as everywhere here: without it SMPI's own has factors for latency
// and bandwidth that were fitted to one Ethernet cluster, a reverse flow of acknowledgements, a cap by a TCP window.
// What is said twice counts the last time, so who calls the script can say otherwise.
std::string script_text(size_t ranks, int64_t eager) {
  return fmt::format(
      "#!/bin/sh\n"
      "# The replay's makespan is in the line \"Simulation time\", in seconds. More options of smpirun may follow.\n"
      "cd \"$(dirname \"$0\")\" || exit 2\n"
      "exec smpirun -no-privatize -np {} -platform platform.xml -hostfile hosts -replay traces \\\n"
      "  --cfg=network/model:CM02 --cfg=network/crosstraffic:no --cfg=network/TCP-gamma:1e30 \\\n"
      "  --cfg=surf/precision:1e-12 --cfg=smpi/async-small-thresh:{} --cfg=smpi/send-is-detached-thresh:{} \\\n"
      "  --log=root.fmt:%.15r:%m%n \"$@\"\n",
      ranks, eager, eager);
}

Status check_replayable(const TimedGraph& graph) {
  if (graph.online)
    return unsupported(
        "a trace has an order for every rank: export a plan that is not online, or follow its decisions as a file");
  if (!graph.slowness.empty() || !graph.courses.empty()) return unsupported("a trace has no noise");
  for (const Activity& activity : graph.activities) {
    if (activity.is_transfer && activity.route >= 0 && payload_of(activity) > std::numeric_limits<int32_t>::max())
      return unsupported(
          fmt::format("SMPI takes messages of less than 2 GiB, and one has {:.0f} bytes", activity.bytes));
  }
  return ok_status();
}

}  // namespace

Result<ReplayFiles> replay_files(const Program& program, const TimedGraph& graph, const Cluster& cluster) {
  RETURN_IF_ERROR(check_replayable(graph));
  Timing timing;
  simulate_fast(graph, timing);
  const std::vector<std::vector<RankAction>> ranks = rank_actions(graph, timing);
  const std::vector<int> tags = tags_of(graph);
  ReplayFiles files;
  std::string hosts, names;
  for (size_t r = 0; r < ranks.size(); ++r) {
    hosts += fmt::format("rank{}\n", r);
    names += fmt::format("rank{}.txt\n", r);
    files.files.emplace_back(fmt::format("rank{}.txt", r), trace_text(graph, tags, r, ranks[r]));
  }
  files.files.emplace_back("platform.xml", platform_text(program, graph, cluster));
  files.files.emplace_back("hosts", hosts);
  files.files.emplace_back("traces", names);
  files.files.emplace_back(replay_script, script_text(ranks.size(), eager_below(program, graph)));
  return files;
}

Status save(const ReplayFiles& files, const std::string& folder) {
  ASSIGN_OR_RETURN(FolderWriter writer, FolderWriter::open(folder));
  for (const auto& [name, content] : files.files) RETURN_IF_ERROR(write_file(writer.path() + "/" + name, content));
  return writer.commit();
}

}  // namespace nlsplit::inline sim
