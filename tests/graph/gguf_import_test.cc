// Networks of GGUF files. scripts/export/gguf_files.py made those of tests/graph/gguf with PyPI's `gguf`; their logits
// are of the definition in NumPy, which shares nothing with this project (scripts/gguf_in_numpy.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/file.h"
#include "base/npy.h"
#include "graph/ggml.h"
#include "graph/gguf/gguf_file.h"
#include "graph/gguf/import.h"
#include "graph/gguf_bytes.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "testing/paths.h"
#include "testing/read_npy.h"
#include "testing/tensors.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;

const std::string gguf_folder = NLS_SOURCE_DIR "/tests/graph/gguf/";

class GgufNetwork : public ::testing::TestWithParam<const char*> {};

TEST_P(GgufNetwork, ComputesWhatItsDefinitionSays) {
  const std::string name = GetParam();
  const NpyRaw tokens = value_of(read_npy_raw(gguf_folder + name + "_input.npy"));
  const NpyArray expected = value_of(read_npy(gguf_folder + name + "_output.npy"));
  Model model = value_of(import_gguf(gguf_folder + name + ".gguf?length=" + std::to_string(tokens.shape[1])));
  EXPECT_EQ(model.graph.name, name == "mistral" ? "llama" : name == "yarn" ? "qwen2" : name);
  EXPECT_TRUE(verify(model.graph).ok());
  EXPECT_EQ(value_of(parse_graph(to_string(model.graph), "again")), model.graph);
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

// As they are stored or in f32: the same numbers, and so what the reference loops make of them.
TEST_P(GgufNetwork, ComputesTheSameInF32) {
  const std::string name = GetParam();
  const NpyRaw tokens = value_of(read_npy_raw(gguf_folder + name + "_input.npy"));
  const NpyArray expected = value_of(read_npy(gguf_folder + name + "_output.npy"));
  const std::string path = gguf_folder + name + ".gguf?weights=f32&length=" + std::to_string(tokens.shape[1]);
  const Model model = value_of(import_gguf(path));
  for (const Value& value : model.graph.values)
    EXPECT_TRUE(value.type.dtype == DType::f32 || value.kind != ValueKind::weight) << value.name;
  const Tensor made =
      value_of(evaluate(model.graph, model.weights, std::vector{tensor_of({DType::i64, tokens.shape}, tokens.raw)}))[0];
  for (size_t i = 0; i < expected.values.size(); ++i) EXPECT_NEAR(made.values[i], expected.values[i], 2e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Of, GgufNetwork,
                         ::testing::Values("llama", "qwen2", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "phi3",
                                           "mistral", "yarn"),
                         [](const auto& info) { return std::string(info.param); });

TEST(GgufImport, ReadsNoWeightBeforeItIsAskedFor) {
  const Model model = value_of(import_gguf(gguf_folder + "qwen2.gguf?length=4"));
  EXPECT_LE(model.weights.stored_bytes(), bytes(1024));
  // Cut off behind the header it plans as before; the weights that are missing say so.
  const std::string all = value_of(read_file(gguf_folder + "qwen2.gguf"));
  const std::string path = write_gguf("cut.gguf", all.substr(0, all.size() / 2));
  Model cut = value_of(import_gguf(path + "?length=4"));
  EXPECT_TRUE(optimize(cut.graph, cut.weights).ok());
  const auto run = evaluate(cut.graph, cut.weights, random_inputs(cut.graph, 1));
  ASSERT_FALSE(run.ok());
  EXPECT_THAT(run.error().message, HasSubstr("cut.gguf: tensor blk."));
  EXPECT_THAT(run.error().message, HasSubstr("the file is cut off"));
}

TEST(GgufImport, ATensorsNumbersAreTheSameInEveryFileThatHasThem) {
  const std::string all = value_of(read_file(gguf_folder + "qwen3.gguf"));
  const Graph here = value_of(import_gguf(gguf_folder + "qwen3.gguf?length=4")).graph;
  EXPECT_EQ(value_of(import_gguf(write_gguf("copy.gguf", all) + "?length=4")).graph, here);
  std::string trained = all;
  trained[trained.size() - 100] ^= 1;
  EXPECT_FALSE(value_of(import_gguf(write_gguf("trained.gguf", trained) + "?length=4")).graph == here);
}

const Value* weight_named(const Graph& graph, std::string_view name) {
  const auto found = std::ranges::find(graph.values, name, &Value::name);
  return found == graph.values.end() ? nullptr : &*found;
}

TEST(GgufImport, MatricesStayAsTheyAreStored) {
  const Model llama = value_of(import_gguf(gguf_folder + "llama.gguf?length=4"));
  const GgufFile file = value_of(read_gguf(gguf_folder + "llama.gguf"));
  const auto bytes_in_file = [&](const std::string& tensor) {
    const GgufTensor* place = file.tensor(tensor);
    return std::string(file.mapped->bytes().substr(place->offset, place->bytes));
  };
  const Value* up = weight_named(llama.graph, "model.layers.0.mlp.up_proj.weight");
  ASSERT_NE(up, nullptr);
  const GgufTensor* stored = file.tensor("blk.0.ffn_up.weight");
  EXPECT_EQ(up->type, (TensorType{dtype_of(stored->type), stored->shape}));
  EXPECT_TRUE(is_scaled(up->type.dtype));
  EXPECT_EQ(value_of(llama.weights.materialise(up->content)), bytes_in_file("blk.0.ffn_up.weight"));
  // The rows of queries and keys change places, their blocks do not change.
  const Value* q = weight_named(llama.graph, "model.layers.0.self_attn.q_proj.weight");
  const std::string turned = value_of(llama.weights.materialise(q->content)),
                    plain = bytes_in_file("blk.0.attn_q.weight");
  const size_t row = plain.size() / static_cast<size_t>(q->type.shape[0]);
  EXPECT_TRUE(is_scaled(q->type.dtype));
  EXPECT_EQ(turned.substr(row, row), plain.substr(2 * row, row));
  EXPECT_EQ(weight_named(llama.graph, "model.norm.weight")->type.dtype, DType::f32);
  // A head that is the table of tokens is the same bytes.
  const Model tied = value_of(import_gguf(gguf_folder + "qwen3.gguf?length=4"));
  const Value *table = weight_named(tied.graph, "model.embed_tokens.weight"),
              *head = weight_named(tied.graph, "lm_head.weight");
  EXPECT_EQ(table->type.dtype, DType::q8_0);
  EXPECT_EQ(table->type, head->type);
  EXPECT_EQ(table->content, head->content);
  // Rows of halves become f32 behind the table, and are operands of Linear as they are.
  const Model halves = value_of(import_gguf(gguf_folder + "qwen2.gguf?length=4"));
  EXPECT_EQ(weight_named(halves.graph, "model.embed_tokens.weight")->type.dtype, DType::f16);
  EXPECT_EQ(weight_named(halves.graph, "model.embed_tokens")->type.dtype, DType::f32);
}

TEST(GgufImport, SaysWhichWeightsThereAre) {
  const std::string path = gguf_folder + "gemma.gguf";
  EXPECT_EQ(value_of(import_gguf(path + "?weights=stored&length=9")).graph,
            value_of(import_gguf(path + "?length=9")).graph);
  EXPECT_EQ(value_of(import_gguf(path + "?length=3&weights=f32")).graph.value(ValueId(0)).type.shape, (Shape{1, 3}));
  const auto wrong = [&](const std::string& options) { return import_gguf(path + options).error().message; };
  EXPECT_THAT(wrong("?weights=f16"), HasSubstr("weights \"f16\" are neither stored nor f32"));
  EXPECT_THAT(wrong("?weights="), HasSubstr("weights \"\" are neither stored nor f32"));
  EXPECT_THAT(wrong("?weight=f32"), HasSubstr("there is no weight"));
  EXPECT_THAT(wrong("?weights=f32&"), HasSubstr("is not NAME=VALUE"));
  EXPECT_THAT(wrong("?"), HasSubstr("is not NAME=VALUE"));
}

TEST(GgufImport, KnowsFilesByTheirNames) {
  for (const char* model : {"a.gguf", "x/a.gguf?length=3", "a.gguf?", "a?b.gguf"}) EXPECT_TRUE(is_gguf(model)) << model;
  for (const char* model : {"a.onnx", "a.gguf/b.onnx", "zoo:llama?length=3", "a.gguf.onnx", ""})
    EXPECT_FALSE(is_gguf(model)) << model;
}

// ---- what is refused

std::string zero_floats(uint64_t elements) { return std::string(elements * sizeof(float), '\0'); }

// A llama of one layer, 2 heads of 4 and 16 tokens, all of it zero.
struct TinyLlama {
  std::string architecture = "llama";
  uint32_t layers = 1, hidden = 8, heads = 2, kv_heads = 1, ffn = 16, context = 64;
  float epsilon = 1e-5f;
  std::string left_out;
  std::function<void(GgufBytes&)> more = [](GgufBytes&) {};

  std::string write() const {
    GgufBytes file;
    const auto key = [&](const std::string& own) { return architecture + "." + own; };
    file.text("general.architecture", architecture);
    file.integer(key("block_count"), layers)
        .integer(key("embedding_length"), hidden)
        .integer(key("attention.head_count"), heads);
    file.integer(key("attention.head_count_kv"), kv_heads).integer(key("feed_forward_length"), ffn);
    file.integer(key("context_length"), context).real(key("attention.layer_norm_rms_epsilon"), epsilon);
    const auto tensor = [&](const std::string& name, const std::vector<uint64_t>& extents) {
      if (name == left_out) return;
      uint64_t elements = 1;
      for (const uint64_t extent : extents) elements *= extent;
      file.tensor(name, extents, 0, zero_floats(elements));
    };
    tensor("token_embd.weight", {8, 16});
    for (const char* norm : {"attn_norm", "ffn_norm"}) tensor("blk.0." + std::string(norm) + ".weight", {8});
    for (const char* square : {"attn_q", "attn_output"}) tensor("blk.0." + std::string(square) + ".weight", {8, 8});
    for (const char* shared : {"attn_k", "attn_v"}) tensor("blk.0." + std::string(shared) + ".weight", {8, 4});
    for (const char* up : {"ffn_gate", "ffn_up"}) tensor("blk.0." + std::string(up) + ".weight", {8, 16});
    tensor("blk.0.ffn_down.weight", {16, 8});
    tensor("output_norm.weight", {8});
    more(file);
    return file.write("tiny.gguf");
  }
};

struct GgufRefusal {
  std::function<void(TinyLlama&)> change;
  std::string message;
};

TEST(GgufImport, SaysWhatItCannotCompute) {
  ASSERT_TRUE(import_gguf(TinyLlama().write() + "?length=5").ok()) << "as it is it is a network";
  const auto with = [](std::function<void(GgufBytes&)> more) { return [more](TinyLlama& tiny) { tiny.more = more; }; };
  const std::vector<GgufRefusal> refusals = {
      {[](TinyLlama& t) { t.architecture = "mamba"; },
       "general.architecture at offset 56: the architecture \"mamba\" is not known; those that are: llama, qwen2, "
       "qwen3, qwen3moe, phi3, gemma, gemma2, gemma3"},
      {[](TinyLlama& t) { t.layers = 2; }, "llama.block_count at offset 98: 2 layers; 11 tensors are too few"},
      {[](TinyLlama& t) { t.layers = 0; }, "0 is not from 1 to 16777216"},
      {[](TinyLlama& t) { t.hidden = 4000000000; },
       "llama.embedding_length at offset 136: 4000000000 is not from 1 to 16777216"},
      {[](TinyLlama& t) { t.hidden = 7; }, "llama.embedding_length at offset 136: 7 is not a multiple of the 2 heads"},
      {[](TinyLlama& t) { t.hidden = 6; }, "a head's width of 3 is odd"},
      {[](TinyLlama& t) { t.hidden = 16; },
       "tensor token_embd.weight: it is [16, 8]; by the metadata it would be [16, 16]"},
      {[](TinyLlama& t) { t.kv_heads = 3; },
       "llama.attention.head_count_kv at offset 223: 2 heads are not a multiple of 3"},
      {[](TinyLlama& t) {
         t.ffn = 1 << 24;
         t.hidden = 1 << 24;
       },
       "more than 1e12 elements"},
      {[](TinyLlama& t) { t.context = 4; }, "llama.context_length at offset 300: 4, less than the 5 positions wanted"},
      {[](TinyLlama& t) { t.epsilon = -1; }, "llama.attention.layer_norm_rms_epsilon at offset 354: it is -1"},
      {[](TinyLlama& t) { t.left_out = "token_embd.weight"; }, "tensor token_embd.weight: it is missing"},
      {[](TinyLlama& t) {
         t.left_out = "blk.0.ffn_down.weight";
         t.more = [](GgufBytes& f) { f.tensor("x", {1}, 0, zero_floats(1)); };
       },
       "tensor blk.0.ffn_down.weight: it is missing"},
      {[](TinyLlama& t) { t.architecture = "qwen2"; }, "tensor blk.0.attn_q.bias: it is missing"},
      {[](TinyLlama& t) { t.architecture = "qwen3"; }, "tensor blk.0.attn_q_norm.weight: it is missing"},
      {with([](GgufBytes& f) { f.tensor("blk.0.attn_sinks.weight", {2}, 0, zero_floats(2)); }),
       "tensor \"blk.0.attn_sinks.weight\": no part of the architecture llama"},
      {with([](GgufBytes& f) {
         f.tensor("output.weight", {8, 15}, 0, zero_floats(120));
       }),
       "tensor output.weight: it is [15, 8]; by the metadata it would be [16, 8]"},
      {with([](GgufBytes& f) { f.text("llama.rope.scaling.type", "odd"); }),
       "llama.rope.scaling.type at offset 393: scaling \"odd\" of positions; none, linear, yarn and longrope are "
       "known"},
      {with([](GgufBytes& f) { f.text("llama.rope.scaling.type", "yarn"); }),
       "llama.rope.scaling.original_context_length: it is missing"},
      {with([](GgufBytes& f) { f.text("llama.rope.scaling.type", "yarn").real("llama.rope.scaling.factor", 0.5f); }),
       "it is 0.5"},
      {with([](GgufBytes& f) {
         f.text("llama.rope.scaling.type", "yarn").integer("llama.rope.scaling.original_context_length", 16);
         f.real("llama.rope.scaling.yarn_ext_factor", 1);
       }),
       "it is not known beside YaRN"},
      {with([](GgufBytes& f) {
         f.text("llama.rope.scaling.type", "longrope").integer("llama.rope.scaling.original_context_length", 16);
       }),
       "tensor rope_factors_short.weight: it is missing"},
      {with([](GgufBytes& f) { f.real("llama.attn_logit_softcapping", -1); }), "it is -1"},
      {with([](GgufBytes& f) { f.real("llama.rope.scaling.factor", 0); }),
       "llama.rope.scaling.factor at offset 395: it is 0"},
      {with([](GgufBytes& f) { f.real("llama.rope.freq_base", 0.5f); }),
       "llama.rope.freq_base at offset 390: it is 0.5"},
      {with([](GgufBytes& f) { f.integer("llama.rope.dimension_count", 2); }), "2, but a head's width is 4"},
      {with([](GgufBytes& f) { f.integer("llama.attention.value_length", 8); }), "8, but a head's width is 4"},
      {with([](GgufBytes& f) { f.tensor("rope_freqs.weight", {3}, 0, zero_floats(3)); }),
       "tensor rope_freqs.weight: it must be 2 elements of F32"},
      {with([](GgufBytes& f) { f.tensor("rope_freqs.weight", {2}, 0, zero_floats(2)); }),
       "tensor rope_freqs.weight: its element 0 is 0"},
      {with([](GgufBytes& f) { f.integer("llama.expert_count", 8); }),
       "llama.expert_count at offset 388: 8, and 0 is all that is known here"},
      {with([](GgufBytes& f) { f.value("llama.attention.sliding_window", 5, little(int32_t{-1})); }),
       "-1 is not from 0 (none) to 16777216"},
      {with([](GgufBytes& f) { f.value("llama.attention.causal", 7, std::string(1, '\0')); }),
       "attention to later tokens"},
      {with([](GgufBytes& f) { f.real("llama.attention.scale", 1); }), "this scale is not known"},
      {with([](GgufBytes& f) { f.integer("split.count", 3).integer("split.no", 0); }),
       "split.count at offset 381: it is one of 3 files, and its name does not end in -00001-of-00003.gguf"},
      {with([](GgufBytes& f) { f.integer("split.count", 3).integer("split.no", 1); }),
       "it is part 2 of 3; give the first"},
      {with([](GgufBytes& f) { f.integer("split.count", 3); }), "split.no: it is missing"},
  };
  for (const GgufRefusal& refusal : refusals) {
    TinyLlama tiny;
    refusal.change(tiny);
    const auto model = import_gguf(tiny.write() + "?length=5");
    ASSERT_FALSE(model.ok()) << refusal.message;
    EXPECT_THAT(model.error().message, HasSubstr(refusal.message));
    EXPECT_THAT(model.error().message, HasSubstr("tiny.gguf"));
    EXPECT_EQ(exit_code(model.error()), 2);
  }
}

TEST(GgufImport, TakesNoOptionThatChangesNothing) {
  TinyLlama tiny;
  tiny.more = [](GgufBytes& f) {
    f.text("llama.rope.scaling.type", "none")
        .integer("llama.expert_count", 0)
        .integer("llama.attention.sliding_window", 0);
    f.value("llama.attention.causal", 7, "\x01").value("split.count", 2, little(uint16_t{1}));
  };
  EXPECT_TRUE(import_gguf(tiny.write() + "?length=5").ok());
}

// A network in two files is the one that was in one file.
TEST(GgufImport, ReadsModelsInSeveralFiles) {
  const GgufFile whole = value_of(read_gguf(gguf_folder + "qwen3.gguf"));
  const std::string all = value_of(read_file(gguf_folder + "qwen3.gguf"));
  const auto part = [&](uint16_t number, uint16_t count) {
    GgufBytes file;
    if (number == 0) {
      for (const auto& [key, value] : whole.metadata) {
        if (value.is_array) continue;
        file.value(key, static_cast<uint32_t>(value.kind),
                   value.kind == GgufKind::text ? gguf_text(value.bytes) : std::string(value.bytes));
      }
    }
    file.value("split.no", 2, little(number)).value("split.count", 2, little(count));
    size_t at = 0;
    for (const auto& [name, tensor] : whole.tensors) {
      if (at++ % 2 != number) continue;
      std::vector<uint64_t> extents(tensor.shape.rbegin(), tensor.shape.rend());
      file.tensor(name, extents, static_cast<uint32_t>(tensor.type), all.substr(tensor.offset, tensor.bytes));
    }
    return file;
  };
  const std::string path = part(0, 2).write("parts-00001-of-00002.gguf");
  EXPECT_THAT(import_gguf(path + "?length=7").error().message, HasSubstr("parts-00002-of-00002.gguf"));
  part(1, 2).write("parts-00002-of-00002.gguf");
  const NpyRaw tokens = value_of(read_npy_raw(gguf_folder + "qwen3_input.npy"));
  const NpyArray expected = value_of(read_npy(gguf_folder + "qwen3_output.npy"));
  const Model model = value_of(import_gguf(path + "?length=7"));
  const Tensor made =
      value_of(evaluate(model.graph, model.weights, std::vector{tensor_of({DType::i64, tokens.shape}, tokens.raw)}))[0];
  for (size_t i = 0; i < expected.values.size(); ++i) EXPECT_NEAR(made.values[i], expected.values[i], 2e-5) << i;

  const auto error = [&](const GgufBytes& second) {
    second.write("parts-00002-of-00002.gguf");
    return import_gguf(path + "?length=7").error().message;
  };
  EXPECT_THAT(error(part(0, 2)), HasSubstr("split.no at offset"));
  EXPECT_THAT(error(part(1, 3)), HasSubstr("it is 3; by its name it would be 2"));
  GgufBytes twice = part(1, 2);
  twice.tensor(whole.tensors.begin()->first, {1}, 0, std::string(4, '\0'));
  EXPECT_THAT(error(twice), HasSubstr("another part has it too"));
}

TEST(GgufImport, TheLengthIsTheUsers) {
  const std::string path = TinyLlama().write();
  const auto error = [&](const std::string& sizes) { return import_gguf(path + sizes).error().message; };
  EXPECT_EQ(value_of(import_gguf(path + "?length=9")).graph.value(ValueId(0)).type.shape, (Shape{1, 9}));
  EXPECT_THAT(error(""), HasSubstr("64, less than the 128 positions wanted"));
  EXPECT_THAT(error("?lenght=9"),
              HasSubstr("there is no lenght, did you mean length?; it takes length=128 (tokens of a prompt)"));
  EXPECT_THAT(error("?length=0"), HasSubstr("length \"0\" is not an integer from 1 to 16777216"));
  EXPECT_THAT(error("?"), HasSubstr("\"\" is not NAME=VALUE"));
  EXPECT_THAT(import_gguf("/nowhere/x.gguf?length=9").error().message, HasSubstr("/nowhere/x.gguf"));
}

}  // namespace
}  // namespace nlsplit
