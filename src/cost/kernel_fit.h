// KernelFit: predicts the time of a kernel that was never measured, from measured ones on the same machine.
//
//   const KernelFit fit(profile);
//   if (const auto prediction = fit.predict(desc, cores)) …   // 1.2 ms, right within 14 % in 9 of 10 cases
//
// Measurements of one kind (kernel implementation, operator, number of cores) are explained in two steps:
//   work      t = a + b * operations + c * bytes of activations + d * bytes of weights, none of them negative, with the
//             least relative errors (iteratively reweighted least squares): what the kernel costs on the whole
//   nearest   the ratio of measured to explained time of the 4 measured kernels most alike in shape, averaged with
//             weights 1 / (distance + 0.1)^2 (D. Shepard, "A two-dimensional interpolation function for
//             irregularly-spaced data", ACM 1968); distance is Euclidean over the logarithms of batch, channels,
//             pixels, window, stride and bytes, so 0.1 is a tenth more of one of them
// The fit tests itself: each measured kernel is predicted from the others, once with its own computation at other batch
// sizes among them, and once without. A prediction carries the error that 9 of 10 of these predictions stay within (the
// ⌈0.9 (n + 1)⌉th smallest, as in conformal prediction: J. Lei et al., JASA 113, 2018), in the case that applies to
// it: with or without other batch sizes.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cost/profile.h"

namespace nlsplit::inline cost {

// With fewer such errors "9 of 10" means nothing, and nothing is predicted.
inline constexpr size_t least_errors = 9;

struct KernelPrediction {
  Seconds time;
  double spread = 0;  // relative: 9 of 10 such predictions are off by less
  Seconds beside{};   // with other devices computing, if that was measured of its neighbours: they tell by how much
};

// Errors of predictions, relative to what was measured. Not enough of them: no p90.
struct FitErrors {
  size_t count = 0;
  double median = 0;
  std::optional<double> p90;
};

struct FitQuality {
  KernelId kernel;
  Op op{};
  int cores = 1;
  size_t kernels = 0, computations = 0;  // measured; those that differ in batch size alone are one computation
  FitErrors other_sizes;                 // each predicted with other batch sizes of its computation known
  FitErrors other_shapes;                // and without
};

class KernelFit {
 public:
  // Leaves out what is no computation of this program's (a profile of another version).
  explicit KernelFit(const Profile& profile);

  // None: too few kernels of its kind were measured.
  std::optional<KernelPrediction> predict(const ComputeDesc& desc, int cores) const;

  std::vector<FitQuality> quality() const;  // by kind
  size_t left_out() const { return left_out_; }

  using Features = std::array<double, 8>;
  using Terms = std::array<double, 4>;
  struct Known {
    std::string computation;  // the signature at batch 1
    Features shape{};
    Terms work{};
    double seconds = 0;
    double beside = 1;  // how many times as long it takes with other devices computing
  };

 private:
  struct Kind {
    FitQuality quality;
    std::vector<Known> known;
    std::set<std::string> computations;
    Terms coefficients{};
    std::vector<double> ratios;  // of known: measured to explained
  };
  static std::string kind_of(const ComputeDesc& desc, int cores);

  std::map<std::string, Kind> kinds_;
  size_t left_out_ = 0;
};

}  // namespace nlsplit::inline cost
