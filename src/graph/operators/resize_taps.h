// Where an element of a resized tensor comes from: axis by axis, a few places of the operand with their weights. An
// element of the result is the sum over the product of its axes' taps.
//
//   const std::vector<ResizedAxis> axes = resized_axes(attrs, in, out);
//   axes[3].taps[7]    // of column 7: {{3, 0.25}, {4, 0.75}}
#pragma once

#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline graph {

struct ResizeTap {
  int64_t at;
  double weight;
};

struct ResizedAxis {
  std::vector<std::vector<ResizeTap>> taps;  // [position in the result], each inside of the operand
  std::vector<bool> outside;                 // of the image, for tf_crop_and_resize
};

// Attributes of Resize, its operand's shape and its result's.
std::vector<ResizedAxis> resized_axes(const Attrs& attrs, const Shape& in, const Shape& out);

// Keys, "Cubic convolution interpolation for digital image processing", 1981: weights of the four neighbours at -1, 0,
// 1 and 2 of a place `t` behind the second.
void cubic_weights(double t, double a, double (&weights)[4]);

// Beyond 10^15 a double has no fraction, and a cast to an integer soon no value; what is no number is far outside.
double bounded_place(double place);

}  // namespace nlsplit::inline graph
