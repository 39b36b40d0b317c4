#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/file.h"
#include "cost/cost_table.h"

namespace nlsplit {
namespace {

class ProfileFile : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("nlsplit_profile_" + std::to_string(getpid()) + "_" +
                                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(dir_);
    path_ = (dir_ / "p.json").string();
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // The error of reading this text, with the folder taken out.
  std::string error_of(const std::string& text) {
    EXPECT_TRUE(write_file(path_, text).ok());
    const auto profile = read_profile(path_);
    if (profile.ok()) return "fine";
    std::string message = profile.error().to_string();
    EXPECT_EQ(exit_code(profile.error()), 2);
    for (size_t at; (at = message.find(path_)) != std::string::npos;) message.replace(at, path_.size(), "p.json");
    return message;
  }

  static std::string with_kernels(const std::string& kernels) {
    return R"({"format": "nlsplit-profile", "version": 1, "model": "m", "machine": "x", "kernels": [)" + kernels + "]}";
  }

  std::filesystem::path dir_;
  std::string path_;
};

TEST_F(ProfileFile, ReadsBackWhatWasWritten) {
  Profile profile;
  profile.model = "resnet18";
  profile.machine = "a CPU with \"quotes\" and \xC3\xBC";
  profile.kernels["conv_gemm_v3 Conv(f32[1,3,8,8]) {} -> f32[1,16,8,8]"] = {seconds(0.1), seconds(1e-9 / 3), 7};
  profile.kernels["b"] = {seconds(1.0 / 3), seconds(0), 1};
  ASSERT_TRUE(write_profile(path_, profile).ok());
  const Profile read = read_profile(path_).value();
  EXPECT_EQ(read.file, path_);
  EXPECT_EQ(read.model, profile.model);
  EXPECT_EQ(read.machine, profile.machine);
  ASSERT_EQ(read.kernels.size(), 2u);
  for (const auto& [signature, cost] : profile.kernels) {
    ASSERT_TRUE(read.kernels.contains(signature));
    EXPECT_EQ(read.kernels.at(signature).median, cost.median);  // to the last bit
    EXPECT_EQ(read.kernels.at(signature).spread, cost.spread);
    EXPECT_EQ(read.kernels.at(signature).repeats, cost.repeats);
  }
}

TEST_F(ProfileFile, ChoicesReadBack) {
  Profile profile;
  profile.choices["v3 Conv(f32[1,3,8,8]) -> f32[1,16,8,8]"] = "conv_winograd_v3";
  ASSERT_TRUE(write_profile(path_, profile).ok());
  EXPECT_EQ(read_profile(path_).value().choices, profile.choices);
}

TEST_F(ProfileFile, ErrorsOfAChoiceNameIt) {
  const auto with_choices = [](const std::string& choices) {
    return R"({"format": "nlsplit-profile", "version": 1, "model": "m", "machine": "x", "kernels": [], "choices": )" +
           choices + "}";
  };
  const std::string good = R"({"computation": "c", "kernel": "conv_winograd_v3"})";
  EXPECT_EQ(error_of(with_choices("[" + good + "]")), "fine");
  EXPECT_EQ(error_of(with_choices("7")), "p.json: \"choices\" must be a list");
  EXPECT_EQ(error_of(with_choices("[7]")), "p.json: choice 1 of the list: it is not an object");
  EXPECT_EQ(error_of(with_choices("[" + good + ", " + good + "]")),
            "p.json: choice 2 of the list: this computation was there before");
  EXPECT_EQ(error_of(with_choices(R"([{"computation": "c", "kernel": "magic_v3"}])")),
            "p.json: choice 1 of the list: there is no kernel \"magic_v3\"");
}

// The first profile that tells decides, for all devices: they must do the same arithmetic.
TEST(FastestMeasured, IsTakenFromTheFirstProfileThatTells) {
  ComputeDesc desc;
  desc.op = Op::Relu;
  desc.inputs = desc.outputs = {{DType::f32, {4}}};
  Profile first, second;
  first.choices["another"] = "a_v3";
  second.choices[choice_key(desc, Isa::v3)] = "b_v3";
  Profile third = second;
  third.choices.begin()->second = "c_v3";
  const std::vector<CostSource> sources = {NoCosts{}, first, second, third};
  const std::vector<std::string> names = {"a_v3", "c_v3", "b_v3"}, others = {"a_v3", "c_v3"};
  const KernelPreference prefer = fastest_measured(sources);
  EXPECT_EQ(prefer(desc, names), 2u);
  EXPECT_EQ(prefer(desc, others), 0u) << "not a candidate here";
  desc.inputs[0].shape = {5, 2};
  EXPECT_EQ(prefer(desc, names), 0u) << "never measured";
  EXPECT_FALSE(fastest_measured(std::vector<CostSource>{NoCosts{}})) << "no measurements, no preference";
}

TEST_F(ProfileFile, IsNotWrittenWithFiguresThatAreNoTimes) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1.0}) {
    Profile profile;
    profile.kernels["k"] = {seconds(bad), seconds(0), 1};
    EXPECT_EQ(write_profile(path_, profile).error().fragment, "k");
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
}

