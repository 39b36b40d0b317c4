// Users' SimGrid platforms: what is read of them, and every mistake an error, whatever SimGrid does about it.
#include "sim/simgrid/platform.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "base/file.h"
#include "cost/topology.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PlatformFile : public ::testing::Test {
 protected:
  PlatformFile() { std::filesystem::create_directories(dir_); }
  ~PlatformFile() override { std::filesystem::remove_all(dir_); }

  std::string write(const std::string& content) {
    std::string path = dir_ / "p.xml";
    EXPECT_TRUE(write_file(path, content).ok());
    return path;
  }
  // Within one zone of this routing.
  std::string zone(const std::string& inside, const std::string& routing = "Full") {
    return write(
        fmt::format("<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                    "<platform version=\"4.1\">\n<zone id=\"z\" routing=\"{}\">\n{}\n</zone>\n</platform>\n",
                    routing, inside));
  }
  // The first error, as a user of it meets it: hosts first, then their routes.
  Error error_of(const std::string& path, const std::vector<std::string>& hosts = {"a", "b"}) {
    const auto names = reader_.hosts(path);
    if (!names.ok()) return names.error();
    const auto platform = reader_.routes(path, hosts);
    EXPECT_FALSE(platform.ok()) << "no error";
    return platform.ok() ? Error{} : platform.error();
  }
  void refuse(const std::string& path, const std::string& part) {
    const Error error = error_of(path);
    EXPECT_EQ(exit_code(error), 2) << error.to_string();
    EXPECT_THAT(error.message, HasSubstr(part));
    EXPECT_THAT(error.message, HasSubstr("p.xml"));
    EXPECT_THAT(error.message, ::testing::Not(HasSubstr("acktrace")));
  }

  const std::filesystem::path dir_ =
      std::filesystem::temp_directory_path() / fmt::format("nlsplit-platform-test-{}", ::getpid());
  const PlatformReader reader_ = simgrid_platforms();
  const std::string hosts_ = "<host id=\"a\" speed=\"1Gf\"/><host id=\"b\" speed=\"1Gf\"/>";
  const std::string link_ = "<link id=\"l\" bandwidth=\"125MBps\" latency=\"50us\"/>";
  const std::string route_ = "<route src=\"a\" dst=\"b\"><link_ctn id=\"l\"/></route>";
};

TEST_F(PlatformFile, LinksAndRoutes) {
  const std::string path = zone(
      "<host id=\"n10\" speed=\"1Gf\"/><host id=\"n2\" speed=\"1Gf\"/>"
      "<link id=\"one\" bandwidth=\"125MBps\" latency=\"50us\"/>"
      "<link id=\"two\" bandwidth=\"1GBps\" latency=\"1ms\" sharing_policy=\"FATPIPE\"/>"
      "<link id=\"cable\" bandwidth=\"2GBps\" latency=\"1us\" sharing_policy=\"SPLITDUPLEX\"/>"
      "<route src=\"n2\" dst=\"n10\"><link_ctn id=\"one\"/><link_ctn id=\"two\"/>"
      "<link_ctn id=\"cable\" direction=\"UP\"/></route>");
  EXPECT_THAT(reader_.hosts(path).value(), ElementsAre("n2", "n10"));
  const Platform platform = reader_.routes(path, {"n2", "n10"}).value();
  std::vector<std::string> names;
  for (const Platform::Link& link : platform.links) names.push_back(link.name);
  EXPECT_THAT(names, ElementsAre("one", "two", "cable_UP", "cable_DOWN"));
  EXPECT_THAT(platform.route_begin, ElementsAre(0, 0, 3, 6, 6));
  EXPECT_THAT(platform.route_links, ElementsAre(0, 1, 2, 3, 1, 0));
  EXPECT_TRUE(platform.links[0].shared);
  EXPECT_FALSE(platform.links[1].shared);
  EXPECT_EQ(platform.links[1].bandwidth, bytes_per_second(1e9));
  EXPECT_EQ(platform.links[1].latency, seconds(1e-3));

  Cluster cluster;
  cluster.hosts = {{"n10", false}, {"n2", false}};
  add_platform(cluster, platform, {HostId(1), HostId(0)});
  const Route route = find_path(cluster, HostId(1), HostId(0)).value();
  EXPECT_EQ(route.hops.size(), 3u);
  EXPECT_DOUBLE_EQ(route.eager.latency.value(), 50e-6 + 1e-3 + 1e-6);
  EXPECT_EQ(route.narrowest, bytes_per_second(125e6));
  EXPECT_EQ(name_of(cluster, route.hops[2]), "cable_UP");
  EXPECT_TRUE(check_connected(cluster, {HostId(0), HostId(1)}).ok());
  EXPECT_FALSE(find_path(cluster, HostId(0), HostId(0)).ok());  // no loop was given
}

