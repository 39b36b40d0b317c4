#include "graph/safetensors/import.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_place.h"
#include "base/text_reader.h"
#include "graph/llama_file.h"
#include "graph/safetensors/config.h"
#include "graph/safetensors/safetensors_file.h"

namespace nlsplit::inline graph {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_file = "config.json";
constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";

bool has_config(std::string_view folder) {
  std::error_code failure;
  return fs::is_regular_file(fs::path(folder) / config_file, failure);
}

// A question mark may belong to the folder's name.
size_t question_in(std::string_view model) {
  const size_t question = model.rfind('?');
  return question != std::string_view::npos && has_config(model) ? std::string_view::npos : question;
}

// ---- the files

// All tensors of a folder, in one file or in several.
struct TensorFiles {
  struct Place {
    const SafetensorsFile* file;
    const SafeTensor* tensor;
  };
  std::string path;  // of the file or the index
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string_view, Place> tensors;  // names are the files'
};

Status add_file(const std::string& path, TensorFiles& all) {
  ASSIGN_OR_RETURN(SafetensorsFile file, read_safetensors(path));
  all.files.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  for (const auto& [name, tensor] : all.files.back()->tensors) {
    const auto [at, added] = all.tensors.try_emplace(name, TensorFiles::Place{all.files.back().get(), &tensor});
    if (!added)
      return invalid_input(
          fmt::format("{}: tensor {}: {} has it too", path, quote(name.substr(0, 80)), at->second.file->path));
  }
  return ok_status();
}

Result<std::map<std::string, std::vector<std::string>>> read_index(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string content, read_file(path));
  ASSIGN_OR_RETURN(const nlohmann::json root, parse_json(content, path, KeyTwice::is_wrong));
  const JsonPlace map = JsonPlace{&root, ""}.optional("weight_map");
  if (!map.value->is_object()) return in_file(path, map.wrong(fmt::format("{} is not an object", map.excerpt())));
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : map.value->items()) {
    if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>() ||
        file.get<std::string>().find('\0') != std::string::npos) {
      const JsonPlace place = map.optional(tensor.c_str());
      return in_file(path, place.wrong(fmt::format("{} is not a file of this folder", place.excerpt())));
    }
    shards[file.get<std::string>()].push_back(tensor);
  }
  return shards;
}

Result<TensorFiles> read_files(const std::string& folder) {
  TensorFiles all;
  std::error_code failure;
  const std::string single = (fs::path(folder) / single_file).string();
  all.path = (fs::path(folder) / index_file).string();
  if (!fs::exists(all.path, failure)) {
    if (!fs::exists(single, failure))
      return invalid_input(fmt::format("{}: there is neither {} nor {}", folder, single_file, index_file));
    all.path = single;
    RETURN_IF_ERROR(add_file(single, all));
    return all;
  }
  ASSIGN_OR_RETURN(const auto shards, read_index(all.path));
  for (const auto& [name, tensors] : shards) {
    const std::string path = (fs::path(folder) / name).string();
    RETURN_IF_ERROR(add_file(path, all));
    for (const std::string& tensor : tensors) {
      if (!all.files.back()->tensors.contains(tensor))
        return invalid_input(
            fmt::format("{}: tensor {}: it is not in {}", all.path, quote(tensor.substr(0, 80)), path));
    }
  }
  return all;
}

// ---- weights

// Of old files: what the positions are computed from, which the graph makes itself.
bool is_computed(std::string_view tensor) { return tensor.ends_with(".self_attn.rotary_emb.inv_freq"); }

class SafeWeights {
 public:
  SafeWeights(const TensorFiles& files, const TransformersConfig& config, FileWeights weights)
      : files_(files), config_(config), weights_(weights) {}

  DType stored_type(const std::string& name) const {
    const auto found = files_.tensors.find(is_of_experts(name) ? name_of_expert(name, 0) : name_of_tensor(name));
    if (found == files_.tensors.end()) return DType::f32;
    return stored_type_of(weights_, found->second.tensor->type, found->second.tensor->shape);
  }

  // The graph goes on with any weight where there is a problem; who has asked for all weights looks at problem().
  ContentId weight(WeightStore& store, const std::string& name, const TensorType& type) {
    if (is_of_experts(name)) return experts(store, name, type);
    const bool table = name == table_name, as_stored = type.dtype != DType::f32,
               matrix = type.shape.size() == 2 && !table && !as_stored;
    const std::string stored = name_of_tensor(name);
    Shape shape = type.shape;
    if (matrix) std::swap(shape[0], shape[1]);  // files have [out, in]
    const auto found = files_.tensors.find(stored);
    const Shape* there = found == files_.tensors.end() ? nullptr : &found->second.tensor->shape;
    const std::optional<FusedRows> rows = fused_rows(name, config_.sizes, config_.kind);
    Shape whole = shape;
    if (rows) whole[0] = rows->all;
    if (!asked_.ask(stored, there, whole, config_name)) return store.add_fill(type, 0);
    std::string own_name;
    const StoredTensor all = in_file(found->first, found->second, whole);
    const StoredTensor place = rows ? rows_of(all, *rows, own_name) : all;
    ContentId content = as_stored ? add_as_stored(store, place) : add_stored(store, place);
    if (config_.norms_from_zero && name.ends_with("norm.weight")) {
      const ContentId one = store.add_fill({DType::f32, {}}, 1);
      content = store.add_derived(Derivation::add, {content, one}, 0, type);
    }
    if (matrix) content = store.add_derived(Derivation::transpose, {content}, static_cast<double>(shape[1]), type);
    return content;
  }

