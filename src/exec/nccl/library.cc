#include "exec/nccl/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace nlsplit::inline exec {
namespace {

// Looks functions up; remembers the first that is missing.
class Lookup {
 public:
  explicit Lookup(void* handle) : handle_(handle) {}

  template <class Function>
  void operator()(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }

 private:
  void* handle_;
  const char* missing_ = nullptr;
};

}  // namespace

std::string nccl_version_text(int version) {
  const int of_major = version < 10000 ? 1000 : 10000;  // before 2.9 it was coded otherwise
  return fmt::format("{}.{}.{}", version / of_major, version % of_major / 100, version % 100);
}

Result<NcclLibrary> load_nccl(const std::string& name) {
  NcclLibrary library;
  library.name = name.empty() ? nccl_file : name;
  void* handle = dlopen(library.name.c_str(), RTLD_LOCAL | RTLD_NOW);
  if (handle == nullptr) {
    return unsupported(fmt::format(
        "cannot load NCCL: {}. It is {} of NVIDIA's package libnccl2, or of the package nvidia-nccl-cu12 of "
        "PyPI (in nvidia/nccl/lib); --nccl FILE names it",
        dlerror(), nccl_file));
  }
  Lookup find(handle);
  nccl::Api& api = library.api;
  find("ncclGetVersion", api.get_version);
  find("ncclGetErrorString", api.get_error_string);
  find("ncclGetLastError", api.get_last_error);
  find("ncclGetUniqueId", api.get_unique_id);
  find("ncclCommInitRankConfig", api.comm_init_rank_config);
  find("ncclCommGetAsyncError", api.comm_get_async_error);
  find("ncclCommFinalize", api.comm_finalize);
  find("ncclCommDestroy", api.comm_destroy);
  find("ncclCommAbort", api.comm_abort);
  find("ncclGroupStart", api.group_start);
  find("ncclGroupEnd", api.group_end);
  find("ncclSend", api.send);
  find("ncclRecv", api.recv);
  if (api.get_version == nullptr)
    return unsupported(fmt::format("{} is no NCCL: it has no ncclGetVersion", library.name));
  if (const nccl::Outcome outcome = api.get_version(&library.version); outcome != nccl::Outcome::success)
    return unsupported(fmt::format("{} does not say which NCCL it is", library.name));
  if (library.version < least_nccl || find.missing() != nullptr) {
    return unsupported(fmt::format("{} is NCCL {}, and {} or later is needed{}", library.name,
                                   nccl_version_text(library.version), nccl_version_text(least_nccl),
                                   find.missing() == nullptr ? "" : fmt::format(": it has no {}", find.missing())));
  }
  return library;
}

}  // namespace nlsplit::inline exec
