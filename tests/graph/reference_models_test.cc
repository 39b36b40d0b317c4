// Networks and single operators that nobody here wrote: import, then the reference evaluator against ONNX Runtime's (or
// ONNX's own) outputs. scripts/reference_outputs makes build/reference; without it these tests are skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/npy.h"
#include "graph/onnx/import.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "onnx_file.h"
#include "testing/paths.h"
#include "testing/read_npy.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;

const fs::path reference = fs::path(NLS_SOURCE_DIR) / "build" / "reference";
constexpr const char* how_to_make = "run scripts/reference_outputs, which needs ../shared/models and a network for pip";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

Tensor load(const fs::path& path) {
  auto array = read_npy(path.string());
  if (!array) ADD_FAILURE() << array.error().to_string();
  return array.ok() ? tensor(array->shape, array->values) : Tensor{};
}

constexpr Tolerance tolerance{1e-3, 1e-7};

struct ReferenceModel {
  const char* name;
  const char* dynamic_input;  // whose shape the model leaves open, or nullptr
  bool large;                 // 20 giga-multiply-adds: too slow for a sanitizer, or twice
};

class ReferenceModels : public ::testing::TestWithParam<ReferenceModel> {};

TEST_P(ReferenceModels, EqualOnnxRuntime) {
  const fs::path folder = reference / GetParam().name;
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not there: " << how_to_make;
  if (sanitized && GetParam().large) GTEST_SKIP() << "too slow under a sanitizer";
  const Tensor input = load(folder / "input.npy"), expected = load(folder / "output.npy");
  ImportOptions options;
  if (GetParam().dynamic_input) options.input_shapes[GetParam().dynamic_input] = input.type.shape;
  auto model = import_onnx((folder / "model.onnx").string(), options);
  ASSERT_TRUE(model.ok()) << model.error().to_string();

  const auto plain = evaluate(model->graph, model->weights, {input});
  ASSERT_TRUE(plain.ok()) << plain.error().to_string();
  expect_close(*plain, {expected}, tolerance);

  if (GetParam().large) return;  // once is long enough
  const auto fused = optimize(model->graph, model->weights);
  ASSERT_TRUE(fused.ok()) << fused.error().to_string();
  const auto optimised = evaluate(*fused, model->weights, {input});
  ASSERT_TRUE(optimised.ok()) << optimised.error().to_string();
  expect_close(*optimised, {expected}, tolerance);
}

INSTANTIATE_TEST_SUITE_P(Networks, ReferenceModels,
                         ::testing::Values(ReferenceModel{"light_bvlc_alexnet", nullptr, false},
                                           ReferenceModel{"light_resnet50", nullptr, false},
                                           ReferenceModel{"light_squeezenet", nullptr, false},
                                           ReferenceModel{"light_vgg19", nullptr, true},
                                           ReferenceModel{"ppocr_mobile_v2_cls", "x", false}),
                         [](const auto& info) { return std::string(info.param.name); });

// LayerNormalization's cases ask for its mean and deviation too.
Result<Model> import_first_output(const fs::path& folder) {
  OnnxFile file(0);
  std::ifstream stream(folder / "model.onnx", std::ios::binary);
  EXPECT_TRUE(file.model().ParseFromIstream(&stream));
  const int others = file.graph().output_size() - 1;
  file.graph().mutable_output()->DeleteSubrange(1, others);
  return file.import();
}

// Whatever import does not refuse as unsupported must be right.
TEST(ReferenceModels, EqualOnnxOperatorCases) {
  if (!fs::exists(reference / "node"))
    GTEST_SKIP() << reference / "node"
                 << " is not there: " << how_to_make;
  std::vector<fs::path> cases(fs::directory_iterator(reference / "node"), {});
  std::ranges::sort(cases);
  size_t compared = 0, recurrent = 0;
  for (const fs::path& folder : cases) {
    SCOPED_TRACE(folder.filename().string());
    auto model = import_onnx((folder / "model.onnx").string());
    if (!model && model.error().message.find("further output") != std::string::npos)
      model = import_first_output(folder);
    if (!model) {
      EXPECT_EQ(model.error().kind, ErrorKind::unsupported) << model.error().to_string();
      continue;
    }
    std::vector<Tensor> inputs, expected;
    for (size_t i = 0; i < model->graph.inputs.size(); ++i)
      inputs.push_back(load(folder / fmt::format("input_{}.npy", i)));
    for (size_t i = 0; i < model->graph.outputs.size(); ++i)
      expected.push_back(load(folder / fmt::format("output_{}.npy", i)));
    const auto outputs = evaluate(model->graph, model->weights, inputs);
    if (!outputs) {
      ADD_FAILURE() << outputs.error().to_string();
      continue;
    }
    expect_close(*outputs, expected, tolerance);
    ++compared;
    recurrent += std::ranges::any_of(model->graph.nodes, [](const Node& node) {
      return node.op == Op::LSTM || node.op == Op::GRU || node.op == Op::RNN;
    });
  }
  EXPECT_GE(recurrent, 9u);
  EXPECT_GE(compared, 100u) << "of " << cases.size();
}

}  // namespace
}  // namespace nlsplit
