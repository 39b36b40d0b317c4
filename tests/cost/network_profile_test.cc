#include "cost/network_profile.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

class Network : public ::testing::Test {
 protected:
  ~Network() override { std::filesystem::remove(path_); }
  std::string refusal(const std::string& text) const {
    CHECK(write_file(path_, text).ok(), "a test cannot write its files");
    const auto profile = read_network_profile(path_);
    return profile.ok() ? "" : profile.error().message;
  }
  std::string path_ = std::filesystem::temp_directory_path() / ("network-test-" + std::to_string(::getpid()));
  const NetworkProfile profile_{"",
                                "a machine",
                                "grpc",
                                bytes(1000),
                                {{"a",
                                  "b",
                                  {seconds(1e-4), bytes_per_second(1e8)},
                                  {seconds(3e-4), bytes_per_second(9e7)},
                                  {1e-9, 2e-9, 0.05, 3e-4, 0.015, 5e-9},
                                  0.1,
                                  {},
                                  seconds(0.02),
                                  true}}};
};

Cluster two_hosts() {
  Cluster cluster;
  cluster.hosts = {{"a", false}, {"b", false}, {"sw", true}};
  cluster.links = {{"a-sw", HostId(0), HostId(2), bytes_per_second(1.25e8), seconds(50e-6), true},
                   {"b-sw", HostId(1), HostId(2), bytes_per_second(2.5e8), seconds(70e-6), true}};
  cluster.handshake = seconds(1e-3);
  return cluster;
}

TEST_F(Network, SurvivesItsFile) {
  ASSERT_TRUE(write_network_profile(path_, profile_).ok());
  const auto read = read_network_profile(path_);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(read->machine, "a machine");
  EXPECT_EQ(read->transport, "grpc");
  EXPECT_EQ(read->eager_limit, bytes(1000));
  ASSERT_EQ(read->routes.size(), 1u);
  EXPECT_EQ(read->routes[0].eager, profile_.routes[0].eager);
  EXPECT_EQ(read->routes[0].rendezvous, profile_.routes[0].rendezvous);
  EXPECT_EQ(read->routes[0].overheads, profile_.routes[0].overheads);
  EXPECT_EQ(read->routes[0].clear_to_send_delay, seconds(0.02));
  EXPECT_TRUE(read->routes[0].starts_early);
}

TEST_F(Network, SaysWhatAMedianIsOf) {
  NetworkProfile profile = profile_;
  profile.routes.push_back(profile_.routes[0]);
  profile.routes[1].to = "c";
  profile.routes[1].median_of = {{"a", "b"}};
  ASSERT_TRUE(write_network_profile(path_, profile).ok());
  const NetworkProfile read = value_of(read_network_profile(path_));
  ASSERT_EQ(read.routes.size(), 2u);
  EXPECT_TRUE(read.routes[0].median_of.empty());
  EXPECT_EQ(read.routes[1].median_of, profile.routes[1].median_of);
  // It has to be of routes that were measured.
  for (const RouteEnds& wrong : {RouteEnds{"a", "c"}, RouteEnds{"b", "a"}}) {
    profile.routes[1].median_of = {{"a", "b"}, wrong};
    ASSERT_TRUE(write_network_profile(path_, profile).ok());
    EXPECT_EQ(read_network_profile(path_).error().message,
              fmt::format("{}: from 'a' to 'c': the median of '{}' to '{}', which the file did not measure", path_,
                          wrong.from, wrong.to));
  }
}

// A GPU on `a` behind 2.5e7 B/s, which is less than the network has.
TEST_F(Network, BusesAddToWhatWasMeasuredBetweenTheirHosts) {
  Cluster cluster = two_hosts();
  cluster.hosts.push_back({"a.G", false, HostId(0)});
  cluster.links.push_back({"a.G-a", HostId(3), HostId(0), bytes_per_second(2.5e7), seconds(10e-6), true});
  cluster.inner = {{2, 1}, {}, {}, {}};
  cluster.inner_links = 1;
  apply(profile_, cluster);
  const Route route = find_route(cluster, HostId(3), HostId(1)).value();
  EXPECT_DOUBLE_EQ(route.eager.latency.value(), 1e-4 + 10e-6);
  EXPECT_EQ(route.eager.bandwidth, bytes_per_second(2.5e7));
  EXPECT_DOUBLE_EQ(route.rendezvous.latency.value(), 3e-4 + 10e-6);
  EXPECT_EQ(route.overheads, profile_.routes[0].overheads);
  const Route within = find_route(cluster, HostId(3), HostId(0)).value();
  EXPECT_DOUBLE_EQ(within.eager.latency.value(), 10e-6);
  EXPECT_EQ(find_route(cluster, HostId(1), HostId(3)).error().message.find(" has no measurement of messages"), 0u);
}

TEST_F(Network, ReplacesWhatLinksSay) {
  Cluster cluster = two_hosts();
  const Route by_links = find_route(cluster, HostId(0), HostId(1)).value();
  EXPECT_EQ(by_links.eager, (MessageCost{seconds(50e-6) + seconds(70e-6), bytes_per_second(1.25e8)}));
  EXPECT_EQ(by_links.rendezvous.bandwidth, by_links.eager.bandwidth);
  EXPECT_DOUBLE_EQ(by_links.rendezvous.latency.value(), 1.12e-3);
  apply(profile_, cluster);
  EXPECT_EQ(cluster.eager_limit, bytes(1000));
  const Route measured = find_route(cluster, HostId(0), HostId(1)).value();
  EXPECT_EQ(measured.eager, profile_.routes[0].eager);
  EXPECT_EQ(measured.rendezvous, profile_.routes[0].rendezvous);
  EXPECT_TRUE(measured.starts_early);
  EXPECT_EQ(measured.narrowest, bytes_per_second(1.25e8)) << "the link is what others share";
  const auto back = find_route(cluster, HostId(1), HostId(0));
  ASSERT_FALSE(back.ok());
  EXPECT_THAT(back.error().message, HasSubstr("no measurement of messages from host 'b' to host 'a'"));
}

