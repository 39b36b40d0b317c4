#include "graph/safetensors/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json_place.h"
#include "graph/llama_file.h"

namespace nlsplit::inline graph {
namespace {

constexpr std::string_view full_attention = "full_attention", sliding_attention = "sliding_attention";

// What transformers' classes of that name compute, and what they take where config.json is silent.
struct Architecture {
  std::string_view name, family;
  LlamaKind kind = {};
  int64_t head = 0;  // 0: hidden / heads
  bool tied = false, norms_from_zero = false;
  bool slides = false;  // `sliding_window` counts wherever it stands
  int64_t window = 0;   // where it does not stand; 0: there is none
  double attention_softcap = 0, softcap = 0;
  bool scales_by_key = false;  // query_pre_attn_scalar
  double local_rotary_base = 0;
};
constexpr std::array architectures = {
    Architecture{.name = "LlamaForCausalLM", .family = "llama"},
    Architecture{.name = "MistralForCausalLM", .family = "mistral", .slides = true},
    Architecture{.name = "Phi3ForCausalLM", .family = "phi3", .kind = {.fused = true}, .slides = true},
    Architecture{.name = "Qwen2ForCausalLM", .family = "qwen2", .kind = {.biases = true}},
    Architecture{.name = "Qwen3ForCausalLM", .family = "qwen3", .kind = {.head_norms = true}, .head = 128},
    Architecture{.name = "Qwen3MoeForCausalLM", .family = "qwen3_moe", .kind = {.head_norms = true, .experts = true}},
    Architecture{.name = "GemmaForCausalLM",
                 .family = "gemma",
                 .kind = {.gelu = true, .scaled_embedding = true},
                 .head = 256,
                 .tied = true,
                 .norms_from_zero = true},
    Architecture{.name = "Gemma2ForCausalLM",
                 .family = "gemma2",
                 .kind = {.gelu = true, .scaled_embedding = true, .branch_norms = true, .window_period = 2},
                 .head = 256,
                 .tied = true,
                 .norms_from_zero = true,
                 .slides = true,
                 .window = 4096,
                 .attention_softcap = 50,
                 .softcap = 30,
                 .scales_by_key = true},
    Architecture{
        .name = "Gemma3ForCausalLM",
        .family = "gemma3_text",
        .kind = {.head_norms = true, .gelu = true, .scaled_embedding = true, .branch_norms = true, .window_period = 6},
        .head = 256,
        .tied = true,
        .norms_from_zero = true,
        .slides = true,
        .window = 4096,
        .scales_by_key = true,
        .local_rotary_base = 10000},
};

Result<Architecture> architecture_of(const JsonPlace& root) {
  const JsonPlace list = root.optional("architectures");
  RETURN_IF_ERROR(list.must_be_array());
  if (list.value->size() != 1) return list.wrong(fmt::format("{} is not one architecture", list.excerpt()));
  ASSIGN_OR_RETURN(const std::string name, list.element(0).text());
  std::vector<std::string_view> names;
  for (const Architecture& known : architectures) {
    if (known.name == name) return known;
    names.push_back(known.name);
  }
  return list.not_supported(fmt::format("the architecture {} is not known; those that are: {}",
                                        list.element(0).excerpt(), fmt::join(names, ", ")));
}

Result<int64_t> size(const JsonPlace& place) {
  ASSIGN_OR_RETURN(const int64_t value, place.integer());
  if (value < 1 || value > most_of_a_size)
    return place.wrong(fmt::format("{} is not from 1 to {}", value, most_of_a_size));
  return value;
}
Result<int64_t> size(const JsonPlace& place, int64_t otherwise) { return place.is_null() ? otherwise : size(place); }

Result<double> above(const JsonPlace& place, double least) {
  ASSIGN_OR_RETURN(const double value, place.number());
  if (!(value > least)) return place.wrong(fmt::format("{} is not above {}", place.excerpt(), least));
  return value;
}

// ---- positions

// "Llama 3.1": long waves are stretched by `factor`, short ones stay, and between them it goes from one to the other
// (transformers, modeling_rope_utils.py, _compute_llama3_parameters).
Result<std::vector<float>> llama3_factors(const JsonPlace& rope, double base, int64_t head) {
  ASSIGN_OR_RETURN(const double factor, above(rope.optional("factor"), 0));
  ASSIGN_OR_RETURN(const double low, above(rope.optional("low_freq_factor"), 0));
  ASSIGN_OR_RETURN(const double high, above(rope.optional("high_freq_factor"), low));
  ASSIGN_OR_RETURN(const int64_t context, size(rope.optional("original_max_position_embeddings")));
  std::vector<float> factors;
  for (int64_t pair = 0; pair < head / 2; ++pair) {
    const double wave =
        2 * std::numbers::pi * std::pow(base, static_cast<double>(2 * pair) / static_cast<double>(head));
    const double turns = static_cast<double>(context) / wave;
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - kept) / factor + kept)));
  }
  return factors;
}