// SimGrid's clusters: up, backbone, down; and within a host what its loopback says.
TEST_F(PlatformFile, Clusters) {
  const std::string path = zone(
      "<cluster id=\"c\" prefix=\"n-\" suffix=\"\" radical=\"0-2\" speed=\"1Gf\" bw=\"125MBps\" lat=\"50us\" "
      "bb_bw=\"2GBps\" bb_lat=\"500us\" loopback_bw=\"8GBps\" loopback_lat=\"1us\"/>");
  const auto names = reader_.hosts(path).value();
  EXPECT_THAT(names, ElementsAre("n-0", "n-1", "n-2"));
  const Platform platform = reader_.routes(path, names).value();
  Cluster cluster;
  for (const std::string& name : names) cluster.hosts.push_back({name, false});
  add_platform(cluster, platform, {HostId(0), HostId(1), HostId(2)});
  const Route route = find_path(cluster, HostId(0), HostId(2)).value();
  EXPECT_DOUBLE_EQ(route.eager.latency.value(), 600e-6);
  EXPECT_DOUBLE_EQ(find_path(cluster, HostId(1), HostId(1))->narrowest.value(), 8e9);
}

// Ours are as long as those of SimGrid's own zones.
TEST_F(PlatformFile, TorusAndFatTreeRoutesAreAsLongAsOurs) {
  const LinkSpec link{bytes_per_second(1e9), seconds(1e-6)};
  const std::vector<std::tuple<std::string, std::string, Topology>> cases = {
      {"TORUS", "4,3,2", TorusNetwork{{{4, 3, 2}}, link}},
      {"FAT_TREE", "2;4,4;1,2;1,2", FatTreeNetwork{{{{4, 1, 1}, {4, 2, 2}}}, {link, link}}},
      {"FAT_TREE", "3;2,3,2;1,2,2;1,1,1", FatTreeNetwork{{{{2, 1, 1}, {3, 2, 1}, {2, 2, 1}}}, {link, link, link}}}};
  for (const auto& [kind, parameters, topology] : cases) {
    Cluster cluster;
    ASSERT_TRUE(add_topology(cluster, topology).ok());
    const auto hosts = static_cast<size_t>(std::ranges::count(cluster.hosts, false, &Host::is_switch));
    const std::string path = zone(fmt::format(
        "<cluster id=\"c\" prefix=\"n\" suffix=\"\" radical=\"0-{}\" speed=\"1Gf\" bw=\"1GBps\" lat=\"1us\" "
        "topology=\"{}\" topo_parameters=\"{}\"/>",
        hosts - 1, kind, parameters));
    const auto names = reader_.hosts(path);
    ASSERT_TRUE(names.ok()) << names.error().to_string();
    const Platform theirs = reader_.routes(path, *names).value();
    for (size_t a = 0; a < hosts; ++a) {
      for (size_t b = 0; b < hosts; ++b) {
        if (a == b) continue;
        EXPECT_EQ(theirs.route_begin[a * hosts + b + 1] - theirs.route_begin[a * hosts + b],
                  find_path(cluster, HostId(a), HostId(b))->hops.size())
            << kind << " " << parameters << ": " << a << " to " << b;
      }
    }
  }
}

