#include "graph/ggml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "graph/half.h"

namespace nlsplit::inline graph {
namespace {

struct GgmlRow {
  GgmlType type;
  DType dtype;
};

constexpr std::array ggml_rows = {
    GgmlRow{GgmlType::F32, DType::f32},   GgmlRow{GgmlType::F16, DType::f16},   GgmlRow{GgmlType::BF16, DType::bf16},
    GgmlRow{GgmlType::Q8_0, DType::q8_0}, GgmlRow{GgmlType::Q4_0, DType::q4_0}, GgmlRow{GgmlType::Q4_1, DType::q4_1},
    GgmlRow{GgmlType::Q5_0, DType::q5_0}, GgmlRow{GgmlType::Q4_K, DType::q4_k}, GgmlRow{GgmlType::Q6_K, DType::q6_k},
};

// "": numbers that were taken back.
constexpr std::array<std::string_view, 40> ggml_names = {
    "F32",    "F16",   "Q4_0",  "Q4_1",   "",      "",      "Q5_0",    "Q5_1",   "Q8_0",    "Q8_1",
    "Q2_K",   "Q3_K",  "Q4_K",  "Q5_K",   "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S",
    "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",   "I32",     "I64",    "F64",     "IQ1_M",
    "BF16",   "",      "",      "",       "TQ1_0", "TQ2_0", "",        "",       "",        "MXFP4"};

const GgmlRow& row_of(GgmlType type) {
  const auto* found = std::ranges::find(ggml_rows, type, &GgmlRow::type);
  CHECK(found != ggml_rows.end(), "no type of ggml's");
  return *found;
}

uint8_t byte_at(const char* from, size_t i) { return static_cast<uint8_t>(from[i]); }

float half_at(const char* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return f16_value(bits);
}

void read_f32(const char* from, float* to) { std::memcpy(to, from, sizeof *to); }
void read_f16(const char* from, float* to) { *to = half_at(from); }

void read_bf16(const char* from, float* to) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  *to = bf16_value(bits);
}

// The scale, then 32 signed bytes.
void read_q8_0_block(const char* from, float* to) {
  const float d = half_at(from);
  for (size_t i = 0; i < 32; ++i) to[i] = d * static_cast<float>(static_cast<int8_t>(from[2 + i]));
}

// Byte i has element i in its low half and element i + 16 in its high half.
void read_q4_0_block(const char* from, float* to) {
  const float d = half_at(from);
  for (size_t i = 0; i < 16; ++i) {
    const int pair = byte_at(from, 2 + i);
    to[i] = d * static_cast<float>((pair & 15) - 8);
    to[i + 16] = d * static_cast<float>((pair >> 4) - 8);
  }
}

// Scale and offset, then as Q4_0.
void read_q4_1_block(const char* from, float* to) {
  const float d = half_at(from), m = half_at(from + 2);
  for (size_t i = 0; i < 16; ++i) {
    const int pair = byte_at(from, 4 + i);
    to[i] = d * static_cast<float>(pair & 15) + m;
    to[i + 16] = d * static_cast<float>(pair >> 4) + m;
  }
}

// The scale, the fifth bits of all 32 elements, then as Q4_0.
void read_q5_0_block(const char* from, float* to) {
  const float d = half_at(from);
  uint32_t high = 0;
  std::memcpy(&high, from + 2, sizeof high);
  for (uint32_t i = 0; i < 16; ++i) {
    const int pair = byte_at(from, 6 + i), low = static_cast<int>(high >> i & 1),
              last = static_cast<int>(high >> (i + 16) & 1);
    to[i] = d * static_cast<float>(((pair & 15) | low << 4) - 16);
    to[i + 16] = d * static_cast<float>(((pair >> 4) | last << 4) - 16);
  }
}

// 8 groups of 32 elements, each with a scale and an offset of 6 bits in 12 bytes: of the first four groups the low 6
// bits of bytes 0 to 3 and 4 to 7; of the others 4 bits in bytes 8 to 11, and the top 2 bits of the first eight bytes.
void read_q4_k_block(const char* from, float* to) {
  const float d = half_at(from), least = half_at(from + 2);
  const char *six = from + 4, *steps = from + 16;
  const auto parts_of = [&](size_t group) {
    if (group < 4) return std::pair(byte_at(six, group) & 63, byte_at(six, group + 4) & 63);
    return std::pair((byte_at(six, group + 4) & 15) | (byte_at(six, group - 4) >> 6) << 4,
                     (byte_at(six, group + 4) >> 4) | (byte_at(six, group) >> 6) << 4);
  };
  for (size_t group = 0; group < 8; ++group, to += 32) {
    const auto [scale, offset] = parts_of(group);
    const float step = d * static_cast<float>(scale), below = least * static_cast<float>(offset);
    for (size_t i = 0; i < 32; ++i) {
      const int pair = byte_at(steps, group / 2 * 32 + i);
      to[i] = step * static_cast<float>(group % 2 == 0 ? pair & 15 : pair >> 4) - below;
    }
  }
}

// Two halves of 128 elements. Of each: 64 bytes with the low four bits, 32 with the high two of elements i, i + 32,
// i + 64, i + 96; a signed scale for each 16 elements.
void read_q6_k_block(const char* from, float* to) {
  const char *low = from, *high = from + 128, *scales = from + 192;
  const float d = half_at(from + 208);
  for (int half = 0; half < 2; ++half, low += 64, high += 32, scales += 8, to += 128) {
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      for (size_t i = 0; i < 32; ++i) {
        const int pair = byte_at(low, quarter % 2 * 32 + i);
        const int four = quarter < 2 ? pair & 15 : pair >> 4;
        const int two = byte_at(high, i) >> 2 * quarter & 3;
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[quarter * 2 + i / 16]));
        to[quarter * 32 + i] = scale * static_cast<float>((four | two << 4) - 32);
      }
    }
  }
}

