#include "graph/zoo/zoo.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <vector>

#include "base/text_reader.h"
#include "graph/zoo/families.h"
#include "graph/zoo/llama.h"

namespace nlsplit::inline graph {
namespace {

constexpr int64_t most = 1 << 24;  // of any value

// ---- parameters

constexpr ZooParameter simple_cnn_parameters[] = {{"channels", 3, "of an image"}};
constexpr ZooParameter mlp_parameters[] = {{"layers", 3, "fully connected layers"},
                                           {"inputs", 784, "numbers of a sample"},
                                           {"hidden", 512, "width between two layers"},
                                           {"classes", 10, "outputs"}};
constexpr ZooParameter image_224[] = {{"image", 224, "pixels a side"}};
constexpr ZooParameter image_299[] = {{"image", 299, "pixels a side"}};
constexpr ZooParameter vit_parameters[] = {{"layers", 12, "encoder layers"}, {"hidden", 768, "width"},
                                           {"heads", 12, "attention heads"}, {"ffn", 3072, "width of an MLP"},
                                           {"image", 224, "pixels a side"},  {"patch", 16, "pixels a side of a token"}};
constexpr ZooParameter bert_parameters[] = {
    {"layers", 12, "encoder layers"}, {"hidden", 768, "width"},   {"heads", 12, "attention heads"},
    {"ffn", 3072, "width of an MLP"}, {"vocab", 30522, "tokens"}, {"length", 128, "tokens of a sample, at most 512"}};
constexpr ZooParameter gpt2_parameters[] = {{"layers", 12, "decoder layers"},
                                            {"hidden", 768, "width"},
                                            {"heads", 12, "attention heads"},
                                            {"vocab", 50257, "tokens"},
                                            {"length", 128, "tokens of a sample, at most 1024"}};
constexpr ZooParameter llama_parameters[] = {{"layers", 32, "decoder layers"},
                                             {"hidden", 4096, "width"},
                                             {"heads", 32, "attention heads"},
                                             {"kv_heads", 8, "heads of keys and values"},
                                             {"ffn", 14336, "width of an MLP"},
                                             {"vocab", 128256, "tokens"},
                                             {"length", 128, "tokens of a sample"},
                                             {"context", 0, "positions that are kept, of a sequence that goes on"},
                                             {"candidates", 1, "next tokens that it gives"},
                                             {"cache_bits", 32, "of a number that is kept, or 16"},
                                             {"page", 0, "positions of a page, of caches that sequences share"},
                                             {"pages", 0, "of these, for all sequences"},
                                             {"weight_bits", 32, "of a matrix' numbers: f32; 16 f16, 8 q8_0, 4 q4_0"}};

constexpr ZooParameter qwen3_moe_parameters[] = {
    {"layers", 94, "decoder layers"},
    {"hidden", 4096, "width"},
    {"heads", 64, "attention heads"},
    {"kv_heads", 4, "heads of keys and values"},
    {"head", 128, "width of a head"},
    {"ffn", 1536, "width of an expert"},
    {"experts", 128, "of each layer"},
    {"experts_used", 8, "of them, by each token"},
    {"vocab", 151936, "tokens"},
    {"length", 128, "tokens of a sample"},
    {"context", 0, "positions that are kept, of a sequence that goes on"},
    {"candidates", 1, "next tokens that it gives"},
    {"cache_bits", 32, "of a number that is kept, or 16"},
    {"page", 0, "positions of a page, of caches that sequences share"},
    {"pages", 0, "of these, for all sequences"},
    {"weight_bits", 32, "of a matrix' numbers: f32; 16 f16, 8 q8_0, 4 q4_0"}};

constexpr int64_t largest_image = 4096;

Status check_image(const ZooValues& values, int64_t least) {
  const int64_t image = values.at("image");
  if (image >= least && image <= largest_image) return ok_status();
  return invalid_input(fmt::format("image {} is not from {} to {}", image, least, largest_image));
}

// All that is wrong at once. `longest`: of the tokens of a sample.
Status check_transformer(const ZooValues& values, int64_t longest) {
  std::vector<std::string> wrong;
  const auto value = [&](std::string_view name) { return values.find(name)->second; };
  const int64_t hidden = value("hidden"), heads = value("heads");
  const bool own_head = values.contains("head");
  if (hidden % heads != 0 && !own_head)
    wrong.push_back(fmt::format("hidden {} is not a multiple of heads {}", hidden, heads));
  if (values.contains("kv_heads")) {
    const int64_t kv_heads = value("kv_heads");
    if (heads % kv_heads != 0)
      wrong.push_back(fmt::format("heads {} is not a multiple of kv_heads {}", heads, kv_heads));
    const int64_t head = own_head ? value("head") : hidden % heads == 0 ? hidden / heads : 0;
    if (head % 2 != 0) wrong.push_back(fmt::format("a head's width of {} is odd, and positions rotate pairs", head));
  }
  if (value("layers") > 10000) wrong.push_back(fmt::format("layers {} is more than 10000", value("layers")));
  int64_t length = 0;
  if (values.contains("patch")) {
    const int64_t image = value("image"), patch = value("patch"), side = image / patch;
    if (image % patch != 0) wrong.push_back(fmt::format("image {} is not a multiple of patch {}", image, patch));
    if (const Status sound = check_image(values, 1); !sound.ok()) wrong.push_back(sound.error().message);
    length = std::min(side, largest_image) * std::min(side, largest_image) + 1;
  } else {
    length = value("length");
    if (length > longest) wrong.push_back(fmt::format("length {} is more than {}", length, longest));
  }
  const auto bound = [&](double elements, std::string_view what) {
    if (elements > 1e12) wrong.push_back(fmt::format("{} would have {:.2g} elements", what, elements));
  };
  const auto real = [](int64_t number) { return static_cast<double>(number); };
  bound(real(hidden) * real(values.contains("ffn") ? std::max(hidden, value("ffn")) : 4 * hidden), "a layer's weight");
  if (own_head) bound(real(hidden) * real(heads) * real(value("head")), "the attention's weight");
  bound(real(heads) * real(length) * real(length), "the attention's scores");
  if (values.contains("vocab")) bound(real(value("vocab")) * real(std::max(hidden, length)), "the vocabulary's weight");
  if (wrong.empty()) return ok_status();
  return invalid_input(fmt::format("{}", fmt::join(wrong, "; ")));
}

// ---- entries

Result<Model> make_simple_cnn(uint64_t seed, const ZooValues& v) {
  constexpr int64_t most_channels = 4096;
  if (v.at("channels") > most_channels)
    return invalid_input(fmt::format("channels {} is more than {}", v.at("channels"), most_channels));
  return build_simple_cnn(seed, v.at("channels"));
}

Result<Model> make_mlp(uint64_t seed, const ZooValues& v) {
  constexpr int64_t most_layers = 10000;
  if (v.at("layers") > most_layers)
    return invalid_input(fmt::format("layers {} is more than {}", v.at("layers"), most_layers));
  const auto real = [&](std::string_view name) { return static_cast<double>(v.find(name)->second); };
  const double between = (real("layers") - 2) * real("hidden") * real("hidden");
  const double weights = v.at("layers") == 1
                             ? real("inputs") * real("classes")
                             : real("inputs") * real("hidden") + between + real("hidden") * real("classes");
  if (weights > 1e12) return invalid_input(fmt::format("{:.2g} weights are too many", weights));
  return build_mlp({v.at("layers"), v.at("inputs"), v.at("hidden"), v.at("classes")}, seed);
}

Model build_resnet18(uint64_t seed, int64_t image) { return build_resnet(18, seed, image); }
Model build_resnet50(uint64_t seed, int64_t image) { return build_resnet(50, seed, image); }

template <Model (*build)(uint64_t, int64_t), int64_t least>
Result<Model> of_image(uint64_t seed, const ZooValues& values) {
  RETURN_IF_ERROR(check_image(values, least));
  return build(seed, values.at("image"));
}

Result<Model> make_vit(uint64_t seed, const ZooValues& v) {
  RETURN_IF_ERROR(check_transformer(v, 0));
  return build_vit({v.at("layers"), v.at("hidden"), v.at("heads"), v.at("ffn"), v.at("image"), v.at("patch")}, seed);
}

Result<Model> make_bert(uint64_t seed, const ZooValues& v) {
  RETURN_IF_ERROR(check_transformer(v, BertSizes::positions));
  return build_bert({v.at("layers"), v.at("hidden"), v.at("heads"), v.at("ffn"), v.at("vocab"), v.at("length")}, seed);
}

Result<Model> make_gpt2(uint64_t seed, const ZooValues& v) {
  RETURN_IF_ERROR(check_transformer(v, GptSizes::positions));
  return build_gpt2({v.at("layers"), v.at("hidden"), v.at("heads"), v.at("vocab"), v.at("length")}, seed);
}

// How matrices are stored. Those that choose experts stay f32, as files have them.
Result<StoredTypes> stored_types(const ZooValues& values, const LlamaSizes& sizes) {
  const int64_t bits = values.at("weight_bits");
  constexpr std::array<std::pair<int, DType>, 4> types = {
      {{32, DType::f32}, {16, DType::f16}, {8, DType::q8_0}, {4, DType::q4_0}}};
  const auto found = std::ranges::find(types, bits, &std::pair<int, DType>::first);
  if (found == types.end()) return invalid_input(fmt::format("weight_bits {} are none of 32, 16, 8 and 4", bits));
  const DType type = found->second;
  for (const auto& [name, row] : {std::pair{"hidden", sizes.hidden}, std::pair{"ffn", sizes.ffn},
                                  std::pair{"the width of all heads,", head_of(sizes) * sizes.heads}}) {
    if (row % block_of(type) != 0)
      return invalid_input(
          fmt::format("{} {} is not a multiple of {}, the weights that share a scale with weight_bits {}", name, row,
                      block_of(type), bits));
  }
  return StoredTypes([type](const std::string& name) { return name.ends_with(".gate.weight") ? DType::f32 : type; });
}

Result<Model> make_llama(uint64_t seed, const ZooValues& v) {
  RETURN_IF_ERROR(check_transformer(v, most));
  LlamaSizes sizes{v.at("layers"), v.at("hidden"), v.at("heads"), v.at("kv_heads"),
                   v.at("ffn"),    v.at("vocab"),  v.at("length")};
  sizes.context = v.at("context");
  sizes.candidates = v.at("candidates");
  sizes.cache_bits = v.at("cache_bits");
  sizes.page = v.at("page");
  sizes.pages = v.at("pages");
  if (const std::string wrong = wrong_context(sizes); !wrong.empty()) return invalid_input(wrong);
  ASSIGN_OR_RETURN(StoredTypes stored, stored_types(v, sizes));
  return build_llama(sizes, ZooNet("llama", seed, std::move(stored)));
}

Result<Model> make_qwen3_moe(uint64_t seed, const ZooValues& v) {
  RETURN_IF_ERROR(check_transformer(v, most));
  LlamaSizes sizes{v.at("layers"), v.at("hidden"), v.at("heads"), v.at("kv_heads"),
                   v.at("ffn"),    v.at("vocab"),  v.at("length")};
  sizes.head = v.at("head");
  sizes.head_norms = true;
  sizes.epsilon = 1e-6;
  sizes.rotary_base = 1e6;
  sizes.experts = v.at("experts");
  sizes.experts_used = v.at("experts_used");
  sizes.context = v.at("context");
  sizes.candidates = v.at("candidates");
  sizes.cache_bits = v.at("cache_bits");
  sizes.page = v.at("page");
  sizes.pages = v.at("pages");
  for (const std::string& wrong : {wrong_context(sizes), wrong_experts(sizes)}) {
    if (!wrong.empty()) return invalid_input(wrong);
  }
  ASSIGN_OR_RETURN(StoredTypes stored, stored_types(v, sizes));
  return build_llama(sizes, ZooNet("qwen3_moe", seed, std::move(stored)));
}

constexpr std::array entries = {
    ZooEntry{"simple_cnn", "two convolutions and two fully connected layers, 3x8x8; small enough to follow by hand",
             simple_cnn_parameters, make_simple_cnn},
    ZooEntry{"mlp", "fully connected layers with Relus, 784 numbers; to train quickly", mlp_parameters, make_mlp},
    ZooEntry{"alexnet",
             "Krizhevsky 2014, 3x224x224",
             {},
             [](uint64_t seed, const ZooValues&) -> Result<Model> { return build_alexnet(seed); }},
    ZooEntry{"vgg16",
             "Simonyan and Zisserman 2015, 3x224x224",
             {},
             [](uint64_t seed, const ZooValues&) -> Result<Model> { return build_vgg(16, seed); }},
    ZooEntry{"vgg19",
             "the same with 19 layers, 3x224x224",
             {},
             [](uint64_t seed, const ZooValues&) -> Result<Model> { return build_vgg(19, seed); }},
    ZooEntry{"resnet18", "He et al. 2016, 3x224x224", image_224, of_image<build_resnet18, 1>},
    ZooEntry{"resnet50", "He et al. 2016 (v1.5: stride in the 3x3), 3x224x224", image_224, of_image<build_resnet50, 1>},
    ZooEntry{"mobilenet_v2", "Sandler et al. 2018, 3x224x224", image_224, of_image<build_mobilenet_v2, 1>},
    ZooEntry{"densenet121", "Huang et al. 2017, 3x224x224", image_224, of_image<build_densenet121, 29>},
    ZooEntry{"inception_v3", "Szegedy et al. 2016, 3x299x299, without the auxiliary classifier", image_299,
             of_image<build_inception_v3, 75>},
    ZooEntry{"efficientnet_b0", "Tan and Le 2019, 3x224x224", image_224, of_image<build_efficientnet_b0, 1>},
    ZooEntry{"vit_b16", "Dosovitskiy et al. 2021, 3x224x224 in patches of 16x16", vit_parameters, make_vit},
    ZooEntry{"bert_base", "Devlin et al. 2019, encoder with embeddings and pooler, 128 tokens", bert_parameters,
             make_bert},
    ZooEntry{"gpt2", "Radford et al. 2019, with its language-model head, 128 tokens", gpt2_parameters, make_gpt2},
    ZooEntry{"llama", "the Llama 3 family (8B; 70B: layers=80&hidden=8192&heads=64&ffn=28672), 128 tokens",
             llama_parameters, make_llama},
    ZooEntry{"qwen3_moe",
             "Qwen3-235B-A22B: of 128 experts each token takes 8 (30B-A3B: layers=48&hidden=2048&heads=32&ffn=768)",
             qwen3_moe_parameters, make_qwen3_moe},
};

std::string what_it_takes(std::span<const ZooParameter> parameters) {
  std::string list;
  for (const ZooParameter& parameter : parameters)
    list += fmt::format("{}{}={} ({})", list.empty() ? "" : ", ", parameter.name, parameter.standard, parameter.what);
  return list.empty() ? "it takes no parameters" : "it takes " + list;
}

}  // namespace

ZooValues standard_values(std::span<const ZooParameter> parameters) {
  ZooValues values;
  for (const ZooParameter& parameter : parameters) values.emplace(parameter.name, parameter.standard);
  return values;
}

Result<ZooValues> parse_parameters(std::span<const ZooParameter> parameters, std::string_view text) {
  ZooValues values = standard_values(parameters);
  std::vector<std::string> wrong;
  std::set<std::string_view> seen;
  std::vector<std::string_view> names;
  for (const ZooParameter& parameter : parameters) names.push_back(parameter.name);
  while (true) {
    const std::string_view part = text.substr(0, text.find('&'));
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    const std::string_view number = equals == std::string_view::npos ? "" : part.substr(equals + 1);
    const auto known = values.find(name);
    int64_t value = 0;
    const auto [stop, failure] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (equals == std::string_view::npos) {
      wrong.push_back(fmt::format("\"{}\" is not NAME=VALUE", part));
    } else if (known == values.end()) {
      const std::string near = nearest(name, names);
      wrong.push_back(
          fmt::format("there is no {}{}", name, near.empty() ? "" : fmt::format(", did you mean {}?", near)));
    } else if (failure != std::errc() || stop != number.data() + number.size() || value < 1 || value > most) {
      wrong.push_back(fmt::format("{} \"{}\" is not an integer from 1 to {}", name, number, most));
    } else if (!seen.insert(known->first).second) {
      wrong.push_back(fmt::format("{} stands twice", name));
    } else {
      known->second = value;
    }
    if (part.size() == text.size()) break;
    text.remove_prefix(part.size() + 1);
  }
  if (wrong.empty()) return values;
  return invalid_input(fmt::format("{}; {}", fmt::join(wrong, "; "), what_it_takes(parameters)));
}

Result<Model> ZooEntry::build(uint64_t seed) const { return make(seed, standard_values(parameters)); }

std::span<const ZooEntry> zoo() { return entries; }

Result<Model> zoo_model(std::string_view name, uint64_t seed) {
  const size_t question = name.find('?');
  const std::string_view family = name.substr(0, question);
  std::vector<std::string_view> names;
  for (const ZooEntry& entry : entries) {
    names.push_back(entry.name);
    if (entry.name != family) continue;
    if (question == std::string_view::npos) return entry.build(seed);
    const auto wrong = [&](std::string_view why) { return invalid_input(fmt::format("zoo:{}: {}", name, why)); };
    const auto values = parse_parameters(entry.parameters, name.substr(question + 1));
    if (!values) return wrong(values.error().message);
    auto model = entry.make(seed, *values);
    if (!model) return wrong(fmt::format("{}; {}", model.error().message, what_it_takes(entry.parameters)));
    return model;
  }
  const std::string near = nearest(family, names);
  return invalid_input(fmt::format("the zoo has no model \"{}\"{}; it has {}", family,
                                   near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near),
                                   fmt::join(names, ", ")));
}

int64_t parameter_count(const Model& model) {
  std::set<ContentId> seen;
  int64_t count = 0;
  for (const Value& value : model.graph.values) {
    if (value.kind != ValueKind::weight || !model.weights.is_random(value.content)) continue;
    const bool statistic = value.name.ends_with(".running_mean") || value.name.ends_with(".running_var");
    if (!statistic && seen.insert(value.content).second) count += element_count(value.type.shape);
  }
  return count;
}

}  // namespace nlsplit::inline graph
