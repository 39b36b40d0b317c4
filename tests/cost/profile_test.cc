#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "base/file.h"
#include "base/random.h"
#include "cost/cost_table.h"
#include "cost/kernel_fit.h"
#include "testing/value_of.h"

namespace nlsplit {
namespace {

class ProfileFile : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("nlsplit_profile_" + std::to_string(getpid()) + "_" +
                                                     ::testing::UnitTest::GetInstance()->current_test_info()->name());
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

  static constexpr const char* head =
      R"({"format": "nlsplit-profile", "version": 2, "models": ["m"], "machine": "x", "beside": 0, "measured_at_s": 9)";
  static std::string with_kernels(const std::string& kernels) {
    return std::string(head) + R"(, "kernels": [)" + kernels + "]}";
  }

  std::filesystem::path dir_;
  std::string path_;
};

TEST_F(ProfileFile, ReadsBackWhatWasWritten) {
  Profile profile;
  profile.models = {"resnet18", "vgg16"};
  profile.beside = 2;
  profile.measured_at = 1795273442;
  profile.dispatch = {seconds(1e-7), seconds(1e-9), 1000};
  profile.machine = "a CPU with \"quotes\" and \xC3\xBC";
  profile.kernels["conv_gemm_v3 Conv(f32[1,3,8,8]) {} -> f32[1,16,8,8]"] = {seconds(0.1), seconds(1e-9 / 3), 7};
  profile.kernels["b"] = {seconds(1.0 / 3), seconds(0), 1, seconds(0.5), seconds(1.25 / 3)};
  ASSERT_TRUE(write_profile(path_, profile).ok());
  const Profile read = value_of(read_profile(path_));
  EXPECT_EQ(read.file, path_);
  EXPECT_EQ(read.models, profile.models);
  EXPECT_EQ(read.beside, 2);
  EXPECT_EQ(read.measured_at, 1795273442);
  EXPECT_EQ(read.dispatch.median, seconds(1e-7));
  EXPECT_DOUBLE_EQ(slowness_of(read), 1.25);
  EXPECT_EQ(read.dispatch.repeats, 1000);
  EXPECT_EQ(read.machine, profile.machine);
  ASSERT_EQ(read.kernels.size(), 2u);
  for (const auto& [signature, cost] : profile.kernels) {
    ASSERT_TRUE(read.kernels.contains(signature));
    EXPECT_EQ(read.kernels.at(signature).median, cost.median);  // to the last bit
    EXPECT_EQ(read.kernels.at(signature).spread, cost.spread);
    EXPECT_EQ(read.kernels.at(signature).repeats, cost.repeats);
    EXPECT_EQ(read.kernels.at(signature).beside, cost.beside);
  }
}

TEST_F(ProfileFile, ChoicesReadBack) {
  Profile profile;
  profile.choices["v3 Conv(f32[1,3,8,8]) -> f32[1,16,8,8]"] = {KernelName::conv_winograd, Isa::v3};
  ASSERT_TRUE(write_profile(path_, profile).ok());
  EXPECT_EQ(value_of(read_profile(path_)).choices, profile.choices);
}

TEST_F(ProfileFile, CopiesReadBack) {
  Profile profile;
  profile.copies = HostCopies{"a GPU", {}, {}};
  double next = 1e-6;
  for (Copies* copies : {&profile.copies->pinned, &profile.copies->pageable}) {
    for (CopyLine* line : {&copies->in, &copies->out}) {
      line->cost = {seconds(next), bytes_per_second(next * 1e16)};
      line->largest_error = next * 1e4;
      next *= 1.5;
    }
    copies->both = bytes_per_second(next * 1e15);
  }
  ASSERT_TRUE(write_profile(path_, profile).ok());
  EXPECT_EQ(value_of(read_profile(path_)).copies, profile.copies);
  profile.copies->pageable.out.cost.bandwidth = bytes_per_second(0);
  EXPECT_EQ(write_profile(path_, profile).error().fragment, "copies");
}

TEST_F(ProfileFile, ErrorsOfCopiesNameThem) {
  const auto with_copies = [](const std::string& copies) {
    return std::string(head) + R"(, "kernels": [], "copies": )" + copies + "}";
  };
  const std::string line = R"({"latency_s": 1e-5, "bytes_per_s": 2e10, "largest_error": 0.1})";
  const std::string one = R"({"in": )" + line + R"(, "out": )" + line + R"(, "both_bytes_per_s": 1e10})";
  EXPECT_EQ(error_of(with_copies(R"({"gpu": "g", "pinned": )" + one + R"(, "pageable": )" + one + "}")), "fine");
  EXPECT_EQ(error_of(with_copies("7")), "p.json: \"copies\" must be an object");
  EXPECT_EQ(error_of(with_copies("{}")), "p.json: \"copies\": \"gpu\" is missing");
  EXPECT_EQ(error_of(with_copies(R"({"gpu": "g", "pinned": )" + one + "}")),
            "p.json: \"copies\": \"pageable\" is missing");
  EXPECT_EQ(error_of(with_copies(R"({"gpu": "g", "pinned": {"in": {"latency_s": 1, "bytes_per_s": 0}}})")),
            "p.json: \"copies\": \"bytes_per_s\" must be a number of bytes a second, it is 0");
  EXPECT_EQ(error_of(with_copies(R"({"gpu": "g", "pinned": {"in": {"latency_s": 1, "bytes_per_s": "fast"}}})")),
            "p.json: \"copies\": \"bytes_per_s\" must be a number of bytes a second, it is \"fast\"");
  EXPECT_EQ(error_of(with_copies(R"({"gpu": "g", "pinned": {"in": {"latency_s": -1}}})")),
            "p.json: \"copies\": \"latency_s\" is negative: -1");
}

// Of several files the first that has them.
TEST(JoinedProfiles, TakeCopiesOfTheFirstThatHasThem) {
  Profile none, one, other;
  one.copies = HostCopies{"one", {}, {}};
  other.copies = HostCopies{"other", {}, {}};
  EXPECT_EQ(join({none, one, other}).value().copies->gpu, "one");
  EXPECT_FALSE(join({none, none}).value().copies);
}

TEST_F(ProfileFile, ErrorsOfAChoiceNameIt) {
  const auto with_choices = [](const std::string& choices) {
    return std::string(head) + R"(, "kernels": [], "choices": )" + choices + "}";
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
  const KernelId a(KernelName::unary, Isa::v3), b(KernelName::reference, Isa::v3), c(KernelName::binary, Isa::v3);
  first.choices["another"] = a;
  second.choices[choice_key(desc, Isa::v3)] = b;
  Profile third = second;
  third.choices.begin()->second = c;
  const std::vector<CostSourcePtr> sources = {no_costs(), measured(first), measured(second), measured(third)};
  const std::vector<KernelId> names = {a, c, b}, others = {a, c};
  const KernelPreference prefer = fastest_measured(sources);
  EXPECT_EQ(prefer(desc, names), 2u);
  EXPECT_EQ(prefer(desc, others), 0u) << "not a candidate here";
  desc.inputs[0].shape = {5, 2};
  EXPECT_EQ(prefer(desc, names), 0u) << "never measured";
  EXPECT_FALSE(fastest_measured(std::vector<CostSourcePtr>{no_costs()})) << "no measurements, no preference";
}

TEST_F(ProfileFile, IsNotWrittenWithFiguresThatAreNoTimes) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1.0}) {
    Profile profile;
    profile.kernels["k"] = {seconds(bad), seconds(0), 1};
    EXPECT_EQ(write_profile(path_, profile).error().fragment, "k");
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  const Seconds never = seconds(-1), once = seconds(1);
  for (const MeasuredCost& bad : {MeasuredCost{once, never, 1, {}, {}}, MeasuredCost{once, {}, 1, never, {}},
                                  MeasuredCost{once, {}, 1, {}, never}, MeasuredCost{never, {}, 1, {}, {}}}) {
    Profile profile;
    profile.dispatch = bad;
    EXPECT_EQ(write_profile(path_, profile).error().fragment, "dispatch");
  }
  Profile without_repeats;
  without_repeats.kernels["k"] = {once, {}, 0};
  EXPECT_EQ(write_profile(path_, without_repeats).error().fragment, "k");
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ProfileFile, IsNotWrittenWithCopiesThatCannotBe) {
  const CopyLine line{{seconds(1e-6), bytes_per_second(1e9)}, 0.1};
  const Copies good{line, line, bytes_per_second(2e9)};
  const auto refusal = [&](auto change) {
    Profile profile;
    profile.copies.emplace();
    profile.copies->pinned = good;
    profile.copies->pageable = good;
    change(*profile.copies);
    const Status written = write_profile(path_, profile);
    return written.ok() ? "" : written.error().fragment;
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  const double bad[] = {0, -1, std::numeric_limits<double>::infinity()};
  for (const double rate : bad) {
    EXPECT_EQ(refusal([&](auto& c) { c.pinned.both = bytes_per_second(rate); }), "copies") << rate;
    EXPECT_EQ(refusal([&](auto& c) { c.pageable.in.cost.bandwidth = bytes_per_second(rate); }), "copies") << rate;
  }
  EXPECT_EQ(refusal([](auto& c) { c.pinned.out.cost.latency = seconds(-1); }), "copies");
  EXPECT_EQ(refusal([](auto& c) { c.pinned.in.largest_error = -1; }), "copies");
}

TEST_F(ProfileFile, ThatIsMissingIsAnIoError) { EXPECT_EQ(read_profile(path_).error().kind, ErrorKind::io); }

TEST_F(ProfileFile, ErrorsOfTheWhole) {
  EXPECT_EQ(error_of(""), "p.json:1:1: this is not JSON, so it is not a profile");
  EXPECT_EQ(error_of("{\n  \"format\": nlsplit}"), "p.json:2:14: this is not JSON, so it is not a profile");
  EXPECT_EQ(error_of("[]"), "p.json: a profile is a JSON object");
  EXPECT_EQ(error_of("{}"), "p.json: this is not a profile: \"format\" must be \"nlsplit-profile\"");
  EXPECT_EQ(error_of(R"({"format": "trace"})"),
            "p.json: this is not a profile: \"format\" must be \"nlsplit-profile\", it is \"trace\"");
  EXPECT_EQ(error_of(R"({"format": "nlsplit-profile"})"), "p.json: \"version\" is missing");
  EXPECT_EQ(error_of(R"({"format": "nlsplit-profile", "version": 1, "model": "m"})"),
            "p.json: this profile has version 1; this program reads version 2: measure again with nlbench profile");
  const std::string start = R"({"format": "nlsplit-profile", "version": 2)";
  EXPECT_EQ(error_of(start + "}"), "p.json: \"models\" is missing");
  EXPECT_EQ(error_of(start + R"(, "models": 3})"), "p.json: \"models\" must be a list of texts");
  EXPECT_EQ(error_of(start + R"(, "models": [3]})"), "p.json: \"models\" must be a list of texts");
  EXPECT_EQ(error_of(start + R"(, "models": [], "machine": 3})"), "p.json: \"machine\" must be a text, it is 3");
  EXPECT_EQ(error_of(start + R"(, "models": [], "machine": "x", "beside": -1})"),
            "p.json: \"beside\" must be an integer from 0 to 4096, it is -1");
  EXPECT_EQ(error_of(start + R"(, "models": [], "machine": "x", "beside": 0})"),
            "p.json: \"measured_at_s\" is missing");
  EXPECT_EQ(error_of(std::string(head) + R"(, "dispatch": 1})"), "p.json: \"dispatch\" must be an object");
  EXPECT_EQ(error_of(std::string(head) + R"(, "dispatch": {"median_s": -1}})"),
            "p.json: \"dispatch\": \"median_s\" is negative: -1");
  EXPECT_EQ(error_of(std::string(head) + "}"), "p.json: \"kernels\" is missing");
  EXPECT_EQ(error_of(std::string(head) + R"(, "kernels": {}})"), "p.json: \"kernels\" must be a list");
  EXPECT_EQ(error_of(std::string(head) + ",\n \"kernels\": ["),
            "p.json:2:14: the file ends in the middle: it was cut short");
  EXPECT_THAT(error_of(with_kernels(R"({"signature": "k", "median_s": 1e999})")),
              ::testing::StartsWith("p.json: this is not usable JSON: "));
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

// Whatever happens to a file, it is read or refused.
TEST_F(ProfileFile, DamagedOnesAreReadOrRefused) {
  Profile profile;
  profile.models = {"resnet18"};
  profile.machine = "x";
  profile.dispatch = {seconds(1e-7), seconds(1e-9), 1000};
  profile.kernels
      ["conv_winograd_v3 Conv(f32[1,16,8,8]c8, const f32[16,16,3,3]) {dilations=[1,1], group=1, "
       "kernel_shape=[3,3], pads=[1,1,1,1], strides=[1,1]} -> f32[1,16,8,8]c8"] = {seconds(1e-3), seconds(1e-5), 7};
  profile.kernels["copy Identity(f32[64]) -> f32[64]"] = {seconds(1e-6), seconds(0), 9};
  profile.choices["c"] = {KernelName::conv_winograd, Isa::v3};
  ASSERT_TRUE(write_profile(path_, profile).ok());
  const std::string text = value_of(read_file(path_));
  size_t refused = 0, read = 0;
  const auto attempt = [&](const std::string& damaged) {
    ASSERT_TRUE(write_file(path_, damaged).ok());
    const auto result = read_profile(path_);
    ++(result.ok() ? read : refused);
    if (!result.ok()) {
      EXPECT_EQ(exit_code(result.error()), 2);
      EXPECT_EQ(result.error().where.file, path_);
      return;
    }
    const KernelFit fit(*result);  // takes keys apart
    EXPECT_LE(fit.left_out(), result->kernels.size());
  };
  for (size_t size = 0; size < text.size(); size += 1 + size / 50) attempt(text.substr(0, size));
  EXPECT_EQ(read, 0u) << "half a file is none";
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string damaged = text;
    for (int flips = 1 + i % 3; flips > 0; --flips)
      damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
    attempt(damaged);
  }
  EXPECT_GT(read, 0u);  // in a name, say
  EXPECT_GT(refused, 100u);
}

Profile measured(const std::string& file, double a, double b) {
  Profile profile;
  profile.file = file;
  profile.models = {file};
  profile.machine = "x";
  profile.measured_at = 100;
  profile.kernels["a"] = {seconds(a), seconds(0), 5};
  profile.kernels[file] = {seconds(b), seconds(0), 5};
  profile.choices["c"] = {file == "1" ? KernelName::unary : KernelName::binary, Isa::v3};
  return profile;
}

TEST(Join, TheFirstFileThatHoldsItCounts) {
  Profile old = measured("2", 3, 4);
  old.measured_at = 50;
  old.dispatch = {seconds(1e-7), seconds(0), 5};
  const Profile all = join({measured("1", 1, 2), old, measured("1", 5, 6)}).value();
  EXPECT_EQ(all.file, "1, 2, 1");
  EXPECT_EQ(all.models, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(all.kernels.at("a").median, seconds(1));
  EXPECT_EQ(all.kernels.at("1").median, seconds(2));
  EXPECT_EQ(all.kernels.at("2").median, seconds(4));
  EXPECT_EQ(all.choices.at("c"), KernelId(KernelName::unary, Isa::v3));
  EXPECT_EQ(all.measured_at, 50) << "as old as the oldest";
  EXPECT_EQ(all.dispatch.median, seconds(1e-7)) << "the first one that has it";
}

TEST(Join, OnlyOneMachineAndSetting) {
  Profile other = measured("2", 1, 1);
  other.machine = "y";
  EXPECT_EQ(
      join({measured("1", 1, 1), other}).error().message,
      "1 was measured on x, 2 on y: a device's costs come from one machine; other machines are other devices, with "
      "costs of their own");
  other.machine = "x";
  other.beside = 1;
  EXPECT_EQ(join({measured("1", 1, 1), other}).error().message,
            "1 was measured alone, 2 beside a copy of the network: they do not mix");
}

TEST(Join, OverlapSaysHowFarTwoAreApart) {
  Profile first = measured("1", 1, 2), second = measured("2", 1.5, 4);
  EXPECT_EQ(overlap_of(first, second).kernels, 1u);
  EXPECT_DOUBLE_EQ(overlap_of(first, second).largest_difference, 0.5);
  first.kernels.erase("a");
  EXPECT_EQ(overlap_of(first, second).kernels, 0u);
}

TEST(ProfileKeys, ParseBack) {
  ComputeDesc desc;
  desc.kernel = {KernelName::matmul, Isa::v3};
  desc.op = Op::MatMul;
  desc.inputs = {{DType::f32, {64, 32}}, {DType::f32, {32, 16}}};
  desc.outputs = {{DType::f32, {64, 16}}};
  for (const int cores : {1, 2, 64}) {
    const auto key = parse_profile_key(profile_key(desc, cores));
    ASSERT_TRUE(key.ok()) << key.error().to_string();
    EXPECT_EQ(key->desc, desc);
    EXPECT_EQ(key->cores, cores);
  }
  EXPECT_TRUE(parse_profile_key("copy Identity(f32[64]) -> f32[64]").ok());
  EXPECT_TRUE(parse_profile_key("reduce Sum(f32[64], f32[64]) -> f32[64] on 4 cores").ok());
  for (const std::string wrong :
       {"", "copy", "magic_v3 MatMul(f32[64,32], f32[32,16]) -> f32[64,16]", "copy Identity() -> f32[64]",
        "matmul_v3 MatMul(f32[64,32], f32[33,16]) -> f32[64,16]", "copy Identity(f32[64]) -> f32[64] on 1 cores",
        "copy Identity(f32[64]) -> f32[64] on many cores", "copy Identity(f32[64]) -> "}) {
    const auto key = parse_profile_key(wrong);
    EXPECT_FALSE(key.ok()) << wrong;
  }
}

ComputeDesc over_a_cache() {
  ComputeDesc desc;
  desc.kernel = {KernelName::cached_attention, Isa::v3};
  desc.op = Op::CachedAttention;
  desc.attrs = {{"causal", int64_t{1}}, {"scale", 0.5}, {"softcap", 0.0}, {"window", int64_t{0}}};
  desc.inputs = {
      {DType::f32, {1, 2, 1, 8}}, {DType::f32, {1, 2, 100, 8}}, {DType::f32, {1, 2, 100, 8}}, {DType::i64, {1}}};
  desc.outputs = info(desc.op).infer(desc.inputs, desc.attrs).value();
  return desc;
}

TEST(ProfileKeys, SayHowManyBytesTheScalarsMoved) {
  const ComputeDesc desc = over_a_cache();
  for (const int cores : {1, 4}) {
    const auto key = parse_profile_key(profile_key(desc, cores, bytes(4096)));
    ASSERT_TRUE(key.ok()) << key.error().to_string();
    EXPECT_EQ(key->desc, desc);
    EXPECT_EQ(key->cores, cores);
    EXPECT_EQ(key->moved, bytes(4096));
  }
  EXPECT_FALSE(parse_profile_key(signature(desc) + " moving many B").ok());
  EXPECT_FALSE(parse_profile_key(signature(desc) + " moving -1 B").ok());
  const auto always = parse_profile_key("copy Identity(f32[64]) -> f32[64] moving 512 B");
  ASSERT_FALSE(always.ok());
  EXPECT_THAT(always.error().message, ::testing::HasSubstr("Identity always moves the same number of bytes"));
}

// Of a cache as long as it can be 4 us; of one that moves 1,000 B 1 us; between them a straight line.
TEST(CostIn, IsAStraightLineBetweenMeasurements) {
  const ComputeDesc desc = over_a_cache();
  const Work work = work_of(desc);
  const int64_t full = (work.bytes_read + work.bytes_written).value();
  Profile profile;
  EXPECT_EQ(cost_in(profile, desc, 1, bytes(5000)), std::nullopt);
  profile.kernels[profile_key(desc, 1)] = {seconds(4e-6), seconds(0), 10, seconds(6e-6)};
  EXPECT_EQ(cost_in(profile, desc, 1, bytes(5000))->median, seconds(4e-6));  // nothing else is known
  profile.kernels[profile_key(desc, 1, bytes(1000))] = {seconds(1e-6), seconds(0), 10, seconds(2e-6)};
  profile.kernels[profile_key(desc, 4, bytes(3000))] = {seconds(9e-6), seconds(0), 10};  // on other cores
  const auto half = cost_in(profile, desc, 1, bytes((full + 1000) / 2));
  EXPECT_NEAR(half->median.value(), 2.5e-6, 1e-12);
  EXPECT_NEAR(half->beside.value(), 4e-6, 1e-12);
  EXPECT_EQ(cost_in(profile, desc, 1, bytes(10))->median, seconds(1e-6));
  EXPECT_EQ(cost_in(profile, desc, 1, bytes(full))->median, seconds(4e-6));
  // What a cost source answers.
  const CostTable costs({measured(profile)}, "");
  const std::vector<std::vector<int64_t>> lengths{{}, {}, {}, {50}};
  const Work at_50 = work_of(desc, lengths);
  const auto moved = static_cast<double>((at_50.bytes_read + at_50.bytes_written).value() - 1000);
  EXPECT_NEAR(costs.cost(DeviceId(0), desc, "", lengths)->time.value(),
              1e-6 + 3e-6 * moved / static_cast<double>(full - 1000), 1e-12);
  EXPECT_EQ(costs.cost(DeviceId(0), desc)->time, seconds(4e-6));
}

TEST(Uncertainty, IsTheStandardErrorOfTheMedian) {
  EXPECT_DOUBLE_EQ(uncertainty({seconds(2), seconds(0.4), 16}), 0.05);  // 0.2 / sqrt(16)
  EXPECT_EQ(uncertainty({seconds(0), seconds(1), 4}), 0);
}

}  // namespace
}  // namespace nlsplit
