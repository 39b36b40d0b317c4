// Small pieces of a Program's text, as all parts of its parser read them. Errors are at the token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text_reader.h"
#include "graph/graph.h"
#include "kernels/kernel_id.h"

namespace nlsplit::inline program {

// A word or a quoted string.
Result<std::string> read_name(TextReader& in, std::string_view what);
Result<int64_t> read_integer(TextReader& in, std::string_view what, int64_t low, int64_t high);
// An int from `low` on, small enough to be added to another.
Result<int> read_small(TextReader& in, std::string_view what, int low = 0);
// "memory 4096": the key, then a number from 0 on.
Result<int64_t> read_keyed(TextReader& in, std::string_view key);

// "f32[8,3]", "f32[8,16,7,7]c8"
Result<TensorType> read_type(TextReader& in);

// "conv_direct_v3"
Result<KernelId> read_kernel(TextReader& in);

// "unknown buffer a1; did you mean a2?"; no hint: without the question.
Error unknown_name(const TextReader& in, std::string_view what, std::string_view name, const std::string& hint = {});

}  // namespace nlsplit::inline program
