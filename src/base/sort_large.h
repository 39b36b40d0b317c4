// Sorts elements that are large and many: each is moved once, and elements that compare equal keep their order.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

namespace nlsplit::inline base {

template <class T, class Before>
void sort_large(std::vector<T>& elements, const Before& before) {
  std::vector<T*> order;
  order.reserve(elements.size());
  for (T& element : elements) order.push_back(&element);
  std::ranges::stable_sort(order, [&](const T* a, const T* b) { return before(*a, *b); });
  std::vector<T> sorted;
  sorted.reserve(elements.size());
  for (T* element : order) sorted.push_back(std::move(*element));
  elements = std::move(sorted);
}

}  // namespace nlsplit::inline base
