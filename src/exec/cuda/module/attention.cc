// Attention as two products by cuBLASLt with a softmax between them, of as many heads at a time as the workspace has
// scores for. Heads that share keys and values lie side by side: their queries are rows of one product.
#include <memory>

#include "exec/cuda/module/product.h"
#include "kernels/cuda/gpu.h"
#include "kernels/layout.h"

namespace nlsplit::cuda {
namespace {

struct PreparedAttention {
  Multiplication scores, results;
  AttentionShape shape{};
  AttentionPasses passes;
  bool masked = false;
  Element type{};
  int64_t element = 0;
};

Answer run(Device& device, const KernelCall& call, PreparedAttention& p) {
  const AttentionShape& s = p.shape;
  const AttentionPasses& passes = p.passes;
  auto* const scores = static_cast<float*>(call.workspace);
  auto* const weights = static_cast<std::byte*>(call.workspace) + passes.weights_begin.value();
  auto* const rest = static_cast<std::byte*>(call.workspace) + passes.rest_begin.value();
  const auto part = [&](const void* whole, int64_t elements) {
    return static_cast<const std::byte*>(whole) + elements * p.element;
  };
  const int64_t all = s.batch * s.kv_heads;
  for (int64_t head = 0; head < all; head += passes.heads) {
    RETURN_IF_REFUSED(p.scores.run(device, part(call.inputs[0], head * passes.rows * s.size),
                                   part(call.inputs[1], head * s.keys * s.size), scores, nullptr, 0, rest));
    RETURN_IF_REFUSED(launch_attention_weights(p.type, scores, p.masked ? input(call, 3) : nullptr, weights,
                                               head * passes.rows, passes.heads * passes.rows, s, device.compute()));
    void* const to = static_cast<std::byte*>(call.outputs[0]) + head * passes.rows * s.value_size * p.element;
    RETURN_IF_REFUSED(
        p.results.run(device, weights, part(call.inputs[2], head * s.keys * s.value_size), to, nullptr, 0, rest));
  }
  return run_epilogue(device, call, output(call));
}

Answer prepare_attention(Device& device, const ComputeDesc& desc, uint64_t workspace, Run& run_it) {
  auto p = std::make_shared<PreparedAttention>();  // std::function must be copyable
  p->shape = attention_shape_of(desc);
  p->passes = attention_passes_of(desc);
  p->masked = desc.own_inputs() > 3;
  p->type = element_of(desc.outputs[0].dtype);
  p->element = size_of(desc.outputs[0].dtype);
  const AttentionShape& s = p->shape;
  const auto taken = static_cast<uint64_t>(p->passes.rest_begin.value());
  const uint64_t rest = workspace < taken ? 0 : workspace - taken;
  MatrixProduct scores;
  scores.batch = p->passes.heads;
  scores.m = p->passes.rows;
  scores.n = s.keys;
  scores.k = s.size;
  scores.a_stride = scores.m * scores.k;
  scores.b_stride = scores.k * scores.n;
  scores.transposed_b = true;
  scores.factors = desc.outputs[0].dtype;
  scores.tf32 = desc.kernel.level.precision == Precision::tf32;
  scores.alpha = s.scale;
  MatrixProduct results;
  results.batch = scores.batch;
  results.m = scores.m;
  results.n = s.value_size;
  results.k = s.keys;
  results.a_stride = results.m * results.k;
  results.b_stride = results.k * results.n;
  results.factors = results.result = scores.factors;
  results.tf32 = scores.tf32;
  RETURN_IF_REFUSED(p->scores.prepare(device, scores, rest));
  RETURN_IF_REFUSED(p->results.prepare(device, results, rest));
  run_it = [p](Device& where, const KernelCall& call) { return run(where, call, *p); };
  return nullptr;
}

}  // namespace

const Prepare code::attention_cublaslt = prepare_attention;

}  // namespace nlsplit::cuda
