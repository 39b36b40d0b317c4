// Networks as exporters write them (scripts/export/), against the outputs of the framework they come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "base/npy.h"
#include "graph/onnx/import.h"
#include "graph/onnx/onnx_file.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "testing/paths.h"
#include "testing/read_npy.h"

namespace nlsplit {
namespace {

const std::string folder = NLS_SOURCE_DIR "/tests/graph/exports/";

void expect_equal(const Graph& graph, const WeightStore& weights, const NpyArray& input, const NpyArray& expected,
                  const std::string& what) {
  const auto outputs = evaluate(graph, weights, {{{DType::f32, input.shape}, input.values}});
  ASSERT_TRUE(outputs.ok()) << what << ": " << outputs.error().to_string();
  const Tensor& y = (*outputs)[0];
  ASSERT_EQ(y.type.shape, expected.shape) << what;
  for (size_t i = 0; i < y.values.size(); ++i) {
    const float difference = std::abs(y.values[i] - expected.values[i]);
    EXPECT_LE(difference, 1e-5f + 1e-4f * std::abs(expected.values[i])) << what << ", element " << i;
  }
}

// Every ONNX file of the folder: NAME_EXPORTER. Its input and output are its own, or those of NAME, which several
// exporters share.
std::vector<std::string> fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

NpyArray first_sample(const NpyArray& all) {
  NpyArray one = all;
  one.shape[0] = 1;
  one.values.resize(all.values.size() / static_cast<size_t>(all.shape[0]));
  return one;
}

class Exports : public ::testing::TestWithParam<std::string> {};

TEST_P(Exports, GiveWhatTheFrameworkGives) {
  const std::string name = GetParam(), path = folder + name + ".onnx";
  const bool own = std::filesystem::exists(folder + name + "_input.npy");
  const std::string data = folder + (own ? name : name.substr(0, name.rfind('_')));
  const auto input = read_npy(data + "_input.npy"), output = read_npy(data + "_output.npy");
  ASSERT_TRUE(input.ok()) << input.error().to_string();
  ASSERT_TRUE(output.ok()) << output.error().to_string();
  const auto file = read_onnx(path);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  ASSERT_EQ(file->inputs.size(), 1u);
  ImportOptions options;
  Shape& shape = options.input_shapes[file->inputs[0].name];
  shape = input->shape;
  auto model = import_onnx(path, options);
  ASSERT_TRUE(model.ok()) << model.error().to_string();
  expect_equal(model->graph, model->weights, *input, *output, name);
  const auto optimized = optimize(model->graph, model->weights);
  ASSERT_TRUE(optimized.ok()) << optimized.error().to_string();
  expect_equal(*optimized, model->weights, *input, *output, name + ", optimized");
  // The batch that the exporter left open: one sample, and its own output.
  shape[0] = 1;
  const auto single = import_onnx(path, options);
  ASSERT_TRUE(single.ok()) << single.error().to_string();
  expect_equal(single->graph, single->weights, first_sample(*input), first_sample(*output), name + ", one sample");
}

INSTANTIATE_TEST_SUITE_P(Of, Exports, ::testing::ValuesIn(fixtures()), [](const auto& info) { return info.param; });

TEST(ExportsFolder, HasBothExportersOfPyTorch) {
  EXPECT_THAT(fixtures(),
              ::testing::IsSupersetOf({"simple_cnn_dynamo", "simple_cnn_trace", "block_dynamo", "block_trace"}));
}

}  // namespace
}  // namespace nlsplit
