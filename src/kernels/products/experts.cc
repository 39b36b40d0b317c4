// A mixture of experts: the rows that chose one are gathered and meet its weights in the kernels of Linear, expert
// after expert, so that weights of those that nobody chose are never read. A row adds its experts up in their order,
// whatever other rows there are.
#include <cstring>

#include "kernels/functions/unary.h"
#include "kernels/products/linear.h"

namespace nlsplit::inline kernels {
namespace {

class ChosenExperts {
 public:
  explicit ChosenExperts(const KernelCall& call)
      : call_(call), sizes_(experts_of(*call.desc)), first_(attr_int(call.desc->attrs, "first")) {
    auto* at = static_cast<std::byte*>(call.workspace);
    const auto take = [&](int64_t bytes) {
      std::byte* const part = at;
      at += round_up(bytes, ExpertsSizes::alignment);
      return part;
    };
    begins_ = reinterpret_cast<int64_t*>(take(sizes_.begin_bytes()));
    places_ = reinterpret_cast<int64_t*>(take(sizes_.place_bytes()));
    rows_ = reinterpret_cast<float*>(take(sizes_.row_bytes()));
    made_ = reinterpret_cast<float*>(take(sizes_.row_bytes()));
    open_ = reinterpret_cast<float*>(take(sizes_.inner_bytes()));
    inner_ = reinterpret_cast<float*>(take(sizes_.inner_bytes()));
    of_linear_ = at;
  }

  void run() const {
    std::fill_n(output(call_), sizes_.rows * sizes_.hidden, 0.0f);
    sort();
    for (int64_t expert = 0; expert < sizes_.experts; ++expert) {
      // One row may name an expert twice.
      for (int64_t begin = begins_[expert]; begin < begins_[expert + 1]; begin += sizes_.rows)
        take(expert, begin, std::min(sizes_.rows, begins_[expert + 1] - begin));
    }
    const Epilogue epilogue(call_);
    if (!epilogue.empty()) epilogue.apply(output(call_), 0, sizes_.rows * sizes_.hidden);
  }

 private:
  // places_[begins_[e]] … : which of all rows' choices are expert e, in their order.
  void sort() const {
    const int64_t choices = sizes_.rows * sizes_.used;
    std::fill_n(begins_, sizes_.experts + 1, int64_t{0});
    const auto expert_of = [&](int64_t choice) {
      const int64_t expert = whole_at(call_, 1, choice) - first_;
      return expert < 0 || expert >= sizes_.experts ? -1 : expert;
    };
    for (int64_t i = 0; i < choices; ++i) {
      if (const int64_t expert = expert_of(i); expert >= 0) ++begins_[expert];
    }
    int64_t behind = 0;
    for (int64_t expert = 0; expert <= sizes_.experts; ++expert) behind = begins_[expert] += behind;
    for (int64_t i = choices; i-- > 0;) {
      if (const int64_t expert = expert_of(i); expert >= 0) places_[--begins_[expert]] = i;
    }
  }

  // Of `count` choices of an expert.
  void take(int64_t expert, int64_t begin, int64_t count) const {
    const float* x = input(call_, 0);
    const auto row_of = [&](int64_t i) { return places_[begin + i] / sizes_.used; };
    const int64_t hidden = sizes_.hidden, width_of_expert = sizes_.width;
    if (sizes_.rows > 1) {
      parallel_for(call_, count, [&](int64_t i) {
        std::memcpy(rows_ + i * hidden, x + row_of(i) * hidden, static_cast<size_t>(hidden) * sizeof(float));
      });
      x = rows_;
    }
    product(3, expert, count, x, open_);
    product(4, expert, count, x, inner_);
    parallel_for(call_, count, [&](int64_t i) {
      float* const values = inner_ + i * width_of_expert;
      map_row(
          values, width_of_expert,
          [](const Packet& open, const Packet& value) { return multiply(multiply(open, sigmoid_of(open)), value); },
          open_ + i * width_of_expert, values);
    });
    product(5, expert, count, inner_, made_);
    constexpr int64_t columns = 512;  // of a worker's turn
    parallel_for(call_, (hidden + columns - 1) / columns, [&](int64_t turn) {
      const int64_t from = turn * columns, n = std::min(columns, hidden - from);
      for (int64_t i = 0; i < count; ++i) {
        const Packet share = broadcast(input(call_, 2)[places_[begin + i]]);
        float* const sum = output(call_) + row_of(i) * hidden + from;
        map_row(
            sum, n, [&](const Packet& made, const Packet& before) { return multiply_add(share, made, before); },
            made_ + i * hidden + from, sum);
      }
    });
  }

  void product(size_t weights, int64_t expert, int64_t rows, const float* x, float* out) const {
    const ComputeDesc linear = linear_of_experts(*call_.desc, weights, rows);
    const auto* const from = static_cast<const std::byte*>(call_.inputs[weights]);
    const void* const inputs[] = {x, from + expert * size_of(linear.inputs[1]).value()};
    void* const outputs[] = {out};
    code_of(linear.kernel.name).run({&linear, inputs, outputs, of_linear_, call_.crew});
  }

  const KernelCall& call_;
  const ExpertsSizes sizes_;
  const int64_t first_;
  int64_t *begins_, *places_;
  float *rows_, *made_, *open_, *inner_;
  std::byte* of_linear_;
};

void run_experts(const KernelCall& call) { ChosenExperts(call).run(); }

}  // namespace

const KernelCode code::experts = {run_experts};

}  // namespace nlsplit::inline kernels
