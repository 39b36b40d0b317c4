// The zoo's families, one file each. All take one image (batch 1); layers are named as in torchvision, activations
// that it shares between places get a number ("layer1.0.relu2"), Dropout is left out.
#pragma once

#include "graph/weights.h"

namespace nlsplit {

Model build_simple_cnn(uint64_t seed);                              // 3x8x8; the hand-written three-machine example
Model build_alexnet(uint64_t seed);                                 // 3x224x224
Model build_vgg16(uint64_t seed);                                   // 3x224x224
Model build_resnet(int depth, uint64_t seed, int64_t image = 224);  // depth 18 or 50; any image of at least 1x1
Model build_mobilenet_v2(uint64_t seed, int64_t image = 224);

}  // namespace nlsplit
