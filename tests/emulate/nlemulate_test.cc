// nlemulate as a user meets it: links measured by a program that knows nothing of it, exit codes, and nothing left.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

#include "emulate/private_etc.h"
#include "testing/paths.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// b is in the middle: from a to c it is 200 Mbit/s and 1.1 ms.
constexpr const char* three_hosts = R"(model: zoo:simple_cnn
workload: {mode: inference, batch: 4, micro_batches: 2}
devices:
  A: &device {host: a, memory: 64MiB, isa: v2, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}}
  B: {<<: *device, host: b}
  C: {<<: *device, host: c}
links:
  - {between: [a, b], bandwidth: 1Gbps, latency: 100us}
  - {between: [b, c], bandwidth: 200Mbps, latency: 1ms}
source: a
sink: c
plans: {backwards: [..relu1@C, rest@A]}
)";

std::string program(const char* name) { return fmt::format("{}/{}", NLS_BIN_DIR, name); }

class Nlemulate : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "namespaces and signals have not been tried under a sanitizer; the switch's arithmetic is";
#endif
    const Outcome outcome = run("");
    if (outcome.code != 0) GTEST_SKIP() << outcome.err;
  }
  // The outer process cannot start others once the sandbox is gone, not even a leak checker.
  Outcome run(const std::string& arguments) const {
    return run_command(fmt::format("ASAN_OPTIONS=detect_leaks=0 {} {} {}", program("nlemulate"), scenario_, arguments));
  }
  Scratch scratch_;
  std::string scenario_ = scratch_.write("s.yaml", three_hosts);
};

struct Measured {
  double shortest_us = 0, median_us = 0, bytes_per_s = 0;
};

// What the shortest round trip costs beyond the links: six times someone is woken, 10 us each on a core that is awake,
// 40 on one that sleeps. Longer ones tell how busy the machine is.
constexpr double round_trip_slack_us = 300;
constexpr double bandwidth_slack = 0.03;
constexpr int attempts = 4;

struct Wanted {
  const char *from, *to;
  double round_trip_us, bytes_per_s;
};

TEST_F(Nlemulate, LinksHaveTheirBandwidthAndLatency) {
  const std::vector<Wanted> links = {{"a", "b", 200, 125e6}, {"b", "c", 2000, 25e6}, {"a", "c", 2200, 25e6}};
  for (const Wanted& link : links) {
    Measured best;
    bool fits = false;
    for (int attempt = 0; attempt < attempts && !fits; ++attempt) {
      const std::string probe = program("link_probe");
      const Outcome outcome = run(fmt::format("--on {} -- sh -c 'on {} {} serve & {} {} 100 {:.0f}'", link.from,
                                              link.to, probe, probe, link.to, 0.4 * link.bytes_per_s));
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(" 0 lost"));
      Measured now;
      ASSERT_EQ(std::sscanf(outcome.out.c_str(), "shortest_us %lf median_us %lf bytes_per_s %lf", &now.shortest_us,
                            &now.median_us, &now.bytes_per_s),
                3)
          << outcome.out;
      // Faster than the link is wrong, however busy the machine.
      EXPECT_GE(now.shortest_us, link.round_trip_us) << link.from << " to " << link.to;
      EXPECT_LE(now.bytes_per_s, link.bytes_per_s * 1.01) << link.from << " to " << link.to;
      fits = now.shortest_us <= link.round_trip_us + round_trip_slack_us &&
             now.bytes_per_s >= link.bytes_per_s * (1 - bandwidth_slack);
      best = now;
    }
    EXPECT_TRUE(fits) << link.from << " to " << link.to << ": last of " << attempts << " attempts " << best.shortest_us
                      << " us (median " << best.median_us << "), " << best.bytes_per_s << " byte/s";
  }
}

