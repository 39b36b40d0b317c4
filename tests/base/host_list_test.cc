#include "base/host_list.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::string error_of(const Result<T>& result) {
  return result.ok() ? "none" : result.error().to_string();
}

TEST(Hostfile, ReadsOpenMpisAndMpichs) {
  EXPECT_THAT(value_of(parse_hostfile("# two racks\na slots=4 max_slots=8\n\n  b\t slots=2 # slow\r\nc:3\nd", "hosts")),
              ElementsAre(ListedHost{"a", 4}, ListedHost{"b", 2}, ListedHost{"c", 3}, ListedHost{"d", 0}));
}

// A line for each rank is what `nlsim hostfile` prints.
TEST(Hostfile, ANameThatComesAgainIsTheSameHost) {
  EXPECT_THAT(value_of(parse_hostfile("a\nb\na\n", "hosts")), ElementsAre(ListedHost{"a", 0}, ListedHost{"b", 0}));
  EXPECT_THAT(value_of(parse_hostfile("a slots=2\nb\na slots=1\nb:4\n", "hosts")),
              ElementsAre(ListedHost{"a", 3}, ListedHost{"b", 0}));
}

TEST(Hostfile, ErrorsNameTheLine) {
  EXPECT_THAT(error_of(parse_hostfile("a\nb cores=4\n", "hosts")),
              HasSubstr("hosts:2: 'cores=4' is neither slots=N nor max_slots=N\n  | b cores=4"));
  EXPECT_THAT(error_of(parse_hostfile("a slots=0", "hosts")),
              HasSubstr("hosts:1: 'slots=0': '0' is not a number from 1"));
  EXPECT_THAT(error_of(parse_hostfile("a:x", "hosts")), HasSubstr("hosts:1: 'a:x'"));
  EXPECT_THAT(error_of(parse_hostfile("a\n\nme@b", "hosts")), HasSubstr("hosts:3: 'me@b': a user's name"));
  EXPECT_THAT(error_of(parse_hostfile("-x", "hosts")), HasSubstr("hosts:1: '-x' cannot be the name of a host"));
  EXPECT_THAT(error_of(parse_hostfile("# nobody\n", "hosts")), HasSubstr("hosts: no host in it"));
  std::string many;
  for (size_t i = 0; i <= most_listed_hosts; ++i) many += fmt::format("h{}\n", i);
  EXPECT_THAT(error_of(parse_hostfile(many, "hosts")), HasSubstr("hosts:4097: more than 4096 hosts"));
}

TEST(Hosts, ComeWithCommas) {
  EXPECT_THAT(value_of(parse_hosts("a,b.lan", "--hosts")), ElementsAre(ListedHost{"a"}, ListedHost{"b.lan"}));
  EXPECT_THAT(error_of(parse_hosts("a,b,a", "--hosts")), HasSubstr("--hosts: 'a' twice"));
  EXPECT_THAT(error_of(parse_hosts("a b", "--hosts")), HasSubstr("--hosts: 'a b' cannot be the name of a host"));
  EXPECT_THAT(error_of(parse_hosts(",", "--hosts")), HasSubstr("--hosts: no host in it"));
}

TEST(SlurmNodes, AreExpandedAsScontrolDoes) {
  EXPECT_THAT(value_of(parse_slurm_nodes("n[01-03,7],gpu2", "X")), ElementsAre("n01", "n02", "n03", "n7", "gpu2"));
  EXPECT_THAT(value_of(parse_slurm_nodes("r[1-2]n[08-10]-ib", "X")),
              ElementsAre("r1n08-ib", "r1n09-ib", "r1n10-ib", "r2n08-ib", "r2n09-ib", "r2n10-ib"));
  EXPECT_THAT(value_of(parse_slurm_nodes("n[0-1],m[9-10]", "X")), ElementsAre("n0", "n1", "m9", "m10"));
  EXPECT_THAT(value_of(parse_slurm_nodes("login", "X")), ElementsAre("login"));
}

TEST(SlurmNodes, AreBoundedAndCheckedAsAWhole) {
  for (const char* text : {"", ",", "a,", "n[", "n]", "n[1", "n[]", "n[2-1]", "n[a-b]", "n[1-2-3]", "n[-1]", "a,a",
                           "n[1,1]", "n[0-4096]", "n[0-99][0-99]", "n[0-4294967296]", "a b", "n[1-2],n2",
                           "n[0000000000000000000000000000000000000000000000000000000000000000000000000001]"})
    EXPECT_FALSE(parse_slurm_nodes(text, "X").ok()) << text;
  EXPECT_THAT(error_of(parse_slurm_nodes("n[0-9", "SLURM_JOB_NODELIST")),
              HasSubstr("SLURM_JOB_NODELIST 'n[0-9': no ']' for '[' at character 2"));
}

TEST(SlurmCounts, AreRepeated) {
  EXPECT_THAT(value_of(parse_slurm_counts("4(x3),2", "X")), ElementsAre(4, 4, 4, 2));
  EXPECT_THAT(value_of(parse_slurm_counts("16", "X")), ElementsAre(16));
  for (const char* text : {"", "x", "4(x", "4(x0)", "4(3)", "-1", "4(x5000)"})
    EXPECT_FALSE(parse_slurm_counts(text, "X").ok()) << text;
}

}  // namespace
}  // namespace nlsplit