TEST_F(PlatformFile, Missing) { refuse(dir_ / "p.xml", "cannot"); }
TEST_F(PlatformFile, NotXml) { refuse(write("not xml at all\n"), "p.xml:1: Invalid XML"); }
TEST_F(PlatformFile, Empty) { refuse(write(""), "EOF in prolog"); }
TEST_F(PlatformFile, CutOff) {
  refuse(write("<?xml version='1.0'?><!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\"><platform "
               "version=\"4.1\"><zone id=\"z\" "
               "routing=\"Full\">"),
         "Premature EOF");
}
TEST_F(PlatformFile, LinkTwice) { refuse(zone(hosts_ + link_ + link_ + route_), "Link 'l' declared several times"); }
TEST_F(PlatformFile, RouteTwice) {
  refuse(zone(hosts_ + link_ + route_ + route_), "The route between a and b already exists");
}
TEST_F(PlatformFile, HostTwice) { refuse(zone(hosts_ + hosts_ + link_ + route_), "second host named 'a'"); }
TEST_F(PlatformFile, UnknownRouting) {
  refuse(zone(hosts_ + link_ + route_, "Fulll"), "does not know the routing of a zone; the file has 'Fulll'");
}
TEST_F(PlatformFile, UnknownLink) {
  refuse(zone(hosts_ + link_ + "<route src=\"a\" dst=\"b\"><link_ctn id=\"m\"/></route>"), "Link not found: m");
}
TEST_F(PlatformFile, UnknownHost) {
  refuse(zone(hosts_ + link_ + "<route src=\"a\" dst=\"c\"><link_ctn id=\"l\"/></route>"), "Route dst='c'");
}
TEST_F(PlatformFile, ZeroBandwidth) {
  refuse(zone(hosts_ + "<link id=\"l\" bandwidth=\"0MBps\" latency=\"50us\"/>" + route_),
         "link 'l' has a bandwidth of 0 byte/s");
}
TEST_F(PlatformFile, NegativeBandwidth) {
  refuse(zone(hosts_ + "<link id=\"l\" bandwidth=\"-1MBps\" latency=\"50us\"/>" + route_),
         "link 'l' has a bandwidth of");
}
TEST_F(PlatformFile, NegativeLatency) {
  refuse(zone(hosts_ + "<link id=\"l\" bandwidth=\"1MBps\" latency=\"-50us\"/>" + route_),
         "link 'l' has a latency of -5e-05 s");
}
TEST_F(PlatformFile, SpeedOfNothing) {
  refuse(zone("<host id=\"a\" speed=\"0f\"/><host id=\"b\" speed=\"1Gf\"/>" + link_ + route_),
         "host 'a' has a speed of 0");
}
TEST_F(PlatformFile, NoRoute) {
  for (const char* routing : {"Full", "Floyd", "Dijkstra"})
    refuse(zone(hosts_ + link_, routing), "no route from host 'a' to host 'b'");
}
TEST_F(PlatformFile, DijkstraWithoutLinks) { refuse(zone(hosts_, "Dijkstra"), "no route from host 'a' to host 'b'"); }
// One host needs no routes; that SimGrid dies when asked for the one from it to itself is no mistake of the file.
TEST_F(PlatformFile, OneHostNeedsNoRoute) {
  const auto platform = reader_.routes(zone(hosts_), {"a"});
  ASSERT_TRUE(platform.ok()) << platform.error().to_string();
  EXPECT_THAT(platform->route_begin, ElementsAre(0, 0));
}
TEST_F(PlatformFile, Wifi) {
  refuse(zone("<prop id=\"access_point\" value=\"ap\"/>" + hosts_ +
                  "<router id=\"ap\"/><link id=\"w\" bandwidth=\"54Mbps,36Mbps\" latency=\"0ms\" "
                  "sharing_policy=\"WIFI\"/>",
              "WIFI"),
         "link 'w' has a sharing policy that is not supported");
}
TEST_F(PlatformFile, Traces) {
  refuse(zone(hosts_ +
              "<!-- bandwidth_file -->\n<link id=\"l\" bandwidth=\"1MBps\" latency=\"0us\" "
              "bandwidth_file=\"x\"/>" +
              route_),
         "p.xml:6: 'bandwidth_file'");
}
TEST_F(PlatformFile, NoHosts) { refuse(zone(""), "no hosts"); }
TEST_F(PlatformFile, MoreHostsThanCouldBe) {
  refuse(
      zone("<cluster id=\"c\" prefix=\"n\" suffix=\"\" radical=\"0-99999\" speed=\"1Gf\" bw=\"1MBps\" lat=\"1us\"/>"),
      "100000 hosts; at most 65536 can be");
}
TEST_F(PlatformFile, MoreHostsThanRoutesAreFor) {
  const std::string path =
      zone("<cluster id=\"c\" prefix=\"n\" suffix=\"\" radical=\"0-1999\" speed=\"1Gf\" bw=\"1MBps\" lat=\"1us\"/>");
  EXPECT_THAT(reader_.routes(path, reader_.hosts(path).value()).error().message, HasSubstr("at most 1000 can be"));
}

}  // namespace
}  // namespace nlsplit
