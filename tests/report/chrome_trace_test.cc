#include "report/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program/text.h"

namespace nlsplit {
namespace {

// One layer on A, whose result goes to host b.
constexpr std::string_view program_text = R"(nlsplit program 1
program tiny batch 2 micro_batches 1

device A cpu host a isa v2 memory 1048576
  buffer x f32[2,3] input
  buffer y f32[2,3] comm
  segment F stage 0 shard 0 phase F
    y = Relu(x) kernel unary_v2 as "act"
    send y to H tag 1
  order
    F.0

device H host host b memory 1048576
  buffer y f32[2,3] output
  segment F stage 1 shard 0 phase F
    recv y from A tag 1
  order
    F.0
)";

TEST(ChromeTrace, OfATinyProgram) {
  const auto program = parse_program(program_text, "tiny.nls");
  ASSERT_TRUE(program.ok()) << program.error().to_string();
  Trace trace;
  trace.fingerprint = 0xabc;
  trace.makespan = 5e-6;
  trace.spans = {{0, 0, 0, 0, 2e-6}, {0, 0, 1, 2e-6, 4e-6}, {1, 0, 0, 0, 5e-6}};
  using nlohmann::json;
  const json got = json::parse(chrome_trace(*program, trace));
  EXPECT_EQ(got.at("displayTimeUnit"), "ms");
  EXPECT_EQ(got.at("otherData"),
            json::parse(R"({"program": "tiny", "fingerprint": "0000000000000abc", "makespan_s": 5e-6})"));
  // process and thread names first, then complete events in microseconds
  std::string lines;
  for (const json& e : got.at("traceEvents")) {
    if (e.at("ph") == "M") {
      lines += e.at("name").get<std::string>() + " " + e.at("pid").dump() + "." + e.at("tid").dump() + " " +
               e.at("args").at("name").get<std::string>() + "\n";
      continue;
    }
    EXPECT_EQ(e.at("ph"), "X");
    lines += e.at("cat").get<std::string>() + " " + e.at("pid").dump() + "." + e.at("tid").dump() + " '" +
             e.at("name").get<std::string>() + "' " + e.at("ts").dump() + "+" + e.at("dur").dump() + " " +
             e.at("args").at("slot").get<std::string>() + " m" + e.at("args").at("micro_batch").dump() +
             (e.at("args").contains("bytes") ? " " + e.at("args").at("bytes").dump() + " B" : "") + "\n";
  }
  EXPECT_EQ(lines,
            "process_name 0.0 A on a\n"
            "thread_name 0.0 compute\n"
            "process_name 1.0 H on b\n"
            "thread_name 1.0 compute\n"
            "compute 0.0 'act' 0.0+2.0 F.0 m0\n"
            "thread_name 0.1 send to H\n"
            "send 0.1 'send y' 2.0+2.0 F.0 m0 24 B\n"
            "thread_name 1.1 receive from A\n"
            "recv 1.1 'recv y' 0.0+5.0 F.0 m0 24 B\n");
}

}  // namespace
}  // namespace nlsplit