// A factor for each pair, given.
Result<std::vector<float>> listed_factors(const JsonPlace& list, int64_t head) {
  RETURN_IF_ERROR(list.must_be_array());
  if (static_cast<int64_t>(list.value->size()) != head / 2)
    return list.wrong(fmt::format("{} factors of {} pairs", list.value->size(), head / 2));
  std::vector<float> factors;
  for (size_t i = 0; i < list.value->size(); ++i) {
    ASSIGN_OR_RETURN(const double factor, above(list.element(i), 0));
    factors.push_back(static_cast<float>(factor));
  }
  return factors;
}

// Positions that training had, where files say so in one of two places.
Result<int64_t> original_positions(const JsonPlace& root, const JsonPlace& rope) {
  constexpr const char* key = "original_max_position_embeddings";
  return size(rope.optional(key).is_null() ? root.optional(key) : rope.optional(key));
}

double default_scale(const LlamaSizes& sizes) {
  return sizes.attention_scale > 0 ? sizes.attention_scale : 1 / std::sqrt(static_cast<double>(sizes.head));
}

// transformers, modeling_rope_utils.py, _compute_longrope_parameters.
Status read_long_factors(const JsonPlace& root, const JsonPlace& rope, LlamaSizes& sizes) {
  ASSIGN_OR_RETURN(const int64_t original, original_positions(root, rope));
  const bool is_long = std::max(sizes.length, sizes.context) > original;
  ASSIGN_OR_RETURN(sizes.rotary_factors,
                   listed_factors(rope.optional(is_long ? "long_factor" : "short_factor"), sizes.head));
  ASSIGN_OR_RETURN(const int64_t most, size(root.optional("max_position_embeddings")));
  const double longer = static_cast<double>(most) / static_cast<double>(original);
  double growth = longer <= 1 ? 1 : std::sqrt(1 + std::log(longer) / std::log(static_cast<double>(original)));
  if (!rope.optional("attention_factor").is_null()) {
    ASSIGN_OR_RETURN(growth, above(rope.optional("attention_factor"), 0));
  }
  sizes.attention_scale = default_scale(sizes) * growth * growth;
  return ok_status();
}

Status read_yarn(const JsonPlace& root, const JsonPlace& rope, LlamaSizes& sizes) {
  for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"}) {
    if (!rope.optional(key).is_null()) return rope.optional(key).not_supported("it is not known beside yarn");
  }
  const JsonPlace truncate = rope.optional("truncate");
  ASSIGN_OR_RETURN(const bool rounds, truncate.flag(true));
  if (!rounds) return truncate.not_supported("borders between pairs are not known");
  Yarn yarn;
  ASSIGN_OR_RETURN(yarn.factor, above(rope.optional("factor"), 0));
  if (yarn.factor < 1) return rope.optional("factor").wrong(fmt::format("{} is below 1", yarn.factor));
  ASSIGN_OR_RETURN(yarn.original, original_positions(root, rope));
  if (!rope.optional("beta_slow").is_null()) {
    ASSIGN_OR_RETURN(yarn.beta_slow, above(rope.optional("beta_slow"), 0));
  }
  if (!rope.optional("beta_fast").is_null()) {
    ASSIGN_OR_RETURN(yarn.beta_fast, above(rope.optional("beta_fast"), yarn.beta_slow));
  }
  if (!(sizes.rotary_base > 1)) return rope.wrong("yarn needs a rope_theta above 1");
  sizes.rotary_factors = factors_of(yarn, sizes.rotary_base, sizes.head);
  sizes.attention_scale = default_scale(sizes) * score_growth(yarn);
  return ok_status();
}

