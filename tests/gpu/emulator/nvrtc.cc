// NVRTC, and the loading of what it compiles: g++ in its place, when the first kernel runs. All sources that are there
// by then go through it at once, which takes a fraction of the time.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/child_process.h"
#include "base/file.h"
#include "base/temporary_folder.h"
#include "gpu/emulator/blocks.h"
#include "gpu/emulator/fault.h"
#include "gpu/emulator/hooks.h"
#include "gpu/emulator/launch.h"
#include "gpu/emulator/runtime.h"

using namespace nlsplit::emulator;
using nlsplit::Heard;
using nlsplit::output_of;
using nlsplit::TemporaryFolder;

struct _nvrtcProgram {
  std::string source, log;
};

// A source that was loaded, and its only kernel. What the driver would know of the kernel's parameters is read off the
// source: they are pointers.
struct CUlib_st {
  std::string source;
  size_t number = 0;
};
struct CUkern_st {
  std::string name;
  const CUlib_st* library = nullptr;
  size_t parameters = 0;
  void (*thread)(const void* arguments) = nullptr;  // nullptr: not compiled yet
};

namespace {

#define RETURN_IF_FAULTY(wrong, status, why) \
  do {                                       \
    if (wrong) return refuse(status, why);   \
  } while (false)

// As many as there are; they stay until the process ends.
struct Compiled {
  std::deque<CUlib_st> libraries;
  std::deque<CUkern_st> kernels;
};
Compiled& compiled() {
  static Compiled all;
  return all;
}

// CUDA's language, as far as such kernels use it; simt.h has more, and takes seconds.
constexpr std::string_view language = R"(
#define __global__
#define __device__
struct Triple { unsigned x, y, z; };
struct Place { Triple thread, block, threads, blocks; };
extern "C" const Place* emulated_place();
#define threadIdx (emulated_place()->thread)
#define blockIdx (emulated_place()->block)
#define blockDim (emulated_place()->threads)
#define gridDim (emulated_place()->blocks)
extern "C" {
float fabsf(float); float sqrtf(float); float floorf(float); float ceilf(float); float rintf(float); float truncf(float);
double fabs(double); double sqrt(double); double floor(double); double ceil(double); double rint(double);
double trunc(double);
}
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
inline double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
template <int... i> struct Numbers {};
template <class... All, int... i>
void call_numbered(void (*kernel)(All...), const void* const* arguments, Numbers<i...>) {
  kernel((All)arguments[i]...);
}
template <class... All>
void call(void (*kernel)(All...), const void* arguments) {
  call_numbered(kernel, (const void* const*)arguments, Numbers<__integer_pack(sizeof...(All))...>{});
}
)";

// What the sanitizers' reports call, compiled without them.
constexpr std::string_view reports = R"(
struct Hooks {
  void (*look)(const void* at, unsigned long bytes, bool write, unsigned long alignment);
  void (*odd_place)();
  void (*outside_table)();
  const void* (*place)();
};
static const Hooks* hooks;  // none yet: tables are filled in
static void look(const void* at, unsigned long bytes, bool write) {
  if (hooks) hooks->look(at, bytes, write, bytes);
}
extern "C" {
void emulated_begin(const Hooks* given) { hooks = given; }
const void* emulated_place() { return hooks->place(); }
void __tsan_init() {}
void __ubsan_handle_type_mismatch_v1(void*, unsigned long) { hooks->odd_place(); }
void __ubsan_handle_out_of_bounds(void*, unsigned long) { hooks->outside_table(); }
#define LOOK(bytes) \
  void __tsan_read##bytes(const void* at) { look(at, bytes, false); } \
  void __tsan_write##bytes(void* at) { look(at, bytes, true); }
LOOK(1) LOOK(2) LOOK(4) LOOK(8) LOOK(16)
}
)";

