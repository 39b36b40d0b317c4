// GGUF file → Model: the networks of the llama family, one pass over a prompt of so many tokens.
#pragma once

#include <string>
#include <string_view>

#include "graph/weights.h"

namespace nlsplit::inline graph {

bool is_gguf(std::string_view model);  // "PATH.gguf", "PATH.gguf?length=64"

// `model`: a path, and behind a question mark the sizes that are the user's to choose: length, the tokens of the
// prompt, 128 unless given. The graph is the zoo's (graph/zoo/llama.h), with the file's sizes and weights; its weights
// are f32, each made from the blocks in the file when it is asked for.
// Errors: read_gguf's; an architecture, scaling of positions, tensor or option that is not known, all of which would
// change what is computed; sizes that make no sense; a tensor that is missing or of another shape. All name the file,
// and the key or tensor.
Result<Model> import_gguf(std::string_view model);

}  // namespace nlsplit::inline graph
