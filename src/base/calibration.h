// How fast a processor is at the moment, and which measurements that spoils.
//
// On shared machines a core's other hardware thread, its last-level cache and the clock it may run at belong to others
// too: for seconds it is a third slower, and nothing in the guest tells (no steal time, no waiting). So a fixed piece
// of work is timed before each repeat: where it took longer than at its best, so did the repeat.
#pragma once

#include <cstddef>
#include <vector>

namespace nlsplit::inline base {

// Seconds of the fixed work on this thread, now: arithmetic, and a walk through what only the last-level cache holds.
// The median of several times each; takes about a millisecond.
double time_calibration_loop();

inline constexpr double calibration_tolerance = 0.08;  // by so much longer than at its best: slowed down

// What one in ten of them stays below. (The very least may come from a moment when the whole chip was idle.)
double best_calibration(std::vector<double> calibrations);  // of one device; at least one
std::vector<double> best_calibrations(
    const std::vector<std::vector<double>>& calibrations);  // [repeat][device] → [device]

// The best of one core over many measurements, also of earlier ones: what is slow all the time that it is looked at
// would else count as fast.
class BestCalibration {
 public:
  explicit BestCalibration(double known_s = 0) : known_s_(known_s) {}  // 0: none known
  void add(double calibration_s);
  double best_s() const { return best_s_ > 0 ? best_s_ : known_s_; }  // 0: nothing seen, none known
  bool slow(double calibration_s) const {
    return best_s() > 0 && calibration_s > (1 + calibration_tolerance) * best_s();
  }

 private:
  double known_s_ = 0, best_s_ = 0;
  std::vector<double> seen_;
};

// calibrations: [repeat][device], before each repeat; best: [device]. The repeats before and after which all devices
// were as fast as at their best; after the last one nobody looked. They may be none.
std::vector<size_t> undisturbed(const std::vector<std::vector<double>>& calibrations, const std::vector<double>& best);

}  // namespace nlsplit::inline base
