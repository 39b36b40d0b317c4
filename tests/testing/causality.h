// No effect before its cause: what every trace of an execution must satisfy.
#pragma once

#include <gtest/gtest.h>

#include "program/dependencies.h"
#include "program/trace.h"

namespace nlsplit::testing {

// `slack`: seconds by which clocks of two devices, or rounding, may be apart. Not for online runs, whose order differs.
inline void expect_causal(const Program& program, const Trace& trace, double slack = 1e-9) {
  const auto deps = dependencies(program);
  ASSERT_TRUE(deps.ok()) << deps.error().to_string();
  ASSERT_EQ(trace.spans.size(), deps->instances.size());
  const auto name = [&](uint32_t i) { return describe_instance(program, deps->instances[i]); };
  std::vector<uint32_t> last_computation(program.devices.size(), no_instance);
  for (uint32_t i = 0; i < trace.spans.size(); ++i) {
    const Span& span = trace.spans[i];
    const Opcode opcode = instr_of(program, deps->instances[i]).opcode;
    EXPECT_GE(span.start, 0) << name(i);
    EXPECT_GE(span.finish, span.start) << name(i);
    if (opcode == Opcode::send) {
      EXPECT_GE(trace.spans[deps->match[i]].finish, span.start - slack) << name(i) << " arrives before it is sent";
    }
    for (const Edge& edge : deps->into(i)) {
      // Receives are posted ahead of the ends of those before.
      if (edge.kind == EdgeKind::stream && opcode == Opcode::recv) continue;
      EXPECT_GE(span.start, trace.spans[edge.from].finish - slack)
          << name(i) << " begins before the end of " << name(edge.from);
    }
    if (is_transfer(opcode)) continue;
    uint32_t& before = last_computation[static_cast<size_t>(span.device)];
    if (before != no_instance) {
      EXPECT_GE(span.start, trace.spans[before].finish - slack) << name(i);
    }
    before = i;
  }
}

}  // namespace nlsplit::testing
