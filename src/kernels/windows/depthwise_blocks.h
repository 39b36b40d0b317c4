// Depthwise convolutions of small planes, whose kernels also take large ones, plane by plane: by vectors of channels
// (kernels/layout.h, DepthwiseBlocks). An element of a convolution, or of its gradient by x, is the chain over taps
// that it is in planes; one of the gradient by the weights is a sum over samples, each a chain over pixels.
#pragma once

#include "kernels/layout.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {

void run_depthwise_blocks(const KernelCall& call, const DepthwiseBlocks& blocks);
void run_depthwise_transpose_blocks(const KernelCall& call, const DepthwiseBlocks& blocks);
void run_depthwise_weight_gradient_blocks(const KernelCall& call, const DepthwiseBlocks& blocks);

}  // namespace nlsplit::inline kernels
