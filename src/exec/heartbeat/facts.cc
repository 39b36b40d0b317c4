#include "exec/heartbeat/facts.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <link.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "base/hash.h"
#include "base/mapped_file.h"
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

struct Search {
  uintptr_t address = 0;
  bool found = false;
  std::string file = {}, id = {};
};

bool holds(const dl_phdr_info& object, uintptr_t address) {
  for (size_t i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object.dlpi_phdr[i];
    const uintptr_t begin = object.dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_LOAD && address >= begin && address - begin < part.p_memsz) return true;
  }
  return false;
}

std::string hex_of(const unsigned char* bytes, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += fmt::format("{:02x}", bytes[i]);
  return text;
}

// The linker's note (--build-id) among the notes in memory; empty: there is none.
std::string build_id_of(const dl_phdr_info& object) {
  for (size_t i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object.dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* begin = reinterpret_cast<const unsigned char*>(object.dlpi_addr + part.p_vaddr);
    const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= part.p_memsz;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, begin + at, sizeof(note));
      const size_t name = at + sizeof(note), value = name + padded(note.n_namesz);
      at = value + padded(note.n_descsz);
      if (at > part.p_memsz) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(begin + name, "GNU", 4) == 0)
        return hex_of(begin + value, note.n_descsz);
    }
  }
  return "";
}

int look(dl_phdr_info* object, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  if (!holds(*object, search.address)) return 0;
  search.found = true;
  search.file = object->dlpi_name;
  search.id = build_id_of(*object);
  return 1;
}

std::string layout() {
  return fmt::format("{}-byte words, {}-endian", sizeof(size_t),
                     std::endian::native == std::endian::little ? "little" : "big");
}

}  // namespace

std::string build_of(const void* address) {
  Search search{reinterpret_cast<uintptr_t>(address)};
  ::dl_iterate_phdr(look, &search);
  if (!search.found) return "";
  std::string file = search.file.empty() ? "/proc/self/exe" : search.file;  // the program itself has no name here
  if (search.id.empty()) {
    if (auto mapped = MappedFile::open(file)) search.id = hex16(hash_text((*mapped)->bytes()));
  }
  std::error_code failure;
  if (search.file.empty()) file = std::filesystem::read_symlink(file, failure).string();
  return fmt::format("{} {}", std::filesystem::path(file).filename().string(), search.id);
}

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