using ReadBlock = void (*)(const char*, float*);

template <ReadBlock read>
void read_all(GgmlType type, std::string_view raw, float* to) {
  const auto bytes = static_cast<size_t>(bytes_of_block(type)), elements = static_cast<size_t>(block_of(type));
  CHECK(raw.size() % bytes == 0, "whole blocks");
  for (size_t at = 0; at < raw.size(); at += bytes, to += elements) read(raw.data() + at, to);
}

}  // namespace

std::optional<GgmlType> ggml_type(uint32_t number) {
  const auto* found = std::ranges::find(ggml_rows, static_cast<GgmlType>(number), &GgmlRow::type);
  if (found == ggml_rows.end()) return std::nullopt;
  return found->type;
}

std::string ggml_name(uint32_t number) {
  if (number >= ggml_names.size() || ggml_names[number].empty()) return fmt::format("type {}", number);
  return std::string(ggml_names[number]);
}

std::string ggml_types() {
  std::string list;
  for (const GgmlRow& row : ggml_rows) list += (list.empty() ? "" : ", ") + ggml_name(static_cast<uint32_t>(row.type));
  return list;
}

DType dtype_of(GgmlType type) { return row_of(type).dtype; }

std::optional<GgmlType> ggml_type_of(DType type) {
  const auto* found = std::ranges::find(ggml_rows, type, &GgmlRow::dtype);
  if (found == ggml_rows.end()) return std::nullopt;
  return found->type;
}

int64_t block_of(GgmlType type) { return block_of(dtype_of(type)); }
int64_t bytes_of_block(GgmlType type) { return size_of(dtype_of(type), block_of(type)); }

void dequantize(GgmlType type, std::string_view raw, float* to) {
  switch (type) {
    case GgmlType::F32:
      return read_all<read_f32>(type, raw, to);
    case GgmlType::F16:
      return read_all<read_f16>(type, raw, to);
    case GgmlType::BF16:
      return read_all<read_bf16>(type, raw, to);
    case GgmlType::Q8_0:
      return read_all<read_q8_0_block>(type, raw, to);
    case GgmlType::Q4_0:
      return read_all<read_q4_0_block>(type, raw, to);
    case GgmlType::Q4_1:
      return read_all<read_q4_1_block>(type, raw, to);
    case GgmlType::Q5_0:
      return read_all<read_q5_0_block>(type, raw, to);
    case GgmlType::Q4_K:
      return read_all<read_q4_k_block>(type, raw, to);
    case GgmlType::Q6_K:
      return read_all<read_q6_k_block>(type, raw, to);
  }
  CHECK(false, "no type of ggml's");
}

std::string dequantized(GgmlType type, std::string_view raw) {
  const auto bytes = static_cast<size_t>(bytes_of_block(type)), elements = static_cast<size_t>(block_of(type));
  std::string out(raw.size() / bytes * elements * sizeof(float), '\0');
  dequantize(type, raw, reinterpret_cast<float*>(out.data()));
  return out;
}

}  // namespace nlsplit::inline graph
