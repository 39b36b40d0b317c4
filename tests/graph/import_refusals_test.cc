// What each conversion of an operator refuses: the error names the node, its operator and the opset, and says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "graph/onnx/cut_tensors.h"
#include "onnx_text.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

struct Refusal {
  int opset;
  const char* inputs;
  const char* node;  // what makes y
  const char* message;
};

// "TopK" of "y, i = TopK <k = 1> (x)"
std::string operator_of(const std::string& node) {
  const size_t begin = node.find("= ") + 2;
  return node.substr(begin, node.find_first_of(" <(", begin) - begin);
}

void expect_refusals(const std::vector<Refusal>& refusals) {
  for (const auto& [opset, inputs, node, message] : refusals) {
    const std::string error = error_of(import_text({opset, inputs, node}));
    EXPECT_THAT(error, HasSubstr(fmt::format("node y ({}, opset {}): {}", operator_of(node), opset, message)))
        << inputs << "\n"
        << node;
  }
}

TEST(ImportRefusals, Convolutions) {
  const char* const image = "float[1,2,4,4] x, float[2,3,3,3] w";
  expect_refusals({
      {13, "float[1,4] x, float[2,2] w", "y = Conv (x, w)", "a convolution without spatial axes"},
      {13, "float[1,2,4] x, float[2,2,3,3] w", "y = Conv (x, w)", "a 2-axis kernel over f32[1,2,4]"},
      {13, image, "y = Conv <strides = [1]> (x, w)", "strides, dilations or pads have the wrong length"},
      {13, image, "y = Conv <dilations = [1]> (x, w)", "strides, dilations or pads have the wrong length"},
      {13, image, "y = Conv <strides = [0, 1]> (x, w)", "a kernel, stride or dilation of 0"},
      {13, image, "y = ConvTranspose (none, w)", "an input is missing"},
      {13, image, "y = ConvTranspose (x)", "an input is missing"},
      {13, "float[1,4] x, float[4,4] w", "y = ConvTranspose (x, w)",
       "input and weights differ in their number of axes"},
      {13, "float[1,4] x, float[4,4,3] w", "y = ConvTranspose (x, w)",
       "input and weights differ in their number of axes"},
      {13, image, "y = ConvTranspose <kernel_shape = [3]> (x, w)", "kernel_shape has the wrong length"},
      {13, image, "y = ConvTranspose <pads = [1]> (x, w)", "pads have the wrong length"},
      {13, image, "y = ConvTranspose <strides = [1]> (x, w)", "strides has the wrong length"},
      {13, image, "y = ConvTranspose <strides = [-1, 1]> (x, w)", "strides of -1"},
      {13, image, "y = ConvTranspose <dilations = [1, 2000000]> (x, w)", "dilations of 2000000"},
      {13, image, "y = ConvTranspose <auto_pad = \"SAME\"> (x, w)", "auto_pad SAME"},
      {13, image, "y = ConvTranspose <kernel_shape = [0, 3], output_shape = [4, 4]> (x, w)", "a kernel of 0"},
      {13, image, "y = ConvTranspose <kernel_shape = [2000000, 3], output_shape = [4, 4]> (x, w)",
       "a kernel of 2000000"},
      {13, image, "y = ConvTranspose <output_shape = [4]> (x, w)", "output_shape has the wrong length"},
      {13, image, "y = ConvTranspose <output_shape = [0, 4]> (x, w)", "an output_shape of 0"},
      {13, image, "y = ConvTranspose <output_shape = [2000000000000, 4]> (x, w)", "an output_shape of 2000000000000"},
  });
}

