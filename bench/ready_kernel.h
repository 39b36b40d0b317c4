// A kernel with operands of its own, ready to be timed.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "kernel_case.h"
#include "kernels/catalogue.h"
#include "kernels/module/kernel_library.h"
#include "testing/layouts.h"

namespace nlsplit {

using Floats = std::vector<float>;

struct Aligned {
  explicit Aligned(Bytes size) : floats(static_cast<size_t>(size.value()) / sizeof(float) + 16) {
    const auto address = reinterpret_cast<uintptr_t>(floats.data());
    data = floats.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  Floats floats;
  float* data;
};

class Ready {
 public:
  Ready(const KernelLibrary& library, const ComputeDesc& desc, uint64_t seed)
      : desc_(desc), raw_(operands_of(desc, seed)) {
    entry_ = library.find(desc.kernel).value();
    for (size_t i = 0; i < desc.inputs.size(); ++i) {
      const Bytes packed = packed_bytes_of(desc, i);
      memory_.emplace_back(packed.value() > 0 ? packed : size_of(desc.inputs[i]));
      if (packed.value() > 0) {
        entry_->pack(desc, i, raw_[i].values.data(), memory_.back().data);
      } else {
        const Floats stored = testing::stored(desc.inputs[i], raw_[i].values);
        std::copy(stored.begin(), stored.end(), memory_.back().data);
      }
    }
    for (Aligned& operand : memory_) inputs_.push_back(operand.data);
    for (const TensorType& type : desc.outputs) results_.emplace_back(size_of(type));
    for (Aligned& result : results_) outputs_.push_back(result.data);
    workspace_ = std::make_unique<Aligned>(workspace_of(desc, 1));
  }

  void run() { entry_->run({&desc_, inputs_.data(), outputs_.data(), workspace_->data}); }

  bool is_right() {
    run();
    std::vector<Floats> actual;
    for (size_t o = 0; o < desc_.outputs.size(); ++o) {
      const TensorType& type = desc_.outputs[o];
      actual.push_back(testing::row_major(type, Floats(results_[o].data, results_[o].data + stored_elements(type))));
    }
    return right(desc_, raw_, actual);
  }

 private:
  ComputeDesc desc_;
  const KernelCode* entry_;
  std::vector<Tensor> raw_;
  std::vector<Aligned> memory_, results_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::unique_ptr<Aligned> workspace_;
};

}  // namespace nlsplit
