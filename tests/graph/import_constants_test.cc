// What is computed while a file is read: a constant is a shape somewhere, so that a wrong value shows in a type.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx_text.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

struct Case {
  int opset;
  const char* inputs;
  const char* nodes;
  const char* expected;  // part of the nodes that are left, or of the error
};

void expect_nodes(const std::vector<Case>& cases) {
  for (const auto& [opset, inputs, nodes, expected] : cases)
    EXPECT_THAT(nodes_of(import_text({opset, inputs, nodes})), HasSubstr(expected)) << inputs << "\n" << nodes;
}

TEST(ImportConstants, AxesComeAndGo) {
  const char* const inputs =
      "float[2,3] x, int64 six = {6}, int64[2] s = {3, 2}, int64[1] a = {0}, int64[2] aa = {0, 0}";
  expect_nodes({
      {11, inputs, "s1 = Unsqueeze <axes = [0]> (six) y = Reshape (x, s1)", "%y f32[6] = Reshape(%x)"},
      {13, inputs, "u = Unsqueeze (s, a) t = Squeeze (u, a) y = Reshape (x, t)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "t = Squeeze (s) y = Reshape (x, t)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "u = Unsqueeze (s, a) t = Squeeze (u, none) y = Reshape (x, t)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "u = Unsqueeze (s, aa) y = Reshape (x, u)", "node u (Unsqueeze, opset 13): an axis twice"},
      {13, inputs, "u = Squeeze (s, a) y = Reshape (x, u)", "node u (Squeeze, opset 13): squeezes an extent of 2"},
  });
}

TEST(ImportConstants, ConstantsOfEveryKind) {
  const char* const inputs = "float[2,3] x";
  expect_nodes({
      {13, inputs, "c = Constant <value_ints = [3, 2]> () y = Reshape (x, c)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "c = Constant <value_int = 1> () t = Expand (x, c) y = Relu (t)", "%y f32[2,3] = Relu("},
      {13, inputs, "c = Constant <value_float = 2.5> () y = Add (x, c)", "%y f32[2,3] = Add(%x, %c)"},
      {13, inputs, "c = Constant <value_floats = [1.0, 2.0, 3.0]> () y = Add (x, c)", "%y f32[2,3] = Add(%x, %c)"},
      {13, inputs, "c = Constant <value = int64[2] {3, 2}> () y = Reshape (x, c)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "c = Constant <value_string = \"six\"> () y = Reshape (x, c)",
       "node c (Constant, opset 13): a Constant of this kind"},
      {13, inputs, "c = Constant () y = Reshape (x, c)", "node c (Constant, opset 13): a Constant of this kind"},
  });
}

TEST(ImportConstants, Fills) {
  const char* const inputs =
      "float[2,3] x, int64[1] two = {2}, int64[1] many = {70000}, int64[70000] long, double[70000] d";
  expect_nodes({
      {13, inputs, "c = ConstantOfShape <value = int64[1] {-1}> (two) y = Reshape (x, c)", "Reshape"},
      {13, inputs, "c = ConstantOfShape <value = int64[2] {3, 2}> (two) y = Reshape (x, c)",
       "node c (ConstantOfShape, opset 13): value must have one element"},
      {13, inputs, "c = ConstantOfShape <value = float[2] {3, 2}> (two) y = Reshape (x, c)",
       "node c (ConstantOfShape, opset 13): value must have one element"},
      {13, inputs, "c = ConstantOfShape <value = int64[1] {3}> (many) y = Add (long, c)",
       "%y i64[70000] = Add(%long, %c)"},
      {13, inputs, "c = ConstantOfShape <value = double[1] {0.5}> (many) y = Add (d, c)",
       "%y f64[70000] = Add(%d, %c)"},
      {13, inputs, "c = ConstantOfShape <value = int64[1] {9007199254740993}> (many) y = Add (long, c)",
       "node c (ConstantOfShape, opset 13): an integer constant of 70000 elements"},
      {13, inputs, "c = ConstantOfShape <value = int64[1] {1}> (many) y = Reshape (x, c)",
       "node y (Reshape, opset 13): an integer constant of 70000 elements"},
      {13, inputs, "c = ConstantOfShape (many) y = Clip (x, c)",
       "node y (Clip, opset 13): a constant of 70000 elements where a few are expected"},
      {13, "float[2,3] x, float[1] six = {6}", "y = Reshape (x, six)",
       "node y (Reshape, opset 13): integers are needed, and these are floats"},
  });
}

TEST(ImportConstants, Casts) {
  const char* const inputs =
      "float[2,3] x, uint8[2] bytes = {3, 2}, float[2] f = {3.7, 2.2}, float[1] big = {1e16}, "
      "int64[1] many = {70000}, int32[70000] long";
  expect_nodes({
      {13, inputs, "c = Cast <to = 7> (bytes) y = Reshape (x, c)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "c = Cast <to = 7> (f) y = Reshape (x, c)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "c = Cast <to = 7> (big) y = Reshape (x, c)",
       "node c (Cast, opset 13): a cast of a number that is not an integer"},
      {13, inputs, "c = ConstantOfShape <value = int64[1] {3}> (many) i = Cast <to = 6> (c) y = Add (long, i)",
       "%y i32[70000] = Add(%long, %i)"},
  });
}

TEST(ImportConstants, GatherSliceAndConcat) {
  const char* const inputs =
      "float[2,3] x, int64[4] c = {9, 2, 3, 9}, int64[2] mid = {2, 1}, int64[1] s = {1}, int64[1] e = {3}, int64[1] a "
      "= {0}, "
      "int64[1] back = {-1}, int64[1] far = {-9}, int64[1,2] row = {3, 2}, int64[2] r = {2, 3}, int64[1] many = "
      "{70000}, "
      "int64[70000] long, int64[2] st = {0, 0}, float[1] f = {6}, float[1] g = {6}, int64[1] out = {4}";
  expect_nodes({
      {13, inputs, "t = Gather (c, mid) y = Reshape (x, t)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "t = Gather <axis = -1> (c, mid) y = Reshape (x, t)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "t = Gather (c, out) y = Reshape (x, t)", "node t (Gather, opset 13)"},
      {13, inputs, "b = ConstantOfShape <value = int64[1] {6}> (many) t = Gather (b, s) y = Reshape (x, t)",
       "%y f32[6] = Reshape(%x)"},
      {13, inputs, "z = ConstantOfShape <value = int64[1] {1}> (many) t = Gather (c, z) y = Add (long, t)",
       "%y i64[70000] = Add(%long, %t)"},
      {13, inputs, "t = Gather (c) y = Reshape (x, t)", "node t (Gather, opset 13)"},
      {13, inputs, "t = Slice (c, mid, e) y = Reshape (x, t)", "node t (Slice, opset 13)"},
      {13, inputs, "t = Slice (c, s, e) y = Reshape (x, t)", "%y f32[2,3] = Reshape(%x)"},
      {13, inputs, "t = Slice (c, s, e, a, none) y = Reshape (x, t)", "%y f32[2,3] = Reshape(%x)"},
      {9, inputs, "t = Slice <starts = [1], ends = [3]> (c) y = Reshape (x, t)", "%y f32[2,3] = Reshape(%x)"},
      {9, inputs, "t = Slice <starts = [1]> (c) y = Reshape (x, t)",
       "node t (Slice, opset 9): starts or ends are missing"},
      {13, inputs, "t = Slice (r, back, far, a, back) y = Reshape (x, t)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "t = Slice (row, a, s) u = Squeeze (t, a) y = Reshape (x, u)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs,
       "b = ConstantOfShape <value = int64[1] {6}> (many) t = Slice (b, s, e) u = Slice (t, a, s) y = Reshape (x, u)",
       "%y f32[6] = Reshape(%x)"},
      {13, inputs, "t = Slice (c) y = Reshape (x, t)", "node t (Slice, opset 13): starts or ends are missing"},
      {13, inputs, "t = Slice (c, none, e) y = Reshape (x, t)", "node t (Slice, opset 13): starts or ends are missing"},
      {13, inputs, "t = Slice (c, s, none) y = Reshape (x, t)", "node t (Slice, opset 13): starts or ends are missing"},
      {13, inputs, "t = Slice (c, s, st) y = Reshape (x, t)", "node t (Slice, opset 13)"},
      {13, inputs, "t = Slice (c, s, e, a, st) y = Reshape (x, t)", "node t (Slice, opset 13)"},
      {13, inputs,
       "t = Concat <axis = 1> (row, row) u = Squeeze (t, a) v = Slice (u, a, e) w = Slice (v, s, e) y = Reshape (x, w)",
       "%y f32[2,3] = Reshape(%x)"},
      {13, inputs, "t = Concat <axis = 0> (f, g) y = Add (x, t)", "node y (Add, opset 13)"},
      {13, inputs, "t = Concat <axis = 0> (c, none) y = Reshape (x, t)", "node y (Reshape, opset 13)"},
  });
}

TEST(ImportConstants, RangesAndPlaces) {
  const char* const inputs =
      "float[2,3] x, int64 zero = {0}, int64 two = {2}, int64 four = {4}, float f = {4}, int64[2] list = {1, 2}, "
      "int64 top = {9223372036854775807}, int64 down = {-4611686018427387904}, int64[4] z, int64 five = {5}, int64[2] "
      "p";
  expect_nodes({
      {13, inputs, "r = Range (two, four, two) y = Expand (x, r)", "node y (Expand, opset 13)"},
      {13, inputs, "r = Range (zero, f, two) y = Reshape (x, r)",
       "node r (Range, opset 13): start, limit and delta are not numbers of one type"},
      {13, inputs, "r = Range (zero, list, two) y = Reshape (x, r)",
       "node r (Range, opset 13): start, limit and delta are not numbers of one type"},
      {13, inputs, "r = Range (top, zero, down) y = Reshape (x, r)",
       "node r (Range, opset 13): a range beyond what integers can be"},
      {13, inputs, "r = Range (two) y = Reshape (x, r)", "node r (Range, opset 13)"},
      {13, inputs, "n = NonZero (five) y = Gather (x, n)", "%y f32[1,1,3] = Gather(%x, %n)"},
  });
}

TEST(ImportConstants, Arithmetic) {
  const char* const inputs =
      "float[2,3] x, int64[2] a = {1, 4}, int64[2] b = {2, -2}, int64[2] zero = {0, 0}, int64[1] one = {1}, "
      "int64[1] minus = {-1}, int64[1] none0 = {0}, int64[2] top = {9223372036854775807, 1}, int64[2,1] column = {1, "
      "1}, "
      "int64[1,2] row = {1, 1}, float[0] empty = {}, float[2] f = {1, 1}, double[2] d = {1, 1}, double[2] e, "
      "int64[1] many = {70000}, int64[70000] long, int64[2,2] four = {1, 1, 1, 1}, int64[2,2] z, float[0] g, int64[2] "
      "q = {6, 4}, "
      "int64[1] two = {2}";
  expect_nodes({
      {13, inputs, "s = Add (a, b) y = Reshape (x, s)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "s = Mul (a, one) t = Add (s, b) y = Reshape (x, t)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "s = Div (q, two) y = Reshape (x, s)", "%y f32[3,2] = Reshape(%x)"},
      {13, inputs, "s = Sub (one, b) y = Reshape (x, s)", "Reshape"},
      {13, inputs, "s = Div (a, none0) y = Reshape (x, s)",
       "node s (Div, opset 13): a division of shapes by zero or minus one"},
      {13, inputs, "s = Div (a, minus) y = Reshape (x, s)",
       "node s (Div, opset 13): a division of shapes by zero or minus one"},
      {13, inputs, "s = Add (top, one) y = Reshape (x, s)", "node s (Add, opset 13): arithmetic on shapes overflows"},
      {13, inputs, "s = Mul (top, b) y = Reshape (x, s)", "node s (Mul, opset 13): arithmetic on shapes overflows"},
      {13, inputs, "s = Add (column, row) y = Add (z, s)", "%y i64[2,2] = Add(%z, %s)"},
      {13, inputs, "s = Add (four, a) y = Add (z, s)", "%y i64[2,2] = Add(%z, %s)"},
      {13, inputs, "s = Add (a, four) y = Add (z, s)", "%y i64[2,2] = Add(%z, %s)"},
      {13, inputs, "s = Add (empty, empty) y = Add (g, s)", "%y f32[0] = Add(%g, %s)"},
      {13, inputs, "s = Add (f, d) y = Add (e, s)", "node s (Add, opset 13)"},
      {13, inputs, "s = Add (d, d) y = Add (e, s)", "%y f64[2] = Add(%e, %s)"},
      {13, inputs, "m = ConstantOfShape <value = int64[1] {3}> (many) s = Add (m, one) y = Add (long, s)",
       "%y i64[70000] = Add(%long, %s)"},
      {13, inputs, "s = Add (a, none) y = Reshape (x, s)", "node s (Add, opset 13)"},
  });
}

// Typed lists instead of raw bytes: one list of the message serves several types.
TEST(ImportConstants, ElementsOfEveryType) {
  for (const auto& [type, ours] : std::vector<std::pair<std::string, std::string>>{{"float", "f32"},
                                                                                   {"double", "f64"},
                                                                                   {"int64", "i64"},
                                                                                   {"int32", "i32"},
                                                                                   {"int16", "i16"},
                                                                                   {"int8", "i8"},
                                                                                   {"uint64", "u64"},
                                                                                   {"uint32", "u32"},
                                                                                   {"uint16", "u16"},
                                                                                   {"uint8", "u8"}}) {
    const std::string inputs = fmt::format("float[2,3] x, {}[2] c = {{3, 2}}", type);
    EXPECT_THAT(nodes_of(import_text({13, inputs, "s = Cast <to = 7> (c) y = Reshape (x, s)"})),
                HasSubstr("%y f32[3,2] = Reshape(%x)"))
        << type;
    const std::string kept = fmt::format("{}[2] x, {}[2] c = {{3, 2}}", type, type);
    EXPECT_THAT(nodes_of(import_text({14, kept, "y = Add (x, c)"})),
                HasSubstr(fmt::format("%y {}[2] = Add(%x, %c)", ours)));
  }
  EXPECT_THAT(nodes_of(import_text({13, "bool[2] x, bool[2] c = {0, 1}", "y = And (x, c)"})),
              HasSubstr("%y bool[2] = And(%x, %c)"));
}

// Halves as bits in int32_data, which the textual form has not.
TEST(ImportConstants, Halves) {
  for (const auto& [type, ours] :
       {std::pair(onnx::TensorProto::FLOAT16, "f16"), std::pair(onnx::TensorProto::BFLOAT16, "bf16")}) {
    OnnxFile file = file_of({13, "float[2] x, float[2] c = {1, 2}", "h = Cast <to = 1> (c) y = Add (x, h)"});
    onnx::TensorProto& c = *file.graph().mutable_initializer(0);
    c.clear_float_data();
    c.set_data_type(type);
    for (const int bits : {0x3c00, 0x4000}) c.add_int32_data(bits);
    const auto model = file.import();
    EXPECT_THAT(nodes_of(model), HasSubstr("%y f32[2] = Add(%x, %h)")) << ours;
  }
}

// A conversion that has choices: what each of them becomes.
TEST(ImportChoices, Conversions) {
  expect_nodes({
      {14, "float[4] x, float[2,4] b", "y = Sum (x, x, b)", "%y f32[2,4] = Add("},
      {14, "float[2,4] x", "y = Sum (x, x, x)", "%y f32[2,4] = Sum(%x, %x, %x)"},
      {9, "float[2,4] x", "o, m = Dropout (x) y = Add (o, m)", "%y f32[2,4] = Add("},
      {13, "float[2,4] x", "o, m = Dropout (x) y = Not (m)", "%y bool[2,4] = Not("},
      {13, "float[2,4] x, float r = {0}, bool t = {1}", "y = Dropout (x, r, t)", "%y f32[2,4] = Identity(%x)"},
      {13, "float[2,4] x", "y = LeakyRelu <alpha = 1> (x)", "%y f32[2,4] = LeakyRelu(%x) as"},
      {13, "float[2,4] x", "y = LeakyRelu <alpha = \"a\"> (x)", "%y f32[2,4] = LeakyRelu(%x) as"},
      {13, "float[2,4] x", "y = LeakyRelu <alpha = [1]> (x)", "%y f32[2,4] = LeakyRelu(%x) as"},
      {13, "float[2,4] x", "y = LeakyRelu <alpha = [1.5]> (x)", "%y f32[2,4] = LeakyRelu(%x) as"},
      {13, "float[2,4] x, int64[1] i", "y = Gather <axis = 1.0> (x, i)", "%y f32[1,4] = Gather(%x, %i) as"},
      {13, "float[2,4] x, float[4,2] w", "y = Gemm (x, w, none)", "%y f32[2,2] = Gemm(%x, %w) as"},
      {14, "float[2,0] x, int64[2] s = {0, 5}", "t = Reshape <allowzero = 1> (x, s) y = Relu (t)",
       "%y f32[0,5] = Relu("},
      {13, "float[2,4] x, int64[2] s = {8, 1}", "t = Transpose (x) y = Reshape (t, s)", "%y f32[8,1] = Reshape("},
      {13, "float[2,4] x, int64[3] s = {0, 0, 0}", "t = Transpose (x) y = Reshape (t, s)",
       "node y (Reshape, opset 13)"},
      {13, "float x, int64[1] a = {0}", "y = Unsqueeze (x, a)", "%y f32[1] = Reshape(%x)"},
      {13, "float x, int64[0] a = {}", "y = Unsqueeze (x, a)", "%y f32[] = Reshape(%x)"},
      {13, "float[1,2] x, int64[4] p = {0, 1, 0, 0}", "y = Pad <mode = \"edge\"> (x, p)", "%y f32[1,3] = Gather(%x,"},
      {13, "float[1,2] x, int64[4] p = {1, 0, 1, 0}", "y = Pad <mode = \"reflect\"> (x, p)",
       "%y f32[3,2] = Gather(%x,"},
      {13, "float[1,2] x, int64[4] p = {0, 0, 0, 0}", "y = Pad <mode = \"wrap\"> (x, p)", "%y f32[1,2] = Identity(%x)"},
      {11, "float[1,2] x", "y = Pad <mode = \"constant\", pads = [0, 1, 0, 0], value = 2> (x)", "value=2.0"},
      {22, "float[2,4] x", "y = LpNormalization <p = 1> (x)", "ReduceL1(%x) {axes=[-1]"},
      {22, "float[2,4] x", "y = LpNormalization (x)", "ReduceL2(%x) {axes=[-1]"},
      {13, "float[1,2,4] x", "y = GlobalLpPool <p = 1> (x)", "ReduceL1(%x) {axes=[2]"},
      {13, "float[1,2,4] x", "y = GlobalLpPool (x)", "ReduceL2(%x) {axes=[2]"},
      {17, "float[2,4] x, float[4] s", "z, none, y = LayerNormalization (x, s)", "%y f32[2,1] = Reciprocal("},
      {15, "float[1,2,4,4] x, float[1,4] rois, int64[1] i", "y = RoiAlign (x, rois, i)", "output_half_pixel"},
      {9, "float[1,1,2,4] x, float[4] s = {1, 1, 2, 2}", "y = Upsample <mode = \"bilinear\"> (x, s)",
       "%y f32[1,1,4,8] = Resize(%x)"},
      {7, "float[1,1,2,4] x", "y = Upsample <scales = [1.0, 1.0, 2.0, 2.0], mode = \"trilinear\"> (x)",
       "%y f32[1,1,4,8] = Resize(%x)"},
      {7, "float[1,1,2,4] x", "y = Upsample <scales = [1, 1, 2, 2]> (x)", "either scales or sizes must be given"},
      {10, "float[1,1,2,4] x, float[4] s = {1, 1, 2, 2}", "y = Resize (x, s)", "%y f32[1,1,4,8] = Resize(%x)"},
      {20, "float[1,2,3] x, int64[4] s = {1, 1, 1, 2}", "y = AffineGrid <align_corners = 1> (x, s)",
       "%y f32[1,1,2,2] = Reshape("},
      {13, "float[1,4] x, float s = {0.5}", "y = QuantizeLinear (x, s)", "%y u8[1,4] = QuantizeLinear("},
      {21, "float[1,4] x, float s = {0.5}", "y = QuantizeLinear <output_dtype = 3> (x, s)",
       "%y i8[1,4] = QuantizeLinear("},
      {13, "uint8[1,4] q, uint8[4,2] w, uint8[1] z = {1}", "y = MatMulInteger (q, w, z)", "%y i32[1,2] = MatMul("},
      {13, "uint8[1,1,4,4] x, float s = {0.5}, uint8 z = {0}, uint8[1,1,3,3] w, int32[1] b",
       "y = QLinearConv (x, s, z, w, s, z, s, z, b)", "%y u8[1,1,2,2] = QuantizeLinear("},
      {23, "float[1,2,2,4] q", "y, k, v = Attention (q, q, q)", "%y f32[1,2,2,4] = MatMul("},
      {23, "float[1,2,2,4] q", "y, none, v = Attention (q, q, q)", "%y f32[1,2,2,4] = MatMul("},
      {23, "float[1,2,2,4] q, bool[2,1] m", "y = Attention (q, q, q, m)", "= Pad("},
      {23, "float[1,2,2,4] q, float[2,1] m", "y = Attention (q, q, q, m)", "value=-inf"},
      {23, "float[1,2,2,4] q", "y = Attention <softmax_precision = 1> (q, q, q)", "%y f32[1,2,2,4] = MatMul("},
      {23, "float[1,2,2,4] q", "y = Attention <softmax_precision = 7> (q, q, q)", "%y f32[1,2,2,4] = MatMul("},
      {24, "float[1,2,2,4] q, int64[1] n = {1}", "y = Attention (q, q, q, none, none, none, n)",
       "= Softmax(%y.biased)"},
      {24, "float[1,2,2,4] q, int64[1] n = {1}", "y = Attention <is_causal = 1> (q, q, q, none, none, none, n)",
       "= IsInf("},
      {14, "float[1,5,3] x, float[1,16,3] w, float[1,16,4] r, float[1,1,4] h",
       "y = LSTM <layout = 1> (x, w, r, none, none, h)", "%y f32[1,5,1,4]"},
      {14, "float[2,5,3] x, float[1,16,3] w, float[1,16,4] r, float[2,1,4] h = {1, 1, 1, 1, 1, 1, 1, 1}",
       "y = LSTM <layout = 1> (x, w, r, none, none, h)", "%y f32[2,5,1,4]"},
      {13, "float[2] x, bool[1] c = {1}, float[2] k = {1, 2}",
       "i = If <then_branch = t () => (float k) { r = Relu (x) }> (c) y = Add (x, i)", "%y f32[2] = Add(%x, %i)"},
      {13, "float[2] x, bool[1] c = {1}",
       "i, j = If <then_branch = t () => (float r, float r) { r = Relu (x) }> (c) y = Add (i, j)",
       "%y f32[2] = Add(%i, %i)"},
  });
}

}  // namespace
}  // namespace nlsplit
