// A kernel's code: what is called, and with what. The code of the families is compiled once for each instruction level
// into libnlsplit_kernels_<level>.so (hidden visibility: the levels' inlined Eigen code must never mix), and
// kernels/module/kernel_library.h loads the one a Program names.
#pragma once

#include <cstddef>

#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

// The threads that share a call. Whoever runs kernels provides it; results never depend on how many there are.
struct Crew {
  int workers = 1;
  // body(context, worker) once on each of the workers, 0 (the caller) to workers - 1; returns when all are done.
  // nullptr: one worker, the caller.
  void (*run)(void* self, void (*body)(void* context, int worker), void* context) = nullptr;
  void* self = nullptr;
};

struct KernelCall {
  const ComputeDesc* desc;
  const void* const* inputs;  // in desc->inputs' order; packed ones in their packed form; nullptr: left out
  void* const* outputs;       // apart from the inputs, but may be those that in_place_inputs names
  void* workspace;            // KernelInfo::workspace bytes, aligned to arena_alignment
  Crew crew = {};
};

struct KernelCode {
  void (*run)(const KernelCall& call);
  // Row-major bytes of input `i` → its packed form, KernelInfo::packed_bytes long. nullptr: this kernel packs nothing.
  void (*pack)(const ComputeDesc& desc, size_t i, const void* raw, void* packed) = nullptr;
  // What run would do once for all calls: whoever loads a Program calls it. nullptr: there is nothing.
  void (*prepare)(const ComputeDesc& desc) = nullptr;
};

}  // namespace nlsplit::inline kernels