struct Hooks {
  void (*look)(const void* at, size_t bytes, bool write, size_t alignment);
  void (*odd_place)();
  void (*outside_table)();
  const void* (*place)();
};
constexpr Hooks hooks = {look, odd_place, outside_table, [] { return static_cast<const void*>(&here()); }};

std::string source_of(const CUkern_st& kernel) {
  const size_t n = kernel.library->number;
  return fmt::format(
      "namespace source{0} {{\n#define {1} {1}{0}\n#line 1 \"source{0}\"\n{2}\n#undef {1}\n}}\n"
      "extern \"C\" void thread{0}(const void* arguments) {{ call(source{0}::{1}{0}, arguments); }}\n",
      n, kernel.name, kernel.library->source);
}

// g++ on these words; false, and a fault: it failed.
bool compile(const std::string& folder, const std::string& words) {
  std::vector<std::string> all = {NLS_EMULATOR_CXX};
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    all.push_back(words.substr(at, end - at));
    if (all.back().ends_with(".cc") || all.back().ends_with(".o") || all.back().ends_with(".so"))
      all.back().insert(0, folder + "/");
    at = end + 1;
  }
  const auto said = output_of(all, Heard::out_and_err);
  if (said.ok() && said->code == 0) return true;
  report(fmt::format("cannot compile a kernel: {}", said.ok() ? said->text : said.error().message));
  return false;
}

// What is loaded and not yet compiled.
void compile_waiting() {
  std::vector<CUkern_st*> waiting;
  for (CUkern_st& kernel : compiled().kernels) {
    if (kernel.thread == nullptr) waiting.push_back(&kernel);
  }
  const auto folder = TemporaryFolder::create();
  CHECK(folder.ok(), "a folder for the kernels' sources");
  std::string text(language);
  for (const CUkern_st* kernel : waiting) text += source_of(*kernel);
  CHECK(nlsplit::write_file(folder->path() + "/kernels.cc", text).ok() &&
            nlsplit::write_file(folder->path() + "/reports.cc", std::string(reports)).ok(),
        "the kernels' sources are written");
  // IEEE 754's arithmetic as it is written; accesses are reported (hooks.h).
  if (!compile(
          folder->path(),
          "-c -O1 -std=c++20 -w -fPIC -ffp-contract=off -fno-math-errno -fno-strict-aliasing "
          "-fsanitize=thread,alignment,bounds --param=tsan-instrument-func-entry-exit=0 kernels.cc -o kernels.o") ||
      !compile(folder->path(), "-shared -fPIC -Wl,-Bsymbolic -w reports.cc kernels.o -o kernels.so"))
    return;
  void* handle = dlopen((folder->path() + "/kernels.so").c_str(), RTLD_LOCAL | RTLD_NOW);
  CHECK(handle != nullptr, dlerror());
  reinterpret_cast<void (*)(const Hooks*)>(dlsym(handle, "emulated_begin"))(&hooks);
  for (CUkern_st* kernel : waiting) {
    const std::string name = fmt::format("thread{}", kernel->library->number);
    kernel->thread = reinterpret_cast<void (*)(const void*)>(dlsym(handle, name.c_str()));
    CHECK(kernel->thread != nullptr, "each source has a thread");
  }
}

void run(int gpu, const CUkern_st& kernel, unsigned blocks, int threads, const std::vector<const void*>& arguments) {
  if (kernel.thread == nullptr) compile_waiting();
  if (kernel.thread == nullptr) return;
  const auto* begin = reinterpret_cast<const std::byte*>(arguments.data());
  const Call call{kernel.thread, {begin, begin + arguments.size() * sizeof(void*)}};
  Blocks all(blocks);
  all.name = "the generated kernel";
  run_kernel(gpu, all, threads, draws(), call);
}

}  // namespace

