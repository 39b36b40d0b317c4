// What a training is made of: samples and their order, evaluations, checkpoints, TensorBoard's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/file.h"
#include "base/npy.h"
#include "graph/safetensors/safetensors_file.h"
#include "testing/value_of.h"
#include "train/checkpoint.h"
#include "train/data_set.h"
#include "train/evaluation.h"
#include "train/event_file.h"
#include "train/sample_order.h"

namespace nlsplit {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Train : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string bytes_of(const std::string& name) const { return value_of(read_file(path(name))); }

  // As numpy.save writes it.
  static std::string npy(const std::string& type, const std::string& shape, const std::string& values) {
    std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    header.append((64 - (10 + header.size() + 1) % 64) % 64, ' ');
    header += '\n';
    std::string file("\x93NUMPY\x01\x00", 8);
    file += static_cast<char>(header.size() & 0xff);
    file += static_cast<char>(header.size() >> 8);
    return file + header + values;
  }

  // As numpy.savez (stored) and numpy.savez_compressed write it.
  std::string npz(const std::string& name, const std::vector<std::pair<std::string, std::string>>& members,
                  bool compressed) const {
    int code = 0;
    zip_t* const archive = zip_open(path(name).c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    CHECK(archive != nullptr, name);
    for (const auto& [member, bytes] : members) {
      zip_source_t* const source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
      const zip_int64_t index = zip_file_add(archive, member.c_str(), source, ZIP_FL_OVERWRITE);
      CHECK(index >= 0, member);
      zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), compressed ? ZIP_CM_DEFLATE : ZIP_CM_STORE,
                               0);
    }
    CHECK(zip_close(archive) == 0, name);
    return path(name);
  }

  template <class T>
  static std::string raw(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
  }

  // Five samples of two numbers, and their labels as bytes.
  std::vector<std::pair<std::string, std::string>> five() const {
    std::vector<float> x(10);
    std::iota(x.begin(), x.end(), 0.5F);
    return {{"x.npy", npy("<f4", "(5, 2)", raw(x))}, {"labels.npy", npy("|u1", "(5,)", raw<uint8_t>({3, 1, 4, 1, 5}))}};
  }
  const Feature x_{"x", {DType::f32, {2}}}, labels_{"labels", {DType::i64, {}}, 6};

  template <class T>
  static std::vector<T> read(const DataSet& data, const Feature& feature, const std::vector<int64_t>& samples) {
    std::vector<T> values(samples.size() * static_cast<size_t>(element_count(feature.sample.shape)));
    const Status status = data.read(feature, samples, std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(status.ok()) << status.error().to_string();
    return values;
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("nlsplit-train-" + std::to_string(::getpid()) + "-" +
                                                ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(Train, ReadsTheSamplesOfArchivesAndFiles) {
  const std::string x = path("x.npy"), labels = path("labels.npy");
  for (const auto& [name, bytes] : five()) ASSERT_TRUE(write_file(path(name), bytes).ok());
  const std::vector<std::vector<std::string>> ways = {
      {npz("stored.npz", five(), false)}, {npz("small.npz", five(), true)}, {"x=" + x, "labels=" + labels}};
  std::set<uint64_t> fingerprints;
  for (const auto& files : ways) {
    SCOPED_TRACE(files[0]);
    const DataSet data = value_of(DataSet::open(files, {x_, labels_}));
    EXPECT_EQ(data.samples(), 5);
    EXPECT_THAT(read<float>(data, x_, {4, 0, 2, 2}), ElementsAre(8.5F, 9.5F, 0.5F, 1.5F, 4.5F, 5.5F, 4.5F, 5.5F));
    EXPECT_THAT(read<int64_t>(data, labels_, {0, 4, 2}), ElementsAre(3, 5, 4));  // of bytes
    fingerprints.insert(data.fingerprint());
  }
  fingerprints.insert(value_of(DataSet::open({"labels=" + labels, "x=" + x}, {x_, labels_})).fingerprint());
  EXPECT_EQ(fingerprints.size(), 1u);
  auto other = five();
  other[0].second.back() = static_cast<char>(other[0].second.back() ^ 1);
  fingerprints.insert(value_of(DataSet::open({npz("other.npz", other, false)}, {x_, labels_})).fingerprint());
  EXPECT_EQ(fingerprints.size(), 2u);
  // What no input asks for may be anything.
  auto more = five();
  more.emplace_back("names.npy", npy("<U4", "(5,)", std::string(80, 'n')));
  more.emplace_back("readme.txt", "hello");
  EXPECT_EQ(value_of(DataSet::open({npz("more.npz", more, true)}, {x_, labels_})).samples(), 5);
}

TEST_F(Train, ConvertsNumbersThatFit) {
  const auto one = [&](const std::string& type, const std::string& values, const std::string& name) {
    return npz(name, {{"v.npy", npy(type, "(2,)", values)}}, false);
  };
  const Feature real{"v", {DType::f32, {}}}, whole{"v", {DType::i64, {}}};
  const std::string of_doubles = one("<f8", raw<double>({0.25, -3}), "a.npz");
  const DataSet doubles = value_of(DataSet::open({of_doubles}, {real}));
  EXPECT_THAT(read<float>(doubles, real, {1, 0}), ElementsAre(-3.0F, 0.25F));
  EXPECT_THAT(DataSet::open({of_doubles}, {whole}).error().message,
              HasSubstr("values of type '<f8' do not fit input v, i64[]"));
  const std::string of_shorts = one("<i2", raw<int16_t>({-7, 300}), "b.npz");
  const DataSet shorts = value_of(DataSet::open({of_shorts}, {real}));
  EXPECT_THAT(read<float>(shorts, real, {0, 1}), ElementsAre(-7.0F, 300.0F));
  EXPECT_THAT(read<int64_t>(value_of(DataSet::open({of_shorts}, {whole})), whole, {0, 1}), ElementsAre(-7, 300));
  const DataSet pixels = value_of(DataSet::open({one("|u1", raw<uint8_t>({0, 255}), "c.npz")}, {real}));
  EXPECT_THAT(read<float>(pixels, real, {1}), ElementsAre(255.0F));
  const DataSet large = value_of(DataSet::open({one("<u8", raw<uint64_t>({UINT64_MAX, 1}), "d.npz")}, {real}));
  EXPECT_THAT(read<float>(large, real, {0}), ElementsAre(18446744073709551616.0F));
  const Feature narrow{"v", {DType::i32, {}}};
  EXPECT_FALSE(DataSet::open({one("<i8", raw<int64_t>({1, 2}), "e.npz")}, {narrow}).ok());
  EXPECT_THAT(DataSet::open({one("<f3", "123456", "f.npz")}, {real}).error().message,
              HasSubstr("values of type '<f3'"));
  const DataSet none = value_of(DataSet::open({one("<f4", raw<float>({1, NAN}), "g.npz")}, {real}));
  float value = 0;
  EXPECT_THAT(none.read(real, std::vector<int64_t>{1}, std::as_writable_bytes(std::span(&value, 1))).error().message,
              AllOf(HasSubstr("g.npz:v.npy"), HasSubstr("sample 1 has nan, which is not a number")));
}

TEST_F(Train, SaysWhatIsWrongWithData) {
  const Feature any{"x", {DType::f32, {}}};
  const auto error = [&](const std::vector<std::string>& files, std::vector<Feature> features = {}) {
    if (features.empty()) features = {any};
    const auto data = DataSet::open(files, features);
    return data.ok() ? std::string("accepted") : data.error().message;
  };
  const std::string good = npz("good.npz", five(), false), packed = npz("packed.npz", five(), true);
  EXPECT_THAT(error({path("missing.npz")}), HasSubstr("missing.npz: No such file"));
  EXPECT_THAT(error({"data.csv"}), HasSubstr("FILE.npz, NAME=FILE.npy for each input, or one FILE.txt"));
  ASSERT_TRUE(write_file(path("text.npz"), "no archive").ok());
  EXPECT_THAT(error({path("text.npz")}), HasSubstr("text.npz: "));
  for (const std::string& file : {good, packed}) {
    const std::string whole = value_of(read_file(file));
    for (const size_t size : {whole.size() / 3, whole.size() / 2, whole.size() - 1}) {
      ASSERT_TRUE(write_file(path("cut.npz"), whole.substr(0, size)).ok());
      EXPECT_THAT(error({path("cut.npz")}, {x_}), HasSubstr("cut.npz")) << size;
    }
  }
  EXPECT_THAT(error({npz("r.npz", {{"readme.txt", "hello"}}, false)}), HasSubstr("there are readme.txt"));
  EXPECT_THAT(error({npz("s.npz", {{"x.npy", npy("<f4", "(9, 2)", "few")}}, false)}), HasSubstr("needs 72 bytes"));
  EXPECT_THAT(error({npz("t.npz", {{"x.npy", npy("<f4", "(9, 2)", "few")}}, true)}), HasSubstr("ends before"));
  EXPECT_THAT(error({npz("u.npz", {{"x.npy", npy("|u1", "(2,)", "more")}}, true)}), HasSubstr("there is data after"));
  EXPECT_THAT(error({npz("n.npz", {{"x.npy", npy("<f4", "()", "four")}}, false)}), HasSubstr("axis 0 are the samples"));
  EXPECT_THAT(error({npz("v.npz", {{"x.npy", npy("|u1", "(0,)", "")}}, false)}), HasSubstr("without samples"));
  EXPECT_THAT(error({npz("w.npz", {{"x.npy", npy("|u1", "(2,)", "ab")}, {"y.npy", npy("|u1", "(1,)", "a")}}, false)},
                    {any, {"y", {DType::f32, {}}}}),
              HasSubstr("1 samples, and 2 in"));
  EXPECT_THAT(error({npz("once.npz", {{"x.npy", npy("|u1", "(5,)", "abcde")}}, false), path("once.npz")}),
              HasSubstr("there is an array 'x' already"));

  EXPECT_THAT(error({good}, {{"target", x_.sample}}),
              AllOf(HasSubstr("no array 'target'"), HasSubstr("there are x, labels")));
  EXPECT_THAT(error({good}, {{"x", {DType::f32, {3}}}}), HasSubstr("of shape [2], but input x is f32[3]"));
  EXPECT_THAT(error({good}, {{"labels", {DType::i64, {}}, 5}}),
              AllOf(HasSubstr("good.npz:labels.npy: sample 4 has labels 5"), HasSubstr("knows 5, from 0")));
}

// A damaged byte of a compressed member is found when it is opened.
TEST_F(Train, FindsDamagedData) {
  std::vector<uint8_t> values(4000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * i / 7);
  const std::string file = npz("d.npz", {{"x.npy", npy("|u1", "(4000,)", raw(values))}}, true);
  std::string bytes = value_of(read_file(file));
  const Feature x{"x", {DType::f32, {}}};
  ASSERT_TRUE(DataSet::open({file}, {x}).ok());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
  ASSERT_TRUE(write_file(file, bytes).ok());
  EXPECT_FALSE(DataSet::open({file}, {x}).ok());
}

TEST_F(Train, TakesATextForWhatFollowsEachByte) {
  ASSERT_TRUE(write_file(path("t.txt"), "abcdefghij").ok());
  const Feature ids{"input_ids", {DType::i64, {3}}}, next{"labels", {DType::i64, {3}}};
  const DataSet text = value_of(DataSet::of_text(path("t.txt"), {ids, next}));
  EXPECT_EQ(text.samples(), 3);
  EXPECT_THAT(read<int64_t>(text, ids, {2, 0}), ElementsAre('g', 'h', 'i', 'a', 'b', 'c'));
  EXPECT_THAT(read<int64_t>(text, next, {2, 0}), ElementsAre('h', 'i', 'j', 'b', 'c', 'd'));
  EXPECT_TRUE(DataSet::of_text(path("t.txt"), {ids, {"labels", {DType::i64, {3}}, 'k'}}).ok());
  EXPECT_THAT(DataSet::of_text(path("t.txt"), {ids, {"labels", {DType::i64, {3}}, 'j'}}).error().message,
              HasSubstr("sample 2 has labels 106"));
  EXPECT_THAT(DataSet::of_text(path("t.txt"), {x_, next}).error().message, HasSubstr("a text is for a network of one"));
  const Feature long_ids{"input_ids", {DType::i64, {10}}}, long_next{"labels", {DType::i64, {10}}};
  EXPECT_THAT(DataSet::of_text(path("t.txt"), {long_ids, long_next}).error().message,
              HasSubstr("10 bytes do not hold a sample"));
}

TEST_F(Train, DrawsTheSameDataAgain) {
  const std::vector<Feature> features = {x_, {"labels", {DType::i64, {}}, 7}};
  const DataSet a = value_of(DataSet::drawn(features, 50, 1)), b = value_of(DataSet::drawn(features, 50, 1)),
                c = value_of(DataSet::drawn(features, 50, 2));
  std::vector<int64_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<int64_t> drawn = read<int64_t>(a, features[1], all);
  EXPECT_EQ(std::set<int64_t>(drawn.begin(), drawn.end()).size(), 7u);
  EXPECT_EQ(std::ranges::max(drawn), 6);
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  EXPECT_NE(a.fingerprint(), c.fingerprint());
  EXPECT_EQ(read<float>(a, x_, {3, 49}), read<float>(b, x_, {3, 49}));
}

TEST(SampleOrderOfATraining, HasEachSampleOnceInAnEpochHoweverItIsAskedFor) {
  constexpr int64_t samples = 37;
  SampleOrder order(samples, true, 5);
  std::vector<int64_t> first(samples), second(samples), both(2 * samples);
  order.read(samples, second);
  order.read(0, first);  // back again, as a training that is resumed does not go
  SampleOrder(samples, true, 5).read(0, both);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), both.begin()));
  EXPECT_TRUE(std::equal(second.begin(), second.end(), both.begin() + samples));
  EXPECT_NE(first, second);
  std::vector<int64_t> sorted = first, all(samples);
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
  EXPECT_NE(first, all);
  std::vector<int64_t> piece(10), other(samples), plain(4);
  SampleOrder(samples, true, 5).read(32, piece);  // over the end of an epoch
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), both.begin() + 32));
  SampleOrder(samples, true, 6).read(0, other);
  EXPECT_NE(other, first);
  SampleOrder(3, false, 5).read(2, plain);
  EXPECT_THAT(plain, ElementsAre(2, 0, 1, 2));
}

