#include "graph/safetensors/replace_weights.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "graph/elements.h"

namespace nlsplit::inline graph {

Status replace_weights(Model& model, const SafetensorsFile& file) {
  std::map<std::string_view, Value*> weights;
  for (Value& value : model.graph.values) {
    if (value.kind == ValueKind::weight) weights.emplace(value.name, &value);
  }
  const std::string_view bytes = file.mapped->bytes();
  for (const auto& [name, tensor] : file.tensors) {
    const auto found = weights.find(name);
    if (found == weights.end())
      return invalid_input(fmt::format("{}: tensor {}: {} has no such weight", file.path, name, model.graph.name));
    const Value& weight = *found->second;
    const TensorType type{dtype_of(tensor.type), tensor.shape};
    if (type != weight.type)
      return invalid_input(fmt::format("{}: tensor {} is {}, and the weight of {} {}", file.path, name, to_string(type),
                                       model.graph.name, to_string(weight.type)));
    if (tensor.offset + tensor.bytes > bytes.size())
      return invalid_input(fmt::format("{}: it is cut off in tensor {}", file.path, name));
  }
  for (const auto& [name, tensor] : file.tensors) {
    Value& weight = *weights.at(name);
    weight.content = model.weights.add_mapped(weight.type, {file.mapped, tensor.offset, tensor.bytes});
  }
  return ok_status();
}

}  // namespace nlsplit::inline graph
