// `topology`, many devices in a line, what is within hosts: what comes of them, and their errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "scenario/scenario.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view figures = "memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}";
constexpr std::string_view link = "{bandwidth: 1Gbps, latency: 50us}";

std::string text_of(const std::string& topology, const std::string& devices, const std::string& more = "") {
  return fmt::format(
      "model: zoo:simple_cnn\nworkload: {{batch: 4}}\ntopology: {}\ndevices: {{{}}}\nsource: h0\nsink: h0\n{}",
      topology, devices, more);
}

std::string star(int hosts = 4, const std::string& more = "") {
  return fmt::format("{{kind: star, hosts: {}, link: {}{}}}", hosts, link, more);
}

Cluster cluster_of(const std::string& text) {
  auto scenario = parse_scenario(text, "s.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error().to_string();
  return scenario.ok() ? std::move(scenario)->cluster : Cluster{};
}

std::vector<std::string> names(const Cluster& cluster) {
  std::vector<std::string> all;
  for (const Device& device : cluster.devices)
    all.push_back(device.name + "@" + cluster.hosts[device.host.index()].name);
  return all;
}

TEST(Devices, ManyInALine) {
  EXPECT_THAT(names(cluster_of(text_of(star(3), fmt::format("M: {{hosts: all, {}}}", figures)))),
              ElementsAre("M0@h0", "M1@h1", "M2@h2"));
  EXPECT_THAT(names(cluster_of(
                  text_of(star(), fmt::format("M: {{hosts: [h0, h2..h3], {0}}}, one: {{host: h1, {0}}}", figures)))),
              ElementsAre("M0@h0", "M1@h2", "M2@h3", "one@h1"));
  EXPECT_THAT(names(cluster_of(text_of(star(4, fmt::format(", within: {}", link)),
                                       fmt::format("g: {{hosts: h1..h2, count: 2, {}}}", figures)))),
              ElementsAre("g0@h1", "g1@h1", "g2@h2", "g3@h2"));
}

TEST(Devices, BehindABus) {
  const Cluster c = cluster_of(text_of(
      star(2),
      fmt::format("g: {{hosts: all, count: 2, {}, bus: {{bandwidth: 8GBps, latency: 4us, shared: true}}, peers: "
                  "{{kind: switch, bandwidth: 50GBps, latency: 2us}}}}",
                  figures)));
  EXPECT_THAT(names(c), ElementsAre("g0@h0.g0", "g1@h0.g1", "g2@h1.g2", "g3@h1.g3"));
  EXPECT_TRUE(c.hosts[c.find_host("h1.g-bus").index()].is_switch);
  EXPECT_TRUE(c.hosts[c.find_host("h1.g-peers").index()].is_switch);
  const auto path = [&](const char* a, const char* b) { return find_path(c, c.find_host(a), c.find_host(b)).value(); };
  EXPECT_DOUBLE_EQ(path("h0.g0", "h0.g1").narrowest.value(), 50e9);
  EXPECT_DOUBLE_EQ(path("h0.g0", "h0").eager.latency.value(), 4e-6);
  EXPECT_DOUBLE_EQ(path("h0.g0", "h1.g3").eager.latency.value(), 108e-6);
  EXPECT_DOUBLE_EQ(path("h0.g0", "h1.g3").narrowest.value(), 125e6);
}

// 256 hosts with 8 devices behind NVLink in a fat tree: read and checked, and a route found, in under 0.5 s.
TEST(Topology, TwoThousandDevicesLoadAtOnce) {
  const std::string text = text_of(
      fmt::format("{{kind: fat_tree, levels: [{{down: 16, link: {0}}}, {{down: 16, up: 16, link: {0}}}]}}", link),
      fmt::format("gpu: {{hosts: all, count: 8, {}, bus: {{bandwidth: 8GBps, latency: 4us}}, peers: {{kind: mesh, "
                  "bandwidth: 50GBps, latency: 2us}}}}",
                  figures));
  const auto begin = std::chrono::steady_clock::now();
  const Cluster cluster = cluster_of(text);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(cluster.devices.size(), 2048u);
  EXPECT_EQ(cluster.links.size(), 256u + 256 + 256 * (8 + 28));
  EXPECT_EQ(find_path(cluster, cluster.devices[0].host, cluster.devices[2047].host)->hops.size(), 6u);
  RecordProperty("load_s", fmt::format("{}", seconds));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(seconds, 0.5);
#endif
}

TEST(Topology, OtherHostsHangOnIt) {
  const Cluster c =
      cluster_of(text_of(star(2), fmt::format("M: {{hosts: all, {}}}, pi: {{host: shelf, {}}}", figures, figures),
                         "switches: [s]\nlinks: [{between: [s, sw], bandwidth: 1Mbps, latency: 1ms}, {between: "
                         "[shelf, s], bandwidth: 1Mbps, latency: 1ms}]\n"));
  EXPECT_EQ(find_path(c, c.find_host("h1"), c.find_host("shelf"))->hops.size(), 3u);
}

// The platform of a reader that is not SimGrid's.
TEST(Topology, PlatformFilesGiveHostsAndRoutes) {
  std::vector<std::string> asked;
  ScenarioOptions options;
  options.platforms.hosts = [](const std::string&) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{"h0", "h1", "h2"};
  };
  options.platforms.routes = [&](const std::string& path, const std::vector<std::string>& hosts) -> Result<Platform> {
    asked = hosts;
    EXPECT_EQ(path, "dir/p.xml");
    if (hosts.size() < 2) return Platform{{}, {0, 0}, {}};
    return Platform{{{"l", bytes_per_second(1e6), seconds(1e-3)}}, {0, 0, 1, 2, 2}, {0, 0}};
  };
  const auto s = parse_scenario(text_of("{kind: simgrid, file: p.xml}", fmt::format("A: {{host: h2, {}}}", figures)),
                                "dir/s.yaml", options);
  ASSERT_TRUE(s.ok()) << s.error().to_string();
  EXPECT_THAT(asked, ElementsAre("h2", "h0"));  // those that are used
  EXPECT_EQ(find_path(s->cluster, s->cluster.find_host("h0"), s->cluster.find_host("h2"))->hops.size(), 1u);
  EXPECT_THAT(parse_scenario(text_of("{kind: simgrid, file: p.xml}", fmt::format("A: {{host: h7, {}}}", figures)),
                             "dir/s.yaml", options)
                  .error()
                  .to_string(),
              HasSubstr("unknown host 'h7': it is not in the topology (3 hosts, h0 to h2)"));
  options.platforms.hosts = [](const std::string&) -> Result<std::vector<std::string>> {
    return invalid_input("dir/p.xml:3: no");
  };
  EXPECT_EQ(parse_scenario(text_of("{kind: simgrid, file: p.xml}", fmt::format("A: {{host: h0, {}}}", figures)),
                           "dir/s.yaml", options)
                .error()
                .to_string(),
            "dir/s.yaml:3:33: dir/p.xml:3: no\n  | topology: {kind: simgrid, file: p.xml}");
}

