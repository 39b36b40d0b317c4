#include <algorithm>

#include "cost/cost_source.h"

namespace nlsplit::inline cost {
namespace {

class Roofline final : public CostSource {
 public:
  Roofline(FlopsPerSecond compute, BytesPerSecond memory) : compute_(compute), memory_(memory) {}

  // Bound by arithmetic or by memory, whichever is slower.
  Result<Cost> cost(const CostRequest& request) const override {
    const Work work = work_of(request.desc, request.scalars);
    const Seconds arithmetic = work.flops / compute_;
    const Seconds traffic = (work.bytes_read + work.bytes_written) / memory_;
    return Cost{std::max(arithmetic, traffic), CostOrigin::formula};
  }

  CostSourcePtr slowed(double slowdown) const override {
    return roofline(flops_per_second(compute_.value() / slowdown), bytes_per_second(memory_.value() / slowdown));
  }

  bool same_as(const CostSource& other) const override {
    const auto* roofline = dynamic_cast<const Roofline*>(&other);
    return roofline != nullptr && roofline->compute_ == compute_ && roofline->memory_ == memory_;
  }

 private:
  FlopsPerSecond compute_;
  BytesPerSecond memory_;
};

}  // namespace

CostSourcePtr roofline(FlopsPerSecond compute, BytesPerSecond memory) {
  return std::make_shared<const Roofline>(compute, memory);
}

}  // namespace nlsplit::inline cost
