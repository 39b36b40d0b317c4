// Linear with weights of every type that has kernels, against the reference evaluator's loops and against itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "graph/elements.h"
#include "kernels/kernel_operands.h"
#include "kernels/piece_of.h"
#include "kernels/run_kernel.h"
#include "kernels/signature.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

constexpr DType scaled_types[] = {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q4_k, DType::q6_k};

Tensor weights_of(const TensorType& type, uint64_t seed) {
  const Tensor values = random_tensor({DType::f32, type.shape}, seed);
  const std::vector<double> reals(values.values.begin(), values.values.end());
  return tensor_of(type, raw_of(type.dtype, std::span<const double>(reals)));
}

// The numbers that a tensor stands for, in f32: of all these types each is one exactly.
Tensor widened_tensor(const Tensor& from) {
  Tensor wide{{DType::f32, from.type.shape}, {}};
  for (const double value : reals_of(from.type.dtype, from.raw)) wide.values.push_back(static_cast<float>(value));
  return wide;
}

ComputeDesc linear(const Shape& x, const TensorType& w, bool bias = false) {
  ComputeDesc desc;
  desc.op = Op::Linear;
  desc.weights = 0b110 & (bias ? 0b111 : 0b011);
  desc.inputs = {{DType::f32, x}, w};
  if (bias) desc.inputs.push_back({DType::f32, {w.shape[0]}});
  desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
  return desc;
}

Tensor reference(const ComputeDesc& desc, std::vector<const Tensor*> inputs) {
  ComputeDesc wide = desc;
  const Tensor w = inputs[1]->type.dtype == DType::f32 ? *inputs[1] : widened_tensor(*inputs[1]);
  wide.inputs[1] = w.type;
  inputs[1] = &w;
  return run_reference(wide, inputs)[0];
}

// What rounding x to blocks of bytes may change: each element by half of a 127th of the largest of its block. To bf16
// an element is rounded by less, by half of a 128th of its own size.
std::vector<double> rounding_of(const ComputeDesc& desc, const Tensor& x, const Tensor& weights) {
  const Tensor w = widened_tensor(weights);
  const size_t n = static_cast<size_t>(w.type.shape[0]), k = static_cast<size_t>(w.type.shape[1]);
  std::vector<double> most;
  for (size_t at = 0; at < static_cast<size_t>(element_count(desc.outputs[0].shape)); ++at) {
    const float *row = &x.values[at / n * k], *column = &w.values[at % n * k];
    double sum = 0;
    for (size_t block = 0; block < k; block += 32) {
      double largest = 0, size = 0;
      for (size_t i = block; i < block + 32; ++i) {
        largest = std::max<double>(largest, std::abs(row[i]));
        size += std::abs(column[i]);
      }
      sum += largest * size * (0.5 / 127 + 1e-6);  // and of the sums
    }
    most.push_back(sum);
  }
  return most;
}

class LinearOf : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  void SetUp() override {
    if (!cpu_supports(isa())) GTEST_SKIP() << "this CPU lacks " << full_name_of(isa());
    library_.emplace(KernelLibrary::load(isa()).value());
  }
  static Isa isa() { return std::get<0>(GetParam()); }
  static DType type() { return std::get<1>(GetParam()); }
  static std::vector<int64_t> widths() {  // of x
    if (block_of(type()) == 256) return {256, 768};
    return {32, 64, 96, 160, 576};
  }
  ComputeDesc chosen(ComputeDesc desc) const {
    desc.kernel = choose_kernel(desc, isa()).value();
    EXPECT_EQ(desc.kernel.name, is_scaled(type())       ? KernelName::linear_blocks
                                : type() == DType::bf16 ? KernelName::linear_bf16
                                                        : KernelName::linear);
    EXPECT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
    return desc;
  }

  std::optional<KernelLibrary> library_;
};

