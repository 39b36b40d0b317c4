// KernelLibrary: the code of the kernels at one instruction level, loaded when a Program asks for it.
//
//   ASSIGN_OR_RETURN(KernelLibrary library, KernelLibrary::load(Isa::v3));
//   ASSIGN_OR_RETURN(const KernelCode* code, library.find({KernelName::conv_direct, Isa::v3}));   // valid as long as
//   the library
#pragma once

#include <span>
#include <string>

#include "kernels/cpu.h"
#include "kernels/module/kernel.h"

namespace nlsplit::inline kernels {

class KernelLibrary {
 public:
  // libnlsplit_kernels_<isa>.so from beside the running program. Errors: the CPU lacks the level; it is a GPU's; no
  // such file; not one of ours, of another version, or of another level.
  static Result<KernelLibrary> load(Isa isa);
  static Result<KernelLibrary> load_file(Isa isa, const std::string& path);

  KernelLibrary(KernelLibrary&& other) noexcept;
  KernelLibrary& operator=(KernelLibrary&& other) noexcept;
  ~KernelLibrary();

  Isa isa() const { return isa_; }
  std::span<const KernelCode> code() const { return code_; }  // in the catalogue's order
  // Dot products of bytes and of pairs of bfloat16, where the CPU has them (kernels/cpu.h): yes, unless a test says
  // otherwise. No bits depend on it.
  void use_dot_product(bool use) const {
    use_dot_products_(use && cpu_has_dot_product(isa_), use && cpu_has_bf16_pairs(isa_));
  }
  // Error: another level's, or none of the catalogue.
  Result<const KernelCode*> find(KernelId kernel) const;

 private:
  KernelLibrary(Isa isa, void* handle, std::span<const KernelCode> code, void (*use_dot_products)(bool, bool));

  Isa isa_;
  void* handle_;  // dlopen's
  std::span<const KernelCode> code_;
  void (*use_dot_products_)(bool bytes, bool pairs);
};

}  // namespace nlsplit::inline kernels
