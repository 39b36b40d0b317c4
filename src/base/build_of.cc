#include "base/build_of.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/hash.h"
#include "base/mapped_file.h"

namespace nlsplit::inline base {
namespace {

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

}  // namespace nlsplit::inline base
