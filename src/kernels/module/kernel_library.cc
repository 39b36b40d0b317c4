#include "kernels/module/kernel_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "kernels/find_module.h"
#include "kernels/module/kernel_module.h"

namespace nlsplit::inline kernels {

namespace {

Status check_level(Isa isa) {
  if (is_gpu(isa)) return unsupported(fmt::format("level {} is a GPU's: a device of kind cuda has it", name_of(isa)));
  if (cpu_supports(isa)) return ok_status();
  return unsupported(
      fmt::format("this CPU lacks the {} instructions, which the Program's kernels need", full_name_of(isa)));
}

// Nothing but the interface's number is looked at before it is known.
Status check_module(const KernelModule& module, Isa isa, const std::string& path) {
  if (module.interface != kernel_interface) {
    return invalid_input(fmt::format("{} has interface {}, this program {}: build both together", path,
                                     module.interface, kernel_interface));
  }
  const KernelModule own;
  if (module.desc_bytes != own.desc_bytes || module.call_bytes != own.call_bytes ||
      module.code_bytes != own.code_bytes) {
    return invalid_input(fmt::format(
        "{} has descriptions, calls and code of {}, {} and {} B, this program of {}, "
        "{} and {}: build both together",
        path, module.desc_bytes, module.call_bytes, module.code_bytes, own.desc_bytes, own.call_bytes, own.code_bytes));
  }
  if (module.level != name_of(isa))
    return invalid_input(fmt::format("{} holds kernels of level {}, not {}", path, module.level, name_of(isa)));
  const std::span<const KernelName> kernels = kernels_of(isa);
  const bool same = std::equal(kernels.begin(), kernels.end(), module.names, module.names + module.count,
                               [](KernelName kernel, const char* name) { return name_of(kernel) == name; });
  if (!same) return invalid_input(fmt::format("{} holds other kernels than this program's: build both together", path));
  return ok_status();
}

}  // namespace

Result<KernelLibrary> KernelLibrary::load(Isa isa) {
  RETURN_IF_ERROR(check_level(isa));
  const auto path = find_module(fmt::format("libnlsplit_kernels_{}.so", name_of(isa)));
  if (path) return load_file(isa, *path);
  return io_error(fmt::format("the kernels of level {} are missing: {}", name_of(isa), path.error().message));
}

Result<KernelLibrary> KernelLibrary::load_file(Isa isa, const std::string& path) {
  RETURN_IF_ERROR(check_level(isa));
  // Who finds the library loaded reads what its loading wrote in another thread: the loader's own lock is not seen by
  // the thread sanitizer.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  // Local: the symbols of two levels must never meet. Now: what is missing shows here, not in the middle of a run. Not
  // unloaded: generated kernels are compiled once a process, and kept there.
  void* handle = dlopen(path.c_str(), RTLD_LOCAL | RTLD_NOW | RTLD_NODELETE);
  if (handle == nullptr) return io_error(fmt::format("cannot load the kernels: {}", dlerror()));
  const auto function = reinterpret_cast<decltype(&nlsplit_kernel_module)>(dlsym(handle, "nlsplit_kernel_module"));
  if (function == nullptr) {
    dlclose(handle);
    return invalid_input(fmt::format("{} holds no kernels of this version: it has no nlsplit_kernel_module", path));
  }
  const KernelModule& module = *function();
  if (Status fits = check_module(module, isa, path); !fits.ok()) {
    dlclose(handle);
    return std::move(fits).error();
  }
  return KernelLibrary(isa, handle, {module.code, module.count}, module.use_dot_products);
}

KernelLibrary::KernelLibrary(Isa isa, void* handle, std::span<const KernelCode> code,
                             void (*use_dot_products)(bool, bool))
    : isa_(isa), handle_(handle), code_(code), use_dot_products_(use_dot_products) {
  use_dot_product(true);
}

KernelLibrary::KernelLibrary(KernelLibrary&& other) noexcept
    : isa_(other.isa_),
      handle_(std::exchange(other.handle_, nullptr)),
      code_(std::exchange(other.code_, {})),
      use_dot_products_(other.use_dot_products_) {}

KernelLibrary& KernelLibrary::operator=(KernelLibrary&& other) noexcept {
  std::swap(isa_, other.isa_);
  std::swap(handle_, other.handle_);
  std::swap(code_, other.code_);
  std::swap(use_dot_products_, other.use_dot_products_);
  return *this;
}

KernelLibrary::~KernelLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

Result<const KernelCode*> KernelLibrary::find(KernelId kernel) const {
  if (!is_in_catalogue(kernel.name) || kernel.level != isa_)
    return invalid_input(fmt::format("the library of level {} has no kernel \"{}\"", name_of(isa_), to_string(kernel)));
  return &code_[catalogue_index(kernel.name)];
}

}  // namespace nlsplit::inline kernels
