// The argument MODEL of the commands that take one without a scenario: a file or a network of the zoo, its open extents
// bound.
#pragma once

#include <string>
#include <vector>

#include "graph/weights.h"

namespace CLI {
class App;
}

namespace nlsplit::inline tools {

struct ModelArguments {
  std::string model;                // FILE or zoo:NAME
  std::vector<std::string> inputs;  // NAME=1,3,48,192
  std::vector<std::string> dims;    // NAME=8
  int64_t batch = 0;                // 0: the model's own
  std::string precision = {};       // empty: the model's own
};

// MODEL, --batch, --input-shape, --dim and --precision. `arguments` must outlive the parsing.
void add_model_options(CLI::App& command, ModelArguments& arguments);

// As the file or the zoo has it: no passes have run, and it is in its own precision.
Result<Model> load_model(const ModelArguments& arguments);
// In the precision asked for; behind the passes, if any shall run.
Status convert_precision(const ModelArguments& arguments, Model& model);

struct ExportArguments {
  ModelArguments model;
  std::string output, weights;
  bool external_data = false;
};

// --output, --weights and --external-data.
void add_export_options(CLI::App& command, ExportArguments& arguments, bool required = true);
// Writes the file and says so.
Status export_model(const ExportArguments& arguments);

}  // namespace nlsplit::inline tools