  Status problem() const {
    if (!other_type_.empty()) return unsupported(other_type_);
    std::vector<std::string_view> names;
    for (const auto& [name, place] : files_.tensors) {
      if (!is_computed(name) && !(config_.tied && name == head_name)) names.push_back(name);
    }
    return asked_.problem(files_.path, config_.architecture, names);
  }

 private:
  static constexpr const char* table_name = "model.embed_tokens.weight";
  static constexpr const char* head_name = "lm_head.weight";
  static constexpr const char* config_name = config_file;

  static constexpr std::string_view experts_part = ".mlp.experts.";

  static bool is_of_experts(const std::string& name) { return name.find(experts_part) != name.npos; }
  // "model.layers.0.mlp.experts.3.gate_proj.weight": each expert has a tensor of its own.
  static std::string name_of_expert(const std::string& name, int64_t expert) {
    const size_t at = name.find(experts_part) + experts_part.size();
    return fmt::format("{}{}.{}", std::string_view(name).substr(0, at), expert, std::string_view(name).substr(at));
  }

  ContentId experts(WeightStore& store, const std::string& name, const TensorType& type) {
    const Shape of_one(type.shape.begin() + 1, type.shape.end());
    std::vector<ContentId> all;
    for (int64_t expert = 0; expert < type.shape[0]; ++expert) {
      const auto found = files_.tensors.find(name_of_expert(name, expert));
      const bool is_there = found != files_.tensors.end();
      if (!asked_.ask(name_of_expert(name, expert), is_there ? &found->second.tensor->shape : nullptr, of_one,
                      config_name))
        return store.add_fill(type, 0);
      const StoredTensor place = in_file(found->first, found->second, of_one);
      // As the first one is; another type would be other bytes.
      if (type.dtype != DType::f32 && dtype_of(place.type) != type.dtype) {
        other_type_ = fmt::format("{}: tensor {}: it is {}, and the first expert's is {}", place.path, place.name,
                                  name_of(dtype_of(place.type)), name_of(type.dtype));
        return store.add_fill(type, 0);
      }
      all.push_back(type.dtype != DType::f32 ? add_as_stored(store, place) : add_stored(store, place));
    }
    return store.add_derived(Derivation::stack, std::move(all), 0, type);
  }

  static StoredTensor in_file(std::string_view name, const TensorFiles::Place& at, const Shape& shape) {
    return {.format = "safetensors",
            .path = at.file->path,
            .header_hash = at.file->header_hash,
            .name = name,
            .type = at.tensor->type,
            .shape = shape,
            .bytes = {at.file->mapped, at.tensor->offset, at.tensor->bytes}};
  }

  std::string name_of_tensor(const std::string& name) const {
    if (const std::optional<FusedRows> rows = fused_rows(name, config_.sizes, config_.kind)) {
      const size_t at = name.rfind('.', name.rfind('.') - 1);
      return name.substr(0, at) + (rows->of_attention ? ".qkv_proj.weight" : ".gate_up_proj.weight");
    }
    return config_.tied && name == head_name ? table_name : name;
  }

  const TensorFiles& files_;
  const TransformersConfig& config_;
  FileWeights weights_;
  AskedTensors asked_;
  std::string other_type_;
};

Result<Model> import_folder(std::string_view model) {
  ASSIGN_OR_RETURN(const PromptModel prompt, split_prompt_model(model, question_in(model), FileWeights::f32));
  const std::string config_path = (fs::path(prompt.path) / config_file).string();
  ASSIGN_OR_RETURN(const TransformersConfig config, read_config(config_path, prompt.sizes));
  ASSIGN_OR_RETURN(const TensorFiles files, read_files(prompt.path));
  const std::string misfit = misfit_of_layers(config.sizes.layers, files.tensors.size());
  if (!misfit.empty()) return invalid_input(fmt::format("{}: /num_hidden_layers: {}", config_path, misfit));
  SafeWeights weights(files, config, prompt.weights);
  const WeightSource source = [&](WeightStore& store, const std::string& name, const TensorType& type, double, double) {
    return weights.weight(store, name, type);
  };
  const StoredTypes stored = [&](const std::string& name) { return weights.stored_type(name); };
  Model made = build_llama(config.sizes, ZooNet(config.family, source, stored));
  RETURN_IF_ERROR(weights.problem());
  return made;
}

}  // namespace

bool is_safetensors(std::string_view model) { return has_config(model.substr(0, question_in(model))); }

Result<Model> import_safetensors(std::string_view model) {
  Result<Model> made = import_folder(model);
  if (made.ok() || made.error().where.file.empty()) return made;
  Error error = std::move(made).error();  // the file goes into the message: a scenario puts its own place there
  error.message = error.to_string();
  error.where = {};
  return error;
}

}  // namespace nlsplit::inline graph