// Two hosts at a switch, whose cables have 200 and 50 Mbit/s.
constexpr const char* two_hosts_at_a_switch = R"(model: zoo:simple_cnn
workload: {mode: inference, batch: 4, micro_batches: 2}
devices:
  A: &device {host: a, memory: 64MiB, isa: v2, costs: {roofline: {compute: 10GFLOPS, memory: 10GBps}}}
  B: {<<: *device, host: b}
switches: [sw]
links: [{between: [a, sw], bandwidth: 200Mbps, latency: 1ms}, {between: [b, sw], bandwidth: 50Mbps, latency: 1ms}]
source: a
sink: a
)";

// What a frame has room for: 1448 of 1514 bytes.
TEST_F(Nlemulate, TheKernelShapesLinksToo) {
  const std::string scenario = scratch_.write("star.yaml", two_hosts_at_a_switch);
  const auto run_kernel = [&](const std::string& more) {
    return run_command(fmt::format("{} {} --links kernel {}", program("nlemulate"), scenario, more));
  };
  const std::string probe = program("link_probe");
  Outcome outcome;
  Measured best;
  for (int attempt = 0; attempt < attempts && best.bytes_per_s < 0.93 * 6.25e6; ++attempt) {
    outcome = run_kernel(fmt::format("--on a -- sh -c 'on b {} serve & {} b 100 4000000'", probe, probe));
    if (outcome.err.find("CONFIG_NET_SCH_TBF") != std::string::npos) GTEST_SKIP() << outcome.err;
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    ASSERT_EQ(std::sscanf(outcome.out.c_str(), "shortest_us %lf median_us %lf bytes_per_s %lf", &best.shortest_us,
                          &best.median_us, &best.bytes_per_s),
              3)
        << outcome.out;
    EXPECT_LE(best.bytes_per_s, 0.97 * 6.25e6);
    EXPECT_LT(best.shortest_us, 2000);  // its latency is none of the scenario's
  }
  EXPECT_GE(best.bytes_per_s, 0.93 * 6.25e6);
  EXPECT_THAT(outcome.err, HasSubstr("over the kernel's token buckets"));
  EXPECT_EQ(run_kernel("--cut a,sw@1s -- true").code, 2);
  EXPECT_EQ(run_kernel("--loss 1 -- true").code, 2);
  EXPECT_EQ(run_kernel("--loopback -- true").code, 2);
  const Outcome chain = run("--links kernel -- true");
  EXPECT_EQ(chain.code, 2);
  EXPECT_THAT(chain.err, HasSubstr("host 'b' "));
}

TEST_F(Nlemulate, LosesPacketsAsToldAndTcpSendsThemAgain) {
  const std::string probe = program("link_probe");
  const Outcome outcome = run(fmt::format("--loss 2 --on a -- sh -c 'on b {} serve & {} b 200 1000000'", probe, probe));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(" dropped on purpose"));  // 8 of 400 are expected: none has a chance of 0.0003
  EXPECT_EQ(run("--loss 101 -- true").code, 2);
  EXPECT_EQ(run("--loopback --loss 1 -- true").code, 2);
}

TEST_F(Nlemulate, TheExitCodeIsTheCommands) {
  EXPECT_EQ(run("-- sh -c 'exit 7'").code, 7);
  EXPECT_EQ(run("-- sh -c 'kill -9 $$'").code, 128 + 9);
  EXPECT_EQ(run("-- /no/such/program").code, 127);
  const Outcome unknown = run("--on d -- true");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no host 'd' in the scenario; it has a, b, c"));
}

