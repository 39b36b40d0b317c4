// The table of operators: types, refusals, work and the batch axis.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "graph/op_attrs.h"
#include "graph/operators/operator.h"
#include "testing/types.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

std::string infer(Op op, const std::vector<TensorType>& inputs, const Attrs& attrs = {}) {
  const auto types = info(op).infer(inputs, attrs);
  return types.ok() ? to_string((*types)[0]) : types.error().message;
}

Attrs window(Ints kernel, Ints strides, Ints pads) {
  return {{"dilations", Ints{1, 1}}, {"kernel_shape", kernel}, {"pads", pads}, {"strides", strides}};
}
Attrs max_pool(Ints kernel, Ints strides, Ints pads, int64_t ceil_mode) {
  Attrs attrs = window(kernel, strides, pads);
  set_attr(attrs, "ceil_mode", ceil_mode);
  return attrs;
}

TEST(Ops, TableIsFoundByNameAndByOp) {
  for (int i = 0; i < op_count; ++i) {
    const Operator& row = info(static_cast<Op>(i));
    const auto parsed = parse_op(row.name);
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(static_cast<int>(*parsed), i);
    EXPECT_LE(row.min_inputs, row.max_inputs < 0 ? 64 : row.max_inputs);
  }
  EXPECT_EQ(parse_op("Convv").error().message, "unknown operator Convv; did you mean Conv?");
  EXPECT_EQ(parse_op("Loop").error().kind, ErrorKind::unsupported);
}

TEST(Ops, WindowsCountTheirPositions) {
  // (224 + 3 + 3 - 7) / 2 + 1 = 112
  EXPECT_EQ(infer(Op::Conv, {f32({1, 3, 224, 224}), f32({64, 3, 7, 7})}, conv({7, 7}, {2, 2}, {3, 3, 3, 3})),
            "f32[1,64,112,112]");
  // depthwise: each of 32 groups sees one channel
  EXPECT_EQ(infer(Op::Conv, {f32({2, 32, 9, 8}), f32({32, 1, 3, 3})}, conv({3, 3}, {1, 1}, {0, 1, 1, 0}, 32)),
            "f32[2,32,8,7]");
  // (6 - 3) / 2 = 1.5 steps: one more position only in ceil mode
  EXPECT_EQ(infer(Op::MaxPool, {f32({1, 1, 6, 6})}, max_pool({3, 3}, {2, 2}, {0, 0, 0, 0}, 0)), "f32[1,1,2,2]");
  EXPECT_EQ(infer(Op::MaxPool, {f32({1, 1, 6, 6})}, max_pool({3, 3}, {2, 2}, {0, 0, 0, 0}, 1)), "f32[1,1,3,3]");
  // ceil mode never starts a window in the padding behind: ceil((4 + 2 - 2) / 3) + 1 = 3 windows would start at 6 >= 4
  // + 1
  EXPECT_EQ(infer(Op::MaxPool, {f32({1, 1, 4, 4})}, max_pool({2, 2}, {3, 3}, {1, 1, 1, 1}, 1)), "f32[1,1,2,2]");
}

