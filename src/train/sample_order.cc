#include "train/sample_order.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"

namespace nlsplit::inline train {

SampleOrder::SampleOrder(int64_t samples, bool shuffled, uint64_t seed)
    : samples_(samples), shuffled_(shuffled), seed_(seed) {
  CHECK(samples > 0, "there are samples");
}

void SampleOrder::shuffle(int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  order_.resize(static_cast<size_t>(samples_));
  std::iota(order_.begin(), order_.end(), 0);
  Random random(hash_bytes(&epoch, sizeof(epoch), seed_));
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
}

void SampleOrder::read(int64_t first, std::span<int64_t> samples) {
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t number = first + static_cast<int64_t>(i);
    if (shuffled_) shuffle(number / samples_);
    const int64_t at = number % samples_;
    samples[i] = shuffled_ ? order_[static_cast<size_t>(at)] : at;
  }
}

}  // namespace nlsplit::inline train
