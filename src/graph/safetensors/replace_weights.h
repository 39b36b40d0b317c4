// The weights of a model in place of those it has: what a training has made of them.
#pragma once

#include "graph/safetensors/safetensors_file.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

// Each tensor of the file instead of the model's weight of its name; the others stay. The file stays mapped. Errors
// name the tensor: the model has no such weight, or one of another type; it is not of f32; the file is cut off. Then
// the model is as it was.
Status replace_weights(Model& model, const SafetensorsFile& file);

}  // namespace nlsplit::inline graph
