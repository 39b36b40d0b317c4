#include "graph/gguf/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text_reader.h"
#include "graph/gguf/gguf_file.h"
#include "graph/llama_file.h"

namespace nlsplit::inline graph {
namespace {

constexpr std::string_view extension = ".gguf";

// How an architecture differs from the others. Rotated pairs are neighbours (llama.cpp's LLAMA_ROPE_TYPE_NORM: its
// converter permutes the rows of queries and keys so) or lie half a head apart (LLAMA_ROPE_TYPE_NEOX).
struct Architecture {
  std::string_view name;
  bool neighbours = false;
  LlamaKind kind = {};
};
constexpr std::array architectures = {
    Architecture{.name = "llama", .neighbours = true},
    Architecture{.name = "qwen2", .kind = {.biases = true}},
    Architecture{.name = "qwen3", .kind = {.head_norms = true}},
    Architecture{.name = "qwen3moe", .kind = {.head_norms = true, .experts = true}},
    Architecture{.name = "gemma", .kind = {.gelu = true, .scaled_embedding = true}},
};

Result<Architecture> architecture_of(const GgufFile& file) {
  constexpr std::string_view key = "general.architecture";
  ASSIGN_OR_RETURN(const std::string_view name, file.text(key));
  std::vector<std::string_view> names;
  for (const Architecture& known : architectures) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  return unsupported(file.error(key, fmt::format("the architecture {} is not known; those that are: {}",
                                                 quote(std::string(name.substr(0, 80))), fmt::join(names, ", ")))
                         .message);
}

// ---- sizes

// Reads the keys "ARCHITECTURE.KEY".
class Sizes {
 public:
  Sizes(const GgufFile& file, std::string_view architecture) : file_(file), architecture_(architecture) {}

  std::string key(std::string_view own) const { return fmt::format("{}.{}", architecture_, own); }
  bool has(std::string_view own) const { return file_.find(key(own)) != nullptr; }
  Error error(std::string_view own, std::string_view why) const { return file_.error(key(own), why); }

  Result<int64_t> size(std::string_view own) const {
    ASSIGN_OR_RETURN(const int64_t value, file_.integer(key(own)));
    if (value < 1 || value > most_of_a_size)
      return error(own, fmt::format("{} is not from 1 to {}", value, most_of_a_size));
    return value;
  }
  Result<int64_t> size(std::string_view own, int64_t otherwise) const { return has(own) ? size(own) : otherwise; }

  Result<double> real(std::string_view own, double otherwise) const {
    return has(own) ? file_.real(key(own)) : otherwise;
  }

