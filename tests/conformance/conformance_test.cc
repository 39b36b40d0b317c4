// ONNX's own tests of single operators (Debian: libonnx-testdata), each on the reference evaluator and on the kernels.
// unsupported.txt lists those that cannot pass, with the reason; one of them that passes fails here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text_reader.h"
#include "graph/elements.h"
#include "graph/passes/passes.h"
#include "kernels/cpu.h"
#include "onnx_case.h"
#include "run_kernels.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit::testing {
namespace {

// As ONNX's own runner of these tests compares.
constexpr double relative = 1e-3, absolute = 1e-7;

std::vector<double> numbers(const Tensor& tensor) {
  const DType type = tensor.type.dtype;
  if (type == DType::f32) return {tensor.values.begin(), tensor.values.end()};
  if (is_real(type)) return reals_of(type, tensor.raw);
  const std::vector<int64_t> whole = wholes_of(type, tensor.raw);
  return {whole.begin(), whole.end()};
}

// "" if they agree.
std::string difference(const Tensor& actual, const Tensor& expected) {
  if (actual.type != expected.type)
    return fmt::format("{} instead of {}", to_string(actual.type), to_string(expected.type));
  const std::vector<double> a = numbers(actual), e = numbers(expected);
  const bool exact = !is_real(expected.type.dtype);
  for (size_t i = 0; i < e.size(); ++i) {
    if (a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]))) continue;
    if (!exact && std::isfinite(e[i]) && std::abs(a[i] - e[i]) <= absolute + relative * std::abs(e[i])) continue;
    return fmt::format("element {} of {} is {} instead of {}", i, to_string(expected.type), a[i], e[i]);
  }
  return {};
}

std::string difference(const Result<std::vector<Tensor>>& actual, const std::vector<Tensor>& expected) {
  if (!actual) return actual.error().to_string();
  if (actual->size() != expected.size())
    return fmt::format("{} outputs instead of {}", actual->size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::string why = difference((*actual)[i], expected[i]); !why.empty())
      return fmt::format("output {}: {}", i, why);
  }
  return {};
}

enum class Way { as_given, parameters_constant, all_constant };

struct Outcome {
  std::string trouble;  // "": it passes
  Way way = Way::as_given;
};

std::string try_model(const KernelLibrary& library, const OnnxCase& onnx_case, Model model) {
  const auto inputs_of = [&](const Graph& graph) {
    std::vector<Tensor> inputs;
    for (const ValueId input : graph.inputs) inputs.push_back(onnx_case.inputs.at(graph.value(input).name));
    return inputs;
  };
  std::string why = difference(evaluate(model.graph, model.weights, inputs_of(model.graph)), onnx_case.outputs);
  if (!why.empty()) return "reference evaluator: " + why;
  // The text form says it all.
  const auto parsed = parse_graph(to_string(model.graph), onnx_case.name);
  if (!parsed) return "text form: " + parsed.error().to_string();
  if (*parsed != model.graph) return "text form: another graph";
  for (const bool optimized : {false, true}) {
    Graph graph = model.graph;
    if (optimized) {
      auto passed = optimize(model.graph, model.weights);
      if (!passed) return "passes: " + passed.error().to_string();
      graph = std::move(passed).value();
    }
    why = difference(run_on_kernels(library, graph, model.weights, inputs_of(graph)), onnx_case.outputs);
    if (!why.empty()) return fmt::format("kernels{}: {}", optimized ? ", optimized" : "", why);
  }
  return {};
}

// As it is; else with the inputs that decide extents as constants, as they are in real networks; else with all inputs
// as constants, folded at import.
Outcome try_case(const KernelLibrary& library, const Result<OnnxCase>& onnx_case) {
  if (!onnx_case) return {onnx_case.error().message};
  std::set<std::string> all;
  for (const auto& [name, tensor] : onnx_case->inputs) all.insert(name);
  Outcome outcome;
  for (const Way way : {Way::as_given, Way::parameters_constant, Way::all_constant}) {
    const std::set<std::string> constants = way == Way::as_given              ? std::set<std::string>{}
                                            : way == Way::parameters_constant ? onnx_case->parameters
                                                                              : all;
    auto model = import_case(*onnx_case, constants);
    if (!model) {
      if (outcome.trouble.empty()) outcome.trouble = model.error().message;
      continue;
    }
    return {try_model(library, *onnx_case, std::move(model).value()), way};
  }
  return outcome;
}

