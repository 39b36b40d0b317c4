#include "sim/link_course.h"

#include <algorithm>
#include <cmath>

namespace nlsplit::inline sim {
namespace {

// By inversion; 1 - uniform() is above 0.
double exponential(Random& random, double mean) { return -mean * std::log(1 - random.uniform()); }

}  // namespace

void LinkCourse::add(const Degradation& degradation, BytesPerSecond bandwidth) {
  windows_.push_back({degradation.to / bandwidth, degradation.at, degradation.until});
}

void LinkCourse::add(const Background& background, uint64_t seed) {
  if (background.on <= 0) {
    steady_ -= background.share;
    return;
  }
  Bursts bursts{background.share, background.on, background.off, Random(seed), false, 0};
  bursts.is_on = bursts.random.uniform() < bursts.on / (bursts.on + bursts.off);
  bursts.until = exponential(bursts.random, bursts.is_on ? bursts.on : bursts.off);  // an exponential has no memory
  bursts_.push_back(bursts);
}

double LinkCourse::share() const {
  double left = steady_;
  for (const Bursts& bursts : bursts_) left -= bursts.is_on ? bursts.share : 0;
  double worst = 1;
  for (const Window& window : windows_) {
    if (window.from <= now_ && now_ < window.until) worst = std::min(worst, window.share);
  }
  return left * worst;
}

double LinkCourse::until() const {
  double next = for_ever;
  for (const Window& window : windows_) {
    for (const double change : {window.from, window.until}) {
      if (change > now_) next = std::min(next, change);
    }
  }
  for (const Bursts& bursts : bursts_) next = std::min(next, bursts.until);
  return next;
}

void LinkCourse::advance() {
  now_ = until();
  for (Bursts& bursts : bursts_) {
    if (bursts.until > now_) continue;
    bursts.is_on = !bursts.is_on;
    bursts.until = now_ + exponential(bursts.random, bursts.is_on ? bursts.on : bursts.off);
  }
}

}  // namespace nlsplit::inline sim
