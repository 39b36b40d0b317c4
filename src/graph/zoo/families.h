// The zoo's families, one file each. All have batch 1; layers of image networks are named as in torchvision, those of
// language models as in Hugging Face's transformers, activations that are shared between places get a number
// ("layer1.0.relu2"), Dropout is left out.
#pragma once

#include "graph/weights.h"

namespace nlsplit::inline graph {

Model build_simple_cnn(uint64_t seed, int64_t channels = 3);        // of 8x8; the hand-written three-machine example
Model build_alexnet(uint64_t seed);                                 // 3x224x224
Model build_vgg(int depth, uint64_t seed);                          // depth 16 or 19; 3x224x224
Model build_resnet(int depth, uint64_t seed, int64_t image = 224);  // depth 18 or 50; any image of at least 1x1
Model build_mobilenet_v2(uint64_t seed, int64_t image = 224);
Model build_densenet121(uint64_t seed, int64_t image = 224);   // at least 29x29
Model build_inception_v3(uint64_t seed, int64_t image = 299);  // at least 75x75; without the auxiliary classifier
Model build_efficientnet_b0(uint64_t seed, int64_t image = 224);

struct MlpSizes {  // `layers`: fully connected ones, with a Relu between two
  int64_t layers = 3, inputs = 784, hidden = 512, classes = 10;
};
Model build_mlp(const MlpSizes& sizes, uint64_t seed);

// What the sizes of a transformer have to do with each other is checked by whoever takes them from outside (zoo.cc):
// hidden is a multiple of heads.
struct VitSizes {  // ViT-B/16's
  int64_t layers = 12, hidden = 768, heads = 12, ffn = 3072, image = 224, patch = 16;
};
Model build_vit(const VitSizes& sizes, uint64_t seed);

struct BertSizes {  // BERT base, uncased
  int64_t layers = 12, hidden = 768, heads = 12, ffn = 3072, vocab = 30522, length = 128;
  static constexpr int64_t positions = 512;  // the longest length
};
Model build_bert(const BertSizes& sizes, uint64_t seed);

struct GptSizes {  // GPT-2's smallest
  int64_t layers = 12, hidden = 768, heads = 12, vocab = 50257, length = 128;
  static constexpr int64_t positions = 1024;
};
Model build_gpt2(const GptSizes& sizes, uint64_t seed);

}  // namespace nlsplit::inline graph