TEST_P(LinearOf, AgreesWithTheReference) {
  uint64_t seed = 0;
  for (const int64_t k : widths()) {
    for (const int64_t n : {1, 3, 4, 5, 37}) {
      for (const int64_t m : {1, 2, 3, 4, 9, 23}) {  // the last in panels
        const Tensor x = random_tensor({DType::f32, {m, k}}, ++seed), w = weights_of({type(), {n, k}}, ++seed),
                     b = random_tensor({DType::f32, {n}}, ++seed);
        const ComputeDesc desc = chosen(linear({m, k}, w.type, true));
        const Tensor want = reference(desc, {&x, &w, &b}), got = run_kernel(*library_, desc, {&x, &w, &b})[0];
        const std::vector<double> most = rounding_of(desc, x, w);
        for (size_t i = 0; i < want.values.size(); ++i) {
          const double bound = type() == DType::f16 ? most[i] * 1e-3 : most[i];
          ASSERT_NEAR(got.values[i], want.values[i], bound + 1e-6) << signature(desc) << " " << i;
        }
      }
    }
  }
}

// Where x consists of whole steps there is nothing to round: what is left is the order of the sums.
TEST_P(LinearOf, ReadsEveryBitOfTheWeights) {
  for (const int64_t k : widths()) {
    const Tensor w = weights_of({type(), {9, k}}, 1);
    Tensor x{{DType::f32, {21, k}}, {}};
    Random random(2);
    for (int64_t i = 0; i < 21 * k; ++i)
      x.values.push_back(i % 32 == 7 ? 127 : static_cast<float>(random.below(255)) - 127);
    const ComputeDesc desc = chosen(linear({21, k}, w.type));
    const Tensor want = reference(desc, {&x, &w}), got = run_kernel(*library_, desc, {&x, &w})[0];
    for (size_t i = 0; i < want.values.size(); ++i)
      ASSERT_NEAR(got.values[i], want.values[i], 2e-4 * std::sqrt(static_cast<double>(k))) << signature(desc) << i;
    library_->use_dot_product(false);
    expect_same_bits(run_kernel(*library_, desc, {&x, &w})[0], got);
    library_->use_dot_product(true);
  }
}

// Alone, among others, by columns, by several workers: every element has the same bits. So has it where the CPU's
// products of bytes, or of pairs of bf16, are left out, and with them the panels that many rows have.
TEST_P(LinearOf, BitsDependOnNoOtherRow) {
  const int64_t k = widths().back();
  const Tensor x = random_tensor({DType::f32, {2, 13, k}}, 1), w = weights_of({type(), {45, k}}, 2),
               b = random_tensor({DType::f32, {45}}, 3);
  const std::vector<Tensor> inputs = {x, w, b};
  const ComputeDesc desc = chosen(linear(x.type.shape, w.type, true));
  const Tensor whole = run_kernel(*library_, desc, pointers(inputs))[0];
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t extent = whole.type.shape[axis];
    EXPECT_NE(info_of(desc.kernel.name).exact_axes & exact_axis(desc.op, axis, 3), 0);
    for (const int64_t at : {int64_t{1}, extent / 2, extent - 1}) {
      for (const auto& [begin, end] : {std::pair(int64_t{0}, at), {at, extent}}) {
        const auto piece = piece_of(desc, axis, begin, end);
        ASSERT_TRUE(piece.has_value());
        ComputeDesc part = piece->desc;
        part.kernel = desc.kernel;
        const std::vector<Tensor> taken = parts(*piece, inputs);
        expect_same_bits(run_kernel(*library_, part, pointers(taken))[0], part_of(whole, {axis, begin, end}));
        ASSERT_FALSE(HasFailure()) << signature(part);
      }
    }
  }
  for (const int workers : {2, 3}) expect_same_bits(run_kernel(*library_, desc, pointers(inputs), workers)[0], whole);
  library_->use_dot_product(false);
  expect_same_bits(run_kernel(*library_, desc, pointers(inputs))[0], whole);
  library_->use_dot_product(true);
}

// Many more weights than a cache takes at once.
TEST_P(LinearOf, ManyRowsOfWeights) {
  const int64_t k = widths().back(), n = 3001;
  const Tensor x = random_tensor({DType::f32, {6, k}}, 1), w = weights_of({type(), {n, k}}, 2);
  const ComputeDesc desc = chosen(linear(x.type.shape, w.type));
  const Tensor want = reference(desc, {&x, &w});
  const std::vector<double> most = rounding_of(desc, x, w);
  for (const int workers : {1, 3}) {
    const Tensor got = run_kernel(*library_, desc, {&x, &w}, workers)[0];
    for (size_t i = 0; i < want.values.size(); ++i) ASSERT_NEAR(got.values[i], want.values[i], most[i] + 1e-6) << i;
  }
}

