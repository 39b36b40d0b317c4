// The text form of graphs: what is accepted prints back, has costs, takes another batch, goes through
// the passes, and is executed before and after them.
#include <cstdint>
#include <string_view>

#include "fuzz/execute.h"
#include "fuzz/files.h"
#include "fuzz/mutate.h"
#include "graph/graph.h"
#include "graph/passes/passes.h"
#include "graph/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  const auto graph = parse_graph(text_of(data, size), "fuzz");
  if (!accepted(graph)) return 0;
  const auto again = parse_graph(to_string(*graph), "again");
  expect(again.ok() && *again == *graph, "the text form says it all");
  expect(parse_graph(to_string(*graph, true), "costs").ok(), "costs are comments");
  if (const auto batched = with_batch(*graph, 3); accepted(batched))
    expect(verify(*batched).ok(), "another batch gives a sound graph");
  WeightStore weights;
  const auto optimized = optimize(*graph, weights);  // which verifies after every pass
  const uint64_t seed = seed_of(text_of(data, size));
  if (accepted(optimized)) execute_graph(*optimized, nullptr, seed);
  execute_graph(*graph, nullptr, seed);
  return 0;
}
