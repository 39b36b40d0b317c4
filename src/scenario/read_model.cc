#include "scenario/read_model.h"

#include "graph/gguf/import.h"
#include "graph/safetensors/import.h"
#include "graph/zoo/zoo.h"

namespace nlsplit::inline scenario {
namespace {

constexpr std::string_view zoo_prefix = "zoo:";

}  // namespace

bool is_zoo(std::string_view model) { return model.starts_with(zoo_prefix); }
bool is_model(std::string_view text) {
  return is_zoo(text) || is_gguf(text) || text.ends_with(".onnx") || is_safetensors(text);
}
bool leaves_extents(std::string_view model) { return !is_zoo(model) && !is_gguf(model) && !is_safetensors(model); }

Result<Model> read_model(const std::string& model, const ImportOptions& options, uint64_t seed) {
  if (is_zoo(model)) return zoo_model(std::string_view(model).substr(zoo_prefix.size()), seed);
  if (is_gguf(model)) return import_gguf(model);
  if (is_safetensors(model)) return import_safetensors(model);
  return import_onnx(model, options);
}

}  // namespace nlsplit::inline scenario
