// WeightStore: ids are contents, and recipes give the bytes they describe.
#include "graph/weights.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "testing/types.h"

namespace nlsplit {
namespace {

std::string raw_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}
std::vector<float> floats_of(const std::string& raw) {
  std::vector<float> values(raw.size() / sizeof(float));
  std::memcpy(values.data(), raw.data(), raw.size());
  return values;
}

TEST(WeightStore, EqualBytesAreStoredOnce) {
  WeightStore store;
  const std::string raw = raw_of({1, 2, 3, 4});
  const ContentId a = store.add_bytes(f32({4}), raw), b = store.add_bytes(f32({2, 2}), raw);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.value, hash_bytes(raw.data(), raw.size()));
  EXPECT_EQ(store.stored_bytes(), bytes(16));
  EXPECT_EQ(store.materialise(a).value(), raw);
  EXPECT_NE(store.add_bytes(f32({4}), raw_of({1, 2, 3, 5})), a);
}

// Ids have 64 bits, and two weights of 16 bytes with one hash are easily made: XXH3 adds the halves, less fixed masks,
// to their product. Where one half is 0 the other may stand on either side, turned.
TEST(WeightStore, EqualHashesAreNotEqualWeights) {
  const uint64_t low_mask = 0x1f67b3b7a4a44072 ^ 0x78e5c0cc4ee679cb;   // XXH3's secret, bytes 24 to 31 and 32 to 39
  const uint64_t high_mask = 0x2172ffcc7dd05a82 ^ 0x8e2443f7744608b8;  // 40 to 47 and 48 to 55
  const uint64_t x = 0x0123456789abcdef;
  const auto bytes_of = [&](uint64_t low, uint64_t high) {
    const std::array<uint64_t, 2> words = {low ^ low_mask, high ^ high_mask};
    return std::string(reinterpret_cast<const char*>(words.data()), sizeof(words));
  };
  const std::string one = bytes_of(0, x), other = bytes_of(__builtin_bswap64(x), 0);
  ASSERT_NE(one, other);
  ASSERT_EQ(hash_text(one), hash_text(other));
  WeightStore store;
  const TensorType type{DType::f32, {4}};
  const ContentId a = store.add_bytes(type, one), b = store.add_bytes(type, other);
  EXPECT_NE(a, b);
  EXPECT_EQ(store.add_bytes(type, other), b);
  EXPECT_EQ(*store.materialise(a), one);
  EXPECT_EQ(*store.materialise(b), other);
}

TEST(WeightStore, RecipesHoldNoBytesAndAreReproducible) {
  WeightStore store, other;
  const ContentId a = store.add_random(f32({1000, 1000}), 5, 0.5f, 2.0f);
  EXPECT_EQ(store.stored_bytes(), bytes(0));
  EXPECT_EQ(other.add_random(f32({1000000}), 5, 0.5f, 2.0f), a) << "the shape is not content";
  EXPECT_NE(store.add_random(f32({1000, 1000}), 6, 0.5f, 2.0f), a);
  EXPECT_NE(store.add_random(f32({1000, 1000}), 5, 0.25f, 2.0f), a);
  const std::vector<float> values = floats_of(store.materialise(a).value());
  ASSERT_EQ(values.size(), 1000000u);
  EXPECT_EQ(store.materialise(a).value(), other.materialise(a).value());
  double mean = 0, square = 0;
  for (const float v : values) mean += v;
  mean /= 1e6;
  for (const float v : values) square += (v - mean) * (v - mean);
  // deviation of the mean of 10^6 values is 0.5 / 1000; five of them
  EXPECT_NEAR(mean, 2.0, 0.0025);
  EXPECT_NEAR(std::sqrt(square / 1e6), 0.5, 0.0025);
}

TEST(WeightStore, Fill) {
  WeightStore store;
  EXPECT_EQ(floats_of(store.materialise(store.add_fill(f32({3}), 0.1)).value()),
            (std::vector<float>{0.1f, 0.1f, 0.1f}));
  const std::string raw = store.materialise(store.add_fill({DType::i64, {2}}, -7)).value();
  int64_t values[2];
  ASSERT_EQ(raw.size(), sizeof values);
  std::memcpy(values, raw.data(), sizeof values);
  EXPECT_EQ(values[1], -7);
}

