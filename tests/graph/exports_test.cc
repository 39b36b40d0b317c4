// Networks as exporters write them (scripts/export/pytorch.py), against the outputs of the framework they come from.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/npy.h"
#include "graph/onnx/import.h"
#include "graph/passes.h"
#include "graph/reference/evaluate.h"
#include "testing/paths.h"

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

class Exports : public ::testing::TestWithParam<const char*> {};

TEST_P(Exports, GiveWhatTheFrameworkGives) {
  const std::string name = GetParam();
  const auto input = read_npy(folder + name + "_input.npy"), output = read_npy(folder + name + "_output.npy");
  ASSERT_TRUE(input.ok() && output.ok());
  for (const char* exporter : {"_dynamo", "_trace"}) {
    const std::string what = name + exporter;
    ImportOptions options;
    options.input_shapes["x"] = input->shape;
    auto model = import_onnx(folder + what + ".onnx", options);
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    expect_equal(model->graph, model->weights, *input, *output, what);
    const auto optimized = optimize(model->graph, model->weights);
    ASSERT_TRUE(optimized.ok()) << optimized.error().to_string();
    expect_equal(*optimized, model->weights, *input, *output, what + ", optimized");
    // The batch that the exporter left open: one sample, and its own output.
    options.input_shapes["x"][0] = 1;
    const auto single = import_onnx(folder + what + ".onnx", options);
    ASSERT_TRUE(single.ok()) << what << ": " << single.error().to_string();
    const auto first = [](const NpyArray& all) {
      NpyArray one = all;
      one.shape[0] = 1;
      one.values.resize(all.values.size() / static_cast<size_t>(all.shape[0]));
      return one;
    };
    expect_equal(single->graph, single->weights, first(*input), first(*output), what + ", one sample");
  }
}

INSTANTIATE_TEST_SUITE_P(PyTorch, Exports, ::testing::Values("simple_cnn", "block"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace nlsplit
