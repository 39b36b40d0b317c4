// States that several devices share: each has a part of a tensor (Buffer::part). Outside a Program only whole tensors
// are known: checkpoints, results and comparisons have these, and any plan may cut them.
//
//   W f32[64,32]     A: buffer "W#0-32" f32[32,32] state … part of W axis 0 begin 0 extent 64
//                    B: buffer "W#32-64" f32[32,32] state … part of W axis 0 begin 32 extent 64
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace nlsplit::inline program {

// Of a state: what it is (a part of), and that tensor's type.
const std::string& whole_name(const Buffer& state);
TensorType whole_type_of(const Buffer& state);

// The parts of each tensor lie side by side, without gaps, along one axis; copies of a part are called alike. No tensor
// is also a state of its own. Error: which tensor is none.
Status check_state_parts(const Program& program);

// The bytes of a part among those of its tensor, row-major; and the reverse, into `whole`.
std::string cut_part(const Buffer& state, std::string_view whole);
void fill_part(const Buffer& state, std::string_view part, std::string& whole);

// Puts tensors together from states that come in any order, each once. Of a Program that check_state_parts accepts.
class PartsJoined {
 public:
  struct Whole {
    std::string name;
    TensorType type;
    std::string bytes;  // row-major
  };
  // Appends to `wholes` what the state is, or completes.
  void add(const Buffer& state, std::string bytes, std::vector<Whole>& wholes);

 private:
  struct Open {
    Whole whole;
    int64_t missing = 0;  // elements along the axis
  };
  std::vector<Open> open_;
};

}  // namespace nlsplit::inline program
