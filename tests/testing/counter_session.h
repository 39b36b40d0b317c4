// scenarios/counter.session, and what its states must hold, by plain arithmetic.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/file.h"
#include "program/session.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit::testing {

inline std::string counter_text() {
  return value_of(read_file(std::string(NLS_SOURCE_DIR) + "/scenarios/counter.session"));
}
inline Session counter_session() { return value_of(parse_session(counter_text(), "counter.session")); }
inline constexpr int counter_init = 0, counter_push = 1, counter_read = 2;

// After `init` and so many times `push`.
struct CounterModel {
  float count = 0;
  std::array<float, 8> ring = {}, total = {};
  size_t place = 0;

  void push() {
    count += 1;
    total[place] += ring[place];
    ring[place] = count;
    place = (place + 1) % ring.size();
  }
  static CounterModel after(int pushes) {
    CounterModel model;
    for (int i = 0; i < pushes; ++i) model.push();
    return model;
  }
};

}  // namespace nlsplit::testing
