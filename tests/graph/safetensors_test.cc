// Safetensors files and the networks of folders with them. scripts/export/safetensors_files.py made those of
// tests/graph/safetensors with PyPI's `safetensors`; their logits are of the definition in NumPy, which shares nothing
// with this project (scripts/safetensors_in_numpy.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/npy.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "graph/safetensors/import.h"
#include "graph/safetensors/safetensors_file.h"
#include "testing/paths.h"
#include "testing/read_npy.h"
#include "testing/tensors.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

const std::string safe_folder = NLS_SOURCE_DIR "/tests/graph/safetensors/";

// A folder of this process, emptied.
std::string safe_scratch(const std::string& name) {
  const fs::path folder = fs::temp_directory_path() / ("nlsplit_safetensors_" + std::to_string(getpid())) / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder.string();
}

std::string put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  return path;
}

std::string with_length(const std::string& header) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header;
}

// ---- files

TEST(Safetensors, SaysWhereItsTensorsLie) {
  const std::string header = R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
                             R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"__metadata__":{"format":"pt"}})";
  const std::string path = put(safe_scratch("file") + "/x.safetensors", with_length(header) + std::string(28, 'x'));
  const SafetensorsFile file = value_of(read_safetensors(path));
  ASSERT_EQ(file.tensors.size(), 2U);
  const SafeTensor &a = file.tensors.at("a"), &b = file.tensors.at("b");
  EXPECT_EQ(a.type, GgmlType::BF16);
  EXPECT_EQ(a.offset, 8 + header.size());
  EXPECT_EQ(b.shape, (Shape{2, 3}));
  EXPECT_EQ(b.offset, a.offset + 4);
  EXPECT_EQ(b.bytes, 24U);
}

TEST(Safetensors, SaysWhatIsWrongWithAFile) {
  const std::string folder = safe_scratch("wrong");
  const auto refusal = [&](const std::string& bytes) {
    const auto file = read_safetensors(put(folder + "/x.safetensors", bytes));
    EXPECT_FALSE(file.ok()) << bytes;
    if (file.ok()) return std::string();
    EXPECT_EQ(exit_code(file.error()), 2);
    EXPECT_THAT(file.error().to_string(), HasSubstr("x.safetensors: "));
    return file.error().to_string();
  };
  const auto tensor = [&](const std::string& tensors, size_t data) {
    return refusal(with_length("{" + tensors + "}") + std::string(data, '\0'));
  };
  EXPECT_THAT(refusal("abc"), HasSubstr("it has 3 bytes and is cut off in its header"));
  EXPECT_THAT(refusal("PK\x03\x04 no such file"),
              HasSubstr("its first 8 bytes say that its header has 2337207815413910352 bytes; 100000000 are the most"));
  EXPECT_THAT(refusal(with_length("{}").substr(0, 9)), HasSubstr("cut off in its header of 2 bytes, 1 of them"));
  EXPECT_THAT(refusal(with_length("{]")), HasSubstr("byte 2: this is not JSON"));
  EXPECT_THAT(refusal(with_length("[]")), HasSubstr("its header is no JSON object"));
  EXPECT_THAT(tensor(R"("w":{"dtype":"F64","shape":[1],"data_offsets":[0,8]})", 8),
              HasSubstr(R"(tensor "w": /dtype: elements of type "F64" are not read; F32, F16 and BF16 are)"));
  EXPECT_THAT(tensor(R"("w":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]})", 1),
              HasSubstr(R"(elements of type "F8_E4M3" are not read)"));
  EXPECT_THAT(tensor(R"("w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", 4),
              HasSubstr(R"(tensor "w": /shape: an extent of -1)"));
  EXPECT_THAT(tensor(R"("w":{"dtype":"F32","shape":[1000000,1000000,1000000],"data_offsets":[0,4]})", 4),
              HasSubstr(R"(tensor "w": /shape: )"));
  EXPECT_THAT(tensor(R"("w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]})", 4),
              HasSubstr(R"(tensor "w": /data_offsets: bytes 0 to 4; [2] of "F32" have 8)"));
  EXPECT_THAT(tensor(R"("w":{"dtype":"F32","shape":[1],"data_offsets":[8,4]})", 4), HasSubstr("bytes 8 to 4;"));
  EXPECT_THAT(tensor(R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0]})", 4), HasSubstr("[0] are not two offsets"));
  EXPECT_THAT(tensor(R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":0})", 4),
              HasSubstr(R"(tensor "w": /: the key "x" is not known)"));
  EXPECT_THAT(tensor(R"("w":{"dtype":"F32","shape":[1]})", 4), HasSubstr("/data_offsets: null is not a list"));
  const std::string one = R"("v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)";
  EXPECT_THAT(tensor(one + R"("w":{"dtype":"F16","shape":[2],"data_offsets":[2,6]})", 6),
              HasSubstr(R"(tensor "w": it begins at byte 2 of the tensors, but v ends at 4: two tensors share bytes)"));
  EXPECT_THAT(tensor(one + R"("w":{"dtype":"F16","shape":[2],"data_offsets":[6,10]})", 10),
              HasSubstr(R"(but v ends at 4: the bytes between belong to no tensor)"));
  EXPECT_THAT(tensor(one + R"("v":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})", 8),
              HasSubstr(R"(the key "v" stands twice)"));
  EXPECT_THAT(tensor(one.substr(0, one.size() - 1), 5), HasSubstr("there are 1 bytes after its tensors"));
  EXPECT_THAT(read_safetensors("/nowhere/x.safetensors").error().message, HasSubstr("/nowhere/x.safetensors"));
}

