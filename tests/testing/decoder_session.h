// scenarios/decoder.session, and what it must compute, by a straight loop over positions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "program/session.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit::testing {

inline std::string decoder_text() {
  return value_of(read_file(std::string(NLS_SOURCE_DIR) + "/scenarios/decoder.session"));
}
inline Session decoder_session() { return value_of(parse_session(decoder_text(), "decoder.session")); }
inline constexpr int decoder_load = 0, decoder_append = 1, decoder_step = 2, decoder_leave = 3;

// Two heads of a layer of 8, each with its own weights; two slots for sequences of at most 16 positions.
struct DecoderModel {
  static constexpr size_t slots = 2, heads = 2, wide = 8, size = 4, chunk = 4, capacity = 16;
  using Row = std::array<double, wide>;
  using Part = std::array<double, size>;
  using Floats = std::map<std::string, std::vector<float>>;  // inputs by their names in the session

  Floats inputs;
  std::array<std::array<std::vector<Part>, heads>, slots> keys, values;  // of each position so far
  std::array<bool, slots> active = {};
  std::array<Row, slots> last = {};
  std::array<std::array<Row, chunk>, slots> y = {};  // of the last append

  explicit DecoderModel(Floats given) : inputs(std::move(given)) {
    for (size_t s = 0; s < slots; ++s) last[s] = row("load/first", s);
  }

  size_t length(size_t slot) const { return keys[slot][0].size(); }

  void append(const std::string& x, const std::array<int64_t, slots>& count) {
    for (size_t s = 0; s < slots; ++s) {
      y[s] = {};
      if (!active[s]) forget(s);
      if (count[s] == 0) continue;
      active[s] = true;
      for (size_t i = 0; i < static_cast<size_t>(count[s]); ++i) y[s][i] = attend(s, row(x, s * chunk + i));
    }
  }

  void step() {
    for (size_t s = 0; s < slots; ++s) {
      if (!active[s]) continue;
      const Row made = attend(s, last[s]);
      for (size_t c = 0; c < wide; ++c) last[s][c] += made[c];
    }
  }

  void leave(const std::array<int64_t, slots>& stay) {
    for (size_t s = 0; s < slots; ++s) active[s] = active[s] && stay[s] != 0;
  }

 private:
  Row row(const std::string& name, size_t at) const {
    Row made;
    for (size_t c = 0; c < wide; ++c) made[c] = inputs.at(name)[at * wide + c];
    return made;
  }
  void forget(size_t slot) {
    for (size_t h = 0; h < heads; ++h) keys[slot][h].clear(), values[slot][h].clear();
  }
  double weight(const std::string& name, size_t head, size_t at) const {
    return inputs.at("load/new_" + name + (head == 0 ? "_a" : "_b"))[at];
  }

  // One more position of a sequence: what it sees of itself and of all before it.
  Row attend(size_t slot, const Row& x) {
    Row sum = {};
    for (size_t h = 0; h < heads; ++h) {
      const auto projected = [&](const char* name) {
        Part made = {};
        for (size_t i = 0; i < wide; ++i)
          for (size_t j = 0; j < size; ++j) made[j] += x[i] * weight(name, h, i * size + j);
        return made;
      };
      const Part q = projected("wq");
      keys[slot][h].push_back(projected("wk"));
      values[slot][h].push_back(projected("wv"));
      std::vector<double> shares;
      double total = 0;
      for (const Part& key : keys[slot][h]) {
        double score = 0;
        for (size_t j = 0; j < size; ++j) score += q[j] * key[j];
        total += shares.emplace_back(std::exp(0.5 * score));
      }
      for (size_t p = 0; p < shares.size(); ++p) {
        for (size_t j = 0; j < size; ++j)
          for (size_t c = 0; c < wide; ++c)
            sum[c] += shares[p] / total * values[slot][h][p][j] * weight("wo", h, j * wide + c);
      }
    }
    for (double& value : sum) value = std::tanh(value);
    return sum;
  }
};

}  // namespace nlsplit::testing
