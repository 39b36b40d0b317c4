// ZeRO, stage 3: where weights lie that each replica keeps a share of. A weight is kept whole by one replica, which
// broadcasts it before each phase that uses it, and uses it where it is kept. The others have one buffer, as large as
// the largest two groups that follow each other. Groups take turns from its beginning and to its end: while one is
// used, the next one comes. Stages of a device have the same buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "compile/lowering.h"

namespace nlsplit::inline compiler {

inline constexpr size_t groups_at_once = 2;

// Of a stage's phase, in their order; none: it gathers nothing.
std::span<const Gathers::Group> groups_of(const Lowering& lowering, int stage, Phase phase);

// The slot of a device in the table in which it gathers weights together with the replica that takes a micro-batch
// through the stage forward: the slots of all replicas that have the same number do. None: it is no such replica.
std::optional<size_t> gathers_with(const Lowering& lowering, int device, int stage, int micro_batch);

// Elements of a device's buffer.
int64_t gathered_elements(const Lowering& lowering, int device);

struct GatheredPlace {
  int64_t begin = 0, end = 0;  // elements of that buffer
};
// Where a device has a weight, while a phase uses it. None: it keeps the weight, or no share of weights is kept.
// elements: gathered_elements().
std::optional<GatheredPlace> gathered_place(const Lowering& lowering, int device, int stage, Phase phase,
                                            ValueId weight, int64_t elements);

}  // namespace nlsplit::inline compiler
