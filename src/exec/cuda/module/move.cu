// Elements of any type, moved: along strides, and by indices.
#include "exec/cuda/module/grid.cuh"
#include "exec/cuda/module/launch.h"

namespace nlsplit::cuda {
namespace {

template <class T>
__global__ void run_strided(const T* from, T* to, int64_t begin, int64_t count, Walk walk) {
  for (int64_t i = first_element(); i < count; i += all_threads()) {
    int64_t rest = i, at = begin;
    for (int axis = walk.axes - 1; axis >= 0; --axis) {
      at += rest % walk.extent[axis] * walk.stride[0][axis];
      rest /= walk.extent[axis];
    }
    to[i] = from[at];
  }
}

template <class T, class Index>
__global__ void run_gather(const T* table, const Index* indices, T* to, int64_t total, int64_t extent, int64_t count,
                           int64_t inner) {
  for (int64_t i = first_element(); i < total; i += all_threads()) {
    const int64_t unit = i / inner, outer = unit / count;
    int64_t index = indices[unit % count];
    if (index < 0) index += extent;
    index = index < 0 ? 0 : index >= extent ? extent - 1 : index;
    to[i] = table[(outer * extent + index) * inner + i % inner];
  }
}

// Calls use with a type as long as the element.
template <class Use>
cudaError_t with_element(int64_t element, const Use& use) {
  switch (element) {
    case 1:
      return use(uint8_t{});
    case 2:
      return use(uint16_t{});
    case 4:
      return use(uint32_t{});
    case 8:
      return use(uint64_t{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_strided(const void* from, void* to, int64_t begin, int64_t count, const Walk& walk, int64_t element,
                           cudaStream_t stream) {
  return with_element(element, [&](auto zero) {
    using T = decltype(zero);
    return launch(run_strided<T>, blocks_for(count), stream, static_cast<const T*>(from), static_cast<T*>(to), begin,
                  count, walk);
  });
}

cudaError_t launch_gather(const void* table, const void* indices, bool wide, void* to, int64_t outer, int64_t extent,
                          int64_t count, int64_t inner, int64_t element, cudaStream_t stream) {
  const int64_t total = outer * count * inner;
  return with_element(element, [&](auto zero) {
    using T = decltype(zero);
    const auto* from = static_cast<const T*>(table);
    auto* result = static_cast<T*>(to);
    return wide ? launch(run_gather<T, int64_t>, blocks_for(total), stream, from, static_cast<const int64_t*>(indices),
                         result, total, extent, count, inner)
                : launch(run_gather<T, int32_t>, blocks_for(total), stream, from, static_cast<const int32_t*>(indices),
                         result, total, extent, count, inner);
  });
}

}  // namespace nlsplit::cuda