// By hand: scale / sqrt(var + eps) with var + eps = 4 and 16 is 3/2 and 2/4.
TEST(WeightStore, FoldsBatchNormalisation) {
  WeightStore store;
  const ContentId w = store.add_bytes(f32({2, 1, 1, 2}), raw_of({1, 2, 3, 4}));
  const ContentId b = store.add_bytes(f32({2}), raw_of({10, 20}));
  const ContentId scale = store.add_bytes(f32({2}), raw_of({3, 2})), bias = store.add_bytes(f32({2}), raw_of({-1, 1}));
  const ContentId mean = store.add_bytes(f32({2}), raw_of({4, 8})),
                  variance = store.add_bytes(f32({2}), raw_of({3, 15}));
  const auto made = [&](Derivation how, std::vector<ContentId> from, TensorType type) {
    return floats_of(store.materialise(store.add_derived(how, std::move(from), 1.0, std::move(type))).value());
  };
  EXPECT_EQ(made(Derivation::bn_weight, {w, scale, variance}, f32({2, 1, 1, 2})), (std::vector<float>{1.5, 3, 1.5, 2}));
  // (10 - 4) * 1.5 - 1, (20 - 8) * 0.5 + 1
  EXPECT_EQ(made(Derivation::bn_bias, {b, scale, bias, mean, variance}, f32({2})), (std::vector<float>{8, 7}));
  EXPECT_EQ(made(Derivation::bn_bias, {scale, bias, mean, variance}, f32({2})), (std::vector<float>{-7, -3}));
  EXPECT_EQ(made(Derivation::bn_scale, {scale, variance}, f32({2})), (std::vector<float>{1.5, 0.5}));
}

// Rounded once, from double: with float arithmetic 1/3 of the results below would be one bit off.
TEST(WeightStore, FoldsInDouble) {
  WeightStore store;
  const ContentId w = store.add_random(f32({8, 100}), 1, 1), scale = store.add_random(f32({8}), 2, 0.1f, 1);
  const ContentId variance = store.add_random(f32({8}), 3, 0.1f, 1);
  const ContentId folded = store.add_derived(Derivation::bn_weight, {w, scale, variance}, 1e-5, f32({8, 100}));
  const auto values = floats_of(store.materialise(folded).value()), plain = floats_of(store.materialise(w).value());
  const auto s = floats_of(store.materialise(scale).value()), v = floats_of(store.materialise(variance).value());
  for (size_t i = 0; i < values.size(); ++i) {
    const double factor = static_cast<double>(s[i / 100]) / std::sqrt(static_cast<double>(v[i / 100]) + 1e-5);
    EXPECT_EQ(values[i], static_cast<float>(plain[i] * factor)) << i;
  }
}

