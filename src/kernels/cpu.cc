#include "kernels/cpu.h"

#include <fmt/format.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace nlsplit::inline kernels {
bool cpu_supports(Isa isa) {
  bool v2 = false, v3 = false, v4 = false, neon = false;
#if defined(__x86_64__)
  // By features, since not every compiler knows the levels' names; each level's youngest ones stand for the rest.
  __builtin_cpu_init();
  v2 = __builtin_cpu_supports("sse4.2") != 0 && __builtin_cpu_supports("popcnt") != 0;
  v3 = v2 && __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
       __builtin_cpu_supports("bmi") != 0 && __builtin_cpu_supports("bmi2") != 0;
  v4 = v3 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
       __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
       __builtin_cpu_supports("avx512vl") != 0;
#elif defined(__aarch64__)
  neon = (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0;
#endif
  switch (isa) {
    case Isa::v2:
      return v2;
    case Isa::v3:
      return v3;
    case Isa::v4:
      return v4;
    case Isa::neon:
      return neon;
    case Isa::cuda:
      return false;  // a GPU's
  }
  return false;
}

std::vector<Isa> supported_levels() {
  std::vector<Isa> levels;
  for (Isa isa : all_levels()) {
    if (cpu_supports(isa)) levels.push_back(isa);
  }
  return levels;
}

Result<Isa> best_isa() {
  const std::vector<Isa> levels = supported_levels();
  if (!levels.empty()) return levels.back();
  return unsupported(
      fmt::format("this CPU has neither {} (SSE4.2) nor {} with Advanced SIMD, the least the kernels are built for",
                  full_name_of(Isa::v2), full_name_of(Isa::neon)));
}

bool cpu_has_dot_product([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!cpu_supports(isa)) return false;
  if (isa == Isa::v4) return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 11 & 1) != 0;
  if (isa == Isa::v3) return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
#endif
  return false;
}

bool cpu_has_bf16_pairs([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (isa == Isa::v4 && cpu_supports(isa)) return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
#endif
  return false;
}

}  // namespace nlsplit::inline kernels