TEST(ImportRefusals, Pools) {
  const char* const image = "float[1,2,4,4] x, int64[1,2,2,2] i";
  expect_refusals({
      {13, image, "y = MaxPool <kernel_shape = [2, 2]> (none)", "an input is missing"},
      {13, image, "y = AveragePool (x)", "kernel_shape is missing"},
      {13, image, "y = MaxPool <kernel_shape = [2, 2], storage_order = 1> (x)", "storage_order"},
      {13, "float[1,2] x", "y = MaxPool <kernel_shape = [2, 2]> (x)", "a 2-axis kernel over f32[1,2]"},
      {19, image, "y = AveragePool <kernel_shape = [2, 2], dilations = [2, 2]> (x)", "dilations of a pool"},
      {13, image, "y, z = MaxPool <kernel_shape = [2, 2]> (none)", "an input is missing"},
      {13, image, "y, z = MaxPool (x)", "kernel_shape is missing"},
      {13, image, "y = LpPool <kernel_shape = [2, 2]> (none)", "an input is missing"},
      {13, image, "y = LpPool (x)", "kernel_shape is missing"},
      {13, image, "y = LpPool <kernel_shape = [2, 2], p = 0> (x)", "p 0"},
      {13, image, "y = MaxUnpool <kernel_shape = [2, 2]> (none, i)", "an input is missing"},
      {13, image, "y = MaxUnpool <kernel_shape = [2, 2]> (x)", "an input is missing"},
      {13, image, "y = MaxUnpool (x, i)", "kernel_shape is missing"},
      {13, "float[1,2] x, int64[1,2] i", "y = MaxUnpool <kernel_shape = [2]> (x, i)", "kernel_shape is missing"},
      {13, image, "y = MaxUnpool <kernel_shape = [2]> (x, i)", "kernel_shape is missing"},
      {13, image, "y = MaxUnpool <kernel_shape = [2, 2], pads = [1]> (x, i)", "pads have the wrong length"},
      {13, image, "y = MaxUnpool <kernel_shape = [2, 2], pads = [0, 0, 0, 2000000]> (x, i)",
       "a kernel or pad beyond what is supported"},
      {13, image, "y = MaxUnpool <kernel_shape = [2, -2]> (x, i)", "a kernel or pad beyond what is supported"},
      {13, "float[1,2,4,4] x, int64[1,2,4,4] i, int64[1] o = {4}",
       "y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i, o)",
       "output_shape has the wrong length, or extents that cannot be"},
      {13, "float[1,2,4,4] x, int64[1,2,4,4] i, int64[4] o = {1, 2, 8, -8}",
       "y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i, o)",
       "output_shape has the wrong length, or extents that cannot be"},
      {13, "float[1,4] x", "y = GlobalMaxPool (x)", "a global pool needs spatial axes"},
      {13, image, "y = GlobalLpPool <p = 0> (x)", "p 0"},
  });
}

TEST(ImportRefusals, Norms) {
  expect_refusals({
      {7, "float[1,2,4] x, float[2] s", "y = BatchNormalization <spatial = 0> (x, s, s, s, s)", "spatial = 0"},
      {14, "float[1,2,4] x, float[2] s", "y = BatchNormalization <training_mode = 1> (x, s, s, s, s)", "training_mode"},
      {14, "float[1,2,4] x, float[2] s", "y = BatchNormalization (x, s, s, s)", "4 inputs, BatchNormalization takes 5"},
      {17, "float[1,4] x, float[4] s", "y = LayerNormalization <stash_type = 10> (x, s)",
       "stash_type other than float"},
      {17, "float[1,4] x, float[4] s", "y, m = LayerNormalization (none, s)", "an input is missing"},
      {17, "float[1,4] x, float[4] s", "y, m = LayerNormalization (x)", "an input is missing"},
      {17, "float[1,4] x, float[4] s", "y, m = LayerNormalization <axis = 3> (x, s)", "axis 3"},
      {21, "float[1,4] x, float[4] s", "y = GroupNormalization <num_groups = 2> (x, s, s)", "2 groups in f32[1,4]"},
      {21, "float[1,4,2] x, float[4] s", "y = GroupNormalization (x, s, s)", "0 groups in f32[1,4,2]"},
      {21, "float[1,4,2] x, float[4] s", "y = GroupNormalization <num_groups = 3> (x, s, s)", "3 groups in f32[1,4,2]"},
      {21, "float[1,4,2] x, float[4] s", "y = GroupNormalization <num_groups = 2> (x, none, s)", "input 1 is missing"},
      {21, "float[1,4,2] x, float[4] s", "y = GroupNormalization <num_groups = 2> (x, s)", "input 2 is missing"},
      {23, "float[1,4] x", "y = RMSNormalization (x)", "input 1 is missing"},
      {23, "float[1,4] x", "y = RMSNormalization (none, x)", "input 0 is missing"},
      {23, "float[1,4] x, float[4] s", "y = RMSNormalization <axis = 2> (x, s)", "axis 2"},
      {22, "float[1,4] x", "y = LpNormalization <p = 3> (x)", "p 3"},
      {22, "float[1,4] x", "y = LpNormalization <axis = 3> (x)",
       "node y.norm (ReduceL2): axis 3 of a tensor with 2 axes"},
      {13, "float[1,4] x", "y = MeanVarianceNormalization (x)",
       "node y.mean (ReduceMean): axis 2 of a tensor with 2 axes"},
      {13, "float[1,4] x", "y = MeanVarianceNormalization (none)", "input 0 is missing"},
      {20, "float[1,4] x", "y = Gelu (none)", "0 inputs, Gelu takes 1"},
      {24, "float[1,4] x", "y = Swish (none)", "input 0 is missing"},
      {13, "float[1,4] x", "y = GlobalMaxPool (none)", "input 0 is missing"},
      {22, "float[1,4] x", "y = LpNormalization (none)", "input 0 is missing"},
  });
}

