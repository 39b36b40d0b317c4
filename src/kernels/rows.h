// What the rows of the catalogue are written with: one rows.cc a family, beside the family's code.
//
//   const KernelInfo rows::softmax = {
//       .what = "largest, exponentials, sum, along one axis", .ops = computes<Op::Softmax>, .exact_axes = exact::all};
#pragma once

#include <array>

#include "kernels/catalogue.h"
#include "kernels/layout.h"

namespace nlsplit::inline kernels {

namespace rows {  // defined once each, by families
#define NLS_KERNEL(name) extern const KernelInfo name;
#define NLS_GPU_KERNEL(name) extern const KernelInfo gpu_##name;
#include "kernels/kernels.def"
}  // namespace rows

template <Op... all>
inline constexpr std::array<Op, sizeof...(all)> computes = {all...};

// Is the operator one of the row's, and its `refuses` silent? The rest of refusal() is not asked.
bool takes(const KernelInfo& row, const ComputeDesc& desc);

// Parts of refusals: why not, or "".
std::string refuse_many_axes(const ComputeDesc& desc);       // of kernels that walk over arbitrary axes
std::string refuse_unless_blocked(const ComputeDesc& desc);  // in and out and the epilogue's operands in blocks
std::string refuse_other_steps(const ComputeDesc& desc);     // of kernels for any type
inline constexpr size_t most_kernel_axes = 8;
bool has_other_types(const ComputeDesc& desc);  // than f32, scalars aside
bool is_window(Op op);
bool has_planes(const ComputeDesc& desc);  // of a window: over one axis or two, as all hand-made kernels want it

inline Standing last_resort(const ComputeDesc&) { return Standing::last_resort; }
inline Bytes floats(int64_t count) { return bytes(saturating_product(count, int64_t{sizeof(float)})); }

// Results in the place of an operand: of kernels that go element by element.
inline constexpr uint64_t over_first = 0b1;  // a sum takes its first operand before all others
inline constexpr uint64_t over_either = 0b11;
inline constexpr uint64_t over_any = ~uint64_t{0};  // all are read before the result is written

inline constexpr uint8_t image_axes = exact::batch | exact::channels | exact::height | exact::width;

}  // namespace nlsplit::inline kernels