TEST(Ops, RefusesWhatDoesNotFit) {
  const Attrs three = conv({3, 3}, {1, 1}, {0, 0, 0, 0});
  EXPECT_THAT(infer(Op::Conv, {f32({1, 4, 8, 8}), f32({8, 3, 3, 3})}, three), HasSubstr("the input has 4 channels"));
  EXPECT_THAT(infer(Op::Conv, {f32({1, 3, 2, 8}), f32({8, 3, 3, 3})}, three),
              HasSubstr("a kernel that reaches 3 exceeds the padded input of 2"));
  EXPECT_THAT(infer(Op::Conv, {f32({1, 3, 8}), f32({8, 3, 3, 3})}, three),
              HasSubstr("an input f32[1,3,8] and weights f32[8,3,3,3]"));
  EXPECT_THAT(infer(Op::Conv, {f32({1, 3, 8, 8}), f32({8, 3, 3, 3})}, {}), HasSubstr("attribute dilations is missing"));
  EXPECT_THAT(infer(Op::Conv, {f32({1, 3, 8, 8}), f32({8, 3, 3, 3})}, conv({3, 3}, {0, 1}, {0, 0, 0, 0})),
              HasSubstr("must be positive"));
  EXPECT_THAT(infer(Op::Conv, {f32({1, 3, 8, 8})}, three), HasSubstr("1 inputs, Conv takes 2 to 3"));
  EXPECT_THAT(infer(Op::Relu, {f32({1})}, {{"alpha", 1.0}}), HasSubstr("Relu has no attribute alpha"));
  EXPECT_THAT(infer(Op::LeakyRelu, {f32({1})}, {{"alpha", int64_t{1}}}), HasSubstr("wrong type"));
  EXPECT_THAT(infer(Op::LeakyRelu, {f32({1})}, {{"alpha", std::numeric_limits<double>::quiet_NaN()}}),
              HasSubstr("not a number"));
  EXPECT_THAT(infer(Op::Add, {f32({2, 3}), f32({2})}), HasSubstr("extents 3 and 2 do not broadcast"));
  EXPECT_THAT(infer(Op::Add, {{DType::i64, {2}}, f32({2})}), HasSubstr("operands of types i64 and f32"));
  EXPECT_THAT(infer(Op::Sigmoid, {{DType::i64, {2}}}), HasSubstr("operands of type i64; only floats are supported"));
  EXPECT_THAT(infer(Op::MatMul, {f32({2, 3}), f32({4, 2})}), HasSubstr("inner extents 3 and 4 differ"));
  EXPECT_EQ(infer(Op::MatMul, {f32({2, 3}), f32({3, 2}), f32({3})}), "a bias f32[3] of a product f32[2,2]");
  EXPECT_EQ(infer(Op::MatMul, {f32({2, 3}), f32({3}), f32({1})}), "a bias f32[1] of a product f32[2]");
  EXPECT_THAT(infer(Op::Reshape, {f32({2, 3})}, {{"shape", Ints{-1, -1}}}), HasSubstr("two extents open"));
  EXPECT_THAT(infer(Op::Reshape, {f32({2, 3})}, {{"shape", Ints{4, 2}}}), HasSubstr("6 elements cannot become 8"));
  EXPECT_THAT(infer(Op::Transpose, {f32({2, 3})}, {{"perm", Ints{0, 0}}}), HasSubstr("not a permutation"));
  EXPECT_THAT(infer(Op::Softmax, {f32({2, 3})}, {{"axis", int64_t{2}}}), HasSubstr("axis 2 of a tensor with 2 axes"));
  EXPECT_THAT(infer(Op::LRN, {f32({1, 4, 2, 2})}, {{"alpha", 1.0}, {"beta", 1.0}, {"bias", 1.0}, {"size", int64_t{0}}}),
              HasSubstr("0 channels"));
}

TEST(Ops, ConvTransposeUndoesWindows) {
  const auto attrs = [](Ints strides, Ints pads, Ints more, int64_t group = 1) {
    Attrs all = conv({4, 3}, strides, pads, group);
    set_attr(all, "output_padding", more);
    return all;
  };
  const auto of = [&](const Shape& x, const Shape& w, const Attrs& a) {
    return infer(Op::ConvTranspose, {f32(x), f32(w)}, a);
  };
  // (5 - 1) * 2 + 4 - 2 + 1 = 11 and (6 - 1) * 3 + 3 - 1 = 17; 7 filters in each of 2 groups
  EXPECT_EQ(of({2, 8, 5, 6}, {8, 7, 4, 3}, attrs({2, 3}, {1, 0, 1, 1}, {1, 0}, 2)), "f32[2,14,11,17]");
  EXPECT_THAT(of({2, 8, 5, 6}, {9, 7, 4, 3}, attrs({2, 3}, {0, 0, 0, 0}, {0, 0})),
              HasSubstr("the input has 8 channels, the weight is for 9"));
  EXPECT_THAT(of({2, 8, 5, 6}, {8, 7, 4, 3}, attrs({2, 3}, {0, 0, 0, 0}, {0, 0}, 3)), HasSubstr("8 channels in 3"));
  EXPECT_THAT(of({2, 8, 5, 6}, {8, 7, 3, 3}, attrs({2, 3}, {0, 0, 0, 0}, {0, 0})), HasSubstr("kernel_shape is 4x3"));
  EXPECT_THAT(of({2, 8, 5, 6}, {8, 7, 4, 3}, attrs({2, 3}, {0, 0, 0, 0}, {2, 0})), HasSubstr("output_padding of 2"));
  EXPECT_THAT(of({2, 8, 1, 1}, {8, 7, 4, 3}, attrs({1, 1}, {2, 0, 2, 0}, {0, 0})), HasSubstr("leave nothing"));
  EXPECT_THAT(of({2, 8, 5}, {8, 7, 4, 3}, attrs({1, 1}, {0, 0, 0, 0}, {0, 0})), HasSubstr("an input f32[2,8,5]"));
  EXPECT_THAT(
      infer(Op::ConvTranspose, {f32({1, 8, 5, 6}), f32({8, 7, 4, 3}), f32({8})}, attrs({1, 1}, {0, 0, 0, 0}, {0, 0})),
      HasSubstr("the bias is not [7]"));
  // 8 * 5 * 6 inputs, each times 7 * 4 * 3 weights, an addition each
  EXPECT_EQ(
      work_of(Op::ConvTranspose, attrs({1, 1}, {0, 0, 0, 0}, {0, 0}), {},
              std::vector<TensorType>{f32({1, 8, 5, 6}), f32({8, 7, 4, 3})}, std::vector<TensorType>{f32({1, 7, 8, 8})})
          .flops.value(),
      2.0 * 8 * 5 * 6 * 7 * 4 * 3);
}

