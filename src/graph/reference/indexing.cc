// Walking over tensors, and over work with threads.
#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "graph/reference/loops.h"

namespace nlsplit::inline graph::reference {

std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::vector<int64_t> broadcast_strides(const Shape& shape, const Shape& out) {
  CHECK(shape.size() <= out.size(), "broadcasting never drops axes");
  const std::vector<int64_t> own = strides_of(shape);
  std::vector<int64_t> strides(out.size(), 0);
  const size_t shift = out.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    CHECK(shape[i] == out[shift + i] || shape[i] == 1, "extents fit or are 1");
    if (shape[i] == out[shift + i]) strides[shift + i] = own[i];
  }
  return strides;
}

void for_each_index(const Shape& shape, const std::function<void(const Shape& index)>& visit) {
  if (element_count(shape) == 0) return;
  Shape index(shape.size(), 0);
  for (;;) {
    visit(index);
    size_t axis = shape.size();
    while (axis > 0 && ++index[axis - 1] == shape[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

int64_t offset_of(const Shape& index, const std::vector<int64_t>& strides) {
  int64_t offset = 0;
  for (size_t i = 0; i < index.size(); ++i) offset += index[i] * strides[i];
  return offset;
}

namespace {

thread_local bool one_thread = false;

}  // namespace

void parallel_for(int64_t count, const std::function<void(int64_t)>& work) {
  if (one_thread) {
    for (int64_t i = 0; i < count; ++i) work(i);
    return;
  }
  const int64_t cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  std::atomic<int64_t> next = 0;
  auto worker = [&] {
    for (int64_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < std::min(cores, count); ++i) others.emplace_back(worker);
  worker();
}

bool set_one_thread(bool value) { return std::exchange(one_thread, value); }

}  // namespace nlsplit::inline graph::reference

namespace nlsplit::inline graph {

OneThread::OneThread() : before_(reference::set_one_thread(true)) {}
OneThread::~OneThread() { reference::set_one_thread(before_); }

}  // namespace nlsplit::inline graph