 private:
  const GgufFile& file_;
  std::string_view architecture_;
};

// Of several files each has some of the tensors.
Status refuse_part(const GgufFile& file) {
  constexpr std::string_view key = "split.count";
  if (file.find(key) == nullptr) return ok_status();
  ASSIGN_OR_RETURN(const int64_t count, file.integer(key));
  if (count <= 1) return ok_status();
  return file.error(key, fmt::format("it is one of {} files; llama-gguf-split --merge joins them", count));
}

// What files may say that the graph does not have. Ignored it would change the results.
Status refuse_options(const GgufFile& file, const Sizes& sizes, const LlamaSizes& llama) {
  constexpr int64_t softmax = 1;  // of llama.cpp's gating functions
  const std::pair<std::string_view, int64_t> known[] = {{"expert_count", llama.experts},
                                                        {"expert_shared_count", 0},
                                                        {"leading_dense_block_count", 0},
                                                        {"expert_gating_func", softmax}};
  for (const auto& [own, value] : known) {
    if (!sizes.has(own)) continue;
    ASSIGN_OR_RETURN(const int64_t is, file.integer(sizes.key(own)));
    if (is != value) return sizes.error(own, fmt::format("{}, and {} is all that is known here", is, value));
  }
  const int64_t positions = std::max(llama.length, llama.context);
  ASSIGN_OR_RETURN(const int64_t window, sizes.size("attention.sliding_window", positions));
  if (window < positions)
    return sizes.error("attention.sliding_window", fmt::format("{}, less than {} positions", window, positions));
  if (sizes.has("attention.causal")) {
    ASSIGN_OR_RETURN(const bool causal, file.boolean(sizes.key("attention.causal")));
    if (!causal) return sizes.error("attention.causal", "attention to later tokens");
  }
  for (const std::string_view own :
       {"attention.scale", "logit_scale", "residual_scale", "embedding_scale", "expert_weights_scale"}) {
    if (sizes.has(own)) return sizes.error(own, "this scale is not known");
  }
  return ok_status();
}

Result<std::vector<float>> rotary_factors(const GgufFile& file, const Sizes& sizes, int64_t head) {
  std::string_view type = sizes.has("rope.scaling.factor") || sizes.has("rope.scale_linear") ? "linear" : "none";
  if (sizes.has("rope.scaling.type")) {
    ASSIGN_OR_RETURN(type, file.text(sizes.key("rope.scaling.type")));
  }
  std::vector<float> factors;
  const auto pairs = static_cast<size_t>(head / 2);
  if (type == "linear") {
    const std::string_view own = sizes.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    ASSIGN_OR_RETURN(const double factor, sizes.real(own, 1));
    if (!(factor > 0)) return sizes.error(own, fmt::format("it is {}", factor));
    factors.assign(pairs, static_cast<float>(factor));
  } else if (type != "none") {
    return unsupported(sizes
                           .error("rope.scaling.type", fmt::format("scaling {} of positions; none and linear are known",
                                                                   quote(std::string(type.substr(0, 80)))))
                           .message);
  }
  const GgufTensor* tensor = file.tensor("rope_freqs.weight");
  if (tensor == nullptr) return factors;
  if (tensor->shape != Shape{static_cast<int64_t>(pairs)} || tensor->type != GgmlType::F32) {
    return invalid_input(fmt::format("{}: tensor rope_freqs.weight: it must be {} elements of F32", file.path, pairs));
  }
  const std::string_view bytes = MappedBytes{file.mapped, tensor->offset, tensor->bytes}.view();
  if (bytes.size() < tensor->bytes)
    return invalid_input(fmt::format("{}: tensor rope_freqs.weight: the file is cut off before its end", file.path));
  factors.resize(pairs, 1);
  const std::string values = dequantized(tensor->type, bytes);
  for (size_t i = 0; i < pairs; ++i) {
    const float factor = reinterpret_cast<const float*>(values.data())[i];
    if (!(factor > 0) || !std::isfinite(factor))
      return invalid_input(fmt::format("{}: tensor rope_freqs.weight: its element {} is {}", file.path, i, factor));
    factors[i] *= factor;
  }
  return factors;
}

Result<LlamaSizes> sizes_of(const GgufFile& file, const Architecture& architecture, const PromptSizes& prompt) {
  const Sizes sizes(file, architecture.name);
  LlamaSizes llama;
  add_prompt(llama, prompt);
  ASSIGN_OR_RETURN(llama.layers, sizes.size("block_count"));
  const std::string misfit = misfit_of_layers(llama.layers, file.tensors.size());
  if (!misfit.empty()) return sizes.error("block_count", misfit);
  ASSIGN_OR_RETURN(llama.hidden, sizes.size("embedding_length"));
  if (architecture.kind.experts) {
    ASSIGN_OR_RETURN(llama.experts, sizes.size("expert_count"));
    ASSIGN_OR_RETURN(llama.experts_used, sizes.size("expert_used_count"));
    if (llama.experts_used > llama.experts)
      return sizes.error("expert_used_count", fmt::format("{} of {} experts", llama.experts_used, llama.experts));
  }
  ASSIGN_OR_RETURN(llama.ffn,
                   sizes.size(architecture.kind.experts ? "expert_feed_forward_length" : "feed_forward_length"));
  ASSIGN_OR_RETURN(llama.heads, sizes.size("attention.head_count"));
  ASSIGN_OR_RETURN(llama.kv_heads, sizes.size("attention.head_count_kv", llama.heads));
  if (llama.heads % llama.kv_heads != 0) {
    return sizes.error("attention.head_count_kv",
                       fmt::format("{} heads are no multiple of {}", llama.heads, llama.kv_heads));
  }
  if (!sizes.has("attention.key_length") && llama.hidden % llama.heads != 0) {
    return sizes.error("embedding_length", fmt::format("{} is no multiple of the {} heads", llama.hidden, llama.heads));
  }
  ASSIGN_OR_RETURN(llama.head, sizes.size("attention.key_length", llama.hidden / llama.heads));
  if (llama.head % 2 != 0)
    return sizes.error("attention.key_length",
                       fmt::format("a head's width of {} is odd, and positions rotate pairs", llama.head));
  for (const std::string_view own : {"attention.value_length", "rope.dimension_count"}) {
    ASSIGN_OR_RETURN(const int64_t other, sizes.size(own, llama.head));
    if (other != llama.head) return sizes.error(own, fmt::format("{}, but a head's width is {}", other, llama.head));
  }
  ASSIGN_OR_RETURN(const int64_t context, sizes.size("context_length", most_of_a_size));
  if (prompt.positions() > context)
    return sizes.error("context_length",
                       fmt::format("{}, less than the {} positions wanted", context, prompt.positions()));
  ASSIGN_OR_RETURN(llama.epsilon, file.real(sizes.key("attention.layer_norm_rms_epsilon")));
  ASSIGN_OR_RETURN(llama.rotary_base, sizes.real("rope.freq_base", 10000));
  if (!(llama.epsilon >= 0 && llama.epsilon < 1))
    return sizes.error("attention.layer_norm_rms_epsilon", fmt::format("it is {}", llama.epsilon));
  if (!(llama.rotary_base >= 1)) return sizes.error("rope.freq_base", fmt::format("it is {}", llama.rotary_base));
  const GgufTensor* table = file.tensor("token_embd.weight");
  if (table == nullptr || table->shape.size() != 2)
    return invalid_input(fmt::format("{}: tensor token_embd.weight: {}", file.path,
                                     table == nullptr ? "it is missing" : "it must have two extents"));
  llama.vocab = table->shape[0];
  add_kind(llama, architecture.kind);
  RETURN_IF_ERROR(check_elements(file.path, llama));
  RETURN_IF_ERROR(refuse_options(file, sizes, llama));
  ASSIGN_OR_RETURN(llama.rotary_factors, rotary_factors(file, sizes, llama.head));
  return llama;
}

// ---- weights

// What the graph calls a weight, and what files do. "@": of a layer.
struct NamePair {
  std::string_view graph, file;
};
constexpr std::array name_pairs = {
    NamePair{"model.embed_tokens", "token_embd"},
    NamePair{"model.norm", "output_norm"},
    NamePair{"lm_head", "output"},
    NamePair{"@input_layernorm", "@attn_norm"},
    NamePair{"@self_attn.q_proj", "@attn_q"},
    NamePair{"@self_attn.k_proj", "@attn_k"},
    NamePair{"@self_attn.v_proj", "@attn_v"},
    NamePair{"@self_attn.o_proj", "@attn_output"},
    NamePair{"@self_attn.q_norm", "@attn_q_norm"},
    NamePair{"@self_attn.k_norm", "@attn_k_norm"},
    NamePair{"@post_attention_layernorm", "@ffn_norm"},
    NamePair{"@mlp.gate", "@ffn_gate_inp"},
    NamePair{"@mlp.experts.gate_proj", "@ffn_gate_exps"},
    NamePair{"@mlp.experts.up_proj", "@ffn_up_exps"},
    NamePair{"@mlp.experts.down_proj", "@ffn_down_exps"},
    NamePair{"@mlp.gate_proj", "@ffn_gate"},
    NamePair{"@mlp.up_proj", "@ffn_up"},
    NamePair{"@mlp.down_proj", "@ffn_down"},
};

std::string name_in_file(std::string_view name) {
  constexpr std::string_view layers = "model.layers.";
  std::string layer;
  const std::string_view kind = name.substr(name.rfind('.'));  // ".weight", ".bias"
  std::string own(name.substr(0, name.size() - kind.size()));
  if (own.starts_with(layers)) {
    const size_t end = own.find('.', layers.size());
    layer = "blk." + own.substr(layers.size(), end - layers.size()) + ".";
    own = "@" + own.substr(end + 1);
  }
  const auto* pair = std::ranges::find(name_pairs, std::string_view(own), &NamePair::graph);
  CHECK(pair != name_pairs.end(), name);
  const std::string_view file = pair->file.substr(layer.empty() ? 0 : 1);
  return fmt::format("{}{}{}", layer, file, kind);
}

class Tensors {
 public:
  Tensors(const GgufFile& file, const Architecture& architecture, const LlamaSizes& llama, FileWeights weights)
      : file_(file), architecture_(architecture), llama_(llama), weights_(weights) {}

