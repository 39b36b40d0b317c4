// config.json of Hugging Face's transformers: what network a folder holds.
#pragma once

#include <cstdint>
#include <string>

#include "graph/llama_file.h"

namespace nlsplit::inline graph {

struct TransformersConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::string family;        // "llama"
  LlamaSizes sizes;          // with those of the prompt
  LlamaKind kind;
  bool tied = false;             // the head is the transpose of the table of tokens
  bool norms_from_zero = false;  // files hold the scales of norms less 1: Gemma
};

// Errors name the file and the key: missing, no JSON, an architecture, activation or scaling that is not known, a size
// that makes no sense, a prompt that is too long.
Result<TransformersConfig> read_config(const std::string& path, const PromptSizes& prompt);

}  // namespace nlsplit::inline graph