// ---- networks

class SafetensorsNetwork : public ::testing::TestWithParam<const char*> {};

TEST_P(SafetensorsNetwork, ComputesWhatItsDefinitionSays) {
  const std::string name = GetParam();
  const NpyRaw tokens = value_of(read_npy_raw(safe_folder + name + "_input.npy"));
  const NpyArray expected = value_of(read_npy(safe_folder + name + "_output.npy"));
  Model model = value_of(import_safetensors(safe_folder + name + "?length=" + std::to_string(tokens.shape[1])));
  EXPECT_EQ(model.graph.name, name == "yarn" ? "qwen2" : name == "gemma3" ? "gemma3_text" : name);
  EXPECT_TRUE(verify(model.graph).ok());
  EXPECT_LE(model.weights.stored_bytes(), bytes(1024)) << "weights are read when they are asked for";
  const std::vector<Tensor> inputs = {tensor_of({DType::i64, tokens.shape}, tokens.raw)};
  const Tensor plain = value_of(evaluate(model.graph, model.weights, inputs))[0];
  const Graph optimized = value_of(optimize(model.graph, model.weights));
  const Tensor fused = value_of(evaluate(optimized, model.weights, inputs))[0];
  ASSERT_EQ(plain.type.shape, expected.shape);
  for (size_t i = 0; i < expected.values.size(); ++i) {
    EXPECT_NEAR(plain.values[i], expected.values[i], 2e-5) << i;
    EXPECT_NEAR(fused.values[i], expected.values[i], 2e-5) << i << ", optimized";
  }
}

