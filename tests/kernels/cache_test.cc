// TensorScatter and PagedScatter: the reference against their definition, the kernel against the reference, where the
// cache lies. CachedAttention and PagedAttention against attention over what is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "graph/elements.h"
#include "kernels/cpu.h"
#include "kernels/kernel_operands.h"
#include "kernels/run_kernel.h"
#include "testing/tensors.h"

namespace nlsplit::testing {
namespace {

Tensor whole(Shape shape, const std::vector<int64_t>& values, DType type = DType::i64) {
  return tensor_of({type, std::move(shape)}, raw_of(type, std::span<const int64_t>(values)));
}

Tensor any_tensor(const TensorType& type, uint64_t seed) {
  if (type.dtype == DType::f32) return random_tensor(type, seed);
  if (!is_real(type.dtype)) return random_indices(type, 2, seed);
  Random random(seed);
  std::vector<double> values(static_cast<size_t>(element_count(type.shape)));
  for (double& value : values) value = random.normal();
  return tensor_of(type, raw_of(type.dtype, std::span<const double>(values)));
}

ComputeDesc desc_of(Op op, Attrs attrs, const std::vector<Tensor>& inputs) {
  ComputeDesc desc;
  desc.op = op;
  desc.attrs = std::move(attrs);
  for (const Tensor& input : inputs) desc.inputs.push_back(input.type);
  desc.outputs = info(op).infer(desc.inputs, desc.attrs).value();
  return desc;
}

// On the first operand, by so many workers.
std::string in_place(const KernelLibrary& library, const ComputeDesc& desc, const std::vector<Tensor>& inputs,
                     int workers) {
  std::vector<std::string> operands;
  std::vector<const void*> in;
  for (const Tensor& input : inputs) operands.emplace_back(bytes_of(input));
  for (const std::string& operand : operands) in.push_back(operand.data());
  void* out = operands[0].data();
  library.find(desc.kernel).value()->run({&desc, in.data(), &out, nullptr, {workers, run_on_threads, &workers}});
  return operands[0];
}

void expect_in_place(ComputeDesc desc, const std::vector<Tensor>& inputs) {
  const std::string want(bytes_of(run_reference(desc, pointers(inputs))[0]));
  for (const Isa isa : supported_levels()) {
    const KernelLibrary library = KernelLibrary::load(isa).value();
    desc.kernel = {KernelName::scatter_in_place, isa};
    ASSERT_TRUE(verify(desc).ok()) << verify(desc).error().message;
    for (const int workers : {1, 3}) EXPECT_EQ(in_place(library, desc, inputs, workers), want) << signature(desc);
  }
}

// ONNX's own example of TensorScatter, shortened: two samples, positions along axis 1.
TEST(TensorScatter, IsItsDefinition) {
  const Tensor past = whole({2, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8}), update = whole({2, 2, 1}, {10, 20, 30, 40});
  const auto made = [&](const std::string& mode, std::vector<Tensor> more) {
    std::vector<Tensor> inputs{past, update};
    for (Tensor& tensor : more) inputs.push_back(std::move(tensor));
    const ComputeDesc desc = desc_of(Op::TensorScatter, {{"axis", int64_t{1}}, {"mode", mode}}, inputs);
    const std::string bytes(bytes_of(run_reference(desc, pointers(inputs))[0]));
    expect_in_place(desc, inputs);
    std::vector<int64_t> values(8);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  using Values = std::vector<int64_t>;
  EXPECT_EQ(made("linear", {}), (Values{10, 20, 3, 4, 30, 40, 7, 8}));
  EXPECT_EQ(made("linear", {whole({2}, {1, 2})}), (Values{1, 10, 20, 4, 5, 6, 30, 40}));
  EXPECT_EQ(made("circular", {whole({2}, {3, 1})}), (Values{20, 2, 3, 10, 5, 30, 40, 8}));
  EXPECT_EQ(made("linear", {whole({2}, {1, 2}), whole({2}, {1, 0})}), (Values{1, 10, 3, 4, 5, 6, 7, 8}));
}

TEST(TensorScatter, RandomOnesOfEveryType) {
  Random random(5);
  for (int draw = 0; draw < 60; ++draw) {
    const auto between = [&](int64_t low, int64_t high) {
      return low + static_cast<int64_t>(random.below(static_cast<uint64_t>(high - low + 1)));
    };
    DType type = DType::q8_0;
    while (is_scaled(type)) type = all_dtypes()[random.below(all_dtypes().size())];
    const int64_t batch = between(1, 3), extent = between(1, 20), steps = between(1, extent);
    Shape past{batch, between(1, 3), extent, between(1, 9)}, update = past;
    const bool paged = draw % 2 == 1, circular = !paged && draw % 4 == 0;
    update[2] = steps;
    std::vector<Tensor> inputs;
    Attrs attrs;
    if (paged) {
      const int64_t page = between(1, 5), count = (extent + page - 1) / page;
      past[0] = between(1, 2 * batch * count);
      past[2] = page;
      inputs = {any_tensor({type, past}, 1), any_tensor({type, update}, 2),
                random_indices({DType::i64, {batch}}, count * page - steps + 1, 3),
                random_indices({DType::i32, {batch, count}}, past[0], 4)};
    } else {
      attrs = {{"axis", int64_t{-2}}, {"mode", std::string(circular ? "circular" : "linear")}};
      inputs = {any_tensor({type, past}, 1), any_tensor({type, update}, 2),
                random_indices({DType::i64, {batch}}, circular ? extent : extent - steps + 1, 3)};
    }
    if (draw % 3 == 0) inputs.push_back(random_indices({DType::i32, {batch}}, steps + 1, 6));
    expect_in_place(desc_of(paged ? Op::PagedScatter : Op::TensorScatter, attrs, inputs), inputs);
  }
}

// It is never chosen: only a Program that names it promises that the result lies on the cache. What it moves is the
// positions that count.
TEST(ScatterInPlace, IsForProgramsThatNameIt) {
  const std::vector<Tensor> inputs{random_tensor({DType::f32, {2, 3, 100, 8}}, 1),
                                   random_tensor({DType::f32, {2, 3, 4, 8}}, 2), whole({2}, {0, 0}),
                                   whole({2}, {4, 0})};
  ComputeDesc desc = desc_of(Op::TensorScatter, {{"axis", int64_t{2}}, {"mode", std::string("linear")}}, inputs);
  EXPECT_EQ(choose_kernel(desc, Isa::v3).value().name, KernelName::reference);
  desc.kernel = {KernelName::reference, Isa::v3};
  EXPECT_EQ(work_of(desc).bytes_written.value(), 2 * 3 * 100 * 8 * 4);
  desc.kernel = {KernelName::scatter_in_place, Isa::v3};
  EXPECT_TRUE(info_of(desc.kernel.name).only_in_place);
  EXPECT_EQ(work_of(desc).bytes_written.value(), 2 * 3 * 4 * 8 * 4);
  const std::vector<std::vector<int64_t>> values{{}, {}, {0, 0}, {3, 0}};
  EXPECT_EQ(work_of(desc, values).bytes_written.value(), 3 * 3 * 8 * 4);
  EXPECT_EQ(work_of(desc, values).bytes_read.value(), 3 * 3 * 8 * 4 + 2 * 2 * 8);
}

Attrs seeing(double scale, int64_t causal = 1, double softcap = 0, int64_t window = 0) {
  return {{"causal", causal}, {"scale", scale}, {"softcap", softcap}, {"window", window}};
}

// A window is attention over the last keys alone; a softcap bends scores.
TEST(CachedAttention, SeesItsWindow) {
  const int64_t keys = 9, window = 4, length = 8;
  const Tensor q = random_tensor({DType::f32, {1, 2, 1, 8}}, 1), k = random_tensor({DType::f32, {1, 1, keys, 8}}, 2),
               v = random_tensor({DType::f32, {1, 1, keys, 5}}, 3);
  const auto last = [&](const Tensor& from) {
    const int64_t size = from.type.shape[3];
    Tensor some{{DType::f32, {1, 1, window, size}}, {}};
    const auto end = from.values.begin() + length * size;
    some.values.assign(end - window * size, end);
    return some;
  };
  const std::vector<Tensor> inputs{q, k, v, whole({1}, {length})}, alone{q, last(k), last(v), whole({1}, {window})};
  for (const double softcap : {0.0, 0.3}) {
    const auto made = [&](const std::vector<Tensor>& of, int64_t sees) {
      return run_reference(desc_of(Op::CachedAttention, seeing(0.5, 1, softcap, sees), of), pointers(of))[0];
    };
    expect_close(made(inputs, window), made(alone, 0), {1e-6, 1e-6});
  }
  // One key: its value, whatever the score. Two: shares by c tanh(s / c), here of scores far beyond the cap.
  const Tensor one =
      tensor_of({DType::f32, {1, 1, 1, 1}}, raw_of(DType::f32, std::span<const double>(std::array{1.0})));
  const Tensor two =
      tensor_of({DType::f32, {1, 1, 2, 1}}, raw_of(DType::f32, std::span<const double>(std::array{1e6, -1e6})));
  const std::vector<Tensor> bent{one, two, two, whole({1}, {2})};
  const Tensor shares = run_reference(desc_of(Op::CachedAttention, seeing(1, 1, 0.5), bent), pointers(bent))[0];
  const double high = std::exp(0.5) / (std::exp(0.5) + std::exp(-0.5));
  EXPECT_NEAR(shares.values[0], (2 * high - 1) * 1e6, 1);
}

TEST(CachedAttention, CostsItsWindow) {
  const std::vector<Tensor> inputs{random_tensor({DType::f32, {1, 4, 3, 8}}, 1),
                                   random_tensor({DType::f32, {1, 2, 500, 8}}, 2),
                                   random_tensor({DType::f32, {1, 2, 500, 8}}, 3), whole({1}, {400})};
  const std::vector<std::vector<int64_t>> at_400{{}, {}, {}, {400}}, at_3{{}, {}, {}, {3}};
  const ComputeDesc all = desc_of(Op::CachedAttention, seeing(0.5), inputs),
                    some = desc_of(Op::CachedAttention, seeing(0.5, 1, 0, 100), inputs);
  // Three queries see 100 keys each, 102 together; so early in the sequence the window hides nothing.
  EXPECT_EQ(work_of(some, at_400).bytes_read.value(), work_of(all, at_400).bytes_read.value() - 298 * 2 * 16 * 4);
  EXPECT_EQ(work_of(some, at_400).flops.value(), 4 * 300 * (2 * 16 + 6));
  EXPECT_EQ(work_of(some, at_3).flops.value(), work_of(all, at_3).flops.value());
  EXPECT_EQ(work_of(some, at_3).bytes_read.value(), work_of(all, at_3).bytes_read.value());
}

TEST(CachedAttention, RefusesWindowsThatMakeNoSense) {
  const std::vector<TensorType> types{
      {DType::f32, {1, 1, 1, 8}}, {DType::f32, {1, 1, 4, 8}}, {DType::f32, {1, 1, 4, 8}}, {DType::i64, {1}}};
  const auto fine = [&](const Attrs& attrs) { return info(Op::CachedAttention).infer(types, attrs).ok(); };
  EXPECT_TRUE(fine(seeing(1, 1, 2, 3)));
  EXPECT_FALSE(fine(seeing(1, 1, 0, -1)));
  EXPECT_FALSE(fine(seeing(1, 0, 0, 3))) << "not causal";
  EXPECT_FALSE(fine(seeing(1, 1, -2)));
  EXPECT_FALSE(fine(seeing(1, 1, std::numeric_limits<double>::quiet_NaN())));
}

// Of a sample whose length is n, attention over the first n keys; of one whose length is 0, zeros.
TEST(CachedAttention, IsAttentionOverWhatIsThere) {
  const Tensor q = random_tensor({DType::f32, {3, 4, 2, 8}}, 1), k = random_tensor({DType::f32, {3, 2, 9, 8}}, 2),
               v = random_tensor({DType::f32, {3, 2, 9, 5}}, 3), lengths = whole({3}, {9, 4, 0});
  for (const int64_t causal : {0, 1}) {
    const Attrs attrs = seeing(0.5, causal), of_all{{"causal", causal}, {"scale", 0.5}};
    const std::vector<Tensor> inputs{q, k, v, lengths};
    const ComputeDesc desc = desc_of(Op::CachedAttention, attrs, inputs);
    const Tensor made = run_reference(desc, pointers(inputs))[0];
    for (int64_t sample = 0; sample < 3; ++sample) {
      const int64_t length = std::vector<int64_t>{9, 4, 0}[static_cast<size_t>(sample)];
      const auto part = [&](const Tensor& from, int64_t keep) {
        const Shape& shape = from.type.shape;
        Tensor one{{DType::f32, {1, shape[1], keep, shape[3]}}, {}};
        for (int64_t h = 0; h < shape[1]; ++h) {
          const auto at = from.values.begin() + (sample * shape[1] + h) * shape[2] * shape[3];
          one.values.insert(one.values.end(), at, at + keep * shape[3]);
        }
        return one;
      };
      const Tensor result = part(made, 2);
      if (length == 0) {
        EXPECT_THAT(result.values, ::testing::Each(0.0f));
        continue;
      }
      const std::vector<Tensor> alone{part(q, 2), part(k, length), part(v, length)};
      expect_close(result, run_reference(desc_of(Op::Attention, of_all, alone), pointers(alone))[0], {1e-6, 1e-6});
    }
  }
}

Tensor halves(const Tensor& from) {
  const std::vector<double> numbers(from.values.begin(), from.values.end());
  return tensor_of({DType::f16, from.type.shape}, raw_of(DType::f16, std::span<const double>(numbers)));
}

// Wherever its pages are, a paged cache gives the bits that one in a piece gives.
TEST(PagedAttention, HasTheBitsOfACacheInOnePiece) {
  const int64_t batch = 3, kv_heads = 2, keys = 600, page = 24, count = keys / page, size = 20;
  const Tensor q = random_tensor({DType::f32, {batch, 4, 2, size}}, 1),
               k = random_tensor({DType::f32, {batch, kv_heads, keys, size}}, 2),
               v = random_tensor({DType::f32, {batch, kv_heads, keys, size}}, 3),
               lengths = whole({batch}, {600, 299, 1});
  std::vector<int64_t> pages;
  for (int64_t i = 0; i < batch * count; ++i) pages.push_back((i * 7 + 3) % (batch * count));  // 7 and 75 share nothing
  const auto paged = [&](const Tensor& from) {
    Tensor pool{{DType::f32, {batch * count, kv_heads, page, size}}, std::vector<float>(from.values.size())};
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < kv_heads; ++h)
        for (int64_t key = 0; key < keys; ++key)
          std::copy_n(
              from.values.begin() + ((b * kv_heads + h) * keys + key) * size, size,
              pool.values.begin() +
                  ((pages[static_cast<size_t>(b * count + key / page)] * kv_heads + h) * page + key % page) * size);
    return pool;
  };
  const Attrs attrs = seeing(0.25);
  const auto as_they_are = [](const Tensor& from) { return from; };
  for (const auto& kept : {std::function<Tensor(const Tensor&)>(as_they_are), std::function(halves)}) {
    const std::vector<Tensor> plain{q, kept(k), kept(v), lengths},
        in_pages{q, kept(paged(k)), kept(paged(v)), lengths, whole({batch, count}, pages)};
    ComputeDesc one = desc_of(Op::CachedAttention, attrs, plain), many = desc_of(Op::PagedAttention, attrs, in_pages);
    for (const Isa isa : supported_levels()) {
      const KernelLibrary library = KernelLibrary::load(isa).value();
      one.kernel = many.kernel = {KernelName::cached_attention, isa};
      EXPECT_EQ(choose_kernel(one, isa).value(), one.kernel);
      EXPECT_EQ(choose_kernel(many, isa).value(), many.kernel);
      expect_same_bits(run_kernel(library, many, pointers(in_pages))[0], run_kernel(library, one, pointers(plain))[0]);
    }
  }
}

// Keys and values in f16 are read as the numbers that they are: by either kernel, whatever their sizes.
TEST(CachedAttention, HalvesAreTheirNumbers) {
  for (const int64_t queries : {1, 3, 20}) {
    for (const int64_t size : {8, 20, 64}) {
      const int64_t keys = 150, value_size = size + 3;
      const Tensor q = random_tensor({DType::f32, {2, 4, queries, size}}, 1), lengths = whole({2}, {150, 41});
      const auto floats = [&](const Tensor& from) {
        const ComputeDesc cast = desc_of(Op::Cast, {{"to", std::string("f32")}}, {from});
        return run_reference(cast, {&from})[0];
      };
      const Tensor k = halves(random_tensor({DType::f32, {2, 2, keys, size}}, 2)),
                   v = halves(random_tensor({DType::f32, {2, 2, keys, value_size}}, 3));
      const Attrs attrs = seeing(0.25);
      const std::vector<Tensor> kept{q, k, v, lengths}, wide{q, floats(k), floats(v), lengths};
      ComputeDesc own = desc_of(Op::CachedAttention, attrs, kept),
                  of_floats = desc_of(Op::CachedAttention, attrs, wide);
      EXPECT_LT(work_of(own).bytes_read.value(), work_of(of_floats).bytes_read.value());
      expect_close(run_reference(own, pointers(kept))[0], run_reference(of_floats, pointers(wide))[0], {1e-6, 1e-6});
      for (const Isa isa : supported_levels()) {
        const KernelLibrary library = KernelLibrary::load(isa).value();
        own.kernel = of_floats.kernel = choose_kernel(of_floats, isa).value();
        EXPECT_EQ(choose_kernel(own, isa).value(), own.kernel);
        expect_same_bits(run_kernel(library, own, pointers(kept))[0],
                         run_kernel(library, of_floats, pointers(wide))[0]);
      }
    }
  }
  const std::vector<Tensor> other{random_tensor({DType::f32, {1, 1, 1, 8}}, 1),
                                  any_tensor({DType::bf16, {1, 1, 4, 8}}, 2),
                                  any_tensor({DType::bf16, {1, 1, 4, 8}}, 3), whole({1}, {4})};
  EXPECT_EQ(choose_kernel(desc_of(Op::CachedAttention, seeing(0.5), other), Isa::v3).value().name,
            KernelName::reference);
}

// A query has the same bits alone, where its token is decoded, and among those of a whole prompt.
TEST(CachedAttention, BitsDependOnNoOtherQuery) {
  const int64_t queries = 40, keys = 300, size = 20;
  const Tensor q = random_tensor({DType::f32, {1, 4, queries, size}}, 1),
               k = random_tensor({DType::f32, {1, 2, keys, size}}, 2),
               v = random_tensor({DType::f32, {1, 2, keys, size}}, 3);
  for (const int64_t window : {0, 70}) {
    const Attrs attrs = seeing(0.25, 1, window == 0 ? 0 : 2.5, window);
    for (const Isa isa : supported_levels()) {
      const KernelLibrary library = KernelLibrary::load(isa).value();
      const auto run = [&](const Tensor& some, int64_t length) {
        const std::vector<Tensor> inputs{some, k, v, whole({1}, {length})};
        ComputeDesc desc = desc_of(Op::CachedAttention, attrs, inputs);
        desc.kernel = choose_kernel(desc, isa).value();
        return run_kernel(library, desc, pointers(inputs))[0];
      };
      const auto part = [&](const Tensor& from, int64_t begin, int64_t count) {
        Tensor some{{DType::f32, {1, 4, count, size}}, {}};
        for (int64_t head = 0; head < 4; ++head) {
          const auto at = from.values.begin() + (head * queries + begin) * size;
          some.values.insert(some.values.end(), at, at + count * size);
        }
        return some;
      };
      const Tensor all = run(q, 290);
      for (const int64_t chunk : {1, 3, 8, 20}) {
        for (int64_t begin = 0; begin + chunk <= queries; begin += chunk)
          expect_same_bits(run(part(q, begin, chunk), 290 - queries + begin + chunk), part(all, begin, chunk));
      }
    }
  }
}

TEST(CachedAttention, CostsWhatIsThere) {
  const std::vector<Tensor> inputs{random_tensor({DType::f32, {2, 4, 1, 8}}, 1),
                                   random_tensor({DType::f32, {2, 2, 100, 8}}, 2),
                                   random_tensor({DType::f32, {2, 2, 100, 16}}, 3), whole({2}, {0, 0})};
  const ComputeDesc desc = desc_of(Op::CachedAttention, seeing(0.5), inputs);
  const auto work = [&](std::vector<int64_t> lengths) {
    const std::vector<std::vector<int64_t>> values{{}, {}, {}, std::move(lengths)};
    return work_of(desc, values);
  };
  EXPECT_EQ(work({100, 100}), work_of(desc));
  EXPECT_EQ(work({30, 0}).flops.value(), 4 * 30 * (2 * (8 + 16) + 6));
  EXPECT_EQ(work({30, 0}).bytes_read.value(), 2 * 8 + 4 * 8 * 4 + 30 * 2 * (8 + 16) * 4);
  EXPECT_EQ(work({0, 0}).flops.value(), 0);
  EXPECT_EQ(work({0, 0}).bytes_read.value(), 2 * 8);
}

}  // namespace
}  // namespace nlsplit::testing