// ---- NVRTC's functions, as its manual has them

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int headers, const char* const*,
                               const char* const*) {
  if (headers != 0) return NVRTC_ERROR_INVALID_INPUT;
  const std::lock_guard lock(mutex());
  *program = new _nvrtcProgram{source, {}};
  made(*program);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  const std::lock_guard lock(mutex());
  if (!destroyed(*program)) return NVRTC_ERROR_INVALID_PROGRAM;
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}

// Both are what bits and this GPU depend on.
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  for (const char* wanted : {"--fmad=false", "--gpu-architecture=sm_80"}) {
    if (std::any_of(options, options + count, [&](const char* option) { return std::strcmp(option, wanted) == 0; }))
      continue;
    program->log = fmt::format("the emulator wants {}", wanted);
    return NVRTC_ERROR_INVALID_OPTION;
  }
  if (program->source.find("#include") == std::string::npos) return NVRTC_SUCCESS;
  program->log = "a source that includes something";
  return NVRTC_ERROR_COMPILATION;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* bytes) {
  *bytes = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}

// The code of this GPU is the source.
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* bytes) {
  *bytes = program->source.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* code) {
  std::memcpy(code, program->source.c_str(), program->source.size() + 1);
  return NVRTC_SUCCESS;
}

const char* nvrtcGetErrorString(nvrtcResult result) {
  switch (result) {
    case NVRTC_SUCCESS:
      return "NVRTC_SUCCESS";
    case NVRTC_ERROR_INVALID_OPTION:
      return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION:
      return "NVRTC_ERROR_COMPILATION";
    default:
      return "NVRTC_ERROR";
  }
}

// ---- CUDA's

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned jit_options,
                                cudaLibraryOption*, void**, unsigned options) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(is_capturing(), cudaErrorStreamCaptureUnsupported, "cudaLibraryLoadData while a stream is captured");
  RETURN_IF_FAULTY(jit_options != 0 || options != 0, cudaErrorInvalidValue, "cudaLibraryLoadData with options");
  *library = &compiled().libraries.emplace_back(CUlib_st{static_cast<const char*>(code), compiled().libraries.size()});
  return outcome();
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  const std::lock_guard lock(mutex());
  const std::string head = fmt::format("__global__ void {}(", name);
  const size_t at = library->source.find(head);
  RETURN_IF_FAULTY(at == std::string::npos, cudaErrorSymbolNotFound, fmt::format("there is no kernel {}", name));
  const size_t begin = at + head.size(), end = library->source.find(')', begin);
  const auto commas = std::count(library->source.begin() + static_cast<std::ptrdiff_t>(begin),
                                 library->source.begin() + static_cast<std::ptrdiff_t>(end), ',');
  *kernel = &compiled().kernels.emplace_back(CUkern_st{name, library, static_cast<size_t>(commas) + 1});
  return outcome();
}

cudaError_t cudaLaunchKernel(const void* function, dim3 blocks, dim3 threads, void** arguments, size_t shared,
                             cudaStream_t stream) {
  const std::lock_guard lock(mutex());
  const auto& kernels = compiled().kernels;
  const auto kernel = std::ranges::find_if(kernels, [&](const CUkern_st& known) { return &known == function; });
  RETURN_IF_FAULTY(kernel == kernels.end(), cudaErrorInvalidDeviceFunction, "a launch of what is not a kernel");
  RETURN_IF_FAULTY(blocks.x == 0 || threads.x == 0 || threads.x > 1024 || blocks.y * blocks.z != 1 ||
                       threads.y * threads.z != 1 || shared != 0,
                   cudaErrorInvalidConfiguration, fmt::format("{} blocks of {} threads", blocks.x, threads.x));
  std::vector<const void*> values;
  for (size_t i = 0; i < kernel->parameters; ++i) values.push_back(*static_cast<const void* const*>(arguments[i]));
  return enqueue(stream, [gpu = gpu_of(stream), &kernel = *kernel, blocks, threads, values] {
    run(gpu, kernel, blocks.x, static_cast<int>(threads.x), values);
  });
}