INSTANTIATE_TEST_SUITE_P(Of, SafetensorsNetwork,
                         ::testing::Values("llama", "qwen2", "qwen3", "qwen3_moe", "gemma", "mistral", "phi3", "yarn",
                                           "gemma2", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

// A llama of one layer, 2 heads of 4 and 16 tokens, all of it zero.
struct TinyFolder {
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"hidden_size", 8},
                 {"intermediate_size", 16},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", 2},
                 {"num_key_value_heads", 1},
                 {"vocab_size", 16},
                 {"max_position_embeddings", 64},
                 {"rms_norm_eps", 1e-5},
                 {"tie_word_embeddings", true}};
  std::map<std::string, std::vector<int64_t>> tensors = tiny_tensors();
  size_t cut = 0;  // bytes off the end

  static std::map<std::string, std::vector<int64_t>> tiny_tensors() {
    std::map<std::string, std::vector<int64_t>> made = {{"model.embed_tokens.weight", {16, 8}},
                                                        {"model.norm.weight", {8}}};
    const std::string layer = "model.layers.0.";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) made[layer + norm + ".weight"] = {8};
    for (const char* square : {"q", "o"}) made[layer + "self_attn." + square + "_proj.weight"] = {8, 8};
    for (const char* shared : {"k", "v"}) made[layer + "self_attn." + shared + "_proj.weight"] = {4, 8};
    for (const char* up : {"gate", "up"}) made[layer + "mlp." + up + "_proj.weight"] = {16, 8};
    made[layer + "mlp.down_proj.weight"] = {8, 16};
    return made;
  }

  static std::string file_of(const std::map<std::string, std::vector<int64_t>>& tensors) {
    json header = json::object();
    size_t at = 0;
    for (const auto& [name, shape] : tensors) {
      const size_t size = 2 * static_cast<size_t>(element_count(Shape(shape.begin(), shape.end())));
      header[name] = {{"dtype", "F16"}, {"shape", shape}, {"data_offsets", {at, at + size}}};
      at += size;
    }
    return with_length(header.dump()) + std::string(at, '\0');
  }

  std::string write() const {
    const std::string folder = safe_scratch("tiny"), file = file_of(tensors);
    put(folder + "/config.json", config.dump());
    put(folder + "/model.safetensors", file.substr(0, file.size() - cut));
    return folder;
  }
};

struct SafeRefusal {
  std::function<void(TinyFolder&)> change;
  std::string message;
};