  DType stored_type(const std::string& name) const {
    const GgufTensor* tensor = file_.tensor(name_of_tensor(name));
    return tensor == nullptr ? DType::f32 : stored_type_of(weights_, tensor->type, tensor->shape);
  }

  // The graph goes on with any weight where there is a problem; who has asked for all weights looks at problem().
  ContentId weight(WeightStore& store, const std::string& name, const TensorType& type) {
    const bool table = name == "model.embed_tokens.weight", as_stored = type.dtype != DType::f32,
               matrix = type.shape.size() == 2 && !table && !as_stored;
    const std::string stored = name_of_tensor(name);
    const GgufTensor* tensor = file_.tensor(stored);
    Shape shape = type.shape;
    if (matrix) std::swap(shape[0], shape[1]);  // files have [out, in]
    const Shape* there = tensor == nullptr ? nullptr : &tensor->shape;
    if (!asked_.ask(stored, there, shape, "the metadata")) return store.add_fill(type, 0);
    const StoredTensor place = in_file(*tensor);
    ContentId content = as_stored ? add_as_stored(store, place) : add_stored(store, place);
    const bool rotated = name.ends_with(".q_proj.weight") || name.ends_with(".k_proj.weight") ||
                         name.ends_with(".q_proj.bias") || name.ends_with(".k_proj.bias");
    if (rotated && architecture_.neighbours) {
      content = store.add_derived(Derivation::halves_of_pairs, {content}, static_cast<double>(llama_.head),
                                  {type.dtype, shape});
    }
    if (matrix) content = store.add_derived(Derivation::transpose, {content}, static_cast<double>(shape[1]), type);
    return content;
  }