TEST_F(Nlemulate, HostsAreMachinesOfTheirOwn) {
  const Outcome outcome = run("--quiet --on b -- sh -c 'hostname; on c hostname; getent hosts a'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ::testing::MatchesRegex("b\nc\n10.133.0.1 +a\n"));
  EXPECT_EQ(outcome.err, "");
}

TEST(PrivateEtc, KeepsAllLinesButThatOfHosts) {
  EXPECT_EQ(only_hosts_file("passwd: files systemd\n hosts: dns\nnetworks: files"),
            "hosts: files\npasswd: files systemd\nnetworks: files\n");
  EXPECT_EQ(only_hosts_file(""), "hosts: files\n");
}

// As on a fresh Debian: no such file, or one that only root can write to, and a name server that nobody can reach.
TEST_F(Nlemulate, HostsHaveNamesWithoutAnEtcHosts) {
  const std::string etc = scratch_ / "etc";
  const Outcome copied = run_command(fmt::format(
      "cp -a /etc {0} && rm -f {0}/hosts {0}/resolv.conf && echo nameserver 192.0.2.1 > {0}/resolv.conf", etc));
  if (copied.code != 0) GTEST_SKIP() << "/etc cannot be copied: " << copied.err;
  const bool has_one = std::filesystem::exists("/etc/hosts");
  const std::string unshare = fmt::format("unshare {} --mount", ::geteuid() == 0 ? "" : "--map-root-user");
  if (has_one && run_command(unshare + " true").err.find("propagation") != std::string::npos)
    GTEST_SKIP() << "in a chroot unshare cannot make a private /etc";
  const auto without = [&](const std::string& more, const std::string& command) {
    if (!has_one) {
      return run_command(fmt::format("sh -c '{} --quiet {} {} -- {}'", program("nlemulate"), scenario_, more, command));
    }
    return run_command(fmt::format("{} sh -c 'mount --bind {} /etc && {} {} {} --quiet {} -- {}'", unshare, etc,
                                   "! test -e /etc/hosts && PATH=$PATH:/usr/sbin", program("nlemulate"), scenario_,
                                   more, command));
  };
  const Outcome names = without("--on b", "getent hosts a localhost && test -e /etc/passwd");
  EXPECT_EQ(names.code, 0) << names.err;
  EXPECT_THAT(names.out, ::testing::MatchesRegex("10.133.0.1 +a\n127.0.0.1 +localhost\n"));
#ifdef NLS_HAS_MPI
  const auto begin = std::chrono::steady_clock::now();
  const Outcome ranks = without("--ranks-on a,c", "hostname");
  EXPECT_EQ(ranks.code, 0) << ranks.err;
  EXPECT_THAT(ranks.out, ::testing::AllOf(HasSubstr("a\n"), HasSubstr("c\n")));
  // One name that is asked of the server takes ten seconds, and Open MPI asks for ten.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
#endif
}

// The network namespaces of the processes whose command line holds the word.
std::set<std::string> namespaces_of(const std::string& word) {
  std::set<std::string> found;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto line = read_file(entry.path() / "cmdline");
    if (!line.ok() || line->find(word) == std::string::npos) continue;
    found.insert(fs::read_symlink(entry.path() / "ns/net", failure));
  }
  return found;
}

bool anyone_in(const std::set<std::string>& namespaces) {
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = fs::read_symlink(entry.path() / "ns/net", failure);
    if (!failure && namespaces.contains(name)) return true;
  }
  return false;
}