TEST(Ops, NormalizationsCheckTheirParameters) {
  const Attrs axis1{{"axis", int64_t{1}}, {"epsilon", 1e-5}}, epsilon{{"epsilon", 1e-5}};
  EXPECT_EQ(infer(Op::LayerNormalization, {f32({2, 3, 4}), f32({3, 4})}, axis1), "f32[2,3,4]");
  EXPECT_THAT(infer(Op::LayerNormalization, {f32({2, 3, 4}), f32({4})}, axis1),
              HasSubstr("parameter 1 is f32[4], not of the shape that is normalized, f32[3,4]"));
  EXPECT_THAT(infer(Op::LayerNormalization, {f32({2}), f32({2})}, axis1), HasSubstr("axis 1 of a tensor with 1 axes"));
  EXPECT_EQ(infer(Op::InstanceNormalization, {f32({2, 3, 4}), f32({3}), f32({3})}, epsilon), "f32[2,3,4]");
  EXPECT_THAT(infer(Op::InstanceNormalization, {f32({2, 3, 4}), f32({3}), f32({4})}, epsilon),
              HasSubstr("parameter 2 is f32[4], not [3]"));
  EXPECT_THAT(infer(Op::InstanceNormalization, {f32({2, 3}), f32({3}), f32({3})}, epsilon), HasSubstr("spatial axes"));
}

TEST(Ops, RefusesExtentsThatOverflow) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_THAT(infer(Op::Add, {f32({huge, 1}), f32({1, huge})}), HasSubstr("too large"));
  EXPECT_THAT(infer(Op::Add, {f32({huge, 1, 0}), f32({1, huge, 1})}), HasSubstr("too large"));
  EXPECT_THAT(infer(Op::Reshape, {f32({4})}, {{"shape", Ints{huge, huge}}}), HasSubstr("an extent of"));
  EXPECT_THAT(infer(Op::Pad, {f32({4})}, {{"pads", Ints{std::numeric_limits<int64_t>::max(), 0}}, {"value", 0.0}}),
              HasSubstr("pads"));
  EXPECT_FALSE(check_type(f32({huge, huge})).ok());
  EXPECT_FALSE(check_type(f32({0, huge, huge})).ok()) << "products that leave the zero out would overflow";
  EXPECT_FALSE(check_type(f32({-1})).ok());
}

// An index always counts as one inside, so there must be something inside.
TEST(Ops, IndicesIntoEmptyAxesAreRefused) {
  const TensorType empty = f32({0, 3}), one_index{DType::i64, {1, 3}}, pair{DType::i64, {1, 1}};
  const Attrs axis0 = {{"axis", int64_t{0}}};
  const Attrs scatter = {{"axis", int64_t{0}}, {"reduction", std::string("none")}};
  EXPECT_THAT(infer(Op::Gather, {empty, one_index}, axis0), HasSubstr("indices into axis 0 of f32[0,3]"));
  EXPECT_THAT(infer(Op::GatherElements, {empty, one_index}, axis0), HasSubstr("indices into axis 0 of f32[0,3]"));
  EXPECT_THAT(infer(Op::GatherND, {empty, pair}, {{"batch_dims", int64_t{0}}}), HasSubstr("indices into axis 0"));
  EXPECT_THAT(infer(Op::ScatterElements, {empty, one_index, f32({1, 3})}, scatter), HasSubstr("indices into axis 0"));
  EXPECT_THAT(infer(Op::ScatterND, {empty, pair, f32({1, 3})}, {{"reduction", std::string("none")}}),
              HasSubstr("indices into axis 0"));
  EXPECT_EQ(infer(Op::Gather, {empty, {DType::i64, {0}}}, axis0), "f32[0,3]");
}