// Each sample is as often in each place, within five standard deviations.
TEST(SampleOrderOfATraining, IsUniform) {
  constexpr int64_t samples = 5, epochs = 4000;
  std::vector<int> counts(samples * samples);
  SampleOrder order(samples, true, 11);
  std::vector<int64_t> one(samples);
  for (int64_t e = 0; e < epochs; ++e) {
    order.read(e * samples, one);
    for (size_t i = 0; i < one.size(); ++i) ++counts[i * samples + static_cast<size_t>(one[i])];
  }
  const double expected = epochs / static_cast<double>(samples);
  for (const int count : counts) EXPECT_NEAR(count, expected, 5 * std::sqrt(expected * (1 - 1.0 / samples)));
}

TEST(EvaluationOfATraining, IsCrossEntropyAndAccuracy) {
  const std::vector<float> logits = {1, 2, 4, 0, 0, 0};
  const std::vector<int64_t> labels = {2, 1};
  Evaluation of_logits(Loss::softmax_cross_entropy, false);
  of_logits.add(logits, labels);
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(4.0);
  EXPECT_NEAR(of_logits.loss(), ((std::log(sum) - 4) + std::log(3.0)) / 2, 1e-12);
  EXPECT_DOUBLE_EQ(of_logits.accuracy(), 0.5);  // of equal outputs the first one counts
  Evaluation of_probabilities(Loss::softmax_cross_entropy, true);
  of_probabilities.add(std::vector<float>{0.25F, 0.75F}, std::vector<int64_t>{1});
  EXPECT_NEAR(of_probabilities.loss(), -std::log(0.75), 1e-12);
  Evaluation large(Loss::softmax_cross_entropy, false);
  large.add(std::vector<float>{1000, 0}, std::vector<int64_t>{1});
  EXPECT_DOUBLE_EQ(large.loss(), 1000);
  Evaluation squares(Loss::mean_squared_error, false);
  squares.add(std::vector<float>{1, 2}, std::vector<float>{0, 4});
  squares.add(std::vector<float>{3}, std::vector<float>{3});
  EXPECT_DOUBLE_EQ(squares.loss(), 5.0 / 3);
  EXPECT_EQ(squares.rows(), 3);
}

