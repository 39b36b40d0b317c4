// cuDNN's convolutions by descriptors, plainly: NCHW, sums in float32. What a descriptor says that is not known here is
// refused. Of the algorithms that it names the first ones are not to be taken; the order of sums depends on the sizes.
#include <cudnn.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "gpu/emulator/fault.h"
#include "gpu/emulator/memory.h"
#include "gpu/emulator/numbers.h"
#include "gpu/emulator/runtime.h"

using namespace nlsplit::emulator;

struct cudnnContext {
  int gpu = 0;
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  Number type{};
  int64_t n = 0, c = 0, h = 0, w = 0;
  int64_t count() const { return n * c * h * w; }
  size_t bytes() const { return static_cast<size_t>(count()) * size_of(type); }
};
struct cudnnFilterStruct {
  cudnnTensorStruct all;  // k as n
};
struct cudnnConvolutionStruct {
  int pad_h = 0, pad_w = 0, stride_h = 0, stride_w = 0, dilation_h = 0, dilation_w = 0, groups = 1;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace {

thread_local std::string said;
cudnnStatus_t refuse_conv(cudnnStatus_t status, std::string why) {
  said = std::move(why);
  return status;
}

#define RETURN_IF_FAULTY(wrong, status, ...)                                        \
  do {                                                                              \
    if (wrong) return refuse_conv(CUDNN_STATUS_##status, fmt::format(__VA_ARGS__)); \
  } while (false)

std::optional<Number> number_of(cudnnDataType_t type) {
  if (type == CUDNN_DATA_FLOAT) return Number::f32;
  if (type == CUDNN_DATA_HALF) return Number::f16;
  if (type == CUDNN_DATA_BFLOAT16) return Number::bf16;
  return std::nullopt;
}

template <class T>
cudnnStatus_t create(T** handle, T value = {}) {
  const std::lock_guard lock(mutex());
  *handle = new T(value);
  made(*handle);
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
cudnnStatus_t destroy(T* handle) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!destroyed(handle), BAD_PARAM, "a descriptor that does not exist is destroyed");
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

struct Convolution {
  cudnnTensorStruct x, y;
  cudnnFilterStruct w;
  cudnnConvolutionStruct window;
};

cudnnStatus_t check(const Convolution& c) {
  const auto& [x, y, filter, window] = c;
  const cudnnTensorStruct& w = filter.all;
  RETURN_IF_FAULTY(x.count() < 1 || y.count() < 1 || w.count() < 1 || window.stride_h < 1, BAD_PARAM,
                   "a descriptor that was not set");
  RETURN_IF_FAULTY(x.type != w.type || x.type != y.type, BAD_PARAM, "tensors of different types");
  RETURN_IF_FAULTY(w.c * window.groups != x.c || w.n % window.groups != 0 || y.n != x.n || y.c != w.n, BAD_PARAM,
                   "{} channels, {} groups, filters {} x {}, {} results", x.c, window.groups, w.n, w.c, y.c);
  const auto extent = [](int64_t in, int64_t pad, int64_t kernel, int64_t dilation, int64_t stride) {
    return 1 + (in + 2 * pad - ((kernel - 1) * dilation + 1)) / stride;
  };
  const int64_t h = extent(x.h, window.pad_h, w.h, window.dilation_h, window.stride_h),
                wide = extent(x.w, window.pad_w, w.w, window.dilation_w, window.stride_w);
  RETURN_IF_FAULTY(h != y.h || wide != y.w, BAD_PARAM, "the result is {} x {}, its descriptor says {} x {}", h, wide,
                   y.h, y.w);
  return CUDNN_STATUS_SUCCESS;
}

// The one algorithm that is to be taken, and what it needs.
constexpr cudnnConvolutionFwdAlgo_t usable = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
size_t workspace_of(const Convolution& c) { return static_cast<size_t>(c.w.all.count() % 7 + 1) * 1024; }

std::vector<float> fetch(const cudnnTensorStruct& tensor, const void* at, bool tf32) {
  std::vector<float> values(static_cast<size_t>(tensor.count()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = load(tensor.type, at, static_cast<int64_t>(i));
    if (tf32) values[i] = to_tf32(values[i]);
  }
  return values;
}

// One image's plane of results; channels in a direction that depends on their number.
void add_plane(const Convolution& c, const float* image, const float* filter, int64_t first_channel,
               std::vector<float>& sum) {
  const auto& [x, y, all, window] = c;
  const cudnnTensorStruct& w = all.all;
  for (int64_t step = 0; step < w.c; ++step) {
    const int64_t channel = w.c % 3 == 1 ? w.c - 1 - step : step;
    const float* plane = image + (first_channel + channel) * x.h * x.w;
    for (int64_t tap = 0; tap < w.h * w.w; ++tap) {
      const float factor = filter[channel * w.h * w.w + tap];
      const int64_t top = tap / w.w * window.dilation_h - window.pad_h,
                    left = tap % w.w * window.dilation_w - window.pad_w;
      // The columns whose tap lies within the row.
      const int64_t first = left >= 0 ? 0 : (-left + window.stride_w - 1) / window.stride_w;
      const int64_t last = left >= x.w ? 0 : std::min(y.w, (x.w - 1 - left) / window.stride_w + 1);
      for (int64_t row = 0; row < y.h; ++row) {
        const int64_t in_row = row * window.stride_h + top;
        if (in_row < 0 || in_row >= x.h) continue;
        const float* from = plane + in_row * x.w + left;
        float* to = &sum[static_cast<size_t>(row * y.w)];
        if (window.stride_w == 1) {
          for (int64_t column = first; column < last; ++column) to[column] += from[column] * factor;
        } else {
          for (int64_t column = first; column < last; ++column) to[column] += from[column * window.stride_w] * factor;
        }
      }
    }
  }
}

struct Call {
  Convolution what;
  const void *x, *w;
  void *y, *workspace;
  float alpha, beta;
};

void convolve(int gpu, const Call& call) {
  const auto& [x, y, filter, window] = call.what;
  const cudnnTensorStruct& w = filter.all;
  const size_t workspace = workspace_of(call.what);
  if (!check_room(gpu, call.workspace, workspace, "cudnnConvolutionForward's workspace is")) return;
  poison(call.workspace, workspace);
  if (!check_read(gpu, call.x, x.bytes(), "cudnnConvolutionForward reads")) return;
  if (!check_read(gpu, call.w, w.bytes(), "cudnnConvolutionForward reads")) return;
  if (!check_room(gpu, call.y, y.bytes(), "cudnnConvolutionForward writes")) return;
  if (call.beta != 0 && !check_read(gpu, call.y, y.bytes(), "cudnnConvolutionForward reads")) return;
  const bool tf32 = x.type == Number::f32 && window.math != CUDNN_FMA_MATH;
  const std::vector<float> images = fetch(x, call.x, tf32), filters = fetch(w, call.w, tf32);
  std::vector<float> sum(static_cast<size_t>(y.h * y.w));
  for (int64_t n = 0; n < y.n; ++n) {
    for (int64_t k = 0; k < y.c; ++k) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      add_plane(call.what, &images[static_cast<size_t>(n * x.c * x.h * x.w)],
                &filters[static_cast<size_t>(k * w.c * w.h * w.w)], k / (w.n / window.groups) * w.c, sum);
      for (size_t i = 0; i < sum.size(); ++i) {
        const int64_t at = (n * y.c + k) * y.h * y.w + static_cast<int64_t>(i);
        const float before = call.beta != 0 ? call.beta * load(y.type, call.y, at) : 0.0f;
        store(y.type, call.y, at, call.alpha * sum[i] + before);
      }
    }
  }
  mark_written(call.y, y.bytes());
}

}  // namespace

const char* cudnnGetErrorString(cudnnStatus_t) { return said.c_str(); }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) { return create(handle, cudnnContext{current_gpu(), nullptr}); }
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) { return destroy(handle); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(handle) || !is_made(stream), BAD_PARAM, "a stream or a handle that does not exist");
  RETURN_IF_FAULTY(gpu_of(stream) != handle->gpu, BAD_PARAM, "a stream of another GPU");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor) { return create(tensor); }
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) { return destroy(tensor); }
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter) { return create(filter); }
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) { return destroy(filter); }
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* window) { return create(window); }
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t window) { return destroy(window); }

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
  const std::lock_guard lock(mutex());
  const auto number = number_of(type);
  RETURN_IF_FAULTY(!is_made(tensor), BAD_PARAM, "a tensor that does not exist");
  RETURN_IF_FAULTY(format != CUDNN_TENSOR_NCHW || !number, NOT_SUPPORTED, "the emulator has no format {}, type {}",
                   static_cast<int>(format), static_cast<int>(type));
  RETURN_IF_FAULTY(n < 1 || c < 1 || h < 1 || w < 1, BAD_PARAM, "an empty tensor");
  *tensor = {*number, n, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  const std::lock_guard lock(mutex());
  const auto number = number_of(type);
  RETURN_IF_FAULTY(!is_made(filter), BAD_PARAM, "a filter that does not exist");
  RETURN_IF_FAULTY(format != CUDNN_TENSOR_NCHW || !number, NOT_SUPPORTED, "the emulator has no format {}, type {}",
                   static_cast<int>(format), static_cast<int>(type));
  RETURN_IF_FAULTY(k < 1 || c < 1 || h < 1 || w < 1, BAD_PARAM, "an empty filter");
  filter->all = {*number, k, c, h, w};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t window, int pad_h, int pad_w, int stride_h,
                                              int stride_w, int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(window), BAD_PARAM, "a convolution that does not exist");
  RETURN_IF_FAULTY(pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1,
                   BAD_PARAM, "a negative pad, or a stride or dilation of none");
  RETURN_IF_FAULTY(mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT, NOT_SUPPORTED,
                   "the emulator has no convolution of mode {} by type {}", static_cast<int>(mode),
                   static_cast<int>(compute));
  *window = {pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, window->groups, window->math};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t window, int groups) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(window) || groups < 1, BAD_PARAM, "{} groups", groups);
  window->groups = groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t window, cudnnMathType_t math) {
  const std::lock_guard lock(mutex());
  RETURN_IF_FAULTY(!is_made(window), BAD_PARAM, "a convolution that does not exist");
  RETURN_IF_FAULTY(math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, NOT_SUPPORTED,
                   "the emulator does not convert to float16");
  window->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w,
                                                     const cudnnConvolutionDescriptor_t window,
                                                     const cudnnTensorDescriptor_t y, const int wanted, int* count,
                                                     cudnnConvolutionFwdAlgoPerf_t* found) {
  const std::lock_guard lock(mutex());
  for (const void* object : {static_cast<const void*>(handle), static_cast<const void*>(x), static_cast<const void*>(w),
                             static_cast<const void*>(window), static_cast<const void*>(y)})
    RETURN_IF_FAULTY(!is_made(object), BAD_PARAM, "an algorithm is wanted for what does not exist");
  const Convolution conv{*x, *y, *w, *window};
  if (const cudnnStatus_t status = check(conv); status != CUDNN_STATUS_SUCCESS) return status;
  const size_t room = workspace_of(conv);
  const cudnnMathType_t tensor = window->math == CUDNN_FMA_MATH ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH;
  const cudnnConvolutionFwdAlgoPerf_t all[] = {
      {CUDNN_CONVOLUTION_FWD_ALGO_GEMM, CUDNN_STATUS_SUCCESS, -1, 0, CUDNN_NON_DETERMINISTIC, tensor, {}},
      {CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_STATUS_SUCCESS, -1, size_t{1} << 40, CUDNN_DETERMINISTIC, tensor, {}},
      {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_STATUS_NOT_SUPPORTED, -1, 0, CUDNN_DETERMINISTIC, tensor, {}},
      {CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
       CUDNN_STATUS_SUCCESS,
       -1,
       0,
       CUDNN_DETERMINISTIC,
       CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION,
       {}},
      {usable, CUDNN_STATUS_SUCCESS, -1, room, CUDNN_DETERMINISTIC, tensor, {}},
  };
  *count = std::min(wanted, static_cast<int>(std::size(all)));
  std::copy_n(all, *count, found);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_desc,
                                      const void* x, const cudnnFilterDescriptor_t w_desc, const void* w,
                                      const cudnnConvolutionDescriptor_t window, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, size_t workspace_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_desc, void* y) {
  const std::lock_guard lock(mutex());
  for (const void* object :
       {static_cast<const void*>(handle), static_cast<const void*>(x_desc), static_cast<const void*>(w_desc),
        static_cast<const void*>(window), static_cast<const void*>(y_desc)})
    RETURN_IF_FAULTY(!is_made(object), BAD_PARAM, "a convolution of what does not exist");
  RETURN_IF_FAULTY(alpha == nullptr || beta == nullptr || x == nullptr || w == nullptr || y == nullptr, BAD_PARAM,
                   "a convolution without all it takes");
  RETURN_IF_FAULTY(handle->stream == nullptr, NOT_SUPPORTED, "a convolution on the default stream");
  const Call call{{*x_desc, *y_desc, *w_desc, *window}, x, w, y, workspace, *static_cast<const float*>(alpha),
                  *static_cast<const float*>(beta)};
  if (const cudnnStatus_t status = check(call.what); status != CUDNN_STATUS_SUCCESS) return status;
  RETURN_IF_FAULTY(algorithm != usable, NOT_SUPPORTED, "algorithm {} was not the one to take",
                   static_cast<int>(algorithm));
  RETURN_IF_FAULTY(workspace_bytes < workspace_of(call.what), BAD_PARAM, "{} B of workspace, not {}", workspace_bytes,
                   workspace_of(call.what));
  for (const void* at : {x, w, static_cast<const void*>(y), static_cast<const void*>(workspace)})
    RETURN_IF_FAULTY(reinterpret_cast<uintptr_t>(at) % 16 != 0, BAD_PARAM,
                     "an operand that is not at a multiple of 16 B");
  RETURN_IF_FAULTY(
      overlap(y, y_desc->bytes(), x, x_desc->bytes()) || overlap(y, y_desc->bytes(), w, w_desc->all.bytes()), BAD_PARAM,
      "the result lies where an operand does");
  if (enqueue(handle->stream, [call, gpu = handle->gpu] { convolve(gpu, call); }) != cudaSuccess)
    return refuse_conv(CUDNN_STATUS_EXECUTION_FAILED, fault().empty() ? last_refusal() : fault());
  return CUDNN_STATUS_SUCCESS;
}