TEST(ImportRefusals, ElementwiseAndSoftmax) {
  expect_refusals({
      {13, "float[1,4] x", "y = Softmax (none)", "an input is missing"},
      {13, "float[1,4] x", "y = Softmax <axis = 2> (x)", "axis 2 of 2 axes"},
      {13, "float[1,4] x", "y = LogSoftmax <axis = -3> (x)", "axis -3 of 2 axes"},
      {13, "int32[1,4] x", "y = Hardmax (x)", "an operand of type i32"},
      {13, "float[1,4] x", "y = Clip (none)", "an input is missing"},
      {13, "float[1,4] x, float[2] l = {1, 2}", "y = Clip (x, l)", "a limit must be one number"},
      {6, "float[1,4] x", "y = Add <broadcast = 1> (x, x)", "the broadcast attribute"},
      {6, "float[1,4] x", "y = Sub <axis = 1> (x, x)", "the broadcast attribute"},
      {13, "float[1,4] x", "y = Sum (x, none, x)", "an input is missing"},
      {13, "float[1,4] x", "y = Dropout (none)", "an input is missing"},
      {13, "float[1,4] x, bool[1] t = {1}", "y = Dropout (x, none, t)", "training_mode"},
      {13, "float[1,4] x, float[1] r, bool[1] t = {1}", "y = Dropout (x, r, t)", "training_mode"},
      {13, "float[1,4] x, float[1] r = {0.5}, bool[1] t = {1}", "y = Dropout (x, r, t)", "training_mode"},
      {13, "float[1,4] x, float[2] r = {0.5, 0.5}, bool[1] t = {1}", "y = Dropout (x, r, t)",
       "ratio must be one number"},
      {13, "float[1,4] x, bool[1] t", "y = Dropout (x, none, t)", "training_mode that is not constant"},
      {13, "float[1,4] x", "y = Cast <to = 1> (none)", "an input is missing"},
      {13, "float[1,4] x", "y = Cast <to = 8> (x)", "a cast to element type 8"},
      {15, "float[1,4] x", "y = CastLike (x)", "an input is missing"},
      {13, "float[1,4] x, float[4,2] w", "y = MatMul (x, w, w)", "3 inputs, MatMul takes 2"},
      {13, "float[1,4] x", "y = Relu (none)", "0 inputs, Relu takes 1"},
      {13, "float[1,4] x", "y = MaxPoolIndices (x)", "the operator is not supported"},
      {13, "float[1,4] x", "y = NonZero (x)", "the operator is not supported"},
      {13, "float[1,4] x", "y = Identity (none)", "input 0 is missing"},
  });
}