TEST_F(Train, ReadsTheCheckpointsThatItWrites) {
  Checkpoint made{"zoo:mlp", 12, 384, 9, true, 0x1234567890abcdef, {}};
  made.states.push_back({"w", {DType::f32, {2, 1}}, raw<float>({1.5F, -2})});
  made.states.push_back({"w_state0", {DType::f32, {2, 1}}, raw<float>({0.5F, 8})});
  made.states.push_back({"steps", {DType::i64, {1}}, raw<int64_t>({12})});
  made.states.push_back({"scale", {DType::f32, {}}, raw<float>({3})});
  ASSERT_TRUE(write_checkpoint(path("c"), made, {"w", "scale"}).ok());
  const Checkpoint got = value_of(read_checkpoint(path("c")));
  EXPECT_EQ(got.model, made.model);
  EXPECT_EQ(got.steps, 12);
  EXPECT_EQ(got.samples, 384);
  EXPECT_EQ(got.seed, 9u);
  EXPECT_TRUE(got.shuffled);
  EXPECT_EQ(got.data, made.data);
  ASSERT_EQ(got.states.size(), made.states.size());
  for (const StateTensor& state : made.states) {
    const auto found = std::ranges::find(got.states, state.name, &StateTensor::name);
    ASSERT_NE(found, got.states.end()) << state.name;
    EXPECT_EQ(found->type, state.type);
    EXPECT_EQ(found->bytes, state.bytes);
  }
  const auto weights = value_of(read_safetensors(path("c/weights.safetensors")));
  EXPECT_EQ(weights.tensors.size(), 2u);
  EXPECT_TRUE(weights.tensors.contains("w"));
}

