// Scalars: lengths, offsets, page indices and counts that instructions read from small integer buffers. Everything else
// about a Program is fixed; these values are all that differs from one execution to the next.
//
//   buffer length i64[2] state max 16                           # values in 0 … 16
//   y = CachedAttention(q, keys, values, length) {…} kernel …   # reads no more keys than there are
//
// Scalars are read only from buffers with a declared maximum. verify compares the maximum with the largest value that
// the operator allows (graph/operators/operator.h, ScalarInputs); executors and simulators compare the values with the
// maximum.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace nlsplit::inline program {

inline bool reads_scalars(const ComputeDesc& desc) { return info(desc.op).scalars != nullptr; }

// Every scalar of the computation has a maximum that is safe. Error: the buffer, and both numbers.
Status check_maxima(const DeviceProgram& device, const Instr& instr, const ComputeDesc& desc);

// The values are in 0 … maximum. inputs[i]: the bytes of operand i; nullptr: it is not looked at. Error: the buffer,
// the index, the value and the maximum.
Status check_values(const DeviceProgram& device, const Instr& instr, const ComputeDesc& desc,
                    const void* const* inputs);

// Gives every buffer that a scalar is read from the largest maximum that all its readers take.
void declare_maxima(Program& program);

std::vector<size_t> scalar_inputs(const ComputeDesc& desc);  // which

bool lists_integers(std::string_view text);  // it has the form of such a list, and no file's name
// "4,2" on a command line: the bytes of so many elements of that type. None: it is no list of integers, but a file's
// name, say. Error: another number of elements; one that the type does not have.
Result<std::optional<std::string>> listed_integers(DType type, int64_t count, std::string_view text);

// Elements of a buffer of i64 or i32.
std::vector<int64_t> whole_values(DType type, std::span<const std::byte> bytes);

}  // namespace nlsplit::inline program