// Memory whose last byte is the last of a page that nothing follows.
class AtEndOfMemory {
 public:
  explicit AtEndOfMemory(std::string_view bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_ = (bytes.size() + page - 1) / page * page + page;
    memory_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    CHECK(memory_ != MAP_FAILED, "a few pages");
    CHECK(mprotect(memory_ + size_ - page, page, PROT_NONE) == 0, "the last of them");
    begin_ = memory_ + size_ - page - bytes.size();
    std::copy(bytes.begin(), bytes.end(), begin_);
  }
  AtEndOfMemory(const AtEndOfMemory&) = delete;
  ~AtEndOfMemory() { munmap(memory_, size_); }
  const void* data() const { return begin_; }

 private:
  size_t size_ = 0;
  char *memory_ = nullptr, *begin_ = nullptr;
};

// A file's bytes may be mapped, and end with the weights.
TEST_P(LinearOf, ReadsNothingBehindTheWeights) {
  for (const int64_t k : widths()) {
    for (const int64_t m : {1, 2, 9, 16}) {
      const Tensor x = random_tensor({DType::f32, {m, k}}, 1), w = weights_of({type(), {7, k}}, 2);
      const ComputeDesc desc = chosen(linear({m, k}, w.type));
      const AtEndOfMemory weights(w.raw);
      const Tensor want = run_kernel(*library_, desc, {&x, &w})[0];
      std::vector<float> made(want.values.size()), workspace(floats_of(workspace_of(desc, 1)));
      const void* inputs[] = {x.values.data(), weights.data()};
      void* outputs[] = {made.data()};
      (**library_->find(desc.kernel)).run({&desc, inputs, outputs, workspace.data(), {}});
      EXPECT_EQ(made, want.values) << signature(desc);
    }
  }
}

TEST_P(LinearOf, StepsFollow) {
  const int64_t k = widths()[0];
  for (const int64_t m : {3, 19}) {
    const Tensor x = random_tensor({DType::f32, {m, k}}, 1), w = weights_of({type(), {10, k}}, 2),
                 more = random_tensor({DType::f32, {m, 10}}, 3);
    const ComputeDesc plain = chosen(linear({m, k}, w.type));
    ComputeDesc desc = plain;
    desc.epilogue = {{Op::Relu, {}}, {Op::Mul, {}}};
    desc.inputs.push_back(more.type);
    ASSERT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
    Tensor want = run_kernel(*library_, plain, {&x, &w})[0];
    for (size_t i = 0; i < want.values.size(); ++i) want.values[i] = std::max(want.values[i], 0.0f) * more.values[i];
    expect_same_bits(run_kernel(*library_, desc, {&x, &w, &more})[0], want);
  }
}

// A row with a number that is none has no other result; its neighbours have theirs.
TEST_P(LinearOf, WhatIsNotFiniteStaysInItsRow) {
  const int64_t k = widths().back();
  for (const int64_t m : {5, 18}) {
    const Tensor finite = random_tensor({DType::f32, {m, k}}, 1), w = weights_of({type(), {6, k}}, 2);
    const ComputeDesc desc = chosen(linear({m, k}, w.type));
    const Tensor want = run_kernel(*library_, desc, {&finite, &w})[0];
    Tensor x = finite;
    x.values[static_cast<size_t>(k + 3)] = std::numeric_limits<float>::infinity();
    x.values[static_cast<size_t>(3 * k + k - 1)] = std::numeric_limits<float>::quiet_NaN();
    const Tensor got = run_kernel(*library_, desc, {&x, &w})[0];
    for (size_t i = 0; i < got.values.size(); ++i) {
      const size_t row = i / 6;
      if (row == 1 || row == 3)
        EXPECT_FALSE(std::isfinite(got.values[i])) << i;
      else
        EXPECT_EQ(got.values[i], want.values[i]) << i;
    }
  }
}

TEST_P(LinearOf, NothingIsZeros) {
  const Tensor tiny{{DType::f32, {1, 256}}, std::vector<float>(256, 1e-42f)}, w = weights_of({type(), {3, 256}}, 2);
  const ComputeDesc desc = chosen(linear({1, 256}, w.type));
  const Tensor made = run_kernel(*library_, desc, {&tiny, &w})[0];
  for (const float value : made.values) EXPECT_NEAR(value, 0, 1e-37);
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 3}, {3, 0}}) {
    const Tensor x = random_tensor({DType::f32, {m, 256}}, 1), none = weights_of({type(), {n, 256}}, 2);
    EXPECT_TRUE(run_kernel(*library_, chosen(linear({m, 256}, none.type)), {&x, &none}, 2)[0].values.empty());
  }
}

