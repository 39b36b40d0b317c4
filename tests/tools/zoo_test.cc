// The zoo as a user meets it: listed, written as ONNX, run with tokens, and planned with weights that fit nowhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "base/npy.h"
#include "testing/read_npy.h"
#include "testing/value_of.h"
#include "tools/run_program.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* small_llama = "llama?layers=2&hidden=32&heads=4&kv_heads=2&ffn=48&vocab=50&length=6";
constexpr const char* small_bert = "bert_base?layers=1&hidden=32&heads=4&ffn=48&vocab=50&length=6";

TEST(Zoo, ListsParametersWorkAndSizes) {
  const Outcome outcome = nlsim("zoo");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* part : {"zoo:vgg19", "143,667,240", "zoo:llama", "8,030,261,248", "GFLOP",
                           "?layers=32&hidden=4096&heads=32&kv_heads=8&ffn=14336&vocab=128256&length=128"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

TEST(Zoo, WritesAFileThatRunsTheSame) {
  const Scratch scratch;
  for (const char* name : {"simple_cnn", small_llama, small_bert}) {
    for (const char* how : {"", " --external-data"}) {
      SCOPED_TRACE(fmt::format("{}{}", name, how));
      const std::string file = scratch / "model.onnx";
      const Outcome written = nlsim(fmt::format("zoo '{}' --batch 2 -o {}{}", name, file, how));
      ASSERT_EQ(written.code, 0) << written.err;
      for (const auto& [what, npy] : {std::pair{fmt::format("'zoo:{}'", name), "a.npy"}, std::pair{file, "b.npy"}}) {
        const Outcome run =
            nlbench(fmt::format("run {} --batch 2 --transport threads --repeats 1 --output {}", what, scratch / npy));
        ASSERT_EQ(run.code, 0) << run.err;
      }
      const NpyArray a = value_of(read_npy(scratch / "a.npy")), b = value_of(read_npy(scratch / "b.npy"));
      ASSERT_EQ(a.shape, b.shape);
      for (size_t i = 0; i < a.values.size(); ++i) ASSERT_NEAR(a.values[i], b.values[i], 1e-5) << i;
    }
  }
}

// The same answer on three machines as on one, tokens as the input.
TEST(Zoo, LanguageModelsRunSplit) {
  const Scratch scratch;
  for (const char* name : {small_llama, small_bert, "gpt2?layers=2&hidden=32&heads=4&vocab=50&length=6"}) {
    SCOPED_TRACE(name);
    std::string text = with(small_scenario(), "zoo:simple_cnn", fmt::format("zoo:{}", name));
    text = text.substr(0, text.find("plans:"));
    const Outcome run =
        nlbench(fmt::format("run {} --plan 1 --transport threads --repeats 1 --check", scratch.write("s.yaml", text)));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("equal to the unsplit run, bit for bit"));
  }
}

// Tokens may come from a file; those of another type are refused.
TEST(Zoo, TokensFromAFile) {
  const Scratch scratch;
  const auto npy = [&](const std::string& type, const std::string& raw) {
    std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (1, 6), }}", type);
    header.resize(117, ' ');
    return scratch.write("x.npy", std::string("\x93NUMPY\x01\0\x76\0", 10) + header + '\n' + raw);
  };
  const auto run = [&](const std::string& file, const std::string& out) {
    return nlbench(fmt::format("run 'zoo:{}' --transport threads --repeats 1 --input {} --output {}", small_llama, file,
                               scratch / out));
  };
  const auto tokens = [](int64_t first) {
    std::string raw;
    for (const int64_t token : {first, int64_t{7}, int64_t{49}, int64_t{0}, int64_t{3}, int64_t{3}})
      raw.append(reinterpret_cast<const char*>(&token), sizeof token);
    return raw;
  };
  for (const int64_t first : {1, 2}) {
    const Outcome outcome = run(npy("<i8", tokens(first)), fmt::format("{}.npy", first));
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_NE(value_of(read_npy(scratch / "1.npy")).values, value_of(read_npy(scratch / "2.npy")).values);
  const Outcome refused = run(npy("<f4", std::string(24, '\0')), "y.npy");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("'<f4'"), HasSubstr("input_ids is i64[1,6] ('<i8')")));
}

TEST(Zoo, Refusals) {
  for (const auto& [arguments, message] :
       {std::pair{"zoo lenet -o x.onnx", "the zoo has no model \"lenet\""},
        {"zoo gpt2", "-o FILE.onnx says where"},
        {"zoo -o x.onnx", "-o needs the NAME"},
        {"zoo 'gpt2?size=7' -o x.onnx", "there is no size"},
        {"show 'zoo:llama?heads=33'", "hidden 4096 is not a multiple of heads 33"}}) {
    const Outcome outcome = nlsim(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << arguments;
  }
}

// 70 billion parameters over eight machines: 282 GB of weights, of which planning makes none.
TEST(Zoo, PlanningALargeModelTakesLittle) {
  const Scratch scratch;
  const std::string file = scratch.write("s.yaml", R"(model: zoo:llama?layers=80&hidden=8192&heads=64&ffn=28672
workload: {mode: inference, batch: 8, micro_batches: [8]}
topology: {kind: star, hosts: 8, link: {bandwidth: 100Gbps, latency: 5us}}
devices:
  M: {hosts: all, memory: 64GiB, costs: {roofline: {compute: 100TFLOPS, memory: 2TBps}}}
source: h0
sink: h0
search: {splits: [layer], schedules: [streaming], keep: 3, max_candidates: 100}
)");
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = nlsim("rank " + file);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("llama, batch 8 on 8 devices"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(outcome.peak_kib, 256 * 1024) << "KiB";
  EXPECT_LT(seconds, 10) << "on a machine with other work; 2 s alone";
#endif
}

}  // namespace
}  // namespace nlsplit