TEST(ImportRefusals, Arrangement) {
  const char* const matrix = "float[2,3] x, int64[1] a = {0}, int64[2] b = {0, 0}";
  expect_refusals({
      {13, matrix, "y = Transpose (none)", "an input is missing"},
      {13, matrix, "y = Transpose <perm = [0, 0]> (x)", "perm is not a permutation of the axes"},
      {13, matrix, "y = Transpose <perm = [0]> (x)", "perm is not a permutation of the axes"},
      {13, matrix, "y = Reshape (x)", "shape is missing"},
      {13, "float[2,3] x, int64[2] s", "y = Reshape (x, s)", "shape that is not constant"},
      {14, "float[2,3] x, int64[2] s = {0, 3}", "y = Reshape <allowzero = 1> (x, s)", "a shape without elements"},
      {14, "float[2,0] x, int64[2] s = {0, -1}", "y = Reshape <allowzero = 1> (x, s)", "a shape without elements"},
      {13, matrix, "y = Squeeze (none, a)", "an input is missing"},
      {13, matrix, "y = Squeeze (x, a)", "squeezes an extent of 2"},
      {13, matrix, "y = Unsqueeze (x)", "axes are missing"},
      {13, matrix, "y = Unsqueeze (x, b)", "an axis twice"},
      {11, matrix, "y = Unsqueeze <axes = [5]> (x)", "axis 5"},
      {13, matrix, "y = Pad (none, a)", "an input is missing"},
      {13, matrix, "y = Pad <mode = \"mirror\"> (x, a)", "mode mirror"},
      {13, matrix, "y = Pad (x)", "pads are missing"},
      {13, matrix, "y = Pad (x, b)", "pads are not a begin and an end for every axis"},
      {18, matrix, "y = Pad (x, b, none, b)", "pads are not a begin and an end for every axis"},
      {18, "float[2,3] x, int64[1] a = {7}, int64[2] b = {1, 1}", "y = Pad (x, b, none, a)", "axis 7"},
      {13, "float[2,0] x, int64[4] p = {0, 1, 0, 1}", "y = Pad <mode = \"edge\"> (x, p)",
       "it pads an empty axis with its elements"},
      {13, "float[1,20000000] x, int64[4] p = {0, 1, 0, 1}", "y = Pad <mode = \"reflect\"> (x, p)",
       "mode reflect along an extent of 20000000"},
      {13, "float[1,2] x, int64[4] p = {0, -2000000, 0, 0}", "y = Pad <mode = \"edge\"> (x, p)", "a pad of -2000000"},
      {13, "float[1,2] x, int64[4] p = {0, 0, 0, 0}, float[2] v = {1, 2}", "y = Pad (x, p, v)",
       "value must be one number"},
      {13, "float[1,2] x, int64[4] p = {0, 0, 0, 0}, float[1] v", "y = Pad (x, p, v)", "value that is not constant"},
  });
}

TEST(ImportRefusals, ShapesAndIndices) {
  const char* const matrix = "float[2,4] x, int64[1] k = {3}, int64[2] kk = {1, 2}";
  expect_refusals({
      {13, matrix, "y = Expand (x)", "shape is missing"},
      {13, matrix, "y = Tile (x)", "repeats is missing"},
      {13, matrix, "y = Slice (x)", "starts or ends are missing"},
      {13, matrix, "y = Slice (x, k)", "starts or ends are missing"},
      {13, matrix, "y, z = Split (none)", "an input is missing"},
      {13, matrix, "y, z = Split <axis = 2> (x)", "axis 2"},
      {13, "float[2,3] x", "y, z = Split <axis = 1> (x)", "2 outputs of an extent of 3"},
      {18, matrix, "y, z = Split <axis = 1, num_outputs = 3> (x)", "3 outputs of an extent of 4"},
      {13, matrix, "y, z = Split <axis = 1> (x, kk)", "its parts are not an extent of 4 for 2 outputs"},
      {13, matrix, "y, z = Split <axis = 0> (x, kk)", "a part of 2 of an extent of 2"},
      {13, "float[2,4] x, int64[2] s = {-1, 5}", "y, z = Split <axis = 1> (x, s)", "a part of -1 of an extent of 4"},
      {13, matrix, "y, i = TopK (x)", "k is missing"},
      {13, matrix, "y, i = TopK (x, kk)", "k must be one number"},
      {13, "float[2,4] x, float[1] k = {1e20}", "y, i = TopK (x, k)", "k of 1.0000000200408773e+20"},
      {13, matrix, "y = CumSum (x)", "axis is missing"},
      {13, "int64[2] x, float[2] v", "y = OneHot (x, none, v)", "depth is missing"},
      {14, matrix, "y = Trilu (none)", "an input is missing"},
      {14, "float[4] x", "y = Trilu (x)", "f32[4] is not a matrix"},
      {13, "float[4] x, bool[4] c = {1, 0, 1, 0}", "y = Compress (none, c)", "an input is missing"},
      {13, "float[4] x, bool[4] c = {1, 0, 1, 0}", "y = Compress (x)", "an input is missing"},
      {13, "float[4] x, bool[4] c", "y = Compress (x, c)", "a condition that is not constant"},
      {13, "float[4] x, bool[4] c = {1, 0, 1, 0}", "y = Compress <axis = 1> (x, c)", "axis 1"},
      {13, "float[1,4,2,2] x", "y = DepthToSpace <blocksize = 2> (none)", "an input is missing"},
      {13, "float[1,4] x", "y = DepthToSpace <blocksize = 2> (x)", "blocks of 2 in f32[1,4]"},
      {13, "float[1,4,2,2] x", "y = DepthToSpace (x)", "blocks of 0 in f32[1,4,2,2]"},
      {13, "float[1,4,2,2] x", "y = DepthToSpace <blocksize = 40000> (x)", "blocks of 40000 in f32[1,4,2,2]"},
      {13, "float[1,1,1,2000000000] x", "y = DepthToSpace <blocksize = 1> (x)", "blocks of 1 in f32[1,1,1,2000000000]"},
      {13, "float[1,4,2,2] x", "y = DepthToSpace <blocksize = 2, mode = \"ABC\"> (x)", "mode ABC"},
      {13, "float[1,3,2,2] x", "y = DepthToSpace <blocksize = 2> (x)", "its channels are not whole blocks"},
      {13, "float[1,1,3,2] x", "y = SpaceToDepth <blocksize = 2> (x)", "its extents are not whole blocks"},
      {13, "float[1,1,2,3] x", "y = SpaceToDepth <blocksize = 2> (x)", "its extents are not whole blocks"},
      {18, matrix, "y = CenterCropPad (none, kk)", "an input is missing"},
      {18, matrix, "y = CenterCropPad (x)", "shape is missing"},
      {18, matrix, "y = CenterCropPad (x, k)", "shape is not an extent for every axis"},
      {18, "float[2,4] x, int64[2] s = {2, -1}", "y = CenterCropPad (x, s)", "an extent of -1"},
      {18, "float[2,4] x, int64[2] s = {2, 2000000000000}", "y = CenterCropPad (x, s)", "an extent of 2000000000000"},
      {18, matrix, "y = CenterCropPad <axes = [2]> (x, k)", "axis 2"},
      {13, matrix, "y = EyeLike (none)", "an input is missing"},
      {13, "float[4] x", "y = EyeLike (x)", "f32[4] is not a matrix"},
      {13, matrix, "y = EyeLike <dtype = 8> (x)", "element type 8"},
      {13, matrix, "y = ReduceSum (none, k)", "an input is missing"},
      {13, "float[2,4] x, int64[1] a", "y = ReduceSum (x, a)", "axes that is not constant"},
  });
}