TEST(WeightStore, Arithmetic) {
  WeightStore store;
  const ContentId a = store.add_bytes(f32({3}), raw_of({1, 2, 3})), s = store.add_bytes(f32({}), raw_of({10}));
  const auto made = [&](Derivation how, std::vector<ContentId> from) {
    return floats_of(store.materialise(store.add_derived(how, std::move(from), 0, f32({3}))).value());
  };
  EXPECT_EQ(made(Derivation::add, {a, a}), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(made(Derivation::add, {s, a}), (std::vector<float>{11, 12, 13}));
  EXPECT_EQ(made(Derivation::mul, {a, s}), (std::vector<float>{10, 20, 30}));
}

TEST(WeightStore, ATransposedMatrixIsARecipe) {
  WeightStore store;
  const ContentId a = store.add_bytes(f32({2, 3}), raw_of({1, 2, 3, 4, 5, 6}));
  const ContentId turned = store.add_derived(Derivation::transpose, {a}, 3, f32({3, 2}));
  EXPECT_EQ(floats_of(store.materialise(turned).value()), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(WeightStore, FormulasHoldNoBytes) {
  WeightStore store;
  const auto made = [&](Formula formula, Shape shape, double parameter) {
    return floats_of(store.materialise(store.add_formula(formula, f32(std::move(shape)), parameter)).value());
  };
  EXPECT_EQ(made(Formula::causal_mask, {3, 3}, -9), (std::vector<float>{0, -9, -9, 0, 0, -9, 0, 0, 0}));
  // Position 1 turns the first pair by 1, the second by 100^(-2/4) = 0.1; the middle axis repeats nothing here.
  const std::vector<float> cosines = made(Formula::rotary_cos, {2, 1, 4}, 100);
  const std::vector<float> sines = made(Formula::rotary_sin, {2, 1, 4}, 100);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(cosines[i], 1);
    EXPECT_EQ(sines[i], 0);
    const double angle = i % 2 == 0 ? 1 : 0.1;
    EXPECT_FLOAT_EQ(cosines[4 + i], static_cast<float>(std::cos(angle)));
    EXPECT_FLOAT_EQ(sines[4 + i], static_cast<float>((i < 2 ? -1 : 1) * std::sin(angle)));
  }
  EXPECT_EQ(store.formulas().size(), 3u);
  EXPECT_EQ(store.stored_bytes(), bytes(0));
  // A terabyte that nobody asks for.
  EXPECT_TRUE(store.contains(store.add_formula(Formula::causal_mask, f32({1 << 19, 1 << 19}), -9)));
}

// Two filters in one group see both channels; four in two groups see one each.
TEST(WeightStore, ScalesInputsByTheirChannel) {
  WeightStore store;
  const ContentId w = store.add_bytes(f32({2, 2, 1, 2}), raw_of({1, 2, 3, 4, 5, 6, 7, 8}));
  const ContentId s = store.add_bytes(f32({2}), raw_of({10, 100}));
  const auto made = [&](TensorType type) {
    return floats_of(
        store.materialise(store.add_derived(Derivation::scale_inputs, {w, s}, 0, std::move(type))).value());
  };
  EXPECT_EQ(made(f32({2, 2, 1, 2})), (std::vector<float>{10, 20, 300, 400, 50, 60, 700, 800}));
  EXPECT_EQ(made(f32({4, 1, 1, 2})), (std::vector<float>{10, 20, 30, 40, 500, 600, 700, 800}));
}

TEST(WeightStore, SumsRows) {
  WeightStore store;
  const ContentId w = store.add_bytes(f32({2, 1, 3}), raw_of({1, 2, 3, 40, 50, 60}));
  const auto made = [&](TensorType type) {
    return floats_of(store.materialise(store.add_derived(Derivation::row_sums, {w}, 0, std::move(type))).value());
  };
  EXPECT_EQ(made(f32({2})), (std::vector<float>{6, 150}));
  EXPECT_EQ(made(f32({3})), (std::vector<float>{3, 43, 110})) << "the same bytes as three rows";
}

TEST(WeightStore, UnknownContentIsAnError) {
  WeightStore store;
  EXPECT_FALSE(store.contains({42}));
  EXPECT_EQ(store.materialise({42}).error().message, "there is no weight with content 000000000000002a");
  const ContentId orphan = store.add_derived(Derivation::bn_scale, {{1}, {2}}, 0, f32({1}));
  EXPECT_FALSE(store.materialise(orphan).ok());
}

TEST(Weights, ReadsCountsWhatADerivedOneIsMadeOf) {
  WeightStore store;
  const TensorType type{DType::f32, {2}};
  ContentId id = store.add_fill(type, 1);
  EXPECT_EQ(store.reads(id), 1);
  for (int i = 0; i < 40; ++i) id = store.add_derived(Derivation::add, {id, id}, 0, type);
  EXPECT_EQ(store.reads(id), int64_t{1} << 32);  // 2^41 - 1 is counted no further
  EXPECT_EQ(store.stored_bytes().value(), 0);
  store.add_bytes(type, std::string(8, 'a'));
  store.add_bytes(type, std::string(8, 'a'));
  EXPECT_EQ(store.stored_bytes().value(), 8);
}

TEST(WeightStore, SlicesAreCutWhenAskedFor) {
  WeightStore store;
  const ContentId whole = store.add_bytes(f32({2, 3, 2}), raw_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  const ContentId rows = store.add_slice(whole, 1, 1, 3, f32({2, 3, 2}));
  EXPECT_EQ(floats_of(store.materialise(rows).value()), (std::vector<float>{2, 3, 4, 5, 8, 9, 10, 11}));
  EXPECT_EQ(store.type(rows), f32({2, 2, 2}));
  EXPECT_EQ(store.stored_bytes(), bytes(48)) << "nothing more";
  EXPECT_EQ(rows, WeightStore::slice_id(whole, 1, 1, 3, f32({2, 3, 2})));
  // The same bytes as columns of a matrix of two rows.
  EXPECT_EQ(rows, store.add_slice(whole, 1, 2, 6, f32({2, 6})));
  const ContentId of_slice = store.add_slice(rows, 2, 0, 1, f32({2, 2, 2}));
  EXPECT_EQ(floats_of(store.materialise(of_slice).value()), (std::vector<float>{2, 4, 8, 10}));
}

TEST(WeightStore, SlicesOfRecipesAndOfEveryType) {
  WeightStore store;
  const ContentId random = store.add_random(f32({4, 5}), 3, 1.0f);
  const ContentId twice = store.add_derived(Derivation::add, {random, random}, 0, f32({4, 5}));
  const ContentId part = store.add_slice(twice, 0, 1, 3, f32({4, 5}));
  const std::vector<float> all = floats_of(store.materialise(twice).value());
  EXPECT_EQ(floats_of(store.materialise(part).value()), std::vector<float>(all.begin() + 5, all.begin() + 15));
  EXPECT_EQ(store.reads(part), store.reads(twice) + 1);
  for (const DType dtype : all_dtypes()) {
    if (is_scaled(dtype)) continue;  // scaled_types_test.cc
    const TensorType type{dtype, {3, 4}};
    std::string raw(static_cast<size_t>(size_of(type).value()), '\0');
    for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<char>(i);
    const ContentId id = store.add_slice(store.add_bytes(type, raw), 1, 2, 4, type);
    const std::string cut = store.materialise(id).value();
    const auto element = static_cast<size_t>(size_of(dtype));
    ASSERT_EQ(cut.size(), 6 * element) << name_of(dtype);
    for (size_t row = 0; row < 3; ++row) {
      EXPECT_EQ(cut.substr(row * 2 * element, 2 * element), raw.substr((row * 4 + 2) * element, 2 * element));
    }
  }
  WeightStore empty;
  const ContentId later = empty.add_slice(random, 0, 0, 1, f32({4, 5}));
  EXPECT_FALSE(empty.materialise(later).ok()) << "what it is a slice of is not there";
}

// A file of which nothing is read until somebody asks; the bytes that are missing are an error then.
TEST(WeightStore, UnreadBytesAreReadWhenTheyAreAskedFor) {
  const std::string path = (std::filesystem::temp_directory_path() / "nlsplit_unread.bin").string();
  ASSERT_TRUE(write_file(path, raw_of({1, 2, 3, 4, 5, 6})).ok());
  const auto file = MappedFile::open(path).value();
  WeightStore store;
  const ContentId all = store.add_unread(f32({3, 2}), {file, 0, 24}, "file, all", "file.bin: all");
  const ContentId end = store.add_unread(f32({2, 2}), {file, 16, 16}, "file, its end", "file.bin: its end");
  const ContentId behind = store.add_unread(f32({2}), {file, 32, 8}, "file, behind", "file.bin: behind");
  EXPECT_NE(all, end);
  EXPECT_EQ(store.add_unread(f32({3, 2}), {file, 0, 24}, "file, all", "file.bin: all"), all);
  EXPECT_EQ(store.materialise(all).value(), raw_of({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(store.materialise(store.add_slice(all, 0, 1, 3, f32({3, 2}))).value(), raw_of({3, 4, 5, 6}));
  EXPECT_EQ(store.stored_bytes(), bytes(0));
  EXPECT_EQ(store.materialise(end).error().message,
            "file.bin: its end: the file is cut off, 8 of its bytes are missing");
  EXPECT_EQ(store.materialise(behind).error().message,
            "file.bin: behind: the file is cut off, 8 of its bytes are missing");
  EXPECT_FALSE(store.materialise(store.add_slice(end, 0, 0, 1, f32({2, 2}))).ok());
  EXPECT_FALSE(store.materialise(store.add_derived(Derivation::transpose, {end}, 2, f32({2, 2}))).ok());
  std::filesystem::remove(path);
}

TEST(WeightStore, PairsOfNeighboursBecomeTwoHalves) {
  WeightStore store;
  const ContentId w =
      store.add_bytes(f32({8, 2}), raw_of({0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61, 70, 71}));
  const auto halves = [&](const Shape& shape, double d) {
    return floats_of(store.materialise(store.add_derived(Derivation::halves_of_pairs, {w}, d, f32(shape))).value());
  };
  EXPECT_EQ(halves({8, 2}, 4), (std::vector<float>{0, 1, 20, 21, 10, 11, 30, 31, 40, 41, 60, 61, 50, 51, 70, 71}));
  EXPECT_EQ(halves({8, 2}, 8), (std::vector<float>{0, 1, 20, 21, 40, 41, 60, 61, 10, 11, 30, 31, 50, 51, 70, 71}));
  EXPECT_EQ(halves({16}, 4), (std::vector<float>{0, 10, 1, 11, 20, 30, 21, 31, 40, 50, 41, 51, 60, 70, 61, 71}))
      << "a vector has rows of one";
}

TEST(WeightStore, RotaryTablesDivideAnglesByFactors) {
  WeightStore store;
  const TensorType type = f32({3, 4});
  const ContentId plain = store.add_formula(Formula::rotary_cos, type, 100);
  const ContentId scaled = store.add_formula(Formula::rotary_cos, type, 100, std::array{2.0f, 8.0f});
  EXPECT_NE(plain, scaled);
  const std::vector<float> values = floats_of(store.materialise(scaled).value());
  for (size_t p = 0; p < 3; ++p) {
    const auto position = static_cast<double>(p);
    for (const size_t half : {0, 2}) {
      EXPECT_FLOAT_EQ(values[p * 4 + half], static_cast<float>(std::cos(position / 2)));
      EXPECT_FLOAT_EQ(values[p * 4 + half + 1], static_cast<float>(std::cos(position * 0.1 / 8)));
    }
  }
}

}  // namespace
}  // namespace nlsplit