TEST_F(Network, WaysThatMeetShareWhatBothCarryAtOnce) {
  NetworkProfile profile = profile_;
  profile.routes[0].crossing = bytes_per_second(8e7);
  profile.routes.push_back(profile.routes[0]);
  std::swap(profile.routes[1].from, profile.routes[1].to);
  ASSERT_TRUE(write_network_profile(path_, profile).ok());
  Cluster cluster = two_hosts();
  apply(value_of(read_network_profile(path_)), cluster);
  ASSERT_EQ(cluster.links.size(), 3u);
  const Link& meeting = cluster.links[2];
  EXPECT_EQ(meeting.name, "a<>b");
  EXPECT_EQ(meeting.bandwidth, bytes_per_second(1.6e8));
  EXPECT_FALSE(meeting.full_duplex);
  for (const auto& [from, to] : {std::pair{HostId(0), HostId(1)}, {HostId(1), HostId(0)}}) {
    const Route route = find_route(cluster, from, to).value();
    ASSERT_EQ(route.hops.size(), 3u);
    EXPECT_EQ(route.hops[2], (Hop{LinkId(2), true}));
    EXPECT_EQ(route.rendezvous.bandwidth, bytes_per_second(9e7)) << "alone it has its own";
  }
}

TEST_F(Network, OfOtherHostsIsNoMatter) {
  Cluster cluster = two_hosts();
  NetworkProfile other = profile_;
  other.routes[0].to = "elsewhere";
  other.routes.push_back(profile_.routes[0]);
  other.routes[1].from = "nowhere";
  other.routes.push_back(profile_.routes[0]);
  apply(other, cluster);
  EXPECT_TRUE(find_route(cluster, HostId(0), HostId(1)).ok());
}

TEST_F(Network, NonsenseIsRefused) {
  EXPECT_FALSE(read_network_profile("/nowhere/at/all.json").ok());
  EXPECT_THAT(refusal("{"), HasSubstr(path_));
  EXPECT_THAT(refusal("{}"), HasSubstr("format"));
  EXPECT_THAT(refusal(R"({"format": "nlsplit-profile", "version": 1})"),
              HasSubstr("not the measurements of a network"));
  const std::string head = R"({"format": "nlsplit-network", "version": 4, "machine": "m", "eager_limit_bytes": )";
  EXPECT_THAT(refusal(head + R"(-1, "ways": []})"), HasSubstr("an eager limit of -1"));
  const auto way = [](const std::string& latency, const std::string& bandwidth) {
    return R"({"from": "a", "to": "b", "largest_error": 0, "crossing_bytes_per_s": 0, "clear_to_send_delay_s": 0.5, "overheads": {"sender_s_per_byte": 0, "receiver_s_per_byte": 0, "slowed": 0, "busy_s": 0, "held_s": 0, "handover_s_per_byte": 0}, "rendezvous": {"latency_s": 0, "bytes_per_s": 1}, "eager": {"latency_s": )" +
           latency + R"(, "bytes_per_s": )" + bandwidth + "}}";
  };
  EXPECT_EQ(refusal(head + "0, \"ways\": [" + way("0", "1") + "]}"), "");
  EXPECT_THAT(refusal(head + "0, \"ways\": [" + way("-1", "1") + "]}"), HasSubstr("from 'a' to 'b': a negative time"));
  EXPECT_THAT(refusal(head + "0, \"ways\": [" + way("0", "0") + "]}"), HasSubstr("no bandwidth"));
  for (const char* key : {"largest_error", "crossing_bytes_per_s", "clear_to_send_delay_s", "sender_s_per_byte",
                          "receiver_s_per_byte", "slowed", "busy_s", "held_s", "handover_s_per_byte"}) {
    std::string bad = way("0", "1");
    bad.insert(bad.find(key) + std::string_view(key).size() + 3, "-1");  // -10 or -10.5
    EXPECT_THAT(refusal(head + "0, \"ways\": [" + bad + "]}"), HasSubstr("from 'a' to 'b': a negative time")) << key;
  }
  std::string slow = way("0", "1");
  slow.replace(slow.find("\"bytes_per_s\": 1"), 16, "\"bytes_per_s\": 0");  // of the rendezvous
  EXPECT_THAT(refusal(head + "0, \"ways\": [" + slow + "]}"), HasSubstr("no bandwidth"));
  std::string beyond = way("0", "1e999");
  EXPECT_THAT(refusal(head + "0, \"ways\": [" + beyond + "]}"), HasSubstr("number overflow"));
  EXPECT_THAT(refusal(head + "0, \"ways\": [" + way("0", "1") + "," + way("0", "1") + "]}"), HasSubstr("twice"));
  EXPECT_NE(refusal(head + "0, \"ways\": [{}]}"), "");
  std::string median = way("0", "1");
  median.insert(1, R"("median_of": [{"from": "a"}], )");
  EXPECT_THAT(refusal(head + "0, \"ways\": [" + median + "]}"), HasSubstr("key 'to' not found"));
}

}  // namespace
}  // namespace nlsplit