TEST(ImportRefusals, Images) {
  const char* const image = "float[1,1,2,4] x, float[4] s = {1, 1, 2, 2}, float[3] t = {1, 2, 2}, float[1] r = {1}";
  expect_refusals({
      {13, image, "y = Resize (none, none, s)", "an input is missing"},
      {13, image, "y = Resize (x)", "either scales or sizes must be given"},
      {13, image, "y = Resize (x, none, t)", "3 values for 4 axes"},
      {18, image, "y = Resize <axes = [2, 3]> (x, none, t)", "3 values for 2 axes"},
      {18, "float[1,1,2,4] x, float[1] t = {2}", "y = Resize <axes = [4]> (x, none, t)", "axis 4"},
      {13, "float[1,1,2,4] x, float[4] s", "y = Resize (x, none, s)", "scales that is not constant"},
      {13, "float[1,1,2,4] x, float[4] s = {1, 1, 0, 1}", "y = Resize (x, none, s)", "a scale of 0"},
      {13, "float[1,1,2,4] x, float[4] s = {1, 1, 1e20, 1}", "y = Resize (x, none, s)", "a scale of 1.00"},
      {13, "float[1,1,2,4] x, int64[4] s = {1, 1, -2, 4}", "y = Resize (x, none, none, s)",
       "a size of -2 of an extent of 2"},
      {13, "float[1,1,2,4] x, int64[4] s = {1, 1, 2000000000000, 4}", "y = Resize (x, none, none, s)",
       "a size of 2000000000000 of an extent of 2"},
      {13, "float[1,1,0,4] x, int64[4] s = {1, 1, 2, 4}", "y = Resize (x, none, none, s)",
       "a size of 2 of an extent of 0"},
      {18, "float[1,1,2,4] x, int64[4] s = {1, 1, 2, 4}",
       "y = Resize <keep_aspect_ratio_policy = \"closest\"> (x, none, none, s)", "keep_aspect_ratio_policy closest"},
      {18, "float[1,1,2,4] x, int64[2] s = {1000000000000, 4}",
       "y = Resize <axes = [2, 3], keep_aspect_ratio_policy = \"not_smaller\"> (x, none, none, s)",
       "a size of 2000000000000"},
      {13, image, "y = Resize <coordinate_transformation_mode = \"tf_crop_and_resize\"> (x, r, s)",
       "roi is not a start and an end for every axis"},
      {18, "float[1,1,2,4] x, float[2] r = {0, 1}, float[2] s = {2, 2}",
       "y = Resize <axes = [2, 3], coordinate_transformation_mode = \"tf_crop_and_resize\"> (x, r, s)",
       "roi is not a start and an end for every axis"},
      {20, "float[1,2,3] x, int64[4] s = {1, 1, 2, 2}", "y = AffineGrid (none, s)", "an input is missing"},
      {20, "float[1,2,3] x", "y = AffineGrid (x)", "matrices f32[1,2,3] for a grid of 0 axes"},
      {20, "float[1,2,3] x, int64[2] s = {1, 1}", "y = AffineGrid (x, s)", "matrices f32[1,2,3] for a grid of 0 axes"},
      {20, "float[1,2,3] x, int64[3] s = {1, 1, 2}", "y = AffineGrid (x, s)",
       "matrices f32[1,2,3] for a grid of 1 axes"},
      {20, "float[1,2,3] x, int64[6] s = {1, 1, 2, 2, 2, 2}", "y = AffineGrid (x, s)",
       "matrices f32[1,2,3] for a grid of 4 axes"},
      {20, "float[1,2,3] x, int64[4] s = {2, 1, 2, 2}", "y = AffineGrid (x, s)",
       "matrices f32[1,2,3] for a grid of 2 axes"},
      {20, "int32[1,2,3] x, int64[4] s = {1, 1, 2, 2}", "y = AffineGrid (x, s)",
       "matrices i32[1,2,3] for a grid of 2 axes"},
      {20, "float[1,2,3] x, int64[4] s = {1, 1, 0, 2}", "y = AffineGrid (x, s)", "a grid's extent of 0"},
      {20, "float[1,2,3] x, int64[4] s = {1, 1, 2, 2000000000000}", "y = AffineGrid (x, s)",
       "a grid's extent of 2000000000000"},
      {20, "float[1,2,3] x, int64[4] s = {1, 1, 100000, 100000}", "y = AffineGrid (x, s)",
       "a grid of 10000000000 places"},
  });
}

