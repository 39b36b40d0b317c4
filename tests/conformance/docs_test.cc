// docs/operators.md against the op table: every operator has its row, with the kernel it really has.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/file.h"
#include "graph/operators/operator.h"
#include "kernels/catalogue.h"
#include "kernels/generated/lower.h"
#include "testing/paths.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

// operator → what the column "kernel" says
std::map<std::string, std::string> documented() {
  std::map<std::string, std::string> rows;
  const std::string text = value_of(read_file(NLS_SOURCE_DIR "/docs/operators.md"));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with("| `")) continue;
    const size_t names = line.find('|', 1), types = line.find('|', names + 1), kernel = line.find('|', types + 1);
    const std::string said = line.substr(types + 2, kernel - types - 3);
    for (size_t open = line.find('`'); open < names;) {
      const size_t close = line.find('`', open + 1);
      EXPECT_TRUE(rows.emplace(line.substr(open + 1, close - open - 1), said).second) << line;
      open = line.find('`', close + 1);
    }
  }
  return rows;
}

TEST(OperatorsPage, HasEveryOperatorOfTheTable) {
  const std::map<std::string, std::string> rows = documented();
  for (int i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    if (op == Op::MaxPoolIndices) continue;  // a part of ONNX's MaxPool
    const auto row = rows.find(std::string(name_of(op)));
    ASSERT_TRUE(row != rows.end()) << name_of(op);
    const bool slow = !has(op, traits::has_kernels) && op != Op::Gather && op != Op::Slice;
    const std::string_view by = is_view(op)     ? "none: the same bytes"
                                : !slow         ? "fast"
                                : has_loops(op) ? "generated"
                                                : "reference";
    EXPECT_EQ(row->second, by) << name_of(op);
  }
}

// Generated code, Slice's and Gather's kernels alone take other types than f32.
TEST(OperatorsPage, OtherTypesAreComputedByGeneratedCode) {
  ComputeDesc desc;
  desc.op = Op::Add;
  desc.inputs.assign(2, {DType::i64, {2, 3}});
  desc.outputs.assign(1, {DType::i64, {2, 3}});
  EXPECT_EQ(to_string(choose_kernel(desc, Isa::v3).value()), "generated_v3");
  for (TensorType& type : desc.inputs) type.dtype = DType::f32;
  desc.outputs[0].dtype = DType::f32;
  EXPECT_EQ(to_string(choose_kernel(desc, Isa::v3).value()), "binary_v3");

  ComputeDesc gather;
  gather.op = Op::Gather;
  gather.attrs = {{"axis", int64_t{0}}};
  gather.inputs = {{DType::u8, {5, 3}}, {DType::i64, {2}}};
  gather.outputs = {{DType::u8, {2, 3}}};
  const std::vector<KernelId> all = candidates(gather, Isa::v3).value();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(to_string(all[0]), "gather_v3");
}

}  // namespace
}  // namespace nlsplit
