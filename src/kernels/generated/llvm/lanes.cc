#include "kernels/generated/llvm/lanes.h"

namespace nlsplit::inline kernels {

LaneSteps no_steps(const Loops& loops) {
  return {std::vector<bool>(loops.terms.size(), false), std::vector<std::optional<int64_t>>(loops.terms.size(), 0)};
}

LaneSteps steps_along(const Loops& loops, int axis) {
  LaneSteps all = no_steps(loops);
  const auto varies = [&](int used) { return used >= 0 && all.varies[static_cast<size_t>(used)]; };
  const auto step = [&](int used) {
    return used < 0 ? std::optional<int64_t>(0) : all.steps[static_cast<size_t>(used)];
  };
  const auto is_constant = [&](int used) { return loops.terms[static_cast<size_t>(used)].code == LoopCode::integer; };
  for (size_t i = 0; i < loops.terms.size(); ++i) {
    const Term& t = loops.terms[i];
    all.varies[i] = t.code == LoopCode::carried || (t.code == LoopCode::axis && t.which == axis) || varies(t.x) ||
                    varies(t.y) || varies(t.z);
    if (!all.varies[i]) continue;
    std::optional<int64_t>& own = all.steps[i];
    own = std::nullopt;
    if (t.code == LoopCode::axis) own = 1;
    if (t.code == LoopCode::add && step(t.x) && step(t.y)) own = *step(t.x) + *step(t.y);
    if (t.code == LoopCode::subtract && step(t.x) && step(t.y)) own = *step(t.x) - *step(t.y);
    if (t.code == LoopCode::multiply && step(t.x) && is_constant(t.y))
      own = *step(t.x) * loops.terms[static_cast<size_t>(t.y)].integer;
  }
  return all;
}

// Squares of one, of two, of four are turned within those twice as wide.
std::vector<llvm::Value*> turned(llvm::IRBuilder<>& b, std::vector<llvm::Value*> rows) {
  const size_t count = rows.size();
  for (size_t side = 1; side < count; side *= 2) {
    std::vector<int> upper, lower;
    for (size_t lane = 0; lane < count; ++lane) {
      const bool first = (lane & side) == 0;
      upper.push_back(static_cast<int>(first ? lane : count + lane - side));
      lower.push_back(static_cast<int>(first ? lane + side : count + lane));
    }
    for (size_t i = 0; i < count; ++i) {
      if ((i & side) != 0) continue;
      llvm::Value *one = rows[i], *other = rows[i + side];
      rows[i] = b.CreateShuffleVector(one, other, upper);
      rows[i + side] = b.CreateShuffleVector(one, other, lower);
    }
  }
  return rows;
}

}  // namespace nlsplit::inline kernels