// What is called `rope_parameters` since version 5 of transformers stood in two keys; where layers differ it has one
// for each type of them.
Status read_positions(const JsonPlace& root, LlamaSizes& sizes) {
  JsonPlace parameters = root.optional("rope_parameters");
  JsonPlace local = root.optional("rope_local_base_freq");
  if (!parameters.is_null() && !parameters.optional("full_attention").is_null()) {
    if (sizes.local_rotary_base > 0) local = parameters.optional("sliding_attention").optional("rope_theta");
    parameters = parameters.optional("full_attention");
  }
  if (sizes.local_rotary_base > 0 && !local.is_null()) {
    ASSIGN_OR_RETURN(sizes.local_rotary_base, local.number());
    if (!(sizes.local_rotary_base >= 1)) return local.wrong(fmt::format("{} is below 1", local.excerpt()));
  }
  const JsonPlace rope = parameters.is_null() ? root.optional("rope_scaling") : parameters;
  if (!rope.is_null() && !rope.value->is_object())
    return rope.wrong(fmt::format("{} is not an object", rope.excerpt()));
  JsonPlace base = parameters.optional("rope_theta");
  if (base.is_null()) base = root.optional("rope_theta");
  sizes.rotary_base = sizes.local_rotary_base > 0 ? 1e6 : 10000;
  if (!base.is_null()) {
    ASSIGN_OR_RETURN(sizes.rotary_base, base.number());
    if (!(sizes.rotary_base >= 1)) return base.wrong(fmt::format("{} is below 1", base.excerpt()));
  }
  for (const JsonPlace& part : {root.optional("partial_rotary_factor"), rope.optional("partial_rotary_factor")}) {
    if (!part.is_null() && *part.value != 1.0)
      return part.not_supported(fmt::format("{}: positions of a part of each head are not known", part.excerpt()));
  }
  JsonPlace type = rope.optional("rope_type");
  if (type.is_null()) type = rope.optional("type");
  if (type.is_null() && (rope.is_null() || rope.optional("factor").is_null())) return ok_status();
  ASSIGN_OR_RETURN(const std::string name, type.text());
  if (name == "default") return ok_status();
  if (name == "linear") {
    ASSIGN_OR_RETURN(const double factor, above(rope.optional("factor"), 0));
    sizes.rotary_factors.assign(static_cast<size_t>(sizes.head / 2), static_cast<float>(factor));
    return ok_status();
  }
  if (name == "llama3") {
    ASSIGN_OR_RETURN(sizes.rotary_factors, llama3_factors(rope, sizes.rotary_base, sizes.head));
    return ok_status();
  }
  if (name == "yarn") return read_yarn(root, rope, sizes);
  if (name == "longrope" || name == "su") return read_long_factors(root, rope, sizes);
  return type.not_supported(
      fmt::format("scaling {} of positions; default, linear, llama3, yarn and longrope are known", type.excerpt()));
}

// ---- what would change the results

// Gemma's first files say "gelu" and mean its approximation by tanh, with which it was trained. transformers computed
// that for them at first; its later versions take the word as it stands.
Status check_activation(const JsonPlace& root, bool gelu) {
  for (const JsonPlace& place : {root.optional("hidden_act"), root.optional("hidden_activation")}) {
    if (place.is_null()) continue;
    ASSIGN_OR_RETURN(const std::string name, place.text());
    if (gelu ? name == "gelu" || name == "gelu_pytorch_tanh" : name == "silu") continue;
    return place.not_supported(fmt::format("the activation {}; this architecture has {}", place.excerpt(),
                                           gelu ? "gelu_pytorch_tanh" : "silu"));
  }
  return ok_status();
}

// Whether each layer is local; nothing where the file does not list them.
Result<std::optional<std::vector<bool>>> listed_layers(const JsonPlace& root, int64_t count) {
  const JsonPlace layers = root.optional("layer_types");
  if (layers.is_null()) return std::optional<std::vector<bool>>();
  RETURN_IF_ERROR(layers.must_be_array());
  std::vector<bool> local;
  for (size_t i = 0; i < layers.value->size(); ++i) {
    const JsonPlace layer = layers.element(i);
    ASSIGN_OR_RETURN(const std::string type, layer.text());
    if (type != full_attention && type != sliding_attention)
      return layer.not_supported(fmt::format("layers of type {} are not known", layer.excerpt()));
    local.push_back(type == sliding_attention);
  }
  if (static_cast<int64_t>(local.size()) != count)
    return layers.wrong(fmt::format("{} types of {} layers", local.size(), count));
  return std::optional(std::move(local));
}

