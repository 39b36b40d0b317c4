// Elements of any type as numbers, and numbers as the bytes of any type: floats of every width and elements with a
// scale as double, integers and truth values as int64_t (u64 as its bits).
//
//   std::vector<double> values = reals_of(DType::f16, raw);
//   std::string raw = raw_of(DType::bf16, values);      // rounded to the nearest, ties to even
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace nlsplit::inline graph {

// As a number of that type: the nearest float, ties to even, infinite beyond the largest; an integer's low bits; for
// bool 0 or 1.
double rounded(DType type, double value);
int64_t wrapped(DType type, int64_t value);
double largest_of(DType type);  // the largest finite one; is_real(type)

// What NumPy calls it ("<f4"); bf16 has no name there and is the u2 of its bits. Not of blocks.
std::string_view numpy_type(DType type);

std::vector<double> reals_of(DType type, std::string_view raw);    // is_real(type) or is_scaled(type)
std::vector<int64_t> wholes_of(DType type, std::string_view raw);  // all others
// Of a type with scales: graph/blocks.h.
std::string raw_of(DType type, std::span<const double> values);
std::string raw_of(DType type, std::span<const int64_t> values);

}  // namespace nlsplit::inline graph
