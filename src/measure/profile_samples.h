// What executions of a Program on one device say of its computations, and of moving data within the device: the samples
// of `nlbench profile`, and what it makes of them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/calibration.h"
#include "cost/profile.h"
#include "exec/device_run.h"
#include "program/dependencies.h"
#include "program/program.h"
#include "program/scalar_values.h"

namespace nlsplit::inline measure {

inline constexpr double settled_uncertainty = 0.01;  // of a median: then more repeats tell little
inline constexpr int least_repeats = 5;              // fewer have no quartiles worth the name

bool settled(const MeasuredCost& cost);
// Puts a measurement where there may be one already: the one whose median is better known stays.
void keep_surer(MeasuredCost& known, const MeasuredCost& cost);
// Both together, as if measured at once; the median is about that of all samples. `beside` is the first one's.
MeasuredCost pooled(const MeasuredCost& one, const MeasuredCost& other);

// One computation, or one movement of data, and where it is kept in a profile.
struct Measurable {
  std::string key;
  ComputeDesc desc;
  bool computes = true;
  bool in_part = false;  // with scalars below the largest
};

class Samples {
 public:
  // Of the Program's computations those whose keys are not in `taken`; it then has theirs too. fills: the scalars that
  // executions have, one or more. The Program has one device; it and `best`, which all share that are measured on this
  // machine, outlive this.
  Samples(const Program& program, const std::vector<ScalarTable>& fills, std::set<std::string>& taken,
          BestCalibration& best);

  // The times of one execution with scalars fills[fill]. calibration_s: how fast the core was before it
  // (base/calibration.h); infinite: other work kept the device from computing. Samples of a core that was slower than
  // at its best count only where there are not enough others.
  void add(const std::vector<Interval>& times, double calibration_s, size_t fill = 0);
  size_t executions() const { return calibrations_.size(); }
  size_t disturbed() const;

  const std::vector<Measurable>& measurables() const { return measurables_; }
  // Seconds from the end of each computation to the start of the next; so short that nothing disturbs the most of them.
  const std::vector<double>& gaps() const { return gaps_; }
  // All its computations are known well enough, by these samples or by the profile.
  bool all_settled(const Profile& profile) const;
  // What has enough samples; without the gaps. before: what these samples are pooled with, instead of one staying.
  void write_to(Profile& profile, const Profile* before = nullptr) const;
  // The same of samples taken with copies of the network beside it: MeasuredCost::beside of what was measured alone.
  bool beside_settled(const Profile& profile) const;
  void write_beside_to(Profile& profile, const Profile* before = nullptr) const;

 private:
  struct Sample {
    double seconds = 0;
    size_t execution = 0;
  };
  bool undisturbed(size_t execution) const;  // the core was fast before and after it
  bool enough(size_t measurable) const;
  bool settled_here(size_t measurable) const;  // by executions that nothing disturbed
  std::vector<double> clean(size_t measurable) const;
  MeasuredCost cost(size_t measurable) const;
  double slowness() const;  // of all executions that other work did not keep from computing, against these medians

  const Program& program_;
  Dependencies deps_;
  std::vector<Measurable> measurables_;
  std::vector<std::vector<int>> index_;  // [fill][instance]: index into measurables_; -1: a transfer, or others have it
  std::vector<std::vector<Sample>> samples_;  // by measurable
  std::vector<double> calibrations_;          // by execution
  BestCalibration* best_;
  std::vector<double> gaps_;
};

// The fastest kernel of each computation that has several, over all sizes of micro-batches together, by what the
// profile says of those. `usual_first`: of every Program, the usual one first.
std::map<std::string, KernelId> fastest_kernels(const std::vector<Measurable>& usual_first, const Profile& profile);

}  // namespace nlsplit::inline measure
