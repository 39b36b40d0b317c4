#include "graph/gguf/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text_reader.h"
#include "graph/gguf/gguf_parts.h"
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
    Architecture{.name = "phi3", .kind = {.fused = true}},
    Architecture{.name = "gemma", .kind = {.gelu = true, .scaled_embedding = true}},
    Architecture{.name = "gemma2",
                 .kind = {.gelu = true, .scaled_embedding = true, .branch_norms = true, .window_period = 2}},
    Architecture{
        .name = "gemma3",
        .kind = {.head_norms = true, .gelu = true, .scaled_embedding = true, .branch_norms = true, .window_period = 6}},
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

// Windows, and what Gemma has besides.
Status read_sight(const GgufFile& file, const Sizes& sizes, std::string_view architecture, LlamaSizes& llama) {
  constexpr std::string_view window = "attention.sliding_window", pattern = "attention.sliding_window_pattern";
  if (sizes.has(window)) {
    ASSIGN_OR_RETURN(llama.window, file.integer(sizes.key(window)));
    if (llama.window < 0 || llama.window > most_of_a_size)
      return sizes.error(window, fmt::format("{} is not from 0 (none) to {}", llama.window, most_of_a_size));
  }
  if (sizes.has(pattern)) {
    ASSIGN_OR_RETURN(llama.window_period, sizes.size(pattern));
  }
  if (architecture == "gemma3") {
    ASSIGN_OR_RETURN(llama.local_rotary_base, sizes.real("rope.freq_base_swa", 10000));
    if (!(llama.local_rotary_base >= 1))
      return sizes.error("rope.freq_base_swa", fmt::format("it is {}", llama.local_rotary_base));
  }
  // The largest of each family scale by the width that heads share; files do not say so. Layers tell which they are.
  const int64_t of_the_largest = architecture == "gemma2" ? 46 : architecture == "gemma3" ? 62 : 0;
  if (llama.layers == of_the_largest)
    llama.attention_scale = std::sqrt(static_cast<double>(llama.heads) / static_cast<double>(llama.hidden));
  for (const auto& [own, cap] : {std::pair("attn_logit_softcapping", &LlamaSizes::attention_softcap),
                                 std::pair("final_logit_softcapping", &LlamaSizes::softcap)}) {
    ASSIGN_OR_RETURN(llama.*cap, sizes.real(own, 0));
    if (!(llama.*cap >= 0) || std::isinf(llama.*cap)) return sizes.error(own, fmt::format("it is {}", llama.*cap));
  }
  return ok_status();
}

double default_scale(const LlamaSizes& llama) {
  return llama.attention_scale > 0 ? llama.attention_scale : 1 / std::sqrt(static_cast<double>(llama.head));
}

Result<std::vector<float>> read_factors(const GgufFile& file, const std::string& name, size_t pairs) {
  const GgufTensor* tensor = file.tensor(name);
  if (tensor->shape != Shape{static_cast<int64_t>(pairs)} || tensor->type != GgmlType::F32)
    return invalid_input(fmt::format("{}: tensor {}: it must be {} elements of F32", file.path, name, pairs));
  const std::string_view bytes = MappedBytes{file.part_of(*tensor).mapped, tensor->offset, tensor->bytes}.view();
  if (bytes.size() < tensor->bytes)
    return invalid_input(fmt::format("{}: tensor {}: the file is cut off before its end", file.path, name));
  std::vector<float> factors(pairs);
  const std::string values = dequantized(tensor->type, bytes);
  for (size_t i = 0; i < pairs; ++i) {
    factors[i] = reinterpret_cast<const float*>(values.data())[i];
    if (!(factors[i] > 0) || !std::isfinite(factors[i]))
      return invalid_input(fmt::format("{}: tensor {}: its element {} is {}", file.path, name, i, factors[i]));
  }
  return factors;
}

// Contexts above the one of training have factors of their own (Ding et al., "LongRoPE", ICML 2024).
Status read_long_factors(const GgufFile& file, const Sizes& sizes, LlamaSizes& llama) {
  constexpr std::string_view original = "rope.scaling.original_context_length", growth = "rope.scaling.attn_factor";
  ASSIGN_OR_RETURN(const int64_t trained, sizes.size(original));
  const bool is_long = std::max(llama.length, llama.context) > trained;
  const std::string name = is_long ? "rope_factors_long.weight" : "rope_factors_short.weight";
  if (file.tensor(name) == nullptr) return invalid_input(fmt::format("{}: tensor {}: it is missing", file.path, name));
  ASSIGN_OR_RETURN(llama.rotary_factors, read_factors(file, name, static_cast<size_t>(llama.head / 2)));
  ASSIGN_OR_RETURN(const double factor, sizes.real(growth, 1));
  if (!(factor > 0) || std::isinf(factor)) return sizes.error(growth, fmt::format("it is {}", factor));
  if (factor != 1) llama.attention_scale = default_scale(llama) * factor * factor;
  return ok_status();
}