// Which layers are local, and how far they see.
Status read_window(const JsonPlace& root, const Architecture& architecture, LlamaSizes& sizes) {
  ASSIGN_OR_RETURN(const bool used, root.optional("use_sliding_window").flag(architecture.slides));
  ASSIGN_OR_RETURN(const auto listed, listed_layers(root, sizes.layers));
  const JsonPlace window = root.optional("sliding_window"), pattern = root.optional("sliding_window_pattern");
  const bool is_given = root.value->contains("sliding_window");
  if (is_given ? window.is_null() : architecture.window == 0) return ok_status();
  ASSIGN_OR_RETURN(const int64_t tokens, size(window, architecture.window));
  if (!pattern.is_null()) {
    ASSIGN_OR_RETURN(sizes.window_period, size(pattern));
  }
  LlamaSizes made = sizes;
  made.window = tokens;
  if (!listed) {
    if (!used) return ok_status();
    // Of Qwen 2 the first layers see all, as max_window_layers says: known where the window hides nothing.
    if (!architecture.slides && tokens < std::max(sizes.length, sizes.context))
      return window.wrong(
          fmt::format("{}, less than {} positions, and no layer_types", tokens, std::max(sizes.length, sizes.context)));
    if (architecture.slides) sizes = made;
    return ok_status();
  }
  if (std::ranges::none_of(*listed, std::identity())) return ok_status();
  const auto fits = [&](int64_t period) {
    made.window_period = period;
    for (int64_t i = 0; i < sizes.layers; ++i) {
      if (is_local(made, i) != (*listed)[static_cast<size_t>(i)]) return false;
    }
    return true;
  };
  for (int64_t period = 0; period <= sizes.layers; ++period) {
    if (!fits(period)) continue;
    sizes = made;
    return ok_status();
  }
  if (tokens >= std::max(sizes.length, sizes.context) && sizes.local_rotary_base == 0) return ok_status();
  return root.optional("layer_types").not_supported("layers that see all must come at equal distances");
}

// What Gemma has besides.
Status read_scores(const JsonPlace& root, const Architecture& architecture, LlamaSizes& sizes) {
  sizes.attention_softcap = architecture.attention_softcap;
  sizes.softcap = architecture.softcap;
  for (const auto& [key, cap] : {std::pair("attn_logit_softcapping", &LlamaSizes::attention_softcap),
                                 std::pair("final_logit_softcapping", &LlamaSizes::softcap)}) {
    if (!root.value->contains(key)) continue;
    sizes.*cap = 0;
    if (root.optional(key).is_null()) continue;
    ASSIGN_OR_RETURN(sizes.*cap, above(root.optional(key), 0));
  }
  if (!architecture.scales_by_key) return ok_status();
  const JsonPlace scalar = root.optional("query_pre_attn_scalar");
  double by = 256;  // transformers' own
  if (!scalar.is_null()) {
    ASSIGN_OR_RETURN(by, above(scalar, 0));
  }
  sizes.attention_scale = 1 / std::sqrt(by);
  return ok_status();
}

Status refuse_options(const JsonPlace& root, const Architecture& architecture) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    ASSIGN_OR_RETURN(const bool biases, root.optional(key).flag(false));
    if (biases && !architecture.kind.biases) return root.optional(key).not_supported("these biases are not known");
  }
  if (architecture.kind.experts) {
    const JsonPlace step = root.optional("decoder_sparse_step"), dense = root.optional("mlp_only_layers");
    if (!step.is_null() && *step.value != 1)
      return step.not_supported(fmt::format("{}: layers without experts are not known", step.excerpt()));
    if (!dense.is_null() && !dense.value->empty())
      return dense.not_supported(fmt::format("{}: layers without experts are not known", dense.excerpt()));
  }
  const JsonPlace quantized = root.optional("quantization_config");
  if (!quantized.is_null()) return quantized.not_supported("weights that are quantized are not read");
  return check_activation(root, architecture.kind.gelu);
}

// ---- sizes

