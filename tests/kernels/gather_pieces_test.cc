// Gather in pieces, along the axes of its table and of its indices: it copies, so every element has the bits that it
// has within the whole. (exact_axes_test.cc cuts what works on floats alone.)
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/run_kernel.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

// Row-major.
template <class T>
std::vector<T> cut(const std::vector<T>& whole, Shape& shape, size_t axis, int64_t begin, int64_t end) {
  int64_t outer = 1, inner = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i < axis) outer *= shape[i];
    if (i > axis) inner *= shape[i];
  }
  std::vector<T> part;
  for (int64_t o = 0; o < outer; ++o) {
    const auto row = whole.begin() + o * shape[axis] * inner;
    part.insert(part.end(), row + begin * inner, row + end * inner);
  }
  shape[axis] = end - begin;
  return part;
}

struct Lookup {
  Shape table_shape, index_shape;
  std::vector<float> table;
  std::vector<int64_t> indices;
};

std::vector<float> run(const Lookup& lookup, size_t axis, Isa isa, Shape& made) {
  ComputeDesc desc;
  desc.op = Op::Gather;
  desc.attrs = {{"axis", static_cast<int64_t>(axis)}};
  desc.inputs = {{DType::f32, lookup.table_shape}, {DType::i64, lookup.index_shape}};
  desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
  desc.kernel = choose_kernel(desc, isa).value();
  EXPECT_EQ(desc.kernel, KernelId(KernelName::gather, isa));
  made = desc.outputs[0].shape;
  std::vector<float> out(static_cast<size_t>(element_count(made)));
  const void* inputs[] = {lookup.table.data(), lookup.indices.data()};
  void* outputs[] = {out.data()};
  int workers = 1;
  const KernelLibrary library = KernelLibrary::load(isa).value();
  (**library.find(desc.kernel)).run({&desc, inputs, outputs, nullptr, {workers, run_on_threads, &workers}});
  return out;
}

TEST(GatherPieces, HaveTheBitsOfTheWhole) {
  constexpr size_t axis = 1;
  Random random(3);
  for (const Shape& index_shape : {Shape{4}, Shape{2, 3}}) {  // results of three axes and of four
    Lookup whole{{6, 5, 4}, index_shape, std::vector<float>(120), {}};
    for (float& value : whole.table) value = static_cast<float>(random.uniform());
    for (int64_t i = 0; i < element_count(index_shape); ++i)
      whole.indices.push_back(static_cast<int64_t>(random.below(5)));
    for (const Isa isa : supported_levels()) {
      Shape all;
      const std::vector<float> expected = run(whole, axis, isa, all);
      const KernelInfo& kernel = info_of(KernelName::gather);
      for (size_t along = 0; along < all.size(); ++along) {
        EXPECT_NE(kernel.exact_axes & exact_axis(Op::Gather, along, all.size()), 0);
        const int64_t begin = 1, end = all[along];
        Lookup part = whole;
        if (along < axis)
          part.table = cut(whole.table, part.table_shape, along, begin, end);
        else if (along < axis + index_shape.size())
          part.indices = cut(whole.indices, part.index_shape, along - axis, begin, end);
        else
          part.table = cut(whole.table, part.table_shape, along + 1 - index_shape.size(), begin, end);
        Shape shape, wanted = all;
        EXPECT_EQ(run(part, axis, isa, shape), cut(expected, wanted, along, begin, end)) << "axis " << along;
        EXPECT_EQ(shape, wanted);
      }
    }
  }
}

}  // namespace
}  // namespace nlsplit::testing
