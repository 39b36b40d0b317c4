#include "train/evaluation.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nlsplit::inline train {

void Evaluation::add(std::span<const float> outputs, std::span<const int64_t> labels) {
  CHECK(loss_ == Loss::softmax_cross_entropy && !labels.empty() && outputs.size() % labels.size() == 0,
        "a row of outputs for each label");
  const size_t classes = outputs.size() / labels.size();
  for (size_t r = 0; r < labels.size(); ++r) {
    const auto row = outputs.subspan(r * classes, classes);
    const auto label = static_cast<size_t>(labels[r]);
    CHECK(labels[r] >= 0 && label < classes, "a label is a class");
    const auto most = std::ranges::max_element(row);
    if (static_cast<size_t>(most - row.begin()) == label) ++right_;
    if (probabilities_) {
      sum_ -= std::log(static_cast<double>(row[label]));
    } else {
      const auto largest = static_cast<double>(*most);
      double sum = 0;
      for (const float value : row) sum += std::exp(static_cast<double>(value) - largest);
      sum_ += std::log(sum) + largest - static_cast<double>(row[label]);
    }
  }
  rows_ += static_cast<int64_t>(labels.size());
}

void Evaluation::add(std::span<const float> outputs, std::span<const float> targets) {
  CHECK(loss_ == Loss::mean_squared_error && outputs.size() == targets.size(), "a target for each output");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const double difference = static_cast<double>(outputs[i]) - static_cast<double>(targets[i]);
    sum_ += difference * difference;
  }
  rows_ += static_cast<int64_t>(outputs.size());
}

}  // namespace nlsplit::inline train
