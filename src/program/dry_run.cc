#include <fmt/format.h>

#include <algorithm>

#include "base/readiness.h"
#include "program/verify.h"

namespace nlsplit::inline program {
namespace {

// Who an unfinished instance waits for: an unfinished predecessor, else (a transfer) its partner; of a native
// collective's members the next one.
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
  std::vector<uint32_t> ready, order,
      edge(deps.edge_begin.begin(), deps.edge_begin.end() - 1);  // [instance]: looked at
  std::vector<bool> done(count, false);
  order.reserve(count);
  Sleepers sleepers(count, count);
  const auto look = [&](uint32_t i) {
    for (; edge[i] < deps.edge_begin[i + 1]; ++edge[i]) {
      const uint32_t from = deps.edges[edge[i]].from;
      if (!done[from]) return sleepers.sleep(i, from);
    }
    ready.push_back(i);
  };
  const auto is_ready = [&](uint32_t i) { return edge[i] == deps.edge_begin[i + 1]; };
  for (uint32_t i = 0; i < count; ++i) look(i);
  const auto finish = [&](uint32_t i) {
    done[i] = true;
    order.push_back(i);
    sleepers.wake(i, look);
  };
  while (!ready.empty()) {
    const uint32_t i = ready.back();
    ready.pop_back();
    const uint32_t partner = deps.match[i];
    if (partner == no_instance) {
      finish(i);
    } else if (deps.is_native(i)) {
      bool all = !done[i];
      for (uint32_t member = partner; all && member != i; member = deps.match[member]) all = is_ready(member);
      if (!all) continue;
      finish(i);
      for (uint32_t member = partner; member != i; member = deps.match[member]) finish(member);
    } else if (is_ready(partner) && !done[i]) {  // both ends are there: the message passes
      const bool sends = instr_of(program, deps.instances[i]).opcode == Opcode::send;
      finish(sends ? i : partner);
      finish(sends ? partner : i);
    }
  }
  if (order.size() != count) return deadlock(program, deps, done);
  return order;
}

}  // namespace nlsplit::inline program
