// A model by what users call it: zoo:NAME, FILE.onnx, FILE.gguf, the folder of a config.json and safetensors files; of
// all but ONNX files also with sizes, "FILE.gguf?length=64".
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/onnx/import.h"

namespace nlsplit::inline scenario {

bool is_zoo(std::string_view model);
bool is_model(std::string_view text);         // of these forms; a file need not exist, but a folder
bool leaves_extents(std::string_view model);  // it may leave extents open, as only ONNX files do

// The model with sizes besides those it names. Errors: it takes none; it names one of them itself.
Result<std::string> with_sizes(const std::string& model,
                               const std::vector<std::pair<std::string_view, int64_t>>& sizes);

// As the file or the zoo has it: no passes have run. What is none of the others is read as ONNX. `seed`: of the
// zoo's weights.
Result<Model> read_model(const std::string& model, const ImportOptions& options = {}, uint64_t seed = 1);

}  // namespace nlsplit::inline scenario