TEST(Ops, ShapesOfTheRest) {
  EXPECT_EQ(infer(Op::Gemm, {f32({5, 2}), f32({3, 5}), f32({3})},
                  {{"alpha", 1.0}, {"beta", 1.0}, {"transA", int64_t{1}}, {"transB", int64_t{1}}}),
            "f32[2,3]");
  EXPECT_EQ(infer(Op::MatMul, {f32({7, 1, 2, 3}), f32({4, 3, 5})}), "f32[7,4,2,5]");
  EXPECT_EQ(infer(Op::MatMul, {f32({3}), f32({3})}), "f32[]");
  EXPECT_EQ(infer(Op::MatMul, {f32({7, 2, 3}), f32({3, 5}), f32({5})}), "f32[7,2,5]");
  EXPECT_EQ(infer(Op::Mul, {f32({2, 1, 3}), f32({4, 1})}), "f32[2,4,3]");
  EXPECT_EQ(infer(Op::Concat, {f32({1, 2, 4}), f32({1, 3, 4})}, {{"axis", int64_t{-2}}}), "f32[1,5,4]");
  EXPECT_EQ(infer(Op::Flatten, {f32({2, 3, 4})}, {{"axis", int64_t{-1}}}), "f32[6,4]");
  EXPECT_EQ(infer(Op::Reshape, {f32({2, 3, 4})}, {{"shape", Ints{0, -1}}}), "f32[2,12]");
  EXPECT_EQ(infer(Op::ReduceMean, {f32({2, 3, 4})}, {{"axes", Ints{-1, 1}}, {"keepdims", int64_t{0}}}), "f32[2]");
  EXPECT_EQ(infer(Op::GlobalAveragePool, {f32({2, 3, 4, 5})}), "f32[2,3,1,1]");
  EXPECT_EQ(infer(Op::Pad, {f32({2, 3})}, {{"pads", Ints{0, 1, 0, 2}}, {"value", 0.0}}), "f32[2,6]");
}

TEST(Ops, WorkCountsAMultiplyAddAsTwo) {
  const std::vector<TensorType> in = {f32({1, 16, 8, 8}), f32({32, 16, 3, 3}), f32({32})}, out = {f32({1, 32, 8, 8})};
  const Attrs attrs = conv({3, 3}, {1, 1}, {1, 1, 1, 1});
  Work work = work_of(Op::Conv, attrs, {}, in, out);
  // 32*8*8 results of 16*3*3 products and sums each
  EXPECT_EQ(work.flops.value(), 2.0 * 32 * 8 * 8 * 16 * 9);
  EXPECT_EQ(work.bytes_read.value(), 4 * (16 * 64 + 32 * 16 * 9 + 32));
  EXPECT_EQ(work.bytes_written.value(), 4 * 32 * 64);
  // Over one axis: 32*8 results of 16*3
  EXPECT_EQ(work_of(Op::Conv, {}, {}, std::vector<TensorType>{f32({1, 16, 8}), f32({32, 16, 3})},
                    std::vector<TensorType>{f32({1, 32, 8})})
                .flops.value(),
            2.0 * 32 * 8 * 16 * 3);
  // An operand is read, the intermediate result is not.
  const std::vector<EpilogueStep> epilogue = {{Op::Add, ValueId(0), {}, "add"}, {Op::Relu, {}, {}, "relu"}};
  const Work fused = work_of(Op::Conv, attrs, epilogue, in, out);
  EXPECT_EQ(fused.flops.value() - work.flops.value(), 2.0 * 32 * 64);
  EXPECT_EQ(fused.bytes_read.value() - work.bytes_read.value(), 4 * 32 * 64);
  EXPECT_EQ(fused.bytes_written, work.bytes_written);
}

