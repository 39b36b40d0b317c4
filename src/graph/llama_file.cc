#include "graph/llama_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/hash.h"
#include "base/text_reader.h"
#include "graph/zoo/zoo.h"

namespace nlsplit::inline graph {
namespace {

uint64_t sample_of(std::string_view bytes) {
  constexpr size_t pieces = 16, length = 4096;
  if (bytes.size() <= pieces * length) return hash_text(bytes);
  uint64_t hash = 0;
  for (size_t i = 0; i < pieces; ++i) {
    hash = hash_text(bytes.substr((bytes.size() - length) / (pieces - 1) * i, length), hash);
  }
  return hash;
}

}  // namespace

Result<PromptModel> split_prompt_model(std::string_view model, size_t question, FileWeights weights) {
  PromptModel prompt;
  prompt.path = model.substr(0, question);
  prompt.weights = weights;
  if (question == std::string_view::npos) return prompt;
  constexpr std::string_view own = "weights=";
  std::string sizes;  // the other options
  bool has_sizes = false;
  for (std::string_view left = model.substr(question + 1);;) {
    const std::string_view part = left.substr(0, left.find('&'));
    if (!part.starts_with(own)) {
      sizes += fmt::format("{}{}", has_sizes ? "&" : "", part);
      has_sizes = true;
    } else if (const std::string_view word = part.substr(own.size()); word == "stored" || word == "f32") {
      prompt.weights = word == "f32" ? FileWeights::f32 : FileWeights::stored;
    } else {
      return invalid_input(fmt::format("{}: weights {} are neither stored nor f32", model, quote(std::string(word))));
    }
    if (part.size() == left.size()) break;
    left.remove_prefix(part.size() + 1);
  }
  if (!has_sizes) return prompt;
  const ZooParameter parameters[] = {{"length", prompt.sizes.length, "tokens of a prompt"},
                                     {"context", 0, "positions that are kept, of a sequence that goes on"},
                                     {"candidates", 1, "next tokens that it gives"},
                                     {"cache_bits", 32, "of a number that is kept, or 16"},
                                     {"page", 0, "positions of a page, of caches that sequences share"},
                                     {"pages", 0, "of these, for all sequences"}};
  const auto values = parse_parameters(parameters, sizes);
  if (!values) return invalid_input(fmt::format("{}: {}; weights=stored or f32", model, values.error().message));
  prompt.sizes = {values->at("length"),     values->at("context"), values->at("candidates"),
                  values->at("cache_bits"), values->at("page"),    values->at("pages")};
  return prompt;
}

void add_prompt(LlamaSizes& sizes, const PromptSizes& prompt) {
  sizes.length = prompt.length;
  sizes.context = prompt.context;
  sizes.candidates = prompt.candidates;
  sizes.cache_bits = prompt.cache_bits;
  sizes.page = prompt.page;
  sizes.pages = prompt.pages;
}

void add_kind(LlamaSizes& sizes, const LlamaKind& kind) {
  sizes.biases = kind.biases;
  sizes.head_norms = kind.head_norms;
  sizes.gelu = kind.gelu;
  sizes.branch_norms = kind.branch_norms;
  sizes.window_period = kind.window_period;
  if (kind.scaled_embedding) sizes.embedding_scale = std::sqrt(static_cast<double>(sizes.hidden));
}

std::vector<float> factors_of(const Yarn& yarn, double base, int64_t head) {
  const auto width = static_cast<double>(head);
  // The pair that turns so many times in the original context.
  const auto pair_of = [&](double turns) {
    return width * std::log(static_cast<double>(yarn.original) / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const double low = std::max(std::floor(pair_of(yarn.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_of(yarn.beta_slow)), width - 1);
  if (high <= low) high = low + 0.001;
  std::vector<float> factors;
  for (int64_t pair = 0; pair < head / 2; ++pair) {
    const double stretched = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / (stretched / yarn.factor + 1 - stretched)));
  }
  return factors;
}

double score_growth(const Yarn& yarn) {
  const double of_one_side = yarn.factor <= 1 ? 1 : 0.1 * std::log(yarn.factor) + 1;
  return of_one_side * of_one_side;
}

std::optional<FusedRows> fused_rows(std::string_view weight, const LlamaSizes& sizes, const LlamaKind& kind) {
  if (!kind.fused) return std::nullopt;
  const int64_t q = sizes.heads * sizes.head, kv = sizes.kv_heads * sizes.head;
  const std::pair<std::string_view, FusedRows> known[] = {
      {".self_attn.q_proj.weight", {true, 0, q, q + 2 * kv}},
      {".self_attn.k_proj.weight", {true, q, kv, q + 2 * kv}},
      {".self_attn.v_proj.weight", {true, q + kv, kv, q + 2 * kv}},
      {".mlp.gate_proj.weight", {false, 0, sizes.ffn, 2 * sizes.ffn}},
      {".mlp.up_proj.weight", {false, sizes.ffn, sizes.ffn, 2 * sizes.ffn}},
  };
  for (const auto& [ending, rows] : known) {
    if (weight.ends_with(ending)) return rows;
  }
  return std::nullopt;
}

StoredTensor rows_of(const StoredTensor& tensor, const FusedRows& rows, std::string& name) {
  name = fmt::format("{} rows {} to {}", tensor.name, rows.first, rows.first + rows.count);
  StoredTensor part = tensor;
  const size_t a_row = tensor.bytes.size / static_cast<size_t>(rows.all);
  part.name = name;
  part.shape[0] = rows.count;
  part.bytes.offset += static_cast<size_t>(rows.first) * a_row;
  part.bytes.size = static_cast<size_t>(rows.count) * a_row;
  return part;
}

std::string misfit_of_layers(int64_t layers, size_t tensors) {
  constexpr size_t least = 6, most = 10000;  // tensors of a layer; layers
  if (layers <= static_cast<int64_t>(std::min(tensors / least, most))) return "";
  return fmt::format("{} layers; {} tensors are too few, or there are more than {} layers", layers, tensors, most);
}

Status check_elements(const std::string& file, const LlamaSizes& sizes) {
  for (const std::string& wrong : {wrong_context(sizes), wrong_experts(sizes)}) {
    if (!wrong.empty()) return invalid_input(fmt::format("{}: {}", file, wrong));
  }
  const auto real = [](int64_t number) { return static_cast<double>(number); };
  const double largest = real(std::max({sizes.hidden, sizes.ffn, sizes.vocab, sizes.heads * sizes.head}));
  const double width = std::max(real(sizes.hidden), real(sizes.length));
  if (largest * width <= 1e12 && real(sizes.heads) * real(sizes.length) * real(sizes.length) <= 1e12)
    return ok_status();
  return invalid_input(fmt::format(
      "{}: a prompt of {} tokens, {} heads, widths up to {:.0f}: a tensor would have more than 1e12 elements", file,
      sizes.length, sizes.heads, largest));
}

DType stored_type_of(FileWeights weights, GgmlType type, const Shape& shape) {
  const DType stored = dtype_of(type);
  const bool reads = is_scaled(stored) || is_half(stored);
  return weights == FileWeights::stored && reads && (shape.size() == 2 || shape.size() == 3) ? stored : DType::f32;
}

ContentId add_as_stored(WeightStore& store, const StoredTensor& tensor) {
  std::string identity =
      fmt::format("{} {} {} {}", tensor.format, tensor.header_hash, sample_of(tensor.bytes.view()), tensor.name);
  std::string where = fmt::format("{}: tensor {} at offset {}", tensor.path, tensor.name, tensor.bytes.offset);
  return store.add_unread({dtype_of(tensor.type), tensor.shape}, tensor.bytes, std::move(identity), std::move(where));
}

ContentId add_stored(WeightStore& store, const StoredTensor& tensor) {
  return store.add_derived(Derivation::from_ggml, {add_as_stored(store, tensor)}, static_cast<double>(tensor.type),
                           {DType::f32, tensor.shape});
}

bool AskedTensors::ask(std::string_view name, const Shape* there, const Shape& wanted, std::string_view by) {
  asked_.insert(std::string(name));
  if (there != nullptr && *there == wanted) return true;
  if (!problem_.empty()) return false;
  problem_ = fmt::format("tensor {}: ", name) +
             (there == nullptr ? "it is missing"
                               : fmt::format("it is [{}]; by {} it would be [{}]", fmt::join(*there, ", "), by,
                                             fmt::join(wanted, ", ")));
  return false;
}

Status AskedTensors::problem(std::string_view file, std::string_view architecture,
                             std::span<const std::string_view> tensors) const {
  if (!problem_.empty()) return invalid_input(fmt::format("{}: {}", file, problem_));
  for (const std::string_view tensor : tensors) {
    if (asked_.contains(tensor)) continue;
    return invalid_input(fmt::format("{}: tensor {}: no part of the architecture {}", file,
                                     quote(std::string(tensor.substr(0, 80))), architecture));
  }
  return ok_status();
}

}  // namespace nlsplit::inline graph
