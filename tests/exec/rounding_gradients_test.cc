#include "exec/rounding_gradients.h"

#include <gmock/gmock.h>

#include <limits>

namespace nlsplit {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

OutputTensor tensor(const std::string& name, float value) { return {"A", {name, {DType::f32, {2}}, {value, -value}}}; }

// Of two weights: w's gradient is 1, that of k as given.
std::vector<OutputTensor> momentum(float k) {
  return {tensor("k", 0.5f), tensor("k.momentum", k), tensor("w", 2), tensor("w.momentum", 1)};
}
std::vector<OutputTensor> adam(float k) {
  return {tensor("k", 0.5f), tensor("k.m", k),   tensor("k.v", k * k), tensor("w", 2),
          tensor("w.m", 1),  tensor("w.v", 1.f), tensor("steps", 1)};
}

TEST(RoundingGradients, AreThoseFarBelowAllOthersInBothResults) {
  EXPECT_THAT(only_roundings(momentum(1e-9f), momentum(-2e-9f)), ElementsAre("k.momentum"));
  EXPECT_THAT(only_roundings(momentum(1e-5f), momentum(1e-9f)), IsEmpty()) << "one of them has a gradient";
  EXPECT_THAT(only_roundings(momentum(1e-9f), momentum(1e-5f)), IsEmpty());
  EXPECT_THAT(only_roundings(momentum(std::numeric_limits<float>::quiet_NaN()), momentum(1e-9f)), IsEmpty());
}

// A step of adam is as large for a small gradient as for a large one.
TEST(RoundingGradients, OfAdamTakeTheWeightWithThem) {
  EXPECT_THAT(only_roundings(adam(1e-9f), adam(-1e-9f)), ElementsAre("k", "k.m", "k.v"));
  EXPECT_THAT(only_roundings(adam(2e-6f), adam(-2e-6f)), IsEmpty());
}

TEST(RoundingGradients, AreOfWeightsAlone) {
  const std::vector<OutputTensor> outputs = {tensor("layer.m", 1e-9f), tensor("other.m", 1)};
  EXPECT_THAT(only_roundings(outputs, outputs), IsEmpty()) << "outputs that only look like it";
}

}  // namespace
}  // namespace nlsplit
