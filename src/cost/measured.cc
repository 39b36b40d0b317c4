#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "cost/cost_source.h"
#include "cost/kernel_fit.h"
#include "kernels/without_kernel.h"

namespace nlsplit::inline cost {
namespace {

// What each device that computes beside it adds.
Seconds company_of(const Profile& profile, Seconds alone, Seconds beside) {
  return profile.beside > 0 && beside > alone ? (beside - alone) / profile.beside : seconds(0);
}

class Measured final : public CostSource {
 public:
  Measured(Profile profile, double slowdown, bool clock)
      : profile_(std::move(profile)), slowdown_(slowdown), clock_(clock) {}

  Result<Cost> cost(const CostRequest& request) const override {
    const ComputeDesc& desc = request.desc;
    const int cores = request.cores();
    const std::string key = profile_key(desc, cores);
    const Seconds dispatch = profile_.dispatch.median;
    if (const std::optional<MeasuredCost> found = known(request, key)) {
      const MeasuredCost& cost = *found;
      const double spread = cost.median.value() > 0 ? cost.spread / cost.median : 0;
      return Cost{usual(cost) + dispatch, CostOrigin::measured, spread, company_of(profile_, usual(cost), cost.beside)};
    }
    if (profile_.predict) {
      if (const std::optional<KernelPrediction> prediction = fit().predict(desc, cores))
        return Cost{prediction->time + dispatch, CostOrigin::predicted, prediction->spread,
                    company_of(profile_, prediction->time, prediction->beside)};
    }
    constexpr int64_t word = 8;  // bytes: a credit's copy is a load and a store, and all its time is the dispatch
    if (desc.kernel.name == KernelName::copy && size_of(desc.outputs[0]).value() <= word)
      return Cost{dispatch, CostOrigin::measured};
    return missing(request, key);
  }

  CostSourcePtr slowed(double slowdown) const override { return scaled(slowdown, clock_); }
  CostSourcePtr by_clock(double slowdown) const override { return scaled(slowdown, true); }

  bool same_as(const CostSource& other) const override {
    const auto* measured = dynamic_cast<const Measured*>(&other);
    if (measured == nullptr || measured == this) return measured != nullptr;
    return !profile_.file.empty() && measured->profile_.file == profile_.file &&
           measured->profile_.predict == profile_.predict && measured->slowdown_ == slowdown_ &&
           measured->clock_ == clock_;
  }

  const Profile* profile() const override { return &profile_; }

 private:
  std::optional<MeasuredCost> known(const CostRequest& request, const std::string& key) const {
    if (!request.scalars.empty()) {
      const Work work = work_of(request.desc, request.scalars);
      return cost_in(profile_, request.desc, request.cores(), work.bytes_read + work.bytes_written);
    }
    const auto found = profile_.kernels.find(key);
    return found == profile_.kernels.end() ? std::nullopt : std::optional(found->second);
  }

  CostSourcePtr scaled(double slowdown, bool clock) const {
    Profile profile = profile_;
    const auto scale = [&](MeasuredCost& cost) {
      cost.median = cost.median * slowdown;
      cost.spread = cost.spread * slowdown;
      cost.beside = cost.beside * slowdown;
      cost.mean = cost.mean * slowdown;
    };
    for (auto& [key, cost] : profile.kernels) {
      scale(cost);
      if (clock) cost.beside = cost.mean = {};
    }
    scale(profile.dispatch);
    return std::make_shared<const Measured>(std::move(profile), slowdown_ * slowdown, clock);
  }

  // Made when it is first needed: commands that only run need none.
  const KernelFit& fit() const {
    std::call_once(once_, [this] { fit_.emplace(profile_); });
    return *fit_;
  }

  Error missing(const CostRequest& request, const std::string& key) const {
    std::string message =
        fmt::format("{} has no measurement of {} for device {}", profile_.file, request.what(), request.device_name());
    const std::string& model = request.names.model;
    if (!model.empty() && std::ranges::find(profile_.models, model) == profile_.models.end())
      message += fmt::format("; it was measured for {}, not for {}", fmt::join(profile_.models, ", "), model);
    if (profile_.predict) message += ", and too few of its kind to predict it from";
    Error error = invalid_input({});
    error.fragment = key;
    if (has_no_kernel(request.desc)) {  // nothing runs them, so nothing can measure them
      error.message = fmt::format(
          "{}; no kernel computes it yet: give the device a roofline, or put a time you know under this signature "
          "into the profile",
          message);
      return error;
    }
    if (!profile_.predict && request.desc.kernel.name == KernelName::reduce) {
      // As large as the gradients of any stage that a plan may have: no profile holds them all.
      error.message = fmt::format(
          "{}; sums of replicas' gradients have the size of a stage, which depends on the plan: let them be predicted "
          "from what was measured: costs: {{profile: ..., predict: true}}",
          message);
      return error;
    }
    // The first file of a list: the others serve other models too.
    const std::string file = profile_.file.substr(0, profile_.file.find(", "));
    error.message = fmt::format("{}; measure on that machine with: nlbench profile {} -o {}{}", message,
                                request.names.scenario, file.empty() ? "profile.json" : file,
                                profile_.predict ? ""
                                                 : ", or let it be predicted from what was measured: costs: "
                                                   "{profile: ..., predict: true}");
    return error;
  }

  Profile profile_;
  double slowdown_ = 1;  // of the times that the file holds
  bool clock_ = false;
  mutable std::once_flag once_;
  mutable std::optional<KernelFit> fit_;
};

}  // namespace

CostSourcePtr measured(Profile profile) { return std::make_shared<const Measured>(std::move(profile), 1, false); }

}  // namespace nlsplit::inline cost
