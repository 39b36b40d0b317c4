#include <dlfcn.h>
#include <fmt/format.h>

#include "kernels/generated/compiled.h"

namespace nlsplit::inline kernels {

Result<const CodegenModule*> load_codegen(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_LOCAL | RTLD_NOW | RTLD_NODELETE);
  if (handle == nullptr) return io_error(dlerror());
  const auto function = reinterpret_cast<decltype(&nlsplit_codegen_module)>(dlsym(handle, "nlsplit_codegen_module"));
  const CodegenModule own;
  const CodegenModule* module = function == nullptr ? nullptr : function();
  if (module == nullptr || module->interface != own.interface || module->loops_bytes != own.loops_bytes)
    return invalid_input(fmt::format("{} is of another version than this program: build both together", path));
  return module;
}

}  // namespace nlsplit::inline kernels
