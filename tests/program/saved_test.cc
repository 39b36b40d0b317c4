// A saved folder: what is written comes back, and a file that was changed is refused by its name.
#include "program/saved.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"
#include "program/complaint.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using testing::replaced;

std::string text_of(ContentId weight) {
  return R"(nlsplit program 1
program saved batch 4 micro_batches 2
device A cpu host a isa v2 memory 4096
  buffer x f32[2,4] input instances 2
  buffer w f32[2,4] weight content )" +
         fmt::format("{:x}", weight.value) + R"(
  buffer y f32[2,4] output instances 2
  segment F stage 0 phase F
    y = reduce(x, w)
  order
    F.0
    F.1 x:1 y:1
)";
}

class Saved : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(path_);
    const TensorType type{DType::f32, {2, 4}};
    weight_ = weights_.add_fill(type, 0.5);
    saved_.program = value_of(parse_program(text_of(weight_), "saved.nls"));
    saved_.unsplit = saved_.program;
    saved_.clocks = {{}};
    saved_.online = Online{"longest_path", {}, {{1, 2}}};
    saved_.promise = {1e-4, "sums are rounded otherwise"};
    saved_.has_prediction = true;
    saved_.prediction = {fingerprint(saved_.program), 0.5, 0.25, {0.125}};
    ASSERT_TRUE(save_program(dir_, saved_, weights_).ok());
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  // The error of loading once `from` is `to` in the file, without the folder's name.
  std::string error_of(const std::string& file, const std::string& from, const std::string& to) {
    const std::string good = value_of(read_file(dir_ + "/" + file));
    EXPECT_TRUE(write_file(dir_ + "/" + file, replaced(good, from, to)).ok());
    const auto loaded = load_program(dir_);
    EXPECT_TRUE(write_file(dir_ + "/" + file, good).ok());
    if (loaded.ok()) return "accepted";
    EXPECT_EQ(exit_code(loaded.error()), 2);
    return replaced(loaded.error().to_string(), dir_ + "/", "");
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("nlsplit_saved_" + std::to_string(::getpid()) + "_" +
                                                ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string dir_ = path_ / "run";
  WeightStore weights_;
  ContentId weight_;
  SavedProgram saved_;
};

TEST_F(Saved, ComesBack) {
  const auto loaded = load_program(dir_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  EXPECT_EQ(loaded->program, saved_.program);
  EXPECT_EQ(loaded->unsplit, saved_.unsplit);
  EXPECT_EQ(loaded->clocks, saved_.clocks);
  ASSERT_TRUE(loaded->online.has_value());
  EXPECT_EQ(loaded->online->policy, "longest_path");
  EXPECT_EQ(loaded->online->remaining_s, saved_.online->remaining_s);
  EXPECT_EQ(loaded->promise, saved_.promise);
  ASSERT_TRUE(loaded->has_prediction);
  EXPECT_EQ(loaded->prediction.device_compute_s, saved_.prediction.device_compute_s);
  const auto file = WeightFile::open(dir_);
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ(value_of(file->bytes(weight_)), value_of(weights_.materialise(weight_)));
  EXPECT_THAT(file->bytes(ContentId{77}).error().message, HasSubstr("weights.idx has no content 000000000000004d"));
  EXPECT_FALSE(file->checksum(ContentId{77}).ok());
}

TEST_F(Saved, OptionalFilesMayBeAbsent) {
  for (const char* name : {"clock.json", "online.json", "promise.json", "predicted.json"})
    std::filesystem::remove(dir_ + "/" + name);
  const auto loaded = load_program(dir_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  EXPECT_TRUE(loaded->clocks.empty());
  EXPECT_FALSE(loaded->online.has_value());
  EXPECT_EQ(loaded->promise, Promise{});
  EXPECT_FALSE(loaded->has_prediction);
  std::filesystem::remove(dir_ + "/unsplit.nls");
  EXPECT_EQ(load_program(dir_).error().kind, ErrorKind::io);
}

TEST_F(Saved, ProgramsThatDoNotVerifyAreRefusedByName) {
  EXPECT_THAT(error_of("unsplit.nls", "micro_batches 2", "micro_batches 3"), HasSubstr("unsplit.nls"));
  EXPECT_THAT(error_of("program.nls", "reduce(x, w)", "reduce(x, v)"), HasSubstr("program.nls:9:19: unknown buffer v"));
}

TEST_F(Saved, PredictionsAreOfThisProgram) {
  const char* const file = "predicted.json";
  EXPECT_EQ(error_of(file, "nlsplit-prediction", "nlsplit-guess"), "predicted.json: not a prediction of version 1");
  EXPECT_EQ(error_of(file, "\"version\": 1", "\"version\": 2"), "predicted.json: not a prediction of version 1");
  EXPECT_THAT(error_of(file, "\"fingerprint\": \"", "\"fingerprint\": \"f"), HasSubstr("predicted.json"));
  EXPECT_THAT(error_of(file, "\"fingerprint\": \"", "\"fingerprint\": \"no"), HasSubstr("predicted.json: "));
  EXPECT_EQ(error_of(file, "0.5", "-0.5"), "predicted.json: a negative time");
  EXPECT_EQ(error_of(file, "0.25", "-0.25"), "predicted.json: a negative time");
  EXPECT_EQ(error_of(file, "0.125", "-0.125"), "predicted.json: a negative time");
  EXPECT_THAT(error_of(file, "0.125", "\"quick\""), HasSubstr("predicted.json: "));
  saved_.prediction.fingerprint = 1;
  ASSERT_TRUE(save_program(dir_, saved_, weights_).ok());
  EXPECT_THAT(load_program(dir_).error().message, HasSubstr("predicted.json is of another program"));
}

TEST_F(Saved, PromisesHaveATolerance) {
  const char* const file = "promise.json";
  EXPECT_EQ(error_of(file, "nlsplit-promise", "nlsplit-hope"), "promise.json: not a promise of version 1");
  EXPECT_EQ(error_of(file, "\"version\": 1", "\"version\": 2"), "promise.json: not a promise of version 1");
  EXPECT_THAT(error_of(file, "0.0001", "0.5"), HasSubstr("promise.json: a tolerance of 0.5; no plan promises more"));
  EXPECT_THAT(error_of(file, "0.0001", "-1"), HasSubstr("promise.json: a tolerance of -1"));
  EXPECT_THAT(error_of(file, "0.0001", "null"), HasSubstr("promise.json: "));
  EXPECT_LT(rounding_tolerance(DType::f32), rounding_tolerance(DType::f16));
  EXPECT_LT(rounding_tolerance(DType::f16), rounding_tolerance(DType::bf16));
}

TEST_F(Saved, ClocksAndOnlineRunsAreOfThisProgram) {
  EXPECT_EQ(error_of("clock.json", "nlsplit-clocks", "nlsplit-watch"), "clock.json: not clocks of version 1");
  EXPECT_EQ(error_of("clock.json", "\"version\":1", "\"version\":2"), "clock.json: not clocks of version 1");
  EXPECT_EQ(error_of("clock.json", "[[]]", "[]"), "clock.json: these are clocks of another program");
  EXPECT_EQ(error_of("clock.json", "[[]]", "[[1]]"), "clock.json: these are clocks of another program");
  EXPECT_THAT(error_of("clock.json", "[[]]", "3"), HasSubstr("clock.json: "));
  EXPECT_EQ(error_of("online.json", "nlsplit-online", "nlsplit"), "online.json: not an online run of version 1");
  EXPECT_EQ(error_of("online.json", "\"version\":1", "\"version\":2"), "online.json: not an online run of version 1");
  EXPECT_THAT(error_of("online.json", "longest_path", "longest"), HasSubstr("online.json: "));
  for (const char* other : {"[]", "[[1.0]]", "[[1.0,-2.0]]"}) {
    EXPECT_EQ(error_of("online.json", "[[1.0,2.0]]", other), "online.json: this is the online run of another program");
  }
  EXPECT_THAT(error_of("online.json", "\"table\":[]", "\"table\":[[[0,\"Q\",0]]]"), HasSubstr("online.json: "));
  EXPECT_EQ(error_of("online.json", "\"table\":[]", "\"table\":[[[0,\"F\",0]]]"), "accepted");
  EXPECT_THAT(error_of("online.json", "\"table\":[]", "\"table\":[[[0.5,\"F\",0]]]"), HasSubstr("online.json: "));
}

TEST_F(Saved, FoldersOfOthersAreLeftAlone) {
  const std::string other = path_ / "other";
  std::filesystem::create_directories(other);
  EXPECT_THAT(save_program(other, saved_, weights_).error().message,
              HasSubstr("other exists and is not a saved program; it is left alone"));
  const std::string like = path_ / "like";
  ASSERT_TRUE(save_program_like(like, saved_, dir_).ok());
  EXPECT_EQ(std::filesystem::hard_link_count(like + "/weights.bin"), 2u);
  EXPECT_TRUE(load_program(like).ok());
  saved_.program.devices[0].buffers[1].content = ContentId{77};
  EXPECT_THAT(save_program_like(path_ / "more", saved_, dir_).error().message, HasSubstr("has no content"));
  EXPECT_FALSE(std::filesystem::exists(path_ / "more"));
}

TEST(WeightIndex, RefusesWhatCannotBe) {
  const std::string head = "nlsplit-weights 2\n", sum(32, 'a');
  const auto error_of = [](const std::string& text) {
    const auto index = parse_weight_index(text, "weights.idx", 64);
    return index.ok() ? "accepted" : index.error().to_string();
  };
  EXPECT_EQ(error_of(head), "accepted");
  EXPECT_EQ(error_of(head + "1f 0 64 " + sum + "\n20 64 0 " + sum + "\n"), "accepted");
  EXPECT_THAT(error_of(""), HasSubstr("weights.idx: a saved program of an older version"));
  EXPECT_THAT(error_of("1f 0 64\n"), HasSubstr("weights.idx: a saved program of an older version"));
  EXPECT_THAT(error_of("nlsplit-weights 3\n"), HasSubstr("weights.idx:1:17: version 3; this program reads 2"));
  for (const char* place : {"-1 1", "0 -1", "65 0", "0 65", "64 1"}) {
    EXPECT_THAT(error_of(head + "1f " + place + " " + sum + "\n"), HasSubstr("weights.bin is truncated: it has 64 B"))
        << place;
  }
  for (const std::string& bad : {std::string("aa"), std::string(32, 'g'), std::string(16, 'a') + std::string(16, 'g'),
                                 std::string(15, 'a') + "g" + std::string(16, 'a')}) {
    EXPECT_THAT(error_of(head + "1f 0 64 " + bad + "\n"), HasSubstr("expected a checksum (32 hexadecimal digits)"))
        << bad;
  }
  EXPECT_THAT(error_of(head + "1f 0 8 " + sum + "\n1f 8 8 " + sum + "\n"), HasSubstr("000000000000001f stands twice"));
}

}  // namespace
}  // namespace nlsplit