TEST(SafetensorsImport, SaysWhatItCannotCompute) {
  ASSERT_TRUE(import_safetensors(TinyFolder().write() + "?length=5").ok()) << "as it is it is a network";
  const auto key = [](const std::string& name, const json& value) {
    return [name, value](TinyFolder& tiny) { tiny.config[name] = value; };
  };
  const auto without = [](const std::string& name) { return [name](TinyFolder& tiny) { tiny.config.erase(name); }; };
  const auto rope = [](const json& value) {
    return [value](TinyFolder& tiny) { tiny.config["rope_scaling"] = value; };
  };
  const std::string layer = "model.layers.0.";
  const std::vector<SafeRefusal> refusals = {
      {key("architectures", {"MambaForCausalLM"}),
       "config.json: /architectures: the architecture \"MambaForCausalLM\" is not known; those that are: "
       "LlamaForCausalLM, MistralForCausalLM, Phi3ForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, "
       "Qwen3MoeForCausalLM, GemmaForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM"},
      {without("architectures"), "config.json: /architectures: null is not a list"},
      {key("architectures", json::array()), "/architectures: [] is not one architecture"},
      {key("num_hidden_layers", 2), "/num_hidden_layers: 2 layers; 11 tensors are too few"},
      {key("hidden_size", 0), "/hidden_size: 0 is not from 1 to 16777216"},
      {key("hidden_size", "8"), "/hidden_size: \"8\" is not an integer"},
      {key("hidden_size", 7), "/hidden_size: 7 is not a multiple of the 2 heads"},
      {key("hidden_size", 6), "/head_dim: a head's width of 3 is odd"},
      {without("vocab_size"), "/vocab_size: null is not an integer"},
      {key("vocab_size", 15), "tensor model.embed_tokens.weight: it is [16, 8]; by config.json it would be [15, 8]"},
      {key("num_key_value_heads", 3), "/num_key_value_heads: 2 heads are not a multiple of 3"},
      {[](TinyFolder& t) { t.config["intermediate_size"] = t.config["hidden_size"] = 1 << 24; },
       "more than 1e12 elements"},
      {key("max_position_embeddings", 4), "/max_position_embeddings: 4, less than the 5 positions wanted"},
      {key("rms_norm_eps", -1), "/rms_norm_eps: -1 is not from 0 to 1"},
      {key("rope_theta", 0.5), "/rope_theta: 0.5 is below 1"},
      {rope({{"rope_type", "dynamic"}, {"factor", 4}}),
       "/rope_scaling/rope_type: scaling \"dynamic\" of positions; default, linear, llama3, yarn and longrope are "
       "known"},
      {rope({{"rope_type", "yarn"}, {"factor", 0.5}}), "/rope_scaling/factor: 0.5 is below 1"},
      {rope({{"rope_type", "yarn"}, {"factor", 4}}), "/original_max_position_embeddings: null is no"},
      {rope({{"rope_type", "yarn"}, {"factor", 4}, {"mscale", 1}}),
       "/rope_scaling/mscale: it is not known beside yarn"},
      {rope({{"rope_type", "longrope"}, {"short_factor", {1}}, {"original_max_position_embeddings", 16}}),
       "/rope_scaling/short_factor: 1 factors of 2 pairs"},
      {rope({{"type", "linear"}, {"factor", 0}}), "/rope_scaling/factor: 0 is not above 0"},
      {rope({{"rope_type", "llama3"}, {"factor", 8}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}),
       "/rope_scaling/high_freq_factor: 4 is not above 4"},
      {rope(3), "/rope_scaling: 3 is not an object"},
      {key("rope_parameters", {{"rope_theta", 0}}), "/rope_parameters/rope_theta: 0 is below 1"},
      {key("partial_rotary_factor", 0.5), "/partial_rotary_factor: 0.5: positions of a part of each head"},
      {key("attention_bias", true), "/attention_bias: these biases are not known"},
      {key("mlp_bias", true), "/mlp_bias: these biases are not known"},
      {key("hidden_act", "gelu"), "/hidden_act: the activation \"gelu\"; this architecture has silu"},
      {key("quantization_config", {{"bits", 4}}), "/quantization_config: weights that are quantized are not read"},
      {[](TinyFolder& t) {
         t.config["use_sliding_window"] = true;
         t.config["sliding_window"] = 4;
       },
       "/sliding_window: 4, less than 5 positions"},
      {[](TinyFolder& t) {
         t.config["architectures"] = {"MistralForCausalLM"};
         t.config["sliding_window"] = 0;
       },
       "/sliding_window: 0 is not from 1"},
      {[](TinyFolder& t) {
         t.config["sliding_window"] = 4;
         t.config["layer_types"] = {"sliding_attention", "full_attention"};
       },
       "/layer_types: 2 types of 1 layers"},
      {key("layer_types", {"linear_attention"}), "/layer_types/0: layers of type \"linear_attention\" are not known"},
      {key("tie_word_embeddings", false), "model.safetensors: tensor lm_head.weight: it is missing"},
      {key("architectures", {"Qwen2ForCausalLM"}), "tensor model.layers.0.self_attn.q_proj.bias: it is missing"},
      {[&](TinyFolder& t) {
         t.tensors.erase(layer + "mlp.down_proj.weight");
         t.tensors["x"] = {1};
       },
       "tensor model.layers.0.mlp.down_proj.weight: it is missing"},
      {[&](TinyFolder& t) { t.tensors[layer + "self_attn.sinks"] = {2}; },
       "tensor \"model.layers.0.self_attn.sinks\": no part of the architecture LlamaForCausalLM"},
  };
  for (const SafeRefusal& refusal : refusals) {
    TinyFolder tiny;
    refusal.change(tiny);
    const auto model = import_safetensors(tiny.write() + "?length=5");
    ASSERT_FALSE(model.ok()) << refusal.message;
    EXPECT_THAT(model.error().to_string(), HasSubstr(refusal.message));
    EXPECT_THAT(model.error().to_string(), HasSubstr("/tiny/"));
    EXPECT_EQ(exit_code(model.error()), 2);
  }
}

