// The llama family against its definition written out: one layer, token by token and head by head, in double.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "graph/elements.h"
#include "graph/reference/evaluate.h"
#include "graph/zoo/zoo.h"
#include "testing/tensors.h"

namespace nlsplit {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

class Definition {
 public:
  explicit Definition(const Model& model) : model_(model) {}

  // [rows, columns] of a weight; a vector is one row.
  Rows weight(const std::string& name) const {
    for (const Value& value : model_.graph.values) {
      if (value.kind != ValueKind::weight || value.name != name + ".weight") continue;
      const Tensor tensor = tensor_of(value.type, model_.weights.materialise(value.content).value());
      const auto columns = static_cast<size_t>(value.type.shape.back());
      Rows rows;
      for (size_t i = 0; i < tensor.values.size(); i += columns) {
        rows.emplace_back(tensor.values.begin() + static_cast<std::ptrdiff_t>(i),
                          tensor.values.begin() + static_cast<std::ptrdiff_t>(i + columns));
      }
      return rows;
    }
    ADD_FAILURE() << "no weight " << name;
    return {};
  }

  Rows product(const Rows& x, const std::string& name) const {
    const Rows w = weight(name);
    Rows out(x.size(), Row(w[0].size(), 0));
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t i = 0; i < w.size(); ++i) {
        for (size_t o = 0; o < w[i].size(); ++o) out[t][o] += x[t][i] * w[i][o];
      }
    }
    return out;
  }

  Rows norm(const Rows& x, const std::string& name) const {
    const Row scale = weight(name)[0];
    Rows out = x;
    for (Row& row : out) {
      double squares = 0;
      for (const double v : row) squares += v * v;
      const double root = std::sqrt(squares / static_cast<double>(row.size()) + 1e-5);
      for (size_t i = 0; i < row.size(); ++i) row[i] = row[i] / root * scale[i];
    }
    return out;
  }

  // Each pair (i, i + d/2) of a head is turned by position * 500000^(-2i/d).
  static void rotate(Rows& x, size_t heads) {
    const size_t d = x[0].size() / heads;
    for (size_t t = 0; t < x.size(); ++t) {
      for (size_t h = 0; h < heads; ++h) {
        for (size_t i = 0; i < d / 2; ++i) {
          const double angle =
              static_cast<double>(t) * std::pow(500000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d));
          double &a = x[t][h * d + i], &b = x[t][h * d + i + d / 2];
          const double turned = a * std::cos(angle) - b * std::sin(angle);
          b = b * std::cos(angle) + a * std::sin(angle);
          a = turned;
        }
      }
    }
  }

  static Rows attend(const Rows& q, const Rows& k, const Rows& v, size_t heads, size_t kv_heads) {
    const size_t d = q[0].size() / heads;
    Rows out(q.size(), Row(q[0].size(), 0));
    for (size_t h = 0; h < heads; ++h) {
      const size_t own = h * d, shared = h / (heads / kv_heads) * d;
      for (size_t t = 0; t < q.size(); ++t) {
        Row weights;
        double sum = 0;
        for (size_t s = 0; s <= t; ++s) {  // none that comes later
          double score = 0;
          for (size_t i = 0; i < d; ++i) score += q[t][own + i] * k[s][shared + i];
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
          sum += weights.back();
        }
        for (size_t s = 0; s <= t; ++s) {
          for (size_t i = 0; i < d; ++i) out[t][own + i] += weights[s] / sum * v[s][shared + i];
        }
      }
    }
    return out;
  }

  static Rows add(Rows a, const Rows& b) {
    for (size_t t = 0; t < a.size(); ++t) {
      for (size_t i = 0; i < a[t].size(); ++i) a[t][i] += b[t][i];
    }
    return a;
  }

  Rows layer(const Rows& x, const std::string& name, size_t heads, size_t kv_heads) const {
    const Rows y = norm(x, name + ".input_layernorm");
    Rows q = product(y, name + ".self_attn.q_proj"), k = product(y, name + ".self_attn.k_proj");
    rotate(q, heads);
    rotate(k, kv_heads);
    const Rows heard = attend(q, k, product(y, name + ".self_attn.v_proj"), heads, kv_heads);
    const Rows middle = add(x, product(heard, name + ".self_attn.o_proj"));
    const Rows z = norm(middle, name + ".post_attention_layernorm");
    Rows gate = product(z, name + ".mlp.gate_proj");
    const Rows up = product(z, name + ".mlp.up_proj");
    for (size_t t = 0; t < gate.size(); ++t) {
      for (size_t i = 0; i < gate[t].size(); ++i) gate[t][i] *= up[t][i] / (1 + std::exp(-gate[t][i]));
    }
    return add(middle, product(gate, name + ".mlp.down_proj"));
  }

  Rows run(const std::vector<int64_t>& tokens, int layers, size_t heads, size_t kv_heads) const {
    const Rows table = weight("model.embed_tokens");
    Rows x;
    for (const int64_t token : tokens) x.push_back(table[static_cast<size_t>(token)]);
    for (int i = 0; i < layers; ++i) x = layer(x, "model.layers." + std::to_string(i), heads, kv_heads);
    return product(norm(x, "model.norm"), "lm_head");
  }

 private:
  const Model& model_;
};

TEST(ZooLlama, IsWhatItsDefinitionSays) {
  for (const int64_t kv_heads : {1, 2, 4}) {  // all heads share, two do, none does
    SCOPED_TRACE(kv_heads);
    const Model model =
        zoo_model("llama?layers=2&hidden=32&heads=4&ffn=48&vocab=20&length=5&kv_heads=" + std::to_string(kv_heads))
            .value();
    const std::vector<Tensor> inputs = random_inputs(model.graph, 3);
    const Tensor made = evaluate(model.graph, model.weights, inputs).value()[0];
    const Rows want = Definition(model).run(wholes_of(DType::i64, inputs[0].raw), 2, 4, static_cast<size_t>(kv_heads));
    ASSERT_EQ(made.type.shape, (Shape{1, 5, 20}));
    for (size_t t = 0; t < 5; ++t) {
      for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(made.values[t * 20 + i], want[t][i], 1e-4) << t << ", " << i;
    }
  }
}

}  // namespace
}  // namespace nlsplit
