// Loss and accuracy, from a network's outputs and the labels or targets.
#pragma once

#include <cstdint>
#include <span>

#include "graph/differentiate/loss.h"

namespace nlsplit::inline train {

// Means over all rows that were added; sums are in double precision.
class Evaluation {
 public:
  // probabilities: the outputs are those of a Softmax; else one would be made of them.
  Evaluation(Loss loss, bool probabilities) : loss_(loss), probabilities_(probabilities) {}

  // Of softmax_cross_entropy: rows of one output for each class, and the class of each row. A row counts as right if
  // its class has the largest output, the first of equal ones.
  void add(std::span<const float> outputs, std::span<const int64_t> labels);
  // Of mean_squared_error: each output, and what it should be.
  void add(std::span<const float> outputs, std::span<const float> targets);

  int64_t rows() const { return rows_; }
  double loss() const { return rows_ == 0 ? 0 : sum_ / static_cast<double>(rows_); }
  bool has_accuracy() const { return loss_ == Loss::softmax_cross_entropy; }
  double accuracy() const { return rows_ == 0 ? 0 : static_cast<double>(right_) / static_cast<double>(rows_); }

 private:
  Loss loss_;
  bool probabilities_;
  double sum_ = 0;
  int64_t rows_ = 0, right_ = 0;
};

}  // namespace nlsplit::inline train
