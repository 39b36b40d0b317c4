// A second opinion: computations by oneDNN, for tests and benches to hold our kernels against. No Program names it, and
// only a build with -DNLSPLIT_ONEDNN=ON has it.
//
//   ASSIGN_OR_RETURN(OneDnnComputation theirs, prepare_onednn(desc, {x, w, bias}));
//   theirs.run();                                  // all that is worth timing
//   std::vector<float> y = theirs.result();        // row-major
//
// On one thread: Debian's oneDNN shares its work by OpenMP, whose number of threads is set to one for the calling
// thread around every call and put back afterwards. OMP_NUM_THREADS does not matter.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/catalogue.h"

namespace nlsplit::onednn {

// oneDNN does not choose among these by itself.
enum class OneDnnVariant : uint8_t {
  usual,          // what it takes first
  winograd,       // of a convolution: convolution_winograd
  inner_product,  // of a product by a constant matrix: inner_product instead of matmul
  // Of a convolution with an Add behind it: onto that operand, oneDNN's "sum", as a network can do that does not read
  // the operand again. A run changes it, so only the first one has the right result.
  sum_in_place,
};
std::span<const OneDnnVariant> all_onednn_variants();
std::string_view name_of(OneDnnVariant variant);

class OneDnnComputation {
 public:
  OneDnnComputation(OneDnnComputation&&) noexcept;
  OneDnnComputation& operator=(OneDnnComputation&&) noexcept;
  ~OneDnnComputation();

  // Every run computes the same, but for sum_in_place.
  void run();
  // Of the latest run. Undefined values before the first.
  std::vector<float> result() const;
  // oneDNN's names of the implementations it runs one after the other: "jit:avx512_core", "jit_dw:avx2 + simple:any".
  std::string implementation() const;

 private:
  struct State;
  explicit OneDnnComputation(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  friend Result<OneDnnComputation> prepare_onednn(const ComputeDesc&, const std::vector<std::span<const float>>&,
                                                  OneDnnVariant);
};

// Why oneDNN cannot compute this, as far as that is known without asking it; empty: ask it.
std::string onednn_refusal(const ComputeDesc& desc);

// `inputs` in desc.inputs' order, each row-major whatever layout its type names, copied here. Kernel names are ignored.
//
// What costs time here and not in run(): constant inputs are brought into the layout that oneDNN prefers, and so are
// the tensors that a network would keep in such a layout from one layer to the next: all of a convolution's, also of
// a transposed one. What a pool or another operator on images gets lies as the desc says (its blocks are also
// oneDNN's nChw4c, 8c and 16c); the activations of products and of operators on rows are row-major. The epilogue is
// fused where oneDNN can do that, rightly and without falling back to its reference code, else primitives of its own.
//
// Errors: onednn_refusal's reason, or oneDNN's; a variant that this computation does not have.
Result<OneDnnComputation> prepare_onednn(const ComputeDesc& desc, const std::vector<std::span<const float>>& inputs,
                                         OneDnnVariant variant = OneDnnVariant::usual);

}  // namespace nlsplit::onednn