Status read_yarn(const Sizes& sizes, LlamaSizes& llama) {
  Yarn yarn;
  ASSIGN_OR_RETURN(yarn.factor, sizes.real("rope.scaling.factor", 1));
  if (!(yarn.factor >= 1) || std::isinf(yarn.factor))
    return sizes.error("rope.scaling.factor", fmt::format("it is {}", yarn.factor));
  ASSIGN_OR_RETURN(yarn.original, sizes.size("rope.scaling.original_context_length"));
  ASSIGN_OR_RETURN(yarn.beta_fast, sizes.real("rope.scaling.yarn_beta_fast", yarn.beta_fast));
  ASSIGN_OR_RETURN(yarn.beta_slow, sizes.real("rope.scaling.yarn_beta_slow", yarn.beta_slow));
  if (!(yarn.beta_slow > 0) || !(yarn.beta_fast >= yarn.beta_slow) || std::isinf(yarn.beta_fast))
    return sizes.error("rope.scaling.yarn_beta_fast", fmt::format("{} and {}", yarn.beta_fast, yarn.beta_slow));
  for (const std::string_view own : {"rope.scaling.attn_factor", "rope.scaling.yarn_ext_factor",
                                     "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_log_multiplier"}) {
    if (sizes.has(own)) return unsupported(sizes.error(own, "it is not known beside YaRN").message);
  }
  if (!(llama.rotary_base > 1)) return sizes.error("rope.freq_base", "YaRN needs one above 1");
  llama.rotary_factors = factors_of(yarn, llama.rotary_base, llama.head);
  llama.attention_scale = default_scale(llama) * score_growth(yarn);
  return ok_status();
}

Status read_positions(const GgufFile& file, const Sizes& sizes, LlamaSizes& llama) {
  std::string_view type = sizes.has("rope.scaling.factor") || sizes.has("rope.scale_linear") ? "linear" : "none";
  if (sizes.has("rope.scaling.type")) {
    ASSIGN_OR_RETURN(type, file.text(sizes.key("rope.scaling.type")));
  }
  const bool has_long = file.tensor("rope_factors_long.weight") != nullptr;
  if (type == "longrope" || has_long) return read_long_factors(file, sizes, llama);
  if (type == "yarn") return read_yarn(sizes, llama);
  std::vector<float>& factors = llama.rotary_factors;
  const auto pairs = static_cast<size_t>(llama.head / 2);
  if (type == "linear") {
    const std::string_view own = sizes.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    ASSIGN_OR_RETURN(const double factor, sizes.real(own, 1));
    if (!(factor > 0)) return sizes.error(own, fmt::format("it is {}", factor));
    factors.assign(pairs, static_cast<float>(factor));
  } else if (type != "none") {
    return unsupported(sizes
                           .error("rope.scaling.type",
                                  fmt::format("scaling {} of positions; none, linear, yarn and longrope are known",
                                              quote(std::string(type.substr(0, 80)))))
                           .message);
  }
  if (file.tensor("rope_freqs.weight") == nullptr) return ok_status();
  factors.resize(pairs, 1);
  ASSIGN_OR_RETURN(const std::vector<float> more, read_factors(file, "rope_freqs.weight", pairs));
  for (size_t i = 0; i < pairs; ++i) factors[i] *= more[i];
  return ok_status();
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
                       fmt::format("{} heads are not a multiple of {}", llama.heads, llama.kv_heads));
  }
  if (!sizes.has("attention.key_length") && llama.hidden % llama.heads != 0) {
    return sizes.error("embedding_length",
                       fmt::format("{} is not a multiple of the {} heads", llama.hidden, llama.heads));
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
  RETURN_IF_ERROR(read_sight(file, sizes, architecture.name, llama));
  RETURN_IF_ERROR(read_positions(file, sizes, llama));
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
    NamePair{"@pre_feedforward_layernorm", "@ffn_norm"},
    NamePair{"@post_feedforward_layernorm", "@post_ffw_norm"},
    NamePair{"@mlp.gate", "@ffn_gate_inp"},
    NamePair{"@mlp.experts.gate_proj", "@ffn_gate_exps"},
    NamePair{"@mlp.experts.up_proj", "@ffn_up_exps"},
    NamePair{"@mlp.experts.down_proj", "@ffn_down_exps"},
    NamePair{"@mlp.gate_proj", "@ffn_gate"},
    NamePair{"@mlp.up_proj", "@ffn_up"},
    NamePair{"@mlp.down_proj", "@ffn_down"},
};

std::string name_in_file(std::string_view name, const LlamaKind& kind_of_network) {
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
  std::string_view file = pair->file.substr(layer.empty() ? 0 : 1);
  if (kind_of_network.branch_norms && own == "@post_attention_layernorm") file = "post_attention_norm";
  if (kind_of_network.fused && own.starts_with("@self_attn.") && own != "@self_attn.o_proj") file = "attn_qkv";
  if (kind_of_network.fused && own == "@mlp.gate_proj") file = "ffn_up";
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
    const std::optional<FusedRows> rows = fused_rows(name, llama_, architecture_.kind);
    Shape whole = shape;
    if (rows) whole[0] = rows->all;
    if (!asked_.ask(stored, there, whole, "the metadata")) return store.add_fill(type, 0);
    std::string own_name;
    const StoredTensor place = rows ? rows_of(in_file(*tensor), *rows, own_name) : in_file(*tensor);
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
      if (name != "rope_freqs.weight" && !name.starts_with("rope_factors_")) names.push_back(name);
    }
    return asked_.problem(file_.path, architecture_.name, names);
  }

 private:
  std::string name_of_tensor(const std::string& name) const {
    const std::string stored = name_in_file(name, architecture_.kind);
    return stored == "output.weight" && file_.tensor(stored) == nullptr ? "token_embd.weight" : stored;  // tied
  }

  StoredTensor in_file(const GgufTensor& tensor) const {
    const GgufFile& part = file_.part_of(tensor);
    return {.format = "gguf",
            .path = part.path,
            .header_hash = part.header_hash,
            .name = tensor.name,
            .type = tensor.type,
            .shape = tensor.shape,
            .bytes = {part.mapped, tensor.offset, tensor.bytes}};
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
  ASSIGN_OR_RETURN(const GgufFile file, read_gguf_parts(prompt.path));
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