TEST(SafetensorsImport, TakesNoOptionThatChangesNothing) {
  TinyFolder tiny;
  tiny.config.update({{"rope_scaling", nullptr},
                      {"head_dim", nullptr},
                      {"use_sliding_window", false},
                      {"sliding_window", 4},
                      {"layer_types", {"full_attention"}},
                      {"partial_rotary_factor", 1.0},
                      {"attention_bias", false},
                      {"hidden_act", "silu"},
                      {"torch_dtype", "bfloat16"}});
  tiny.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {2};
  tiny.tensors["lm_head.weight"] = {16, 8};  // tied all the same
  EXPECT_TRUE(import_safetensors(tiny.write() + "?length=5").ok());
}

TEST(SafetensorsImport, ACutOffFileIsPlannedButNotComputed) {
  TinyFolder tiny;
  tiny.cut = 100;
  Model cut = value_of(import_safetensors(tiny.write() + "?length=4"));
  EXPECT_TRUE(optimize(cut.graph, cut.weights).ok());
  const auto run = evaluate(cut.graph, cut.weights, random_inputs(cut.graph, 1));
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(run.error().message, HasSubstr("model.safetensors: tensor model."));
  EXPECT_THAT(run.error().message, HasSubstr("the file is cut off"));
}

TEST(SafetensorsImport, ShardsMustAgreeWithTheirIndex) {
  const std::string folder = TinyFolder().write();
  fs::remove(folder + "/model.safetensors");
  const auto error = [&] { return import_safetensors(folder + "?length=5").error().to_string(); };
  EXPECT_THAT(error(), HasSubstr("there is neither model.safetensors nor model.safetensors.index.json"));

  std::map<std::string, std::vector<int64_t>> first, second;
  json index = {{"weight_map", json::object()}};
  for (const auto& [name, shape] : TinyFolder::tiny_tensors()) {
    const bool early = name < "model.layers.0.n";
    (early ? first : second)[name] = shape;
    index["weight_map"][name] = early ? "1.safetensors" : "2.safetensors";
  }
  const std::string index_path = folder + "/model.safetensors.index.json";
  put(index_path, index.dump());
  put(folder + "/1.safetensors", TinyFolder::file_of(first));
  EXPECT_THAT(error(), HasSubstr("/2.safetensors"));
  put(folder + "/2.safetensors", TinyFolder::file_of(second));
  EXPECT_TRUE(import_safetensors(folder + "?length=5").ok());

  second["model.embed_tokens.weight"] = {16, 8};
  put(folder + "/2.safetensors", TinyFolder::file_of(second));
  EXPECT_THAT(error(), HasSubstr("2.safetensors: tensor \"model.embed_tokens.weight\": "));
  second.erase("model.embed_tokens.weight");
  second.erase("model.norm.weight");
  put(folder + "/2.safetensors", TinyFolder::file_of(second));
  EXPECT_THAT(error(), HasSubstr("index.json: tensor \"model.norm.weight\": it is not in "));
  index["weight_map"]["model.norm.weight"] = "../2.safetensors";
  put(index_path, index.dump());
  EXPECT_THAT(error(), HasSubstr("/weight_map/model.norm.weight: \"../2.safetensors\" is not a file of this folder"));
  put(index_path, "{}");
  EXPECT_THAT(error(), HasSubstr("index.json: /weight_map: null is not an object"));
}

TEST(SafetensorsImport, KnowsFoldersByTheirConfig) {
  const std::string folder = TinyFolder().write();
  for (const char* length : {"", "?length=5", "/", "/?length=5"}) EXPECT_TRUE(is_safetensors(folder + length));
  for (const std::string& model : {folder + "/config.json", folder + "x", std::string("zoo:llama"), std::string()})
    EXPECT_FALSE(is_safetensors(model)) << model;
  EXPECT_THAT(import_safetensors(folder).error().to_string(), HasSubstr("64, less than the 128 positions wanted"));
  EXPECT_THAT(import_safetensors(folder + "?lenght=9").error().message, HasSubstr("did you mean length?"));
}

}  // namespace
}  // namespace nlsplit