TEST_F(Train, SaysWhatIsWrongWithACheckpoint) {
  const auto error = [&] {
    const auto read = read_checkpoint(path("c"));
    return read.ok() ? std::string("accepted") : read.error().to_string();
  };
  EXPECT_THAT(error(), HasSubstr("checkpoint.json"));
  Checkpoint made{"zoo:mlp", 12, 384, 9, true, 1, {}};
  made.states.push_back({"w", {DType::f32, {2}}, raw<float>({1, 2})});
  ASSERT_TRUE(write_checkpoint(path("c"), made, {"w"}).ok());
  ASSERT_EQ(error(), "accepted");
  const std::string place = bytes_of("c/checkpoint.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = place;
    text.replace(text.find(from), from.size(), to);
    ASSERT_TRUE(write_file(path("c/checkpoint.json"), text).ok());
  };
  with("\"steps\": 12", "\"steps\": -12");
  EXPECT_THAT(error(), HasSubstr("-12 steps"));
  with("\"samples\": 384", "\"samples\": 9223372036854775807");
  EXPECT_THAT(error(), HasSubstr("9223372036854775807 samples are impossible"));
  with("\"data\": \"0000000000000001\"", "\"data\": \"0000000000000001zz\"");
  EXPECT_THAT(error(), HasSubstr("no 16 hexadecimal digits"));
  with("\"steps\": 12", "\"steps\": 1e40");
  EXPECT_THAT(error(), HasSubstr("not an integer"));
  with("\"version\": 1", "\"version\": 2");
  EXPECT_THAT(error(), HasSubstr("not a checkpoint of version 1"));
  with("nlsplit-checkpoint", "else");
  EXPECT_THAT(error(), HasSubstr("not a checkpoint"));
  ASSERT_TRUE(write_file(path("c/checkpoint.json"), "[1]").ok());
  EXPECT_THAT(error(), HasSubstr("not a checkpoint"));
  ASSERT_TRUE(write_file(path("c/checkpoint.json"), place.substr(0, 40)).ok());
  EXPECT_THAT(error(), HasSubstr("checkpoint.json"));
  ASSERT_TRUE(write_file(path("c/checkpoint.json"), place).ok());
  const std::string weights = bytes_of("c/weights.safetensors");
  ASSERT_TRUE(write_file(path("c/weights.safetensors"), weights.substr(0, weights.size() - 2)).ok());
  EXPECT_THAT(error(), HasSubstr("cut off in tensor w"));
  std::filesystem::remove(path("c/weights.safetensors"));
  EXPECT_THAT(error(), HasSubstr("weights.safetensors"));
}

