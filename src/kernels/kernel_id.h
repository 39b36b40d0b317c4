// A kernel's id: which kernel, and the level it computes at. A value: control flow compares it, its text is for files
// and people.
//
//   const KernelId id = {KernelName::conv_direct, Isa::v3};
//   to_string(id);                                // "conv_direct_v3"
//   ASSIGN_OR_RETURN(id, parse_kernel("conv_direct_v3"));
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nlsplit::inline kernels {

// Instruction sets: x86-64's micro-architecture levels (System V psABI), 64-bit Arm with its Advanced SIMD (Armv8-A has
// it from the start), and a GPU's, whose kernels are in kernels/cuda/gpu.h.
enum class Isa : uint8_t { v2, v3, v4, neon, cuda };
bool is_gpu(Isa isa);               // its kernels run on a GPU
std::span<const Isa> all_levels();  // of CPUs, in the order of the enum: within an architecture the lowest first

// What convolutions and products of float32 multiply in; sums are in float32. A CPU has float32 alone.
enum class Precision : uint8_t { float32, tf32 };  // tf32: 10 bits of mantissa
std::string_view name_of(Precision precision);     // "float32", "tf32"

// How a kernel computes, a part of its id: other instructions or another precision, other last bits.
struct Level {
  Isa isa = Isa::v2;
  Precision precision = Precision::float32;

  constexpr Level() = default;
  constexpr Level(Isa isa, Precision precision = Precision::float32) : isa(isa), precision(precision) {}
  friend auto operator<=>(const Level&, const Level&) = default;
};
std::span<const Level> gpu_levels();
std::string_view name_of(Level level);             // the instruction set, or another precision: "v2" … "cuda", "tf32"
std::string full_name_of(Level level);             // as compilers call it: "x86-64-v2" … "armv8-a", "cuda-tf32"
Result<Level> parse_level(std::string_view text);  // either name

// What computes: a kernel of the catalogue (kernels/kernels.def), or what is costed like one without being there.
enum class KernelName : uint8_t {
  unchosen,
  none,  // nothing yet: kernels/without_kernel.h
  copy,
  pack,
  unpack,
  reduce,  // instructions that move data within a device: program/data_movement.h
#define NLS_KERNEL(name) name,
#define NLS_GPU_KERNEL(name) gpu_##name,
#include "kernels/kernels.def"
};
inline constexpr size_t cpu_kernel_count = 0
#define NLS_KERNEL(name) +1
#include "kernels/kernels.def"
    ;
inline constexpr size_t gpu_kernel_count = 0
#define NLS_GPU_KERNEL(name) +1
#include "kernels/kernels.def"
    ;
inline constexpr size_t first_kernel = static_cast<size_t>(KernelName::reduce) + 1;  // in the catalogue
constexpr bool is_in_catalogue(KernelName name) { return static_cast<size_t>(name) >= first_kernel; }
// Its place in the catalogue, the CPUs' first.
constexpr size_t catalogue_index(KernelName name) { return static_cast<size_t>(name) - first_kernel; }
constexpr bool is_generated(KernelName name) {
  return name == KernelName::generated || name == KernelName::gpu_generated;
}
std::span<const KernelName> kernels_of(Isa isa);  // of CPUs or of GPUs, in the catalogue's order
std::string_view name_of(KernelName name);        // "conv_direct", "none", "copy"; "" of unchosen

struct KernelId {
  KernelName name = KernelName::unchosen;
  Level level;  // of a kernel of the catalogue; all others have v2

  constexpr KernelId() = default;
  constexpr KernelId(KernelName name) : name(name) {}  // one that has no level
  constexpr KernelId(KernelName name, Level level) : name(name), level(level) {}
  bool empty() const { return name == KernelName::unchosen; }
  friend auto operator<=>(const KernelId&, const KernelId&) = default;
};
std::string to_string(KernelId id);
// Error: no kernel is called so, or it has no such level.
Result<KernelId> parse_kernel(std::string_view text);

}  // namespace nlsplit::inline kernels