// A box costs what is in it, not what it is cut out of.
// Two rows choose two of four experts each, in every way that there is: so many experts are read on the average.
TEST(Ops, WorkOfExpertsIsOfThoseThatAreChosen) {
  const auto experts = [](int64_t rows, int64_t here, int64_t first) {
    const TensorType x = f32({rows, 64}), chosen{DType::i64, {rows, 2}}, shares = f32({rows, 2}),
                     gate{DType::q8_0, {here, 32, 64}}, down{DType::f16, {here, 64, 32}};
    const Attrs attrs = {{"all", int64_t{4}}, {"first", first}};
    return work_of(Op::Experts, attrs, {}, std::vector<TensorType>{x, chosen, shares, gate, gate, down},
                   std::vector<TensorType>{x});
  };
  int read = 0, ways = 0;
  const int pairs[] = {0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100};
  for (const int one : pairs) {
    for (const int other : pairs) {
      read += std::popcount(static_cast<unsigned>(one | other));
      ++ways;
    }
  }
  const int64_t one_expert = 2 * (32 * 64 / 32 * 34) + 64 * 32 * 2;
  const int64_t rows_read = 2 * (64 * 4 + 2 * 8 + 2 * 4);
  const Work work = experts(2, 4, 0);
  EXPECT_EQ(work.bytes_read.value(), rows_read + one_expert * read / ways);
  EXPECT_EQ(work.bytes_written.value(), 2 * 64 * 4);
  EXPECT_EQ(work.flops.value(), 4 * (2 * 3 * 64 * 32 + 3 * 32 + 2 * 64));
  // A shard with half of them has half of that to do.
  EXPECT_EQ(experts(2, 2, 2).flops.value(), work.flops.value() / 2);
  EXPECT_EQ(experts(2, 2, 2).bytes_read.value() - rows_read, (work.bytes_read.value() - rows_read) / 2);
  // Of one row exactly those it chooses.
  EXPECT_EQ(experts(1, 4, 0).bytes_read.value(), rows_read / 2 + 2 * one_expert);
}

TEST(Ops, ExpertsThatDoNotFitAreRefused) {
  const auto why = [](std::vector<TensorType> types, int64_t all, int64_t first) {
    return infer(Op::Experts, types, {{"all", all}, {"first", first}});
  };
  const TensorType x = f32({1, 3, 16}), chosen{DType::i64, {1, 3, 2}}, shares = f32({1, 3, 2}), gate = f32({4, 8, 16}),
                   down = f32({4, 16, 8});
  EXPECT_EQ(why({x, chosen, shares, gate, gate, down}, 6, 2), "f32[1,3,16]");
  EXPECT_THAT(why({x, chosen, shares, gate, gate, down}, 6, 3), HasSubstr("experts 3 to 6 of 6"));
  EXPECT_THAT(why({x, chosen, shares, gate, gate, gate}, 6, 0), HasSubstr("experts of f32[4,8,16]"));
  EXPECT_THAT(why({x, shares, shares, gate, gate, down}, 6, 0), HasSubstr("f32[1,3,2] are not indices"));
  EXPECT_THAT(why({f32({1, 3, 17}), chosen, shares, gate, gate, down}, 6, 0), HasSubstr("inner extents 17 and 16"));
  EXPECT_THAT(why({x, chosen, f32({1, 3, 3}), gate, gate, down}, 6, 0), HasSubstr("choose by"));
  const TensorType seven{DType::i64, {1, 3, 7}};
  EXPECT_THAT(why({x, seven, f32({1, 3, 7}), gate, gate, down}, 6, 0), HasSubstr("7 of 6 experts for each row"));
}

TEST(Ops, WorkOfASliceIsWhatItTakesOut) {
  const Attrs attrs = {{"axes", Ints{0}}, {"ends", Ints{5}}, {"starts", Ints{2}}, {"steps", Ints{1}}};
  const Work work =
      work_of(Op::Slice, attrs, {}, std::vector<TensorType>{f32({1000, 64})}, std::vector<TensorType>{f32({3, 64})});
  EXPECT_EQ(work.bytes_read.value(), 4 * 3 * 64);
  EXPECT_EQ(work.bytes_written.value(), 4 * 3 * 64);
}