TEST_F(ProfileFile, ThatIsMissingIsAnIoError) { EXPECT_EQ(read_profile(path_).error().kind, ErrorKind::io); }

TEST_F(ProfileFile, ErrorsOfTheWhole) {
  EXPECT_EQ(error_of(""), "p.json:1:1: this is not JSON, so it is no profile");
  EXPECT_EQ(error_of("{\n  \"format\": nlsplit}"), "p.json:2:14: this is not JSON, so it is no profile");
  EXPECT_EQ(error_of("[]"), "p.json: a profile is a JSON object");
  EXPECT_EQ(error_of("{}"), "p.json: this is no profile: \"format\" must be \"nlsplit-profile\"");
  EXPECT_EQ(error_of(R"({"format": "trace"})"),
            "p.json: this is no profile: \"format\" must be \"nlsplit-profile\", it is \"trace\"");
  EXPECT_EQ(error_of(R"({"format": "nlsplit-profile"})"), "p.json: \"version\" is missing");
  EXPECT_EQ(error_of(R"({"format": "nlsplit-profile", "version": 2})"),
            "p.json: this profile has version 2; this program reads version 1: measure again with nlbench profile");
  EXPECT_EQ(error_of(R"({"format": "nlsplit-profile", "version": 1})"), "p.json: \"model\" is missing");
  EXPECT_EQ(error_of(R"({"format": "nlsplit-profile", "version": 1, "model": 3})"),
            "p.json: \"model\" must be a text, it is 3");
  EXPECT_EQ(error_of(R"({"format": "nlsplit-profile", "version": 1, "model": "m", "machine": "x"})"),
            "p.json: \"kernels\" is missing");
  EXPECT_EQ(error_of(R"({"format": "nlsplit-profile", "version": 1, "model": "m", "machine": "x", "kernels": {}})"),
            "p.json: \"kernels\" must be a list");
  EXPECT_THAT(error_of(with_kernels(R"({"signature": "k", "median_s": 1e999})")),
              testing::StartsWith("p.json: this is not usable JSON: "));
}

TEST_F(ProfileFile, ErrorsOfAKernelNameIt) {
  const std::string good = R"({"signature": "k", "median_s": 1, "spread_s": 0, "repeats": 3})";
  EXPECT_EQ(error_of(with_kernels(good)), "fine");
  EXPECT_EQ(error_of(with_kernels("7")), "p.json: kernel 1 of the list is not an object");
  EXPECT_EQ(error_of(with_kernels(good + ", {}")), "p.json: kernel 2 of the list: \"signature\" is missing");
  EXPECT_EQ(error_of(with_kernels(good + ", " + good)),
            "p.json: kernel 2 of the list: this signature was there before\n  | k");
  EXPECT_EQ(error_of(with_kernels(R"({"signature": "k"})")),
            "p.json: kernel 1 of the list: \"median_s\" is missing\n  | k");
  EXPECT_EQ(error_of(with_kernels(R"({"signature": "k", "median_s": -2})")),
            "p.json: kernel 1 of the list: \"median_s\" is negative: -2\n  | k");
  EXPECT_EQ(error_of(with_kernels(R"({"signature": "k", "median_s": null})")),  // what a NaN becomes in JSON
            "p.json: kernel 1 of the list: \"median_s\" must be a number of seconds, it is null\n  | k");
  EXPECT_EQ(error_of(with_kernels(R"({"signature": "k", "median_s": 1, "spread_s": "2s"})")),
            "p.json: kernel 1 of the list: \"spread_s\" must be a number of seconds, it is \"2s\"\n  | k");
  for (const char* repeats : {"0", "-1", "2.5", "99999999999", "18446744073709551615"}) {
    EXPECT_EQ(error_of(with_kernels(R"({"signature": "k", "median_s": 1, "spread_s": 0, "repeats": )" +
                                    std::string(repeats) + "}")),
              "p.json: kernel 1 of the list: \"repeats\" must be an integer from 1 to 1000000000, it is " +
                  std::string(repeats) + "\n  | k");
  }
}

}  // namespace
}  // namespace nlsplit