// name → reason
std::map<std::string, std::string> unsupported_cases() {
  std::map<std::string, std::string> cases;
  const std::string text = value_of(read_file(NLS_SOURCE_DIR "/tests/conformance/unsupported.txt"));
  std::string reason;
  TextReader in(text, "unsupported.txt");
  while (in.next_line()) {
    if (in.indent() == 0) {  // "the reason:" and below it the names
      const auto given = in.quoted("a reason");
      EXPECT_TRUE(given.ok()) << given.error().to_string();
      reason = given.ok() ? *given : "";
      continue;
    }
    while (!in.at_end_of_line()) {
      const auto name = in.word("a test's name");
      EXPECT_TRUE(name.ok());
      if (!name.ok()) return cases;
      EXPECT_TRUE(cases.emplace(std::string(*name), reason).second) << *name << " stands twice";
    }
  }
  return cases;
}

TEST(Conformance, SingleOperators) {
  if (!std::filesystem::exists(onnx_cases)) GTEST_SKIP() << onnx_cases << " is missing (Debian: libonnx-testdata)";
  const Isa isa = best_isa().value();
  const auto library = KernelLibrary::load(isa);
  ASSERT_TRUE(library.ok()) << library.error().to_string();
  const std::map<std::string, std::string> unsupported = unsupported_cases();
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(onnx_cases)) {
    if (entry.path().filename().string().starts_with("test_")) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  int passed = 0, passed_expanded = 0, expanded = 0, folded = 0;
  for (const std::filesystem::path& folder : folders) {
    const std::string name = folder.filename().string();
    const bool is_expanded = name.ends_with("_expanded");  // the operator written as a function of others
    const Outcome outcome = try_case(*library, read_case(folder));
    expanded += is_expanded;
    if (outcome.trouble.empty()) {
      (is_expanded ? passed_expanded : passed) += 1;
      folded += outcome.way == Way::all_constant;
      EXPECT_FALSE(unsupported.contains(name)) << name << " passes: take it out of unsupported.txt";
    } else {
      EXPECT_TRUE(unsupported.contains(name)) << name << ": " << outcome.trouble;
    }
  }
  fmt::print("{} of {} operator tests pass, {} of {} of operators written as functions; {} of them as constants only\n",
             passed, std::ssize(folders) - expanded, passed_expanded, expanded, folded);
  EXPECT_GT(passed, 560);
}

// Operators as opsets 18 to 24 define them: cases made by scripts/export/later_opsets.py.
TEST(Conformance, LaterOpsets) {
  const auto library = KernelLibrary::load(best_isa().value());
  ASSERT_TRUE(library.ok()) << library.error().to_string();
  const std::map<std::string, std::string> unsupported = unsupported_cases();
  int passed = 0, cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(NLS_SOURCE_DIR "/tests/conformance/later")) {
    if (entry.path().extension() != ".onnx") continue;
    ++cases;
    const std::string name = "later/" + entry.path().stem().string();
    const Outcome outcome = try_case(*library, read_later_case(entry.path()));
    passed += outcome.trouble.empty();
    if (outcome.trouble.empty())
      EXPECT_FALSE(unsupported.contains(name)) << name << " passes: take it out of unsupported.txt";
    else
      EXPECT_TRUE(unsupported.contains(name)) << name << ": " << outcome.trouble;
  }
  fmt::print("{} of {} cases of opsets 18 to 24 pass\n", passed, cases);
  EXPECT_GT(passed, 200);
}

}  // namespace
}  // namespace nlsplit::testing
