// Elements of any type, moved: along strides, and by indices.
#include "exec/cuda/module/grid.cuh"
#include "exec/cuda/module/launch.h"

namespace nlsplit::cuda {
namespace {

// Divisions of 64 bits take longer than the copy: Index is 32 bits where that counts all elements of the result.
template <class T, class Index>
__global__ void run_strided(const T* from, T* to, int64_t begin, Index count, Walk walk) {
  for (Index i = static_cast<Index>(first_element()); i < count; i += static_cast<Index>(all_threads())) {
    Index rest = i;
    int64_t at = begin;
    for (int axis = walk.axes - 1; axis >= 0; --axis) {
      const auto extent = static_cast<Index>(walk.extent[axis]);
      const Index before = rest / extent;
      at += static_cast<int64_t>(rest - before * extent) * walk.stride[0][axis];
      rest = before;
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
    case 16:
      return use(uint4{});
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_strided(const void* from, void* to, int64_t begin, int64_t count, const Walk& walk, int64_t element,
                           cudaStream_t stream) {
  return with_element(element, [&](auto zero) {
    using T = decltype(zero);
    const T* source = static_cast<const T*>(from);
    T* result = static_cast<T*>(to);
    return count <= int64_t{1} << 30
               ? launch(run_strided<T, uint32_t>, blocks_for(count), stream, source, result, begin,
                        static_cast<uint32_t>(count), walk)
               : launch(run_strided<T, int64_t>, blocks_for(count), stream, source, result, begin, count, walk);
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