TEST(ImportRefusals, Attention) {
  const char* const flat = "float[1,2,8] q, float[1,3,8] k, float[1,3,8] v, float[1] m, float[3] wide";
  const char* const apart =
      "float[1,2,2,4] q, float[1,2,3,4] k, float[1,3,3,4] k3, float[1,0,3,4] k0, float[1,0,2,4] q0, float[1,2,3,5] k5, "
      "float[5] wide, float p";
  expect_refusals({
      {23, flat, "y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k)", "an input is missing"},
      {23, "int32[1,2,8] q", "y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, q, q)", "operands of type i32"},
      {23, apart, "y = Attention (q, k, k, none, k)", "a past key without a past value"},
      {23, flat, "y = Attention (q, k, v)", "input 0 is f32[1,2,8], for 0 heads"},
      {23, flat, "y = Attention <q_num_heads = 3, kv_num_heads = 2> (q, k, v)", "input 0 is f32[1,2,8], for 3 heads"},
      {23, flat, "y = Attention <q_num_heads = 2, kv_num_heads = 3> (q, k, v)", "input 1 is f32[1,3,8], for 3 heads"},
      {23, "float[1,2,0] q", "y = Attention <q_num_heads = 1, kv_num_heads = 1> (q, q, q)", "input 0 is f32[1,2,0]"},
      {23, "float[2,8] q", "y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, q, q)",
       "input 0 is f32[2,8], for 2 heads"},
      {23, "float[1,2,2,4] q, float[1,3,8] k", "y = Attention (q, k, k)", "input 1 is f32[1,3,8]"},
      {23, apart, "y = Attention (q, k3, k3)", "2 heads of queries for 3 heads of keys"},
      {23, apart, "y = Attention (q, k0, k0)", "2 heads of queries for 0 heads of keys"},
      {23, apart, "y = Attention (q0, k, k)", "0 heads of queries for 2 heads of keys"},
      {23, apart, "y = Attention <scale = -1.0> (q, k, k)", "a scale of -1"},
      {23, apart, "y, a, b, c = Attention <qk_matmul_output_mode = 4> (q, k, k)", "qk_matmul_output_mode 4"},
      {23, apart, "y, a, b, c = Attention <qk_matmul_output_mode = -1> (q, k, k)", "qk_matmul_output_mode -1"},
      {23, apart, "y = Attention (q, k, k, p)", "a mask f32[] for 3 keys"},
      {23, apart, "y = Attention (q, k, k, wide)", "a mask f32[5] for 3 keys"},
      {23, apart, "y = Attention (q, k, k, none, wide, wide)",
       "node y.present_key (Concat): axis 2 of a tensor with 1 axes"},
      {24, "float[1,2,2,4] q, int64[1] n", "y, k = Attention (q, q, q, none, none, none, n)",
       "nonpad_kv_seqlen beside a past, a present or scores"},
      {24, "float[1,2,2,4] q, int64[1] n", "y = Attention <softcap = 1.0> (q, q, q, none, none, none, n)",
       "nonpad_kv_seqlen that is not constant, and scores capped or in another precision"},
      {24, "float[1,2,2,4] q, int64[2] n", "y = Attention (q, q, q, none, none, none, n)",
       "i64[2] where there must be i64[1]"},
      {24, "float[1,2,2,4] q, int64[2] n = {1, 1}", "y = Attention (q, q, q, none, none, none, n)",
       "nonpad_kv_seqlen is not a length for each sample"},
      {23, "float[1,1,10000,4] q", "y = Attention <is_causal = 1> (q, q, q)", "a mask of 1 x 10000 x 10000"},
      {23, "float[1,1,2,4] q, float[1,1,2,5] k", "y = Attention (q, k, k)",
       "node y.scores (MatMul): inner extents 4 and 5 differ"},
  });
}

