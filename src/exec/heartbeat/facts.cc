#include "exec/heartbeat/facts.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>

#include "base/build_of.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace nlsplit::inline exec {
namespace {

#if defined(__x86_64__)
constexpr const char* architecture = "x86-64";
#elif defined(__aarch64__)
constexpr const char* architecture = "aarch64";
#endif

std::string layout() {
  return fmt::format("{}-byte words, {}-endian", sizeof(size_t),
                     std::endian::native == std::endian::little ? "little" : "big");
}

}  // namespace

Fact floating_point_mode() {
#if defined(__x86_64__)
  constexpr unsigned happened = 0x3f;
  return {fmt::format("floating-point mode on {}", architecture),
          fmt::format("MXCSR {:#06x}", _mm_getcsr() & ~happened)};
#elif defined(__aarch64__)
  uint64_t mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return {fmt::format("floating-point mode on {}", architecture), fmt::format("FPCR {:#010x}", mode)};
#endif
}

// Builds and libraries of two architectures differ in any case: they are compared within each.
std::vector<Fact> facts_of_process() {
  // Through a variable, so that the address is the library's function and not this program's way to it.
  const void* in_libm = ::dlsym(RTLD_DEFAULT, "fma");
  return {{"layout of numbers", layout()},
          {fmt::format("build for {}", architecture), build_of(reinterpret_cast<const void*>(&facts_of_process))},
          {fmt::format("C library on {}", architecture), fmt::format("glibc {}", ::gnu_get_libc_version())},
          {fmt::format("libm on {}", architecture), build_of(in_libm)},
          floating_point_mode()};
}

std::string to_text(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) text += fmt::format("{}: {}\n", fact.what, fact.value);
  return text;
}

std::vector<Fact> facts_from(std::string_view text) {
  std::vector<Fact> facts;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t colon = line.find(": ");
    if (colon != std::string_view::npos)
      facts.push_back({std::string(line.substr(0, colon)), std::string(line.substr(colon + 2))});
  }
  return facts;
}

Status check_facts(const std::vector<RankFacts>& ranks) {
  std::map<std::string, std::pair<const std::string*, const std::string*>> first;  // by fact: its value and the rank
  for (const RankFacts& rank : ranks) {
    for (const Fact& fact : rank.facts) {
      const auto& [value, whose] = first.try_emplace(fact.what, &fact.value, &rank.rank).first->second;
      if (*value == fact.value) continue;
      return invalid_input(fmt::format("ranks differ in their {}: {} has {}, {} has {}: all ranks must agree",
                                       fact.what, rank.rank, fact.value, *whose, *value));
    }
  }
  return ok_status();
}

}  // namespace nlsplit::inline exec
