// The only file that meets oneDNN's exceptions.
#include "onednn/onednn.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "onednn/chain.h"

namespace nlsplit::onednn {
namespace {

// Of this thread; others have a number of their own.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { omp_set_num_threads(before_); }

 private:
  int before_;
};

void add(Chain& chain, OneDnnVariant variant) {
  switch (chain.desc.op) {
    case Op::Conv:
      return add_conv(chain, variant == OneDnnVariant::winograd);
    case Op::ConvTranspose:
      return add_conv_transpose(chain);
    case Op::Gemm:
    case Op::MatMul:
      return variant == OneDnnVariant::inner_product ? add_inner_product(chain) : add_product(chain);
    case Op::MaxPool:
    case Op::AveragePool:
    case Op::GlobalAveragePool:
      return add_pool(chain);
    case Op::Softmax:
      return add_softmax(chain);
    case Op::LayerNormalization:
      return add_layer_norm(chain);
    case Op::BatchNormalization:
      return add_batch_norm(chain);
    case Op::LRN:
      return add_lrn(chain);
    case Op::ReduceMean:
      return add_reduce_mean(chain);
    case Op::Sum:
      return add_sum(chain);
    case Op::Add:
    case Op::Sub:
    case Op::Mul:
    case Op::Div:
      return add_binary(chain);
    default:
      return add_unary(chain);
  }
}

bool applies(OneDnnVariant variant, const ComputeDesc& desc) {
  switch (variant) {
    case OneDnnVariant::usual:
      return true;
    case OneDnnVariant::winograd:
      return desc.op == Op::Conv;
    case OneDnnVariant::inner_product:
      return product_by_constant_matrix(desc);
    case OneDnnVariant::sum_in_place:
      return desc.op == Op::Conv &&
             std::ranges::any_of(desc.epilogue, [](const DescStep& step) { return step.op == Op::Add; });
  }
  return false;
}

// oneDNN has no output_padding, only padding that takes away; the one may be less than the other.
bool crops(const ComputeDesc& desc) {
  const auto &pads = attr_ints(desc.attrs, "pads"), &more = attr_ints(desc.attrs, "output_padding");
  return pads[2] >= more[0] && pads[3] >= more[1];
}

std::string refuse_operator(const ComputeDesc& desc) {
  switch (desc.op) {
    case Op::Erf:
    case Op::InstanceNormalization:
    case Op::Attention:
      return "oneDNN has no such primitive";
    case Op::LSTM:
    case Op::GRU:
    case Op::RNN:
      return "oneDNN's cells are of other forms (no peepholes, other orders of gates); they are not compared";
    case Op::Concat:
    case Op::Reshape:
    case Op::Flatten:
    case Op::Transpose:
    case Op::Pad:
    case Op::Identity:
      return "it only moves elements";
    case Op::LRN:
      return attr_int(desc.attrs, "size") % 2 == 1 ? "" : "oneDNN takes one channel less where their number is even";
    case Op::AveragePool:
      return attr_int(desc.attrs, "count_include_pad") != 0 && pool_overhangs(desc)
                 ? "oneDNN would count what lies behind the padding"
                 : "";
    case Op::ConvTranspose:
      return crops(desc) ? "" : "oneDNN has no rows beyond the windows' reach";
    case Op::ReduceMean:
      return element_count(desc.outputs[0].shape) < element_count(desc.inputs[0].shape) ? "" : "it only moves elements";
    case Op::Gemm:
      return desc.own_inputs() > 2 && !desc.is_weight(2) && attr_float(desc.attrs, "beta") != 1
                 ? "beta is multiplied while preparing, and its operand is not constant"
                 : "";
    default:
      return {};
  }
}

}  // namespace

struct OneDnnComputation::State {
  Prepared prepared;
};

OneDnnComputation::OneDnnComputation(std::unique_ptr<State> state) : state_(std::move(state)) {}
OneDnnComputation::OneDnnComputation(OneDnnComputation&&) noexcept = default;
OneDnnComputation& OneDnnComputation::operator=(OneDnnComputation&&) noexcept = default;
OneDnnComputation::~OneDnnComputation() = default;

std::span<const OneDnnVariant> all_onednn_variants() {
  static constexpr OneDnnVariant all[] = {OneDnnVariant::usual, OneDnnVariant::winograd, OneDnnVariant::inner_product,
                                          OneDnnVariant::sum_in_place};
  return all;
}

std::string_view name_of(OneDnnVariant variant) {
  static constexpr std::string_view names[] = {"usual", "winograd", "inner_product", "sum_in_place"};
  return names[static_cast<size_t>(variant)];
}

std::string onednn_refusal(const ComputeDesc& desc) {
  if (!has(desc.op, traits::has_kernels)) return "only the reference loops compute it; they are not compared";
  for (const TensorType& type : desc.inputs) {
    if (type.dtype != DType::f32) return fmt::format("{} is not f32", to_string(type));
    if (element_count(type.shape) == 0) return fmt::format("{} is empty", to_string(type));
  }
  return refuse_operator(desc);
}

Result<OneDnnComputation> prepare_onednn(const ComputeDesc& desc, const std::vector<std::span<const float>>& inputs,
                                         OneDnnVariant variant) {
  CHECK(inputs.size() == desc.inputs.size(), "an input each");
  if (std::string why = onednn_refusal(desc); !why.empty()) return unsupported(std::move(why));
  if (!applies(variant, desc)) return unsupported(fmt::format("{} has no {}", name_of(desc.op), name_of(variant)));
  const OneThread one_thread;
  try {
    Chain chain(desc, inputs);
    chain.sum_in_place = variant == OneDnnVariant::sum_in_place;
    add(chain, variant);
    auto state = std::make_unique<OneDnnComputation::State>();
    state->prepared = std::move(chain.prepared);
    return OneDnnComputation(std::move(state));
  } catch (const dnnl::error& e) {
    return unsupported(fmt::format("oneDNN: {} (status {})", e.what(), static_cast<int>(e.status)));
  }
}

void OneDnnComputation::run() {
  const OneThread one_thread;
  try {
    state_->prepared.run();
  } catch (const dnnl::error& e) {
    CHECK(false, fmt::format("oneDNN prepared this and does not run it: {}", e.what()));
  }
}

std::vector<float> OneDnnComputation::result() const {
  const OneThread one_thread;
  const Prepared& prepared = state_->prepared;
  const dnnl::memory plain = prepared.with_layout(prepared.result, row_major(prepared.result.get_desc().dims()));
  const auto* values = static_cast<const float*>(plain.get_data_handle());
  return {values, values + plain.get_desc().get_size() / sizeof(float)};
}

std::string OneDnnComputation::implementation() const { return state_->prepared.implementation; }

}  // namespace nlsplit::onednn
