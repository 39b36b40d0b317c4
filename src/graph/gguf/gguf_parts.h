// A model in several GGUF files, as llama-gguf-split writes them: NAME-00001-of-00003.gguf has the metadata, and each
// file some of the tensors.
#pragma once

#include <string>

#include "graph/gguf/gguf_file.h"

namespace nlsplit::inline graph {

// The file, and where it is the first of several, the tensors of all; they are found beside it. Errors: read_gguf's, of
// each file; a file that is not the first; names or counts that do not fit each other; a tensor that two files have.
Result<GgufFile> read_gguf_parts(const std::string& path);

}  // namespace nlsplit::inline graph