TEST(Ops, Attention) {
  const auto attrs = [](int64_t causal) { return Attrs{{"causal", causal}, {"scale", 0.5}}; };
  const TensorType q = f32({2, 6, 5, 4}), k = f32({2, 3, 7, 4}), v = f32({2, 3, 7, 9});
  EXPECT_EQ(infer(Op::Attention, {q, k, v}, attrs(1)), "f32[2,6,5,9]");
  for (const Shape& mask : {Shape{7}, Shape{5, 7}, Shape{6, 1, 7}, Shape{2, 1, 5, 7}})
    EXPECT_EQ(infer(Op::Attention, {q, k, v, f32(mask)}, attrs(0)), "f32[2,6,5,9]");
  EXPECT_THAT(infer(Op::Attention, {q, k, v, f32({5, 1})}, attrs(0)), HasSubstr("a mask f32[5,1] for scores"));
  EXPECT_THAT(infer(Op::Attention, {q, k, v, f32({3, 5, 7})}, attrs(0)), HasSubstr("a mask f32[3,5,7] for scores"));
  EXPECT_THAT(infer(Op::Attention, {q, f32({2, 4, 7, 4}), v}, attrs(0)), HasSubstr("do not share keys and values"));
  EXPECT_THAT(infer(Op::Attention, {q, k, f32({2, 3, 6, 9})}, attrs(0)), HasSubstr("not a value for each key"));
  EXPECT_THAT(infer(Op::Attention, {q, f32({2, 3, 7, 5}), v}, attrs(0)), HasSubstr("differ in size"));
  EXPECT_THAT(infer(Op::Attention, {q, f32({1, 3, 7, 4}), v}, attrs(0)), HasSubstr("the batches differ"));
  EXPECT_THAT(infer(Op::Attention, {f32({2, 6, 8, 4}), k, v}, attrs(1)), HasSubstr("in front of all keys"));
  // 12 heads of 5 queries that see 7 keys: two products of 4 and 9, scale and softmax are 1 and 5.
  const auto flops = [&](int64_t causal) {
    return work_of(Op::Attention, attrs(causal), {}, std::vector<TensorType>{q, k, v},
                   std::vector<TensorType>{f32({2, 6, 5, 9})})
        .flops.value();
  };
  EXPECT_EQ(flops(0), 12.0 * 5 * 7 * (2 * (4 + 9) + 6));
  EXPECT_EQ(flops(1), 12.0 * (3 + 4 + 5 + 6 + 7) * (2 * (4 + 9) + 6)) << "the last query sees them all";
  const auto keeps = [&](std::vector<TensorType> types, uint64_t batched) {
    return info(Op::Attention).keeps_batch(types, batched, attrs(0));
  };
  EXPECT_TRUE(keeps({q, k, v}, 7));
  EXPECT_FALSE(keeps({q, k, v}, 1)) << "keys that are the same for all samples would have to be repeated";
  EXPECT_TRUE(keeps({q, k, v, f32({5, 7})}, 7));
  EXPECT_TRUE(keeps({q, k, v, f32({2, 1, 5, 7})}, 15));
  EXPECT_TRUE(keeps({q, k, v, f32({1, 6, 5, 7})}, 7));
  EXPECT_FALSE(keeps({q, k, v, f32({2, 1, 5, 7})}, 7)) << "a constant that differs for each sample";
  EXPECT_FALSE(keeps({q, k, v, f32({5, 7})}, 15));
}

// A row of an embedding costs what the row has, not the whole table.
TEST(Ops, WorkOfAGatherIsWhatItTakesOut) {
  const Work work =
      work_of(Op::Gather, {{"axis", int64_t{0}}}, {}, std::vector<TensorType>{f32({100000, 64}), {DType::i64, {2, 3}}},
              std::vector<TensorType>{f32({2, 3, 64})});
  EXPECT_EQ(work.bytes_read.value(), 4 * 6 * 64 + 8 * 6);
  EXPECT_EQ(work.bytes_written.value(), 4 * 6 * 64);
}

