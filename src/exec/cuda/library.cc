#include "exec/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "exec/cuda/stand_in.h"
#include "kernels/find_module.h"

namespace nlsplit::inline exec {
namespace {

Result<ChosenBackend> missing(const GpuOptions& options, const std::string& why) {
  if (options.missing == GpuMissing::error) return unsupported(fmt::format("no GPU: {}", why));
  return ChosenBackend{&cuda::stand_in_backend(), 1, fmt::format("no GPU: {}; the CPU computes in its place", why)};
}

}  // namespace

Result<ChosenBackend> choose_backend(const GpuOptions& options) {
  std::string path = options.backend;
  if (path.empty()) {
    auto found = find_module(cuda::backend_file);
    if (!found) return missing(options, found.error().message);
    path = std::move(*found);
  }
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return missing(options, fmt::format("there is no {}", path));
  void* handle = dlopen(path.c_str(), RTLD_LOCAL | RTLD_NOW);
  // What it needs may be missing: a machine may have the file and not cuDNN.
  if (handle == nullptr) return missing(options, fmt::format("cannot load {}", dlerror()));
  const auto function = reinterpret_cast<cuda::BackendFunction>(dlsym(handle, cuda::backend_function));
  if (function == nullptr) {
    dlclose(handle);
    return invalid_input(fmt::format("{} is not a backend: it has no {}", path, cuda::backend_function));
  }
  const cuda::Backend* backend = function();
  if (backend->version != cuda::interface_version) {
    const uint32_t version = backend->version;
    dlclose(handle);
    return invalid_input(fmt::format("{} has interface {}, this program {}: build both together", path, version,
                                     cuda::interface_version));
  }
  int devices = 0;
  if (const char* why = backend->count(&devices); why != nullptr) return missing(options, why);
  if (devices < 1) return missing(options, "this machine has none");
  return ChosenBackend{backend, devices, {}};
}

int gpu_number(const Program& program, int device, std::span<const int> devices_of_this_machine, int devices) {
  CHECK(devices > 0, "no GPU to choose");
  int before = 0;
  for (const int d : devices_of_this_machine) {
    if (d < device && program.devices[static_cast<size_t>(d)].kind == DeviceKind::cuda) ++before;
  }
  return before % devices;
}

}  // namespace nlsplit::inline exec
