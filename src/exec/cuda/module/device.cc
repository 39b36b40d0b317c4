// The table a program gets, and all of it that is not a computation: memory, copies, streams, events, names for
// profilers.
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <memory>

#include "exec/cuda/module/module.h"
#include "graph/memory.h"
#include "kernels/cuda/gpu.h"

namespace nlsplit::cuda {

Answer refuse(std::string why) {
  thread_local std::string said;
  said = std::move(why);
  return said.c_str();  // NOLINT(clang-analyzer-cplusplus.InnerPointer): it lives as long as its thread
}

Answer answer(cudaError_t status) {
  if (status == cudaSuccess) return nullptr;
  return refuse(fmt::format("CUDA: {} ({})", cudaGetErrorString(status), cudaGetErrorName(status)));
}

Answer answer(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return nullptr;
  return refuse(fmt::format("cuBLASLt: {}", cublasLtGetStatusString(status)));
}

Answer answer(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return nullptr;
  return refuse(fmt::format("cuDNN: {}", cudnnGetErrorString(status)));
}

Answer answer(nvrtcResult status) {
  if (status == NVRTC_SUCCESS) return nullptr;
  return refuse(fmt::format("NVRTC: {}", nvrtcGetErrorString(status)));
}

namespace {

// The GPU is a property of the calling thread.
Answer use(const Device* device) { return answer(cudaSetDevice(device->number)); }

Answer count(int* devices) {
  *devices = 0;
  int found = 0;  // CUDA writes -1 where there is no driver
  RETURN_IF_REFUSED(cudaGetDeviceCount(&found));
  *devices = found;
  return nullptr;
}

void close(Device* device) {
  if (use(device) == nullptr) static_cast<void>(cudaDeviceSynchronize());
  if (device->products != nullptr) static_cast<void>(cublasLtDestroy(device->products));
  if (device->convolutions != nullptr) static_cast<void>(cudnnDestroy(device->convolutions));
  for (cudaStream_t stream : device->streams) {
    if (stream != nullptr) static_cast<void>(cudaStreamDestroy(stream));
  }
  delete device;
}

struct Close {
  void operator()(Device* device) const { close(device); }
};

Answer open(int number, Device** device) {
  std::unique_ptr<Device, Close> made(new Device);
  made->number = number;
  RETURN_IF_REFUSED(use(made.get()));
  cudaDeviceProp properties{};
  RETURN_IF_REFUSED(cudaGetDeviceProperties(&properties, number));
  char bus_id[32] = {};
  RETURN_IF_REFUSED(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, number));
  made->bus_id = bus_id;
  made->architecture = fmt::format("sm_{}{}", properties.major, properties.minor);
  made->text = fmt::format("{}, {}, {} GiB", properties.name, made->architecture, properties.totalGlobalMem >> 30);
  for (cudaStream_t& stream : made->streams) {
    RETURN_IF_REFUSED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  RETURN_IF_REFUSED(cublasLtCreate(&made->products));
  RETURN_IF_REFUSED(cudnnCreate(&made->convolutions));
  RETURN_IF_REFUSED(cudnnSetStream(made->convolutions, made->compute()));
  *device = made.release();
  return nullptr;
}

Answer describe(Device* device, const char** text) {
  *text = device->text.c_str();
  return nullptr;
}

Answer bus_id(Device* device, const char** text) {
  *text = device->bus_id.c_str();
  return nullptr;
}

Answer handle(Device* device, Stream stream, void** handle) {
  RETURN_IF_REFUSED(use(device));
  *handle = device->stream(stream);
  return nullptr;
}

Answer allocate(Device* device, uint64_t bytes, void** memory) {
  RETURN_IF_REFUSED(use(device));
  return answer(cudaMalloc(memory, bytes));
}

Answer release(Device* device, void* memory) {
  RETURN_IF_REFUSED(use(device));
  return answer(cudaFree(memory));
}

Answer pin(Device* device, void* host, uint64_t bytes) {
  RETURN_IF_REFUSED(use(device));
  return answer(cudaHostRegister(host, bytes, cudaHostRegisterDefault));
}

Answer unpin(Device* device, void* host) {
  RETURN_IF_REFUSED(use(device));
  return answer(cudaHostUnregister(host));
}

Answer copy_in(Device* device, Stream stream, void* to, const void* from_host, uint64_t bytes) {
  RETURN_IF_REFUSED(use(device));
  return answer(cudaMemcpyAsync(to, from_host, bytes, cudaMemcpyHostToDevice, device->stream(stream)));
}

Answer copy_out(Device* device, Stream stream, void* to_host, const void* from, uint64_t bytes) {
  RETURN_IF_REFUSED(use(device));
  return answer(cudaMemcpyAsync(to_host, from, bytes, cudaMemcpyDeviceToHost, device->stream(stream)));
}

Answer move(Device* device, Stream stream, void* to, uint64_t to_pitch, const void* from, uint64_t from_pitch,
            uint64_t width, uint64_t rows) {
  RETURN_IF_REFUSED(use(device));
  if (rows == 1 || (to_pitch == width && from_pitch == width)) {
    return answer(cudaMemcpyAsync(to, from, width * rows, cudaMemcpyDeviceToDevice, device->stream(stream)));
  }
  return answer(
      cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDeviceToDevice, device->stream(stream)));
}

Answer add(Device* device, DType type, void* sum, const void* const* terms, uint64_t count, int64_t elements) {
  RETURN_IF_REFUSED(use(device));
  if (count > most_terms) return refuse(fmt::format("a sum of {} terms; it takes {}", count, most_terms));
  if (elements == 0) return nullptr;
  Terms all{};
  for (uint64_t t = 0; t < count; ++t) all.term[t] = terms[t];
  all.count = static_cast<int32_t>(count);
  return answer(launch_terms(element_of(type), sum, all, elements, device->compute()));
}

// cuBLASLt takes a workspace only at a multiple of 256 B, and buffers begin at multiples of arena_alignment: of what it
// is given, a kernel uses what lies behind the next multiple.
constexpr uint64_t workspace_alignment = 256, kept_back = workspace_alignment - arena_alignment;

Answer prepare(Device* device, const ComputeDesc* desc, uint64_t workspace, Kernel** kernel) {
  RETURN_IF_REFUSED(use(device));
  workspace -= workspace < kept_back ? workspace : kept_back;
  auto made = std::make_unique<Kernel>();
  static const Prepare table[] = {
#define NLS_GPU_KERNEL(name) code::name,
#include "kernels/kernels.def"
  };
  if (!is_gpu(desc->kernel.level.isa)) return refuse(fmt::format("{} is no GPU's kernel", to_string(desc->kernel)));
  RETURN_IF_REFUSED(table[catalogue_index(desc->kernel.name) - cpu_kernel_count](*device, *desc, workspace, made->run));
  *kernel = made.release();
  return nullptr;
}

void discard(Device* device, Kernel* kernel) {
  static_cast<void>(use(device));
  delete kernel;
}

Answer launch(Device* device, Kernel* kernel, const KernelCall* call) {
  RETURN_IF_REFUSED(use(device));
  KernelCall own = *call;
  const auto begin = reinterpret_cast<uintptr_t>(call->workspace);
  own.workspace =
      reinterpret_cast<void*>((begin + workspace_alignment - 1) / workspace_alignment * workspace_alignment);
  return kernel->run(*device, own);
}

Answer create_event(Device* device, Event** event) {
  RETURN_IF_REFUSED(use(device));
  auto made = std::make_unique<Event>();
  RETURN_IF_REFUSED(cudaEventCreate(&made->event));
  *event = made.release();
  return nullptr;
}

void destroy_event(Device* device, Event* event) {
  if (use(device) == nullptr) static_cast<void>(cudaEventDestroy(event->event));
  delete event;
}

Answer record(Device* device, Stream stream, Event* event) {
  RETURN_IF_REFUSED(use(device));
  const bool captured = stream == Stream::compute && device->capturing;
  return answer(cudaEventRecordWithFlags(event->event, device->stream(stream),
                                         captured ? cudaEventRecordExternal : cudaEventRecordDefault));
}

Answer query(Device* device, Event* event, int* reached) {
  RETURN_IF_REFUSED(use(device));
  const cudaError_t status = cudaEventQuery(event->event);
  *reached = status == cudaSuccess ? 1 : 0;
  return status == cudaErrorNotReady ? nullptr : answer(status);
}

Answer wait(Device* device, Event* event) {
  RETURN_IF_REFUSED(use(device));
  return answer(cudaEventSynchronize(event->event));
}

Answer elapsed(Device* device, Event* first, Event* second, double* seconds) {
  RETURN_IF_REFUSED(use(device));
  float milliseconds = 0;
  RETURN_IF_REFUSED(cudaEventElapsedTime(&milliseconds, first->event, second->event));
  *seconds = static_cast<double>(milliseconds) * 1e-3;
  return nullptr;
}

// The other thread copies meanwhile, on streams of its own: only what this one does counts.
Answer begin_capture(Device* device) {
  RETURN_IF_REFUSED(use(device));
  RETURN_IF_REFUSED(cudaStreamBeginCapture(device->compute(), cudaStreamCaptureModeThreadLocal));
  device->capturing = true;
  return nullptr;
}

Answer end_capture(Device* device, Graph** graph) {
  RETURN_IF_REFUSED(use(device));
  device->capturing = false;
  cudaGraph_t captured = nullptr;
  cudaError_t status = cudaStreamEndCapture(device->compute(), &captured);
  auto made = std::make_unique<Graph>();
  if (status == cudaSuccess) status = cudaGraphInstantiate(&made->graph, captured, 0);
  if (captured != nullptr) static_cast<void>(cudaGraphDestroy(captured));
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // else the next kernel would answer for it
    return answer(status);
  }
  *graph = made.release();
  return nullptr;
}

void destroy_graph(Device* device, Graph* graph) {
  if (use(device) == nullptr) static_cast<void>(cudaGraphExecDestroy(graph->graph));
  delete graph;
}

Answer launch_graph(Device* device, Graph* graph) {
  RETURN_IF_REFUSED(use(device));
  return answer(cudaGraphLaunch(graph->graph, device->compute()));
}

void range_begin(const char* name) { nvtxRangePushA(name); }
void range_end() { nvtxRangePop(); }

}  // namespace
}  // namespace nlsplit::cuda

extern "C" __attribute__((visibility("default"))) const nlsplit::cuda::Backend* nlsplit_cuda_backend() {
  using namespace nlsplit::cuda;
  static constexpr Backend backend = {
      interface_version, count,       open,          close,         describe,    bus_id,   handle, allocate,
      release,           pin,         unpin,         copy_in,       copy_out,    move,     add,    prepare,
      discard,           launch,      create_event,  destroy_event, record,      query,    wait,   elapsed,
      begin_capture,     end_capture, destroy_graph, launch_graph,  range_begin, range_end};
  return &backend;
}
