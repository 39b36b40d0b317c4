// A model by what users call it: zoo:NAME, FILE.onnx, FILE.gguf; of the zoo and of GGUF files also with sizes,
// "FILE.gguf?length=64".
#pragma once

#include <string>
#include <string_view>

#include "graph/onnx/import.h"

namespace nlsplit::inline scenario {

bool is_zoo(std::string_view model);
bool is_model(std::string_view text);         // of these forms; a file need not exist
bool leaves_extents(std::string_view model);  // it may leave extents open: it is neither of the zoo nor a GGUF file

// As the file or the zoo has it: no passes have run. Any file that is no GGUF file is read as ONNX. `seed`: of the
// zoo's weights.
Result<Model> read_model(const std::string& model, const ImportOptions& options = {}, uint64_t seed = 1);

}  // namespace nlsplit::inline scenario