std::vector<std::tuple<Isa, DType>> levels_and_types() {
  std::vector<std::tuple<Isa, DType>> all;
  for (const Isa isa : all_levels()) {
    for (const DType type : scaled_types) all.emplace_back(isa, type);
    for (const DType type : {DType::f16, DType::bf16}) all.emplace_back(isa, type);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, LinearOf, ::testing::ValuesIn(levels_and_types()), [](const auto& info) {
  return fmt::format("{}_{}", name_of(std::get<1>(info.param)), name_of(std::get<0>(info.param)));
});

TEST(GatherOfBlocks, IsTheReference) {
  for (const Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    for (const DType type : scaled_types) {
      const Tensor table = weights_of({type, {3, 11, 256}}, 1);
      for (const int64_t axis : {0, 1, -2}) {
        ComputeDesc desc;
        desc.op = Op::Gather;
        desc.attrs = {{"axis", axis}};
        desc.weights = 0b1;
        desc.inputs = {table.type, {axis == 0 ? DType::i64 : DType::i32, {2, 3}}};
        desc.outputs = infer(desc.op, desc.inputs, desc.attrs).value();
        desc.kernel = choose_kernel(desc, isa).value();
        EXPECT_EQ(desc.kernel.name, KernelName::gather_blocks);
        ASSERT_TRUE(verify(desc).ok()) << verify(desc).error().to_string();
        const std::vector<int64_t> places = {2, -1, 0, 400, -400, 1};
        const Tensor at = tensor_of(desc.inputs[1], raw_of(desc.inputs[1].dtype, std::span<const int64_t>(places)));
        const Tensor want = run_reference(desc, {&table, &at})[0];
        for (const int workers : {1, 3}) expect_same_bits(run_kernel(library, desc, {&table, &at}, workers)[0], want);
      }
    }
  }
}

TEST(Linear, WeightsAreReadAsTheyAre) {
  for (const DType type : scaled_types) {
    ComputeDesc desc = linear({2, 3, 512}, {type, {7, 512}});
    desc.kernel = choose_kernel(desc, Isa::v3).value();
    EXPECT_EQ(packed_bytes_of(desc, 1).value(), 0);
    EXPECT_EQ(parse_signature(signature(desc)).value(), desc);
    EXPECT_EQ(work_of(desc).bytes_read.value(), 2 * 3 * 512 * 4 + size_of(type, 7 * 512));
    EXPECT_EQ(work_of(desc).flops.value(), 2.0 * 2 * 3 * 7 * 512);
  }
}

TEST(Linear, WhatFitsTogether) {
  const auto refused = [](const std::vector<TensorType>& inputs) {
    const auto types = infer(Op::Linear, inputs, {});
    return types.ok() ? to_string((*types)[0]) : types.error().message;
  };
  EXPECT_EQ(refused({{DType::f32, {2, 4}}, {DType::f32, {3, 4}}, {DType::f32, {3}}}), "f32[2,3]");
  EXPECT_EQ(refused({{DType::f32, {4}}, {DType::bf16, {3, 4}}}), "f32[3]");
  EXPECT_EQ(refused({{DType::f16, {2, 4}}, {DType::f16, {3, 4}}}), "f16[2,3]");
  EXPECT_EQ(refused({{DType::f16, {2, 4}}, {DType::f32, {3, 4}}}), "operands of types f16 and f32");
  EXPECT_EQ(refused({{DType::f32, {2, 4}}, {DType::f32, {3, 5}}}), "inner extents 4 and 5 differ");
  EXPECT_EQ(refused({{DType::f32, {2, 4}}, {DType::f32, {3, 4}}, {DType::f32, {4}}}), "a bias f32[4] of 3 columns");
  EXPECT_EQ(refused({{DType::f32, {2, 4}}, {DType::f32, {1, 3, 4}}}), "Linear needs rows, and a matrix of weights");
}

}  // namespace
}  // namespace nlsplit::testing