  Status problem() const {
    std::vector<std::string_view> names;
    for (const auto& [name, tensor] : file_.tensors) {
      if (name != "rope_freqs.weight") names.push_back(name);
    }
    return asked_.problem(file_.path, architecture_.name, names);
  }

 private:
  std::string name_of_tensor(const std::string& name) const {
    const std::string stored = name_in_file(name);
    return stored == "output.weight" && file_.tensor(stored) == nullptr ? "token_embd.weight" : stored;  // tied
  }

  StoredTensor in_file(const GgufTensor& tensor) const {
    return {.format = "gguf",
            .path = file_.path,
            .header_hash = file_.header_hash,
            .name = tensor.name,
            .type = tensor.type,
            .shape = tensor.shape,
            .bytes = {file_.mapped, tensor.offset, tensor.bytes}};
  }

  const GgufFile& file_;
  const Architecture& architecture_;
  const LlamaSizes& llama_;
  FileWeights weights_;
  AskedTensors asked_;
};

}  // namespace

bool is_gguf(std::string_view model) {
  const size_t question = model.rfind('?');
  return model.ends_with(extension) ||
         (question != std::string_view::npos && model.substr(0, question).ends_with(extension));
}

Result<Model> import_gguf(std::string_view model) {
  const size_t question = model.ends_with(extension) ? std::string_view::npos : model.rfind('?');
  ASSIGN_OR_RETURN(const PromptModel prompt, split_prompt_model(model, question, FileWeights::stored));
  ASSIGN_OR_RETURN(const GgufFile file, read_gguf(prompt.path));
  RETURN_IF_ERROR(refuse_part(file));
  ASSIGN_OR_RETURN(const Architecture architecture, architecture_of(file));
  ASSIGN_OR_RETURN(const LlamaSizes llama, sizes_of(file, architecture, prompt.sizes));
  Tensors tensors(file, architecture, llama, prompt.weights);
  const WeightSource source = [&](WeightStore& store, const std::string& name, const TensorType& type, double, double) {
    return tensors.weight(store, name, type);
  };
  const StoredTypes stored = [&](const std::string& name) { return tensors.stored_type(name); };
  Model made = build_llama(llama, ZooNet(std::string(architecture.name), source, stored));
  RETURN_IF_ERROR(tensors.problem());
  return made;
}

}  // namespace nlsplit::inline graph