TEST(ImportRefusals, RotaryEmbedding) {
  const char* const inputs =
      "float[1,2,8] x, float[1,2,2,4] h, float[1,2,2] c, float[2,2] c2, float[1,2,3] c3, "
      "float[1,3,2] long, float[1,2,0] e, int64[1,2] p, float[1,2] f";
  expect_refusals({
      {23, inputs, "y = RotaryEmbedding (x)", "input 1 is missing"},
      {23, inputs, "y = RotaryEmbedding (x, c)", "input 2 is missing"},
      {23, inputs, "y = RotaryEmbedding (none, c, c)", "input 0 is missing"},
      {23, inputs, "y = RotaryEmbedding (c2, c, c)", "f32[2,2] for 0 heads"},
      {23, inputs, "y = RotaryEmbedding (x, c, c)", "f32[1,2,8] for 0 heads"},
      {23, inputs, "y = RotaryEmbedding <num_heads = 3> (x, c, c)", "f32[1,2,8] for 3 heads"},
      {23, inputs, "y = RotaryEmbedding <num_heads = 1> (e, c, c)", "f32[1,2,0] for 1 heads"},
      {23, inputs, "y = RotaryEmbedding <rotary_embedding_dim = 3> (h, c, c)",
       "a rotary_embedding_dim of 3 of 4 elements"},
      {23, inputs, "y = RotaryEmbedding <rotary_embedding_dim = 6> (h, c, c)",
       "a rotary_embedding_dim of 6 of 4 elements"},
      {23, inputs, "y = RotaryEmbedding <rotary_embedding_dim = 1> (h, c, c)",
       "a rotary_embedding_dim of 1 of 4 elements"},
      {23, inputs, "y = RotaryEmbedding (h, c2, c2)", "angles f32[2,2] for 4 elements"},
      {23, inputs, "y = RotaryEmbedding (h, c3, c3)", "angles f32[1,2,3] for 4 elements"},
      {23, inputs, "y = RotaryEmbedding (h, c2, c2, f)", "node y.cos_at (Gather): indices f32[1,2]"},
      {23, inputs, "y = RotaryEmbedding <interleaved = 1> (h, long, long)",
       "node y.ac (Mul): extents 2 and 3 do not broadcast"},
  });
}

TEST(ImportRefusals, Quantized) {
  const char* const inputs =
      "float[1,4] x, float s = {0.5}, uint8[1,4] q, uint8 z = {0}, uint8[4,2] w, "
      "uint8[1,1,4,4] image, uint8[2,2] flat, uint8[3] z3 = {1, 2, 3}, uint8[2] z2";
  expect_refusals({
      {13, inputs, "y = QuantizeLinear (x)", "the scale is missing"},
      {21, inputs, "y = QuantizeLinear <block_size = 2> (x, s)", "block_size"},
      {21, inputs, "y = QuantizeLinear <output_dtype = 8> (x, s)", "element type 8"},
      {21, inputs, "y = DequantizeLinear <block_size = 2> (q, s)", "block_size"},
      {13, inputs, "y = QuantizeLinear (none, s)", "input 0 is missing"},
      {13, inputs, "y = MatMulInteger (q)", "input 1 is missing"},
      {13, inputs, "y = MatMulInteger (none, w)", "input 0 is missing"},
      {13, inputs, "y = MatMulInteger (q, w, none, z3)", "node y.b.shifted (Sub): extents 2 and 3 do not broadcast"},
      {13, inputs, "y = ConvInteger (none, flat)", "an input is missing"},
      {13, inputs, "y = ConvInteger (image)", "an input is missing"},
      {13, inputs, "y = ConvInteger (image, flat)", "a convolution without spatial axes"},
      {13, inputs, "y = QLinearConv (image, s, z, flat, s, z, s, z)", "a convolution without spatial axes"},
      {13, inputs, "y = QLinearMatMul (q, s, z, w, s, z, s)", "input 7 is missing"},
      {13, inputs, "y = QLinearMatMul (q, s, z, w, s, z)", "input 6 is missing"},
      {13, inputs, "y = QLinearMatMul (q, s, z)", "input 3 is missing"},
      {13, inputs, "y = QLinearMatMul (q, none, z)", "input 1 is missing"},
      {11, inputs, "y, a, b = DynamicQuantizeLinear (none)", "input 0 is missing"},
  });
}

