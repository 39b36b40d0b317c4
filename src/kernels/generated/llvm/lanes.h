// Vectors of neighbouring rows, a row a lane: what differs from lane to lane, and squares of elements turned so that a
// row becomes a lane.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <optional>
#include <vector>

#include "kernels/generated/loops.h"

namespace nlsplit::inline kernels {

// By terms.
struct LaneSteps {
  std::vector<bool> varies;                   // from one position along the axis to the next
  std::vector<std::optional<int64_t>> steps;  // by how much, where that is one number
};
LaneSteps steps_along(const Loops& loops, int axis);
LaneSteps no_steps(const Loops& loops);

// As many vectors as each has elements, a power of two: result[i][k] is rows[k][i].
std::vector<llvm::Value*> turned(llvm::IRBuilder<>& b, std::vector<llvm::Value*> rows);

}  // namespace nlsplit::inline kernels
