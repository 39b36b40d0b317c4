// What an operator says of the samples' axis (Operator::keeps_batch) on ONNX's own tests: where it says that samples
// are independent, a batch is its samples one by one, bit for bit, on the reference evaluator and on the kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "graph/passes/passes.h"
#include "kernels/cpu.h"
#include "onnx_case.h"
#include "run_kernels.h"

namespace nlsplit::testing {
namespace {

// Sample `s` of n: row-major, so the bytes of one stand together.
Tensor sample_of(const Tensor& whole, int64_t s) {
  TensorType type = whole.type;
  const int64_t n = type.shape[0];
  type.shape[0] = 1;
  const std::string_view raw = bytes_of(whole);
  const size_t size = raw.size() / static_cast<size_t>(n);
  return tensor_of(std::move(type), std::string(raw.substr(static_cast<size_t>(s) * size, size)));
}

// "" if they agree.
std::string compare(const std::vector<Tensor>& whole, const std::vector<Tensor>& one, int64_t s, int64_t n) {
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i].type.shape.empty() || whole[i].type.shape[0] != n) return fmt::format("output {} has no samples", i);
    const Tensor expected = sample_of(whole[i], s);
    if (one[i].type != expected.type)
      return fmt::format("output {} is {} instead of {}", i, to_string(one[i].type), to_string(expected.type));
    if (bytes_of(one[i]) != bytes_of(expected)) return fmt::format("output {} of sample {} differs", i, s);
  }
  return {};
}

// Whether what the test brings is of the types that its model declares; of four CastLike tests it is not.
bool data_fits(const OnnxCase& onnx_case, const Graph& graph) {
  return std::ranges::all_of(graph.inputs, [&](ValueId input) {
    return onnx_case.inputs.at(graph.value(input).name).type == graph.value(input).type;
  });
}

std::string try_samples(const KernelLibrary& library, const OnnxCase& onnx_case, const Model& model,
                        const Graph& single) {
  std::vector<Tensor> inputs;
  for (const ValueId input : model.graph.inputs) inputs.push_back(onnx_case.inputs.at(model.graph.value(input).name));
  const int64_t n = inputs[0].type.shape[0];
  const auto whole = evaluate(model.graph, model.weights, inputs);
  const auto run_whole = run_on_kernels(library, model.graph, model.weights, inputs);
  if (!whole || !run_whole) return "the batch is not computed";
  for (int64_t s = 0; s < n; ++s) {
    std::vector<Tensor> own;
    for (const Tensor& input : inputs) own.push_back(sample_of(input, s));
    const auto one = evaluate(single, model.weights, own);
    const auto run_one = run_on_kernels(library, single, model.weights, own);
    if (!one || !run_one) return "a sample is not computed";
    if (std::string why = compare(*whole, *one, s, n); !why.empty()) return "reference evaluator: " + why;
    if (std::string why = compare(*run_whole, *run_one, s, n); !why.empty()) return "kernels: " + why;
  }
  return {};
}

TEST(Conformance, SamplesAreIndependentWhereOperatorsSaySo) {
  if (!std::filesystem::exists(onnx_cases)) GTEST_SKIP() << onnx_cases << " is missing (Debian: libonnx-testdata)";
  const auto library = KernelLibrary::load(best_isa().value());
  ASSERT_TRUE(library.ok()) << library.error().to_string();
  int tried = 0;
  std::set<std::string> operators;
  for (const auto& entry : std::filesystem::directory_iterator(onnx_cases)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("test_")) continue;
    const auto onnx_case = read_case(entry.path());
    if (!onnx_case) continue;
    const auto model = import_case(*onnx_case, onnx_case->parameters);
    if (!model || !batched_values(model->graph).ok()) continue;  // mixes samples, or inputs do not agree
    if (model->graph.value(model->graph.inputs[0]).type.shape[0] < 2) continue;
    if (!data_fits(*onnx_case, model->graph)) continue;
    const auto single = with_batch(model->graph, 1);
    EXPECT_TRUE(single.ok()) << name << ": " << (single.ok() ? "" : single.error().to_string());
    if (!single) continue;
    EXPECT_EQ(try_samples(*library, *onnx_case, *model, *single), "") << name;
    ++tried;
    operators.insert(onnx_case->operators.begin(), onnx_case->operators.end());
  }
  fmt::print("{} batches of {} operators\n", tried, operators.size());
  EXPECT_GT(tried, 0);
}

}  // namespace
}  // namespace nlsplit::testing
