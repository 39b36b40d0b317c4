#include "graph/philox.h"

#include <gtest/gtest.h>

#include "graph/operators/operator.h"
#include "graph/reference/evaluate.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using Four = std::array<uint32_t, 4>;

// The known answers that come with the authors' Random123 (kat_vectors, philox4x32 10).
TEST(Philox, HasTheAuthorsNumbers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}), (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

std::vector<float> dropped(const Tensor& x, double ratio, int64_t step, std::vector<int64_t> samples,
                           int64_t stream = 0) {
  const Attrs attrs{{"ratio", ratio}, {"seed", int64_t{7}}, {"stream", stream}};
  const auto whole = [](const std::vector<int64_t>& values) {
    return tensor_of({DType::i64, {static_cast<int64_t>(values.size())}},
                     std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)));
  };
  const Tensor steps = whole({step}), numbers = whole(samples);
  const std::vector<TensorType> types{x.type};
  return evaluate_op(Op::DropoutTraining, attrs, std::vector{&x, &steps, &numbers}, types)[0].values;
}

TEST(Dropout, DropsItsShareAndScalesTheRest) {
  constexpr int64_t size = 40'000;
  const Tensor x{{DType::f32, {1, size}}, std::vector<float>(size, 3)};
  int64_t zeros = 0;
  for (const float value : dropped(x, 0.25, 0, {0})) {
    EXPECT_TRUE(value == 0 || value == 4);
    zeros += value == 0 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(zeros) / size, 0.25, 4 * std::sqrt(0.25 * 0.75 / size));  // four deviations
}

// A sample's elements drop alike wherever it is, and otherwise in another step, layer or sample.
TEST(Dropout, DependsOnStepSampleAndLayerOnly) {
  const Tensor two{{DType::f32, {2, 50}}, std::vector<float>(100, 1)},
      one{{DType::f32, {1, 50}}, std::vector<float>(50, 1)};
  const std::vector<float> both = dropped(two, 0.5, 3, {8, 9});
  const std::vector<float> eight(both.begin(), both.begin() + 50), nine(both.begin() + 50, both.end());
  EXPECT_EQ(dropped(one, 0.5, 3, {8}), eight);
  EXPECT_EQ(dropped(one, 0.5, 3, {9}), nine);
  EXPECT_NE(eight, nine);
  EXPECT_NE(dropped(one, 0.5, 4, {8}), eight);
  EXPECT_NE(dropped(one, 0.5, 3, {8}, 1), eight);
}

}  // namespace
}  // namespace nlsplit