template <class Condition>
bool within_seconds(double limit, const Condition& condition) {
  const auto begin = std::chrono::steady_clock::now();
  while (!condition()) {
    if (std::chrono::steady_clock::now() - begin > std::chrono::duration<double>(limit)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// One process on each host, in sessions of their own so that nothing but the sandbox's end reaches them.
TEST_F(Nlemulate, NothingIsLeftHoweverItEnds) {
  for (const int signal : {SIGKILL, SIGTERM, SIGINT}) {
    const std::string naps = fmt::format("{}.{}", 70'000 + ::getpid() % 10'000, signal);
    const std::string temporary = scratch_ / fmt::format("tmp{}", signal);
    fs::create_directories(temporary);
    const std::string inside =
        fmt::format("on b setsid sleep {0} & on c setsid sleep {0} & touch $TMPDIR/x; exec sleep {0}", naps);
    const pid_t child = ::fork();
    if (child == 0) {
      const int nowhere = ::open("/dev/null", O_WRONLY);  // who is left must not hold up a reader of our output
      ::dup2(nowhere, STDOUT_FILENO);
      ::dup2(nowhere, STDERR_FILENO);
      ::setenv("TMPDIR", temporary.c_str(), 1);
      ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
      const std::string nlemulate = program("nlemulate");
      ::execl(nlemulate.c_str(), nlemulate.c_str(), "--quiet", scenario_.c_str(), "--", "sh", "-c", inside.c_str(),
              nullptr);
      ::_exit(127);
    }
    const std::string word = std::string("sleep") + '\0' + naps;
    std::set<std::string> namespaces;
    EXPECT_TRUE(within_seconds(10, [&] { return (namespaces = namespaces_of(word)).size() == 3; }));
    ::kill(child, signal);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), 128 + signal);
    EXPECT_TRUE(within_seconds(5, [&] { return namespaces_of(word).empty(); })) << "signal " << signal;
    EXPECT_TRUE(within_seconds(5, [&] { return !anyone_in(namespaces); })) << "signal " << signal;
    EXPECT_TRUE(fs::is_empty(temporary)) << "signal " << signal;
    EXPECT_FALSE(fs::exists("/dev/shm/nlsplit"));
  }
}

#ifdef NLS_HAS_MPI

TEST_F(Nlemulate, RanksAreOnTheHostsNamed) {
  const Outcome outcome = run("--ranks-on c,a,c -- sh -c 'echo rank $OMPI_COMM_WORLD_RANK $(hostname)'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char* line : {"rank 0 c\n", "rank 1 a\n", "rank 2 c\n"}) EXPECT_THAT(outcome.out, HasSubstr(line));
}

TEST_F(Nlemulate, APlanRunsOnItsDevicesHosts) {
  const std::string plan = scenario_ + " --plan backwards";
  // The source a feeds device C, whose answers come back to A and go on to the sink c.
  const Outcome hosts = nlbench("run " + plan + " --hosts");
  EXPECT_EQ(hosts.code, 0) << hosts.err;
  EXPECT_EQ(hosts.out, "c\na\n");
  const Outcome outcome = run("-- nlbench run " + plan + " --check --repeats 2");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 devices (mpi)"));
  EXPECT_THAT(outcome.out, HasSubstr("bit for bit"));
  EXPECT_THAT(outcome.err, HasSubstr(" 0 lost"));
  EXPECT_EQ(run("-- nlbench run " + scenario_ + " --plan nobodys").code, 2);
}

TEST_F(Nlemulate, SessionsAndTrainingsRunOnTheirDevicesHosts) {
  std::string training = three_hosts;
  training.replace(training.find("mode: inference"), 15, "mode: training");
  training.replace(training.find("sink: c"), 7, "sink: a");
  scenario_ = scratch_.write("t.yaml", training);
  const Outcome trained = run("-- nlbench train " + scenario_ + " --plan backwards --steps 2");
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("step 2 of 2"));

  training.replace(training.find("workload: "), 10, "programs:\n  step: ");
  scenario_ = scratch_.write("p.yaml", training);
  EXPECT_EQ(nlbench("session " + scenario_ + " --plan backwards" + " --sequence step --hosts").out, "c\na\n");
  const Outcome session = run("-- nlbench session " + scenario_ + " --plan backwards" + " --sequence 'step*2'");
  EXPECT_EQ(session.code, 0) << session.err;
  EXPECT_THAT(session.out, HasSubstr("2 executions on 2 devices"));
}

TEST_F(Nlemulate, LoopbackRunsTheSameWithoutTheLinks) {
  const Outcome outcome = run("--loopback -- nlbench run " + scenario_ + " --plan backwards --check --repeats 2");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("2 devices (mpi)"));
}

#endif

}  // namespace
}  // namespace nlsplit
