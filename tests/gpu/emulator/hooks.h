// What the emulator does with reported accesses of kernels (hooks.cc). Each ends the kernel where it is wrong.
#pragma once

#include <cstddef>

namespace nlsplit::emulator {

void look(const void* at, size_t bytes, bool write, size_t alignment);
void odd_place();      // a value at an address where its type cannot lie
void outside_table();  // an index of a constant array

}  // namespace nlsplit::emulator