TEST(Ops, BatchAxis) {
  const auto keeps = [](Op op, const std::vector<TensorType>& inputs, uint64_t batched, const Attrs& attrs = {}) {
    return info(op).keeps_batch(inputs, batched, attrs);
  };
  EXPECT_TRUE(keeps(Op::Conv, {f32({8, 3, 4, 4}), f32({2, 3, 1, 1})}, 1));
  EXPECT_FALSE(keeps(Op::Conv, {f32({8, 3, 4, 4}), f32({8, 3, 1, 1})}, 3)) << "a weight for each sample";
  EXPECT_TRUE(keeps(Op::Add, {f32({8, 3}), f32({3})}, 1));
  EXPECT_TRUE(keeps(Op::Add, {f32({3}), f32({8, 3})}, 2));
  EXPECT_TRUE(keeps(Op::Add, {f32({8, 3}), f32({8, 3})}, 3));
  EXPECT_FALSE(keeps(Op::Add, {f32({8, 3}), f32({8, 3})}, 1)) << "a constant that differs for each sample";
  EXPECT_FALSE(keeps(Op::Add, {f32({8, 8}), f32({8})}, 3)) << "the second's samples meet the first's columns";
  EXPECT_FALSE(keeps(Op::Add, {f32({1, 3}), f32({5, 1, 3})}, 1)) << "axis 0 of the result is another one";
  EXPECT_TRUE(keeps(Op::MatMul, {f32({8, 3}), f32({3, 2})}, 1));
  EXPECT_TRUE(keeps(Op::MatMul, {f32({8, 4, 3}), f32({1, 3, 2})}, 1));
  EXPECT_FALSE(keeps(Op::MatMul, {f32({1, 4, 3}), f32({6, 3, 2})}, 1)) << "one sample becomes six";
  EXPECT_TRUE(keeps(Op::MatMul, {f32({8, 4, 3}), f32({8, 3, 2})}, 3));
  EXPECT_FALSE(keeps(Op::MatMul, {f32({8, 3}), f32({8, 3})}, 2));
  EXPECT_TRUE(keeps(Op::MatMul, {f32({8, 3}), f32({3, 2}), f32({2})}, 1));
  EXPECT_FALSE(keeps(Op::MatMul, {f32({8, 3}), f32({3, 2}), f32({2})}, 5));
  EXPECT_FALSE(keeps(Op::Softmax, {f32({8, 3})}, 1, {{"axis", int64_t{-2}}}));
  EXPECT_TRUE(keeps(Op::Softmax, {f32({8, 3})}, 1, {{"axis", int64_t{-1}}}));
  EXPECT_FALSE(keeps(Op::LayerNormalization, {f32({8, 3}), f32({8, 3})}, 1, {{"axis", int64_t{-2}}}));
  EXPECT_TRUE(keeps(Op::LayerNormalization, {f32({8, 3}), f32({3})}, 1, {{"axis", int64_t{-1}}}));
  EXPECT_TRUE(keeps(Op::InstanceNormalization, {f32({8, 3, 2}), f32({3}), f32({3})}, 1));
  EXPECT_TRUE(keeps(Op::ConvTranspose, {f32({8, 3, 4, 4}), f32({3, 2, 1, 1})}, 1));
  EXPECT_FALSE(keeps(Op::ConvTranspose, {f32({8, 8, 4, 4}), f32({8, 3, 1, 1})}, 3)) << "a weight for each sample";
  EXPECT_FALSE(keeps(Op::Concat, {f32({8, 3}), f32({8, 3})}, 3, {{"axis", int64_t{0}}}));
  EXPECT_FALSE(keeps(Op::Concat, {f32({1, 3}), f32({1, 3})}, 1, {{"axis", int64_t{1}}})) << "a constant has no batch";
  EXPECT_TRUE(keeps(Op::Reshape, {f32({8, 3, 2})}, 1, {{"shape", Ints{-1, 6}}}));
  EXPECT_FALSE(keeps(Op::Reshape, {f32({8, 3, 2})}, 1, {{"shape", Ints{4, 12}}}));
  EXPECT_TRUE(keeps(Op::Flatten, {f32({8, 3, 2})}, 1, {{"axis", int64_t{-2}}}));
  EXPECT_FALSE(keeps(Op::Flatten, {f32({8})}, 1, {{"axis", int64_t{0}}}));
  EXPECT_FALSE(keeps(Op::Transpose, {f32({8, 3})}, 1, {{"perm", Ints{1, 0}}}));
  EXPECT_FALSE(keeps(Op::ReduceMean, {f32({8, 3})}, 1, {{"axes", Ints{-2}}, {"keepdims", int64_t{1}}}));
  EXPECT_FALSE(keeps(Op::Pad, {f32({8, 3})}, 1, {{"pads", Ints{0, 0, 1, 0}}, {"value", 0.0}}));
}

}  // namespace
}  // namespace nlsplit
