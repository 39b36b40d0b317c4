// WeightStore: the contents behind the ContentIds of a Graph. Values are computed only when needed, so planning needs
// no bytes.
//
//   ContentId w = store.add_bytes(type, std::move(raw));      // from a file
//   ContentId m = store.add_mapped(type, bytes);              // from a file that stays where it is
//   ContentId l = store.add_unread(type, bytes, identity, "model.gguf: …");  // likewise, and not even hashed
//   ContentId r = store.add_random(type, seed, 0.05f);        // the zoo's: nothing stored until materialised
//   ContentId t = store.add_formula(Formula::causal_mask, type, -1e9);  // likewise
//   ContentId f = store.add_derived(Derivation::bn_weight, {w, scale, var}, 1e-5, type);  // a folded BatchNorm
//   ContentId h = store.add_slice(w, 0, 0, 32, {DType::f32, {64, 3, 3, 3}});  // its first 32 filters, when asked for
//   ASSIGN_OR_RETURN(std::string raw, store.materialise(f));
//
// The id of bytes is their hash (of unread ones, of what tells them apart); the id of anything else hashes how it is
// made, so equal recipes are stored once. Of 64 bits: where hashes are equal bytes or recipes are compared, and what
// differs gets an id of its own.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "graph/formula.h"
#include "graph/graph.h"

namespace nlsplit::inline graph {

enum class Derivation : uint8_t {
  bn_weight,  // (w, scale, var) eps: w[o,…] * scale[o] / sqrt(var[o] + eps)            BatchNorm folded into a Conv
  bn_bias,    // (b or none, scale, bias, mean, var) eps: (b - mean) * scale / sqrt(var + eps) + bias
  bn_scale,   // (scale, var) eps: scale / sqrt(var + eps)
  add,        // (a, b): element-wise, same shape or b a scalar
  mul,        // likewise
  transpose,  // (w) columns: a matrix of so many columns, turned
  // (w, s): w[o,i,…] * s[c], c being the channel that input i of o's group is: BatchNorm folded into the Conv behind it
  scale_inputs,
  row_sums,  // (w): the sum over all axes but the first
  // (bytes) number: blocks of that type of ggml's (graph/ggml.h) as f32
  from_ggml,
  // (w) d: of every d rows, rows 2 i and 2 i + 1 become rows i and i + d / 2: pairs of neighbours become two halves
  halves_of_pairs,
  stack,  // (w, …): one behind the other, whatever their elements
  // (w): rounded to the nearest of the type; what is finite and beyond the largest becomes that, as exporters have it
  to_f16,
  to_bf16,
  // (w) type: the nearest elements of that DType, whole blocks of those with a scale (graph/blocks.h)
  to_stored,
};

class WeightStore {
 public:
  ContentId add_bytes(TensorType type, std::string raw);
  ContentId add_mapped(TensorType type, MappedBytes bytes);  // of a file, which stays mapped
  // Of a large file, which is read only when values are needed, not even to hash it. The id is the hash of `identity`,
  // which must be different for different bytes. `where` names file and place for the error if the file is shorter than
  // the bytes.
  ContentId add_unread(TensorType type, MappedBytes bytes, std::string identity, std::string where);
  ContentId add_random(TensorType type, uint64_t seed, float deviation, float mean = 0);  // normal, f32
  ContentId add_fill(TensorType type, double value);
  ContentId add_formula(Formula formula, TensorType type, double parameter,
                        std::span<const float> factors = {});  // f32
  ContentId add_derived(Derivation how, std::vector<ContentId> from, double parameter, TensorType type);
  // Elements [begin, end) along an axis of a tensor of type `whole`, whose bytes `from` is: any element type, in
  // whole blocks where elements share a scale, also a slice. `from` may be added later.
  ContentId add_slice(ContentId from, int axis, int64_t begin, int64_t end, const TensorType& whole);
  // The same id, without a store.
  static ContentId slice_id(ContentId from, int axis, int64_t begin, int64_t end, const TensorType& whole);

  void add_all(const WeightStore& other);  // ids stay: they say how contents are made

  bool contains(ContentId id) const;
  bool is_random(ContentId id) const;  // in this store, by add_random, or stored from that: a parameter of the zoo's
  std::vector<ContentId> formulas() const;  // all that add_formula has made: constants, which are not trained
  struct FormulaRecipe {
    Formula formula{};
    double parameter = 0;
  };
  std::optional<FormulaRecipe> formula_of(ContentId id) const;  // none: not in this store, or not by add_formula
  // How many entries materialise() reads for it: derived ones read all they are made of, as often as it is named.
  int64_t reads(ContentId id) const;
  const TensorType& type(ContentId id) const;           // as it was added; a Value may view it under another shape
  Result<std::string> materialise(ContentId id) const;  // row-major bytes; error: not in this store
  Bytes stored_bytes() const;                           // what the store itself holds in memory

 private:
  // What a slice takes: of every `stride` bytes those from `begin` to `end`.
  struct Cut {
    int64_t stride = 0, begin = 0, end = 0;
  };
  struct Entry {
    enum class Kind : uint8_t { raw, mapped, random, fill, formula, derived, slice } kind = Kind::raw;
    TensorType type;
    std::string raw;  // of a formula: its factors
    MappedBytes mapped;
    std::string where;  // of unread bytes
    uint64_t seed = 0;
    double a = 0;  // deviation, fill value or parameter
    double b = 0;  // mean
    Derivation how{};
    Formula formula{};
    std::vector<ContentId> from;
    Cut cut;
    std::string recipe;  // of what has no bytes: all that its values depend on
    int64_t reads = 1;
  };
  static std::string slice_recipe(ContentId from, const Cut& cut);
  static Cut cut_of(int axis, int64_t begin, int64_t end, const TensorType& whole);
  Result<std::string> materialise_slice(const Entry& entry) const;
  static Result<std::string_view> bytes_of(const Entry& entry);  // raw or mapped
  static bool same_content(const Entry& a, const Entry& b);
  ContentId insert(uint64_t hash, Entry entry);
  ContentId insert_recipe(std::string recipe, Entry entry);
  std::unordered_map<uint64_t, Entry> entries_;
  int64_t stored_ = 0;  // bytes
};

// A network and its weights, as import and the zoo give them.
struct Model {
  Graph graph;
  WeightStore weights;
};

}  // namespace nlsplit::inline graph
