// GGUF file → Model: the networks of the llama family, one pass over a prompt of so many tokens.
#pragma once

#include <string>
#include <string_view>

#include "graph/weights.h"

namespace nlsplit::inline graph {

bool is_gguf(std::string_view model);  // "PATH.gguf", "PATH.gguf?length=64"

// `model`: a path, and behind a question mark what is the user's to choose: length, the tokens of the prompt, 128
// unless given; context and candidates (graph/zoo/llama.h); weights=f32. The graph is the zoo's (graph/zoo/llama.h),
// with the file's sizes and weights. Matrices in blocks or halves stay as they are, operands of Linear and Gather:
// their bytes are the file's. With weights=f32, and in all other tensors, they are f32, each made when it is asked for.
// Errors: read_gguf_parts'; an architecture, scaling of positions, tensor or option that is not known, all of which
// would change what is computed; sizes that make no sense; a tensor that is missing or of another shape. All name the
// file, and the key or tensor.
Result<Model> import_gguf(std::string_view model);

}  // namespace nlsplit::inline graph
