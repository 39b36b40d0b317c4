// The iteration space of a result whose elements each come from one place of each operand, or a few: axes that can be
// walked as one are one, and constant steps are found in tables of places.
//
//   Space space({2, 3, 40}, 1);                        // the result's shape, one operand
//   space.along(0, 2).start = 5;                       // where axis 2 of the result lies in operand 0
//   space.simplify();
//   w.loops.extents = space.extents();
//   int index = space.index(w, 0), place = space.place(w);
#pragma once

#include <vector>

#include "kernels/generated/writer.h"

namespace nlsplit::inline kernels {

// Position i of an axis adds start + step i to an operand's index, or table[i].
struct AxisMap {
  int64_t start = 0, step = 0;
  std::vector<int64_t> table = {};
};

class Space {
 public:
  Space(const Shape& result, size_t operands);

  AxisMap& along(size_t operand, size_t axis) { return axes_[axis].maps[operand]; }
  void broadcast(size_t operand, const Shape& shape);         // numpy's rules
  void keep_apart(size_t axis) { axes_[axis].apart = true; }  // of others: more depends on it than the maps say

  void simplify();

  const std::vector<int64_t>& extents() const { return extents_; }
  // The axis of extents() that one is now which was kept apart; -1: it has one position, 0.
  int axis_of(size_t kept) const { return where_[kept]; }
  int place(LoopWriter& w) const;
  int index(LoopWriter& w, size_t operand) const;

 private:
  struct Axis {
    int64_t extent = 1;
    std::vector<AxisMap> maps;
    bool apart = false;
    size_t origin = 0;  // of one kept apart
  };
  void drop_single();
  void split_tables();
  void merge();

  std::vector<Axis> axes_;
  std::vector<int64_t> starts_;  // of each operand
  std::vector<int64_t> extents_;
  std::vector<int> where_;
};

// Elements between neighbours along each axis.
std::vector<int64_t> row_major_strides(const Shape& shape);

}  // namespace nlsplit::inline kernels