TEST(ImportRefusals, Recurrent) {
  const char* const inputs =
      "float[5,1,3] x, float[1,16,3] w, float[1,16,4] r, float[3] flat, int64[1] n = {4}, "
      "int64[1] open, float[1,1,5] state";
  expect_refusals({
      {6, inputs, "y = LSTM (x, w, r)", "recurrent operators before opset 7"},
      {14, inputs, "y = LSTM (x, w)", "an input is missing"},
      {14, inputs, "y = LSTM (flat, w, r)", "input 0 is f32[3], not of three axes"},
      {14, inputs, "y = LSTM <clip = 1.0> (x, w, r)", "clip"},
      {14, inputs, "y = LSTM <input_forget = 1> (x, w, r)", "input_forget"},
      {14, inputs, "y = LSTM <hidden_size = 5> (x, w, r)", "hidden_size is 5, the recurrent weights are for 4"},
      {14, inputs, "y = LSTM <activations = [\"relu\", \"tanh\", \"tanh\"]> (x, w, r)",
       "the activation relu as number 1 of LSTM"},
      {14, inputs, "y = LSTM (x, w, r, none, n)", "a sequence_lens of 4 where there are 5 steps"},
      {14, inputs, "y = LSTM (x, w, r, none, open)", "sequence_lens that is not constant"},
      {14, inputs, "y = LSTM (x, w, r, none, none, state)", "input 5 is f32[1,1,5], not f32[1,1,4]"},
      {14, inputs, "y = LSTM (x, w, r, none, none, none, state)", "input 6 is f32[1,1,5], not f32[1,1,4]"},
  });
}

TEST(ImportRefusals, Branches) {
  const char* const inputs = "float[2] x, bool[1] c = {1}, bool[2] two = {1, 0}, bool[1] open";
  const std::string good = "then_branch = t () => (float r) { r = Relu (x) }";
  const auto of = [](const std::string& condition, const std::string& branches) {
    return fmt::format("y = If <{}> ({})", branches, condition);
  };
  const auto refused = [&](const std::string& node, const char* message) {
    EXPECT_THAT(error_of(import_text({13, inputs, node})), HasSubstr("node y (If, opset 13): " + std::string(message)))
        << node;
  };
  refused(of("none", good), "an input is missing");
  refused(of("", good), "an input is missing");
  refused(of("open", good), "a condition that is not constant");
  refused(of("two", good), "a condition must be one truth value");
  refused(of("c", "else_branch = t () => (float r) { r = Relu (x) }"), "then_branch is missing");
  refused(of("c", "then_branch = t () => (float r, float s) { r = Relu (x) s = Relu (x) }"),
          "then_branch has 2 outputs, the node 1");
  refused(of("c", "then_branch = t (float nowhere) => (float nowhere) { r = Relu (x) }"),
          "output nowhere of then_branch is made by no node");
  const std::string loop = "y = Loop <body = t () => (float r) { r = Relu (x) }> (x)";
  EXPECT_THAT(error_of(import_text({13, inputs, loop})), HasSubstr("the operator is not supported"));
}

TEST(ImportRefusals, SizesAndShapes) {
  expect_refusals({
      {13, "float[2] x", "y = Shape (none)", "an input is missing"},
      {13, "float[2] x", "y = Shape ()", "an input is missing"},
      {13, "float[2] x", "y = Size (none)", "an input is missing"},
      {13, "float[2] x", "y = Size ()", "an input is missing"},
  });
}

}  // namespace
}  // namespace nlsplit
