// What a trace must obey whatever it is a trace of: the Programs written by hand in tests/programs, through both tiers.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "sim/cases.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit::testing {
namespace {

constexpr double latency = 50 * us, rate = 1e8;

std::vector<std::string> contract_programs() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(NLS_SOURCE_DIR) + "/tests/programs")) {
    if (entry.path().extension() == ".nls") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

Program read_contract_program(const std::string& path) {
  Program program = value_of(parse_program(value_of(read_file(path)), path));
  const Status sound = verify(program);
  EXPECT_TRUE(sound.ok()) << sound.error().to_string();
  return program;
}

// The Program's devices, each on its host.
Cluster devices_of(const Program& program) {
  Cluster cluster;
  for (const DeviceProgram& device : program.devices) add_device(cluster, device.name, device.host);
  return cluster;
}

// A link for each pair. One FIFO is one flow at a time, so nothing is contended.
Cluster full_mesh(const Program& program) {
  Cluster cluster = devices_of(program);
  const size_t hosts = cluster.hosts.size();
  for (size_t a = 0; a < hosts; ++a) {
    for (size_t b = a + 1; b < hosts; ++b)
      add_link(cluster, cluster.hosts[a].name, cluster.hosts[b].name, latency, rate);
  }
  return cluster;
}

// One half-duplex wire from each host to a switch: as contended as it can be.
Cluster half_duplex_star(const Program& program) {
  Cluster cluster = devices_of(program);
  const size_t hosts = cluster.hosts.size();
  cluster.hosts.push_back({"sw", true});
  for (size_t h = 0; h < hosts; ++h) add_link(cluster, cluster.hosts[h].name, "sw", latency / 2, rate, false);
  return cluster;
}

// `tolerance`, in seconds: sums of the same times in another order.
void expect_lawful(const Case& one, const Trace& trace, double tolerance) {
  const Dependencies& deps = one.dependencies;
  ASSERT_EQ(trace.spans.size(), deps.instances.size());
  const auto name = [&](uint32_t i) { return describe_instance(one.program, deps.instances[i]); };
  std::map<std::pair<int, int>, uint32_t> last_of_fifo[2];  // sends, recvs: by (device, peer)
  std::map<int, uint32_t> last_compute;
  double end = 0;
  for (uint32_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    const Instance& at = deps.instances[i];
    ASSERT_EQ((Instance{span.device, span.slot, span.instr}), at);
    ASSERT_LE(span.start, span.finish) << name(i);
    ASSERT_GE(span.start, 0) << name(i);
    end = std::max(end, span.finish);

    const Instr& instr = instr_of(one.program, at);
    if (is_transfer(instr.opcode)) {
      auto& last = last_of_fifo[instr.opcode == Opcode::recv ? 1 : 0];
      const auto [found, first] = last.try_emplace({at.device, instr.peer}, i);
      if (!first) {
        EXPECT_LE(trace.spans[found->second].start, span.start) << name(found->second) << " then " << name(i);
        EXPECT_LE(trace.spans[found->second].finish, span.finish + tolerance) << name(found->second) << ", " << name(i);
        found->second = i;
      }
    } else {
      // Costs come from the roofline, for each instruction on its own.
      const auto [found, first] = last_compute.try_emplace(at.device, i);
      if (!first) {
        EXPECT_LE(trace.spans[found->second].finish, span.start + tolerance) << name(found->second) << ", " << name(i);
        found->second = i;
      }
      EXPECT_GT(span.finish, span.start) << name(i) << " takes no time";
    }
    if (instr.opcode == Opcode::send) {
      const Route route =
          find_route(one.cluster, one.cluster.find_host(one.program.devices[static_cast<size_t>(at.device)].host),
                     one.cluster.find_host(one.program.devices[static_cast<size_t>(instr.peer)].host))
              .value();
      const double size =
          static_cast<double>(bytes_of(one.program.devices[static_cast<size_t>(at.device)], instr.reads[0]).value());
      EXPECT_GE(trace.spans[deps.match[i]].finish - span.start,
                size / route.narrowest.value() + route.eager.latency.value() - tolerance)
          << name(i) << " is faster than its way";
    }
    // A value is read after it was written, and overwritten after it was read.
    for (const Edge& edge : deps.into(i)) {
      if (edge.kind != EdgeKind::stream) {
        EXPECT_LE(trace.spans[edge.from].finish, span.start + tolerance) << name(edge.from) << ", then " << name(i);
      }
    }
  }
  EXPECT_NEAR(trace.makespan, end, tolerance);
}

struct Variant {
  int64_t eager_limit;
  double handshake;
  int nic_window;
};
constexpr Variant variants[] = {
    {0, 0, 0}, {40, 20 * us, 0}, {0, 20 * us, 1}, {int64_t{1} << 20, 20 * us, 0}, {40, 20 * us, 2}};

Case contract_case(const std::string& path, const Variant& variant, bool contended) {
  Program program = read_contract_program(path);
  program.eager_limit = bytes(variant.eager_limit);
  program.nic_window = variant.nic_window;
  Cluster cluster = contended ? half_duplex_star(program) : full_mesh(program);
  cluster.handshake = seconds(variant.handshake);
  return make_case(std::move(program), std::move(cluster));
}

std::string describe(const std::string& path, const Variant& variant) {
  return fmt::format("{} eager_limit {} handshake {} nic_window {}", path, variant.eager_limit, variant.handshake,
                     variant.nic_window);
}

TEST(ContractPrograms, AreLawfulAndBothTiersAgreeWithoutContention) {
  const std::vector<std::string> paths = contract_programs();
  ASSERT_GE(paths.size(), 5u);
  for (const std::string& path : paths) {
    for (const Variant& variant : variants) {
      SCOPED_TRACE(describe(path, variant));
      const Case one = contract_case(path, variant, false);
      const Timing from_fast = fast(one), from_simgrid = simgrid(one);
      const double tolerance = 1e-9 * from_fast.makespan;
      expect_lawful(one, to_trace(one.program, one.dependencies, one.graph, from_fast), 1e-12 * from_fast.makespan);
      expect_lawful(one, to_trace(one.program, one.dependencies, one.graph, from_simgrid), tolerance);
      expect_same(from_simgrid, from_fast, 1e-9, "tiers");
    }
  }
}

// Shared wires only delay: the fast tier is a lower bound, event by event, and so is the load.
TEST(ContractPrograms, AreLawfulUnderContention) {
  for (const std::string& path : contract_programs()) {
    for (const Variant& variant : variants) {
      SCOPED_TRACE(describe(path, variant));
      const Case one = contract_case(path, variant, true);
      const Timing from_fast = fast(one), from_simgrid = simgrid(one);
      const double tolerance = 1e-9 * from_simgrid.makespan;
      expect_lawful(one, to_trace(one.program, one.dependencies, one.graph, from_simgrid), tolerance);
      EXPECT_GE(from_simgrid.makespan + tolerance,
                load_of(one.graph, one.cluster, one.program.devices.size()).busiest());
      if (variant.nic_window > 0) continue;  // whose turn it is at a card may then differ
      for (size_t a = 0; a < from_fast.finish.size(); ++a) {
        EXPECT_GE(from_simgrid.start[a] + tolerance, from_fast.start[a]) << a;
        EXPECT_GE(from_simgrid.finish[a] + tolerance, from_fast.finish[a]) << a;
      }
    }
  }
}

TEST(ContractPrograms, SameBitsEveryTime) {
  for (const std::string& path : contract_programs()) {
    SCOPED_TRACE(path);
    for (const int window : {0, 1}) {
      const Case first = contract_case(path, {0, 20 * us, window}, true);
      const Case second = contract_case(path, {0, 20 * us, window}, true);
      for (const auto& tier : {&fast, &simgrid}) {
        const Timing a = tier(first), b = tier(second);
        EXPECT_EQ(a.makespan, b.makespan);
        EXPECT_EQ(a.posted, b.posted);
        EXPECT_EQ(a.start, b.start);
        EXPECT_EQ(a.sent, b.sent);
        EXPECT_EQ(a.finish, b.finish);
      }
    }
  }
}

}  // namespace
}  // namespace nlsplit::testing
