#include "server/load_client.h"

#include <gtest/gtest.h>

#include "testing/value_of.h"

namespace nlsplit {
namespace {

TEST(LoadClient, SaysTheHostAsUrlsDo) {
  for (const char* host : {"localhost:8080", "10.0.0.1:80", "[::1]:8080", "[fe80::1]:80"}) {
    EXPECT_EQ(host_and_port(value_of(parse_url(std::string("http://") + host))), host);
    EXPECT_EQ(host_and_port(value_of(parse_url(std::string("http://") + host + "/below/"))), host);
  }
  EXPECT_EQ(host_and_port(value_of(parse_url("http://[::1]"))), "[::1]:80");
  EXPECT_EQ(value_of(parse_url("http://[::1]:8080")).host, "::1");  // as resolvers take it
}

}  // namespace
}  // namespace nlsplit
