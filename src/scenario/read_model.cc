#include "scenario/read_model.h"

#include <fmt/format.h>

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

Result<std::string> with_sizes(const std::string& model,
                               const std::vector<std::pair<std::string_view, int64_t>>& sizes) {
  if (leaves_extents(model))
    return unsupported(
        fmt::format("{}: generation is of GGUF files, safetensors folders and zoo:llama, which take a context", model));
  const size_t question = is_zoo(model) ? model.find('?') : model.ends_with(".gguf") ? model.npos : model.rfind('?');
  std::string with = model;
  for (const auto& [name, size] : sizes) {
    const std::string part = fmt::format("{}=", name);
    const std::string own = question == model.npos ? "" : "&" + model.substr(question + 1);
    if (own.find("&" + part) != own.npos)
      return invalid_input(fmt::format("{}: '{}' is the workload's to say", model, name));
    with += fmt::format("{}{}{}", with.size() == model.size() && question == model.npos ? "?" : "&", part, size);
  }
  return with;
}

Result<Model> read_model(const std::string& model, const ImportOptions& options, uint64_t seed) {
  if (is_zoo(model)) return zoo_model(std::string_view(model).substr(zoo_prefix.size()), seed);
  if (is_gguf(model)) return import_gguf(model);
  if (is_safetensors(model)) return import_safetensors(model);
  return import_onnx(model, options);
}

}  // namespace nlsplit::inline scenario
