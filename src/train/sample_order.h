// Which samples a step takes. The order depends on the seed and on how many samples there are, not on the plan or on
// how a step is cut into micro-batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nlsplit::inline train {

// Each sample once in an epoch, epoch after epoch without a gap: where the batch does not divide the samples, a step
// has the last ones of an epoch and the first ones of the next.
class SampleOrder {
 public:
  // shuffled: each epoch in an order of its own, drawn from the seed and the epoch's number (Fisher and Yates's shuffle
  // in Durstenfeld's form, 1964); else as the samples stand.
  SampleOrder(int64_t samples, bool shuffled, uint64_t seed);
  // samples[i]: which one is number `first` + i of the training, counted from 0 over all epochs.
  void read(int64_t first, std::span<int64_t> samples);

 private:
  void shuffle(int64_t epoch);

  int64_t samples_;
  bool shuffled_;
  uint64_t seed_;
  int64_t epoch_ = -1;  // that order_ is of
  std::vector<int64_t> order_;
};

}  // namespace nlsplit::inline train
