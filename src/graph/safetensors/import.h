// A folder of Hugging Face's → Model: config.json, and the weights in model.safetensors or in the shards that
// model.safetensors.index.json names. The networks of the llama family, one pass over a prompt of so many tokens.
#pragma once

#include <string>
#include <string_view>

#include "graph/weights.h"

namespace nlsplit::inline graph {

// "DIR", "DIR?length=64": a folder with a config.json in it.
bool is_safetensors(std::string_view model);

// `model`: a folder, and behind a question mark the length of the prompt, 128 unless given. The graph is the zoo's
// (graph/zoo/llama.h), with the sizes of config.json and the weights of the files; its weights are f32, each made of
// the file's elements when it is asked for. With weights=stored matrices of halves stay so (graph/gguf/import.h).
// Errors: read_safetensors's; an architecture, activation, scaling of positions or option that is not known and would
// change what is computed; sizes that make no sense; a tensor that is missing, of another shape, in two shards or in
// another shard than the index says. All name the file, and the key or tensor.
Result<Model> import_safetensors(std::string_view model);

}  // namespace nlsplit::inline graph
