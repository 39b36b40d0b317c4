// What the zoo's families are written in: a GraphBuilder that makes each layer's weights too, named as torchvision
// names them
// ("conv1" has "conv1.weight" and "conv1.bias"). The zoo is our own text, so a layer that does not fit is a CHECK, not
// an error.
//
// Weights are seeded by (seed, name). Deviations keep an activation's magnitude from layer to layer (He, Zhang, Ren,
// Sun, "Delving deep into rectifiers", ICCV 2015), so that outputs neither vanish nor explode and can tell right from
// wrong.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "graph/builder.h"
#include "graph/weights.h"

namespace nlsplit::inline graph {

// Of the last normalisation of an inverted residual block (Sandler et al., MobileNetV2, CVPR 2018) whose input is
// added.
inline constexpr float inverted_residual_scale = 0.5f;

struct ConvSpec {
  int64_t channels;  // out
  int64_t kernel;    // square
  int64_t stride = 1;
  int64_t pad = 0;
  int64_t groups = 1;      // = input channels: depthwise
  bool bias = true;        // false where a BatchNormalization follows
  bool after_relu = true;  // half of the input is zero, so weights are sqrt(2) larger
  int64_t kernel_w = 0;    // 0: square; else the kernel is `kernel` rows high and so many columns wide
  int64_t pad_w = 0;       // of a kernel that is not square
  double gain = 1;         // of the weights' deviation, where an activation or a gate has made the input smaller
};

// Where a weight comes from: makes it in the store. Of seeded normal values these are their deviation and mean.
using WeightSource = std::function<ContentId(WeightStore& store, const std::string& name, const TensorType& type,
                                             double deviation, double mean)>;

// The type in which the rows of a matrix [out, in] of that name are there; f32: the matrix is made [in, out].
using StoredTypes = std::function<DType(const std::string& name)>;

class ZooNet {
 public:
  ZooNet(std::string name, uint64_t seed, StoredTypes stored = {});  // seeded normal values
  ZooNet(std::string name, WeightSource source, StoredTypes stored = {})
      : builder_(std::move(name)), source_(std::move(source)), stored_(std::move(stored)) {}

  ValueId input(Shape shape) { return builder_.input("input", {DType::f32, std::move(shape)}); }
  ValueId tokens(const std::string& name, Shape shape) { return builder_.input(name, {DType::i64, std::move(shape)}); }
  ValueId conv(const std::string& name, ValueId x, const ConvSpec& spec);
  // `scale`: the mean of its scales; less than 1 where a residual sum follows, so that sums do not grow with depth.
  ValueId batch_norm(const std::string& name, ValueId x, float scale = 1, double epsilon = 1e-5);
  ValueId relu(const std::string& name, ValueId x);
  ValueId relu6(const std::string& name, ValueId x);
  ValueId silu(const std::string& name, ValueId x);  // x sigmoid(x)
  ValueId add(const std::string& name, ValueId a, ValueId b);
  ValueId mul(const std::string& name, ValueId a, ValueId b);
  ValueId concat(const std::string& name, std::vector<ValueId> parts, int64_t axis = 1);
  ValueId max_pool(const std::string& name, ValueId x, int64_t kernel, int64_t stride, int64_t pad = 0);
  // The padding counts, as in PyTorch.
  ValueId average_pool(const std::string& name, ValueId x, int64_t kernel, int64_t stride, int64_t pad = 0);
  ValueId global_average_pool(const std::string& name, ValueId x);
  ValueId flatten(const std::string& name, ValueId x);
  ValueId linear(const std::string& name, ValueId x, int64_t features, bool after_relu = true);

  // Whatever has no function of its own. Attributes by name in alphabetical order, as everywhere.
  ValueId node(Op op, const std::string& name, std::vector<ValueId> inputs, Attrs attrs = {});
  std::vector<ValueId> node_with_results(Op op, const std::string& name, std::vector<ValueId> inputs, Attrs attrs,
                                         const std::vector<std::string>& results);
  ValueId weight(const std::string& name, Shape shape, double deviation, double mean = 0) {
    return weight(name, TensorType{DType::f32, std::move(shape)}, deviation, mean);
  }
  ValueId weight(const std::string& name, const TensorType& type, double deviation, double mean = 0);
  DType stored_type(const std::string& weight) const { return stored_ ? stored_(weight) : DType::f32; }
  ValueId scalar(const std::string& name, double value);
  // What is computed from the position alone and never trained; nothing is stored until it is needed.
  ValueId table(const std::string& name, Formula formula, Shape shape, double parameter,
                std::span<const float> factors = {});
  // The columns from the middle on of a table [rows, columns].
  ValueId half_table(const std::string& name, Formula formula, Shape shape, double parameter,
                     std::span<const float> factors = {});
  ValueId state(const std::string& name, const TensorType& type) { return builder_.state(name, type); }
  // The transpose of a matrix made before, sharing its recipe: a tied weight.
  ValueId transposed(const std::string& name, ValueId matrix);

  const Shape& shape(ValueId x) const { return builder_.type(x).shape; }
  int64_t channels(ValueId x) const { return builder_.type(x).shape[1]; }
  Model finish(ValueId output) && { return std::move(*this).finish(std::vector<ValueId>{output}); }
  Model finish(const std::vector<ValueId>& outputs) &&;

 private:
  GraphBuilder builder_;
  WeightStore weights_;
  WeightSource source_;
  StoredTypes stored_;
};

}  // namespace nlsplit::inline graph