Result<LlamaSizes> sizes_of(const JsonPlace& root, const Architecture& architecture, const PromptSizes& prompt) {
  LlamaSizes sizes;
  add_prompt(sizes, prompt);
  ASSIGN_OR_RETURN(sizes.layers, size(root.optional("num_hidden_layers")));
  ASSIGN_OR_RETURN(sizes.hidden, size(root.optional("hidden_size")));
  ASSIGN_OR_RETURN(sizes.ffn,
                   size(root.optional(architecture.kind.experts ? "moe_intermediate_size" : "intermediate_size")));
  if (architecture.kind.experts) {
    ASSIGN_OR_RETURN(sizes.experts, size(root.optional("num_experts")));
    const JsonPlace used = root.optional("num_experts_per_tok");
    ASSIGN_OR_RETURN(sizes.experts_used, size(used));
    if (sizes.experts_used > sizes.experts)
      return used.wrong(fmt::format("{} of {} experts", sizes.experts_used, sizes.experts));
    ASSIGN_OR_RETURN(sizes.shares_of_used, root.optional("norm_topk_prob").flag(false));
  }
  ASSIGN_OR_RETURN(sizes.vocab, size(root.optional("vocab_size")));
  ASSIGN_OR_RETURN(sizes.heads, size(root.optional("num_attention_heads")));
  ASSIGN_OR_RETURN(sizes.kv_heads, size(root.optional("num_key_value_heads"), sizes.heads));
  if (sizes.heads % sizes.kv_heads != 0) {
    return root.optional("num_key_value_heads")
        .wrong(fmt::format("{} heads are not a multiple of {}", sizes.heads, sizes.kv_heads));
  }
  const JsonPlace head = root.optional("head_dim");
  if (head.is_null() && architecture.head == 0 && sizes.hidden % sizes.heads != 0) {
    return root.optional("hidden_size")
        .wrong(fmt::format("{} is not a multiple of the {} heads", sizes.hidden, sizes.heads));
  }
  ASSIGN_OR_RETURN(sizes.head, size(head, architecture.head == 0 ? sizes.hidden / sizes.heads : architecture.head));
  if (sizes.head % 2 != 0)
    return head.wrong(fmt::format("a head's width of {} is odd, and positions rotate pairs", sizes.head));
  const JsonPlace context = root.optional("max_position_embeddings");
  ASSIGN_OR_RETURN(const int64_t most, size(context, most_of_a_size));
  if (prompt.positions() > most)
    return context.wrong(fmt::format("{}, less than the {} positions wanted", most, prompt.positions()));
  const JsonPlace epsilon = root.optional("rms_norm_eps");
  ASSIGN_OR_RETURN(sizes.epsilon, epsilon.number());
  if (!(sizes.epsilon >= 0 && sizes.epsilon < 1))
    return epsilon.wrong(fmt::format("{} is not from 0 to 1", epsilon.excerpt()));
  add_kind(sizes, architecture.kind);
  sizes.local_rotary_base = architecture.local_rotary_base;
  RETURN_IF_ERROR(refuse_options(root, architecture));
  RETURN_IF_ERROR(read_window(root, architecture, sizes));
  RETURN_IF_ERROR(read_scores(root, architecture, sizes));
  RETURN_IF_ERROR(read_positions(root, sizes));
  return sizes;
}

Result<TransformersConfig> config_of(const JsonPlace& root, const PromptSizes& prompt) {
  if (!root.value->is_object()) return root.wrong("it is no JSON object");
  ASSIGN_OR_RETURN(const Architecture architecture, architecture_of(root));
  TransformersConfig config;
  config.architecture = architecture.name;
  config.family = architecture.family;
  config.kind = architecture.kind;
  config.norms_from_zero = architecture.norms_from_zero;
  ASSIGN_OR_RETURN(config.tied, root.optional("tie_word_embeddings").flag(architecture.tied));
  ASSIGN_OR_RETURN(config.sizes, sizes_of(root, architecture, prompt));
  return config;
}

}  // namespace

Result<TransformersConfig> read_config(const std::string& path, const PromptSizes& prompt) {
  ASSIGN_OR_RETURN(const std::string content, read_file(path));
  ASSIGN_OR_RETURN(const nlohmann::json root, parse_json(content, path));
  Result<TransformersConfig> config = config_of({&root, ""}, prompt);
  if (!config.ok()) return in_file(path, std::move(config).error());
  RETURN_IF_ERROR(check_elements(path, config->sizes));
  return config;
}

}  // namespace nlsplit::inline graph
