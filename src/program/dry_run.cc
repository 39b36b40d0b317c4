#include <fmt/format.h>

#include <algorithm>

#include "program/verify.h"

namespace nlsplit::inline program {
namespace {

// Who an unfinished instance waits for: an unfinished predecessor, else (a transfer) its partner.
uint32_t waits_for(const Dependencies& deps, const std::vector<bool>& done, uint32_t i) {
  for (const Edge& edge : deps.into(i)) {
    if (!done[edge.from]) return edge.from;
  }
  return deps.match[i];
}

Error deadlock(const Program& program, const Dependencies& deps, const std::vector<bool>& done) {
  const auto first = static_cast<uint32_t>(std::find(done.begin(), done.end(), false) - done.begin());
  std::vector<bool> seen(done.size(), false);
  uint32_t at = first;
  while (!seen[at]) {
    seen[at] = true;
    at = waits_for(deps, done, at);
    CHECK(at != no_instance, "an unfinished instance waits for nobody");
  }
  // `at` is on the circle: walk it once more to print it.
  constexpr int longest = 12;
  std::string circle = describe_instance(program, deps.instances[at]);
  uint32_t next = waits_for(deps, done, at);
  int printed = 1;
  for (; next != at && printed < longest; next = waits_for(deps, done, next), ++printed) {
    circle += "\n  waits for " + describe_instance(program, deps.instances[next]);
  }
  circle += next == at ? "\n  which waits for the first again" : "\n  … and further";
  return invalid_input("deadlock (every message as rendezvous):\n  " + circle);
}

}  // namespace

Result<std::vector<uint32_t>> dry_run(const Program& program, const Dependencies& deps) {
  const size_t count = deps.instances.size();
  std::vector<uint32_t> missing(count), out_begin(count + 1, 0), out(deps.edges.size());
  for (const Edge& edge : deps.edges) ++out_begin[edge.from + 1];
  for (size_t i = 0; i < count; ++i) out_begin[i + 1] += out_begin[i];
  std::vector<uint32_t> fill(out_begin.begin(), out_begin.end() - 1);
  for (uint32_t i = 0; i < count; ++i) {
    missing[i] = static_cast<uint32_t>(deps.into(i).size());
    for (const Edge& edge : deps.into(i)) out[fill[edge.from]++] = i;
  }

  std::vector<uint32_t> ready, order;
  std::vector<bool> done(count, false);
  order.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (missing[i] == 0) ready.push_back(i);
  }
  const auto finish = [&](uint32_t i) {
    done[i] = true;
    order.push_back(i);
    for (uint32_t e = out_begin[i]; e < out_begin[i + 1]; ++e) {
      if (--missing[out[e]] == 0) ready.push_back(out[e]);
    }
  };
  while (!ready.empty()) {
    const uint32_t i = ready.back();
    ready.pop_back();
    const uint32_t partner = deps.match[i];
    if (partner == no_instance) {
      finish(i);
    } else if (missing[partner] == 0 && !done[i]) {  // both ends are there: the message passes
      const bool sends = instr_of(program, deps.instances[i]).opcode == Opcode::send;
      finish(sends ? i : partner);
      finish(sends ? partner : i);
    }
  }
  if (order.size() != count) return deadlock(program, deps, done);
  return order;
}

}  // namespace nlsplit::inline program
