// Writes tensors as a safetensors file, which PyTorch, JAX and this project read.
// https://github.com/huggingface/safetensors#format
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace nlsplit::inline graph {

struct NamedBytes {
  std::string_view name;
  TensorType type;         // f32
  std::string_view bytes;  // row-major
};

// Whole or not at all (base/file.h). Errors name the path; an element type that has no name there.
Status write_safetensors(const std::string& path, std::span<const NamedBytes> tensors);

}  // namespace nlsplit::inline graph