// CRC-32C of "123456789" is e3069283 (RFC 3720's check value), masked as TensorFlow's crc32c.h does.
TEST_F(Train, FramesEventsAsTensorBoardReadsThem) {
  const std::string frame = event_frame("123456789");
  ASSERT_EQ(frame.size(), 8 + 4 + 9 + 4u);
  uint64_t length = 0;
  uint32_t sum = 0;
  std::memcpy(&length, frame.data(), sizeof length);
  std::memcpy(&sum, frame.data() + 8 + 4 + 9, sizeof sum);
  EXPECT_EQ(length, 9u);
  const uint32_t crc = 0xe3069283U;
  EXPECT_EQ(sum, ((crc >> 15) | (crc << 17)) + 0xa282ead8U);

  EventFile events = value_of(EventFile::open(path("runs/1")));
  ASSERT_TRUE(events.add("loss", 300, 0.5).ok());
  std::string file;
  for (const auto& entry : std::filesystem::directory_iterator(path("runs/1")))
    file = value_of(read_file(entry.path().string()));
  EXPECT_THAT(file, HasSubstr("brain.Event:2"));
  // step 300; summary of a value of tag "loss" and 0.5 in little-endian floats
  EXPECT_THAT(file, HasSubstr(std::string("\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f", 18)));
  ASSERT_TRUE(write_file(path("file"), "").ok());
  EXPECT_FALSE(EventFile::open(path("file/runs")).ok());
}

}  // namespace
}  // namespace nlsplit