struct Bad {
  const char* name;
  std::string topology, devices, more, expected;
};

const std::string machine = fmt::format("M: {{hosts: all, {}}}", figures);
const std::string l(link);

const Bad bad[] = {
    {"NoKind", "{hosts: 3}", machine, "", "s.yaml:3:11: topology lacks 'kind': 'star', 'racks'"},
    {"NotAMap", "star", machine, "", "topology must be a map"},
    {"UnknownKind", "{kind: ring}", machine, "",
     "unknown topology 'ring'; it is 'star', 'racks', 'wan', 'wifi', 'fat_tree', "
     "'torus', 'dragonfly' or 'simgrid'"},
    {"KeyOfAnotherKind", "{kind: star, hosts: 2, uplink: " + l + "}", machine, "",
     "unknown key 'uplink' in topology 'star'"},
    {"NoLink", "{kind: star, hosts: 2}", machine, "", "topology 'star' lacks 'link'"},
    {"LinkWithoutLatency", "{kind: star, hosts: 2, link: {bandwidth: 1Gbps}}", machine, "", "link lacks 'latency'"},
    {"BareNumber", "{kind: star, hosts: 2, link: {bandwidth: 1, latency: 1us}}", machine, "", "'1' has no unit"},
    {"NoHosts", "{kind: star, hosts: 0, link: " + l + "}", machine, "", "hosts must be from 1 to 1000000, not 0"},
    {"HugeTorus", "{kind: torus, shape: [1000, 1000, 1000], link: " + l + "}", machine, "",
     "this topology has 1e+09 hosts"},
    {"HugeFatTree", "{kind: fat_tree, levels: [{down: 1000000, up: 1000000, parallel: 1000000, link: " + l + "}]}",
     machine, "", "at most 65536 hosts"},
    {"NoLevels", "{kind: fat_tree, levels: []}", machine, "", "a fat tree has 1 to 16 levels"},
    {"NoAxes", "{kind: torus, shape: [], link: " + l + "}", machine, "", "a torus has 1 to 16 axes"},
    {"NoSites", "{kind: wan, sites: {}}", machine, "", "sites must be a map"},
    {"SitesApart", "{kind: wan, sites: {h: {hosts: 1, link: " + l + "}, k: {hosts: 1, link: " + l + "}}}", machine, "",
     "no links connect host 'h0' with host 'k0'"},
    {"WifiInBothDirections", "{kind: wifi, hosts: 2, link: {bandwidth: 1Gbps, latency: 1us, duplex: full}}", machine,
     "", "unknown key 'duplex' in link"},
    {"NoReader", "{kind: simgrid, file: p.xml}", machine, "", "this program cannot read SimGrid platforms"},
    {"SitesThatMakeTheSameName",
     "{kind: wan, sites: {h: {hosts: 11, link: " + l + "}, h1: {hosts: 1, link: " + l + "}}}", machine,
     "links: [{between: [h, h1], bandwidth: 1Gbps, latency: 1us}]\n", "two hosts would be called 'h1'"},
    {"HostBeyond", star(), fmt::format("M: {{hosts: h2..h4, {}}}", figures), "",
     "s.yaml:4:11: unknown host 'h4': it is not in the topology (4 hosts, h0 to h3), and no link leads to it; did you "
     "mean"},
    {"HostTwice", star(), fmt::format("M: {{hosts: [h1, h0..h2], {}}}", figures), "", "host 'h1' is given twice"},
    {"RangeBackwards", star(), fmt::format("M: {{hosts: h2..h0, {}}}", figures), "",
     "'h2..h0' is not a range of hosts"},
    {"RangeOfUnlike", star(), fmt::format("M: {{hosts: h0..k3, {}}}", figures), "", "'h0..k3' is not a range of hosts"},
    {"RangeHuge", star(), fmt::format("M: {{hosts: h0..h99999999, {}}}", figures), "", "means more than 10000 hosts"},
    {"SwitchAsHost", star(), fmt::format("M: {{hosts: [sw], {}}}", figures), "", "'sw' is a switch"},
    {"HostAndHosts", star(), fmt::format("M: {{host: h0, hosts: all, {}}}", figures), "", "either 'host' or 'hosts'"},
    {"TooMany", star(100), fmt::format("M: {{hosts: all, count: 1000, {}}}", figures), "", "more than 10000 devices"},
    {"NothingWithin", star(), fmt::format("M: {{hosts: all, count: 2, {}}}", figures), "",
     "devices 'M0' and 'M1' are both on host 'h0', but no link says how fast they exchange data: add 'within:"},
    {"MadeNamesMeetGivenOnes", star(), fmt::format("M: {{hosts: all, {0}}}, M2: {{host: extra, {0}}}", figures),
     "links: [{between: [extra, sw], bandwidth: 1Gbps, latency: 1us}]\n", "two devices would be called 'M2'"},
    {"PeersWithoutBus", star(),
     fmt::format("M: {{hosts: all, count: 2, {}, peers: {{kind: mesh, bandwidth: 1GBps, latency: 1us}}}}", figures), "",
     "need a 'bus' too"},
    {"UnknownPeers", star(),
     fmt::format("M: {{hosts: all, count: 2, {}, bus: {}, peers: {{kind: ring, bandwidth: 1GBps, latency: 1us}}}}",
                 figures, link),
     "", "unknown kind of peers 'ring'"},
    {"CardsAndBuses", star(), fmt::format("M: {{hosts: all, {}, bus: {}}}", figures, link),
     "network: {nic_window: 1}\n", "both together are not supported yet"},
    {"CableToASpine", "{kind: fat_tree, levels: [{down: 2, link: " + l + "}]}",
     machine + ", X: {host: x, " + std::string(figures) + "}",
     "links: [{between: [x, s1.0], bandwidth: 1Gbps, latency: 1us}]\n", "switch 's1.0' is a part of the topology"},
    {"SwitchTwice", star(), machine, "switches: [sw]\n", "switch 'sw' is given twice"},
    {"SwitchThatIsAHost", star(), machine, "switches: [h0]\n", "'h0' is a host of the topology"},
};

class BadTopology : public ::testing::TestWithParam<Bad> {};

TEST_P(BadTopology, IsAnError) {
  const auto s = parse_scenario(text_of(GetParam().topology, GetParam().devices, GetParam().more), "s.yaml");
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(exit_code(s.error()), 2);
  EXPECT_THAT(s.error().to_string(), HasSubstr(GetParam().expected));
  EXPECT_THAT(s.error().to_string(), ::testing::StartsWith("s.yaml:"));
}

INSTANTIATE_TEST_SUITE_P(All, BadTopology, ::testing::ValuesIn(bad),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Devices, AllNeedsATopology) {
  const auto s =
      parse_scenario(fmt::format("model: zoo:simple_cnn\nworkload: {{batch: 4}}\ndevices: {{M: {{hosts: all, {}}}}}\n"
                                 "source: h0\nsink: h0\n",
                                 figures),
                     "s.yaml");
  EXPECT_THAT(s.error().to_string(), HasSubstr("'all' means the hosts of a topology, and there is none"));
}

}  // namespace
}  // namespace nlsplit
