// Other runtimes' profiles: operators are in order and apart from each other, and their times are dealt out once.
#include <cmath>
#include <cstdint>

#include "fuzz/files.h"
#include "graph/graph.h"
#include "traces/match.h"

namespace nlsplit::fuzz {
namespace {

const Graph& network() {
  static const Graph graph = *parse_graph(R"(graph "g"
input %x f32[2,8]
weight %w f32[8,8] content 1
%a f32[2,8] = MatMul(%x, %w) as "a"
%b f32[2,8] = Relu(%a) as "b"
%c f32[2,8] = MatMul(%b, %w) as "c"
%y f32[2,8] = Relu(%c) as "d"
output %y
)",
                                          "network");
  return graph;
}

void look_at(const Matched& matched) {
  const double all = matched.by_name + matched.by_order + matched.beside + matched.not_matched;
  expect(all == 0 || std::abs(all - 1) < 1e-6 || !std::isfinite(all), "each event is of one kind");
  for (const SizeTimes& size : matched.sizes) {
    expect(size.batch >= 1 && size.run_s.size() == size.between_s.size(), "each execution has a time");
    expect(size.nodes.size() == network().nodes.size(), "all nodes are there");
    for (const auto& times : size.nodes)
      expect(times.empty() || times.size() == size.run_s.size(), "a node has a time in each execution, or in none");
  }
}

void look_at(const OperatorTrace& trace) {
  expect(!trace.runs.empty(), "a trace has executions");
  for (const ProfiledRun& run : trace.runs) {
    expect(run.seconds >= 0, "no execution ends before it begins");
    for (size_t e = 1; e < run.events.size(); ++e)
      expect(run.events[e - 1].start_s <= run.events[e].start_s, "operators are in order");
    for (const OperatorTime& event : run.events) expect(event.seconds >= 0, "no operator ends before it begins");
  }
  for (const MatchOptions options : {MatchOptions{0, 0}, MatchOptions{0, 1}, MatchOptions{4, 0}}) {
    const auto matched = match({trace}, network(), options);
    if (accepted(matched)) look_at(*matched);
  }
}

}  // namespace
}  // namespace nlsplit::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("trace");
  const std::string path = folder.write("t", text_of(data, size));
  for (const auto& trace :
       {read_ort_trace(path), read_torch_trace(path, ""), read_torch_trace(path, "run"), read_nsys_trace(path, ""),
        read_nsys_trace(path, "run"), read_nsys_csv(path, ""), read_nsys_csv(path, "run")}) {
    if (accepted(trace)) look_at(*trace);
  }
  return 0;
}
