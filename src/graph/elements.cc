#include "graph/elements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "graph/blocks.h"
#include "graph/ggml.h"
#include "graph/half.h"

namespace nlsplit::inline graph {
namespace {

// IEEE 754 binary16 and bfloat16 differ in these only. A significand has `digits` bits, the hidden one included.
struct HalfFormat {
  int digits, smallest_exponent, exponent_bias;
  double largest;
};
constexpr HalfFormat f16_format = {11, -14, 15, 65504.0};
constexpr HalfFormat bf16_format = {8, -126, 127, 3.3895313892515355e38};

double round_to(const HalfFormat& format, double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), format.smallest_exponent);
  const int last_bit = exponent - format.digits + 1;
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -last_bit)), last_bit);
  return std::abs(result) > format.largest ? std::copysign(std::numeric_limits<double>::infinity(), value) : result;
}

uint16_t encode(const HalfFormat& format, double value) {
  value = round_to(format, value);
  const int fraction_bits = format.digits - 1;
  const auto sign = static_cast<uint32_t>(std::signbit(value) ? 0x8000 : 0);
  const uint32_t infinite = (2u * static_cast<uint32_t>(format.exponent_bias) + 1) << fraction_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinite | 1u << (fraction_bits - 1));
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinite);
  const double size = std::abs(value);
  if (size == 0) return static_cast<uint16_t>(sign);
  const int exponent = std::max(std::ilogb(size), format.smallest_exponent);
  // The hidden bit adds one to the exponent's field, unless the number is subnormal and has none.
  const auto significand = static_cast<uint32_t>(std::ldexp(size, fraction_bits - exponent));
  const auto field = static_cast<uint32_t>(exponent + format.exponent_bias - 1) << fraction_bits;
  return static_cast<uint16_t>(sign | (field + significand));
}

template <class Stored, class Number, class Convert>
std::vector<Number> read(std::string_view raw, Convert convert) {
  std::vector<Number> values(raw.size() / sizeof(Stored));
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored{};
    std::memcpy(&stored, raw.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(stored);
  }
  return values;
}

template <class Stored, class Number, class Convert>
std::string write(std::span<const Number> values, Convert convert) {
  std::string raw(values.size() * sizeof(Stored), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const Stored stored = convert(values[i]);
    std::memcpy(&raw[i * sizeof(Stored)], &stored, sizeof(Stored));
  }
  return raw;
}

template <class Stored>
std::vector<int64_t> read_whole(std::string_view raw) {
  return read<Stored, int64_t>(raw, [](Stored stored) { return static_cast<int64_t>(stored); });
}

template <class Stored>
std::string write_whole(std::span<const int64_t> values) {
  return write<Stored, int64_t>(values, [](int64_t value) { return static_cast<Stored>(value); });
}

std::vector<double> read_blocks(GgmlType type, std::string_view raw) {
  const std::string values = dequantized(type, raw);
  return read<float, double>(values, [](float stored) { return static_cast<double>(stored); });
}

// Beyond the largest float the language leaves the conversion open; the hardware makes it infinite.
float to_float(double value) {
  // Half a unit past the largest float and on rounds to infinity.
  constexpr double limit = 0x1.ffffffp127;
  if (std::abs(value) >= limit) return std::copysign(std::numeric_limits<float>::infinity(), value < 0 ? -1.0f : 1.0f);
  if (std::abs(value) > static_cast<double>(std::numeric_limits<float>::max()))
    return std::copysign(std::numeric_limits<float>::max(), value < 0 ? -1.0f : 1.0f);
  return static_cast<float>(value);
}

}  // namespace

double rounded(DType type, double value) {
  switch (type) {
    case DType::f32:
      return static_cast<double>(to_float(value));
    case DType::f16:
      return round_to(f16_format, value);
    case DType::bf16:
      return round_to(bf16_format, value);
    case DType::f64:
      return value;
    default:
      CHECK(false, "not a type of floats");
  }
}

double largest_of(DType type) {
  switch (type) {
    case DType::f32:
      return static_cast<double>(std::numeric_limits<float>::max());
    case DType::f16:
      return f16_format.largest;
    case DType::bf16:
      return bf16_format.largest;
    case DType::f64:
      return std::numeric_limits<double>::max();
    default:
      CHECK(false, "not a type of floats");
  }
}

int64_t wrapped(DType type, int64_t value) {
  switch (type) {
    case DType::boolean:
      return value != 0 ? 1 : 0;
    case DType::i8:
      return static_cast<int8_t>(value);
    case DType::u8:
      return static_cast<uint8_t>(value);
    case DType::i16:
      return static_cast<int16_t>(value);
    case DType::u16:
      return static_cast<uint16_t>(value);
    case DType::i32:
      return static_cast<int32_t>(value);
    case DType::u32:
      return static_cast<uint32_t>(value);
    case DType::i64:
    case DType::u64:
      return value;
    default:
      CHECK(false, "not a type of integers");
  }
}

std::string_view numpy_type(DType type) {
  switch (type) {
    case DType::f32:
      return "<f4";
    case DType::i64:
      return "<i8";
    case DType::i32:
      return "<i4";
    case DType::boolean:
      return "|b1";
    case DType::f16:
      return "<f2";
    case DType::bf16:
      return "<u2";  // NumPy has none: their bits
    case DType::f64:
      return "<f8";
    case DType::i8:
      return "|i1";
    case DType::u8:
      return "|u1";
    case DType::i16:
      return "<i2";
    case DType::u16:
      return "<u2";
    case DType::u32:
      return "<u4";
    case DType::u64:
      return "<u8";
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q4_k:
    case DType::q6_k:
      break;  // weights alone
  }
  CHECK(false, "unknown data type");
}

std::vector<double> reals_of(DType type, std::string_view raw) {
  switch (type) {
    case DType::f32:
      return read<float, double>(raw, [](float stored) { return static_cast<double>(stored); });
    case DType::f64:
      return read<double, double>(raw, [](double stored) { return stored; });
    case DType::f16:
      return read<uint16_t, double>(raw, [](uint16_t bits) { return static_cast<double>(f16_value(bits)); });
    case DType::bf16:
      return read<uint16_t, double>(raw, [](uint16_t bits) { return static_cast<double>(bf16_value(bits)); });
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q4_k:
    case DType::q6_k:
      return read_blocks(ggml_type_of(type).value(), raw);
    default:
      CHECK(false, "not a type of floats");
  }
}

std::vector<int64_t> wholes_of(DType type, std::string_view raw) {
  switch (type) {
    case DType::boolean:
      return read<uint8_t, int64_t>(raw, [](uint8_t stored) { return int64_t{stored != 0}; });
    case DType::i8:
      return read_whole<int8_t>(raw);
    case DType::u8:
      return read_whole<uint8_t>(raw);
    case DType::i16:
      return read_whole<int16_t>(raw);
    case DType::u16:
      return read_whole<uint16_t>(raw);
    case DType::i32:
      return read_whole<int32_t>(raw);
    case DType::u32:
      return read_whole<uint32_t>(raw);
    case DType::i64:
    case DType::u64:
      return read_whole<int64_t>(raw);
    default:
      CHECK(false, "not a type of integers");
  }
}

std::string raw_of(DType type, std::span<const double> values) {
  switch (type) {
    case DType::f32:
      return write<float, double>(values, to_float);
    case DType::f64:
      return write<double, double>(values, [](double value) { return value; });
    case DType::f16:
      return write<uint16_t, double>(values, [](double value) { return encode(f16_format, value); });
    case DType::bf16:
      return write<uint16_t, double>(values, [](double value) { return encode(bf16_format, value); });
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q4_k:
    case DType::q6_k:
      return blocks_of(type, values);
    default:
      CHECK(false, "not a type of floats");
  }
}

std::string raw_of(DType type, std::span<const int64_t> values) {
  switch (type) {
    case DType::boolean:
      return write<uint8_t, int64_t>(values, [](int64_t value) { return static_cast<uint8_t>(value != 0); });
    case DType::i8:
      return write_whole<int8_t>(values);
    case DType::u8:
      return write_whole<uint8_t>(values);
    case DType::i16:
      return write_whole<int16_t>(values);
    case DType::u16:
      return write_whole<uint16_t>(values);
    case DType::i32:
      return write_whole<int32_t>(values);
    case DType::u32:
      return write_whole<uint32_t>(values);
    case DType::i64:
    case DType::u64:
      return write_whole<int64_t>(values);
    default:
      CHECK(false, "not a type of integers");
  }
}

}  // namespace nlsplit::inline graph
