#include "graph/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/hash.h"
#include "base/random.h"
#include "graph/elements.h"
#include "graph/ggml.h"
#include "graph/half.h"

namespace nlsplit::inline graph {
namespace {

uint64_t hash_recipe(std::string_view recipe) { return hash_text(recipe, 1); }

std::span<const float> floats(const std::string& raw) {
  return {reinterpret_cast<const float*>(raw.data()), raw.size() / sizeof(float)};
}

std::string transposed(const std::string& raw, size_t columns) {
  std::string out(raw.size(), '\0');
  const auto from = floats(raw);
  auto* to = reinterpret_cast<float*>(out.data());
  const size_t rows = columns == 0 ? 0 : from.size() / columns;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  }
  return out;
}

// One row per output channel of a weight [outputs, …].
std::string fold_weight(const std::vector<std::string>& in, double epsilon) {
  std::string out = in[0];
  const auto scale = floats(in[1]), variance = floats(in[2]);
  auto* values = reinterpret_cast<float*>(out.data());
  const size_t row = scale.empty() ? 0 : floats(in[0]).size() / scale.size();
  for (size_t o = 0; o < scale.size(); ++o) {
    const double factor = scale[o] / std::sqrt(static_cast<double>(variance[o]) + epsilon);
    for (size_t i = 0; i < row; ++i) values[o * row + i] = static_cast<float>(values[o * row + i] * factor);
  }
  return out;
}

// in: (b, scale, bias, mean, var), or without b.
std::string fold_bias(const std::vector<std::string>& in, double epsilon) {
  const size_t skip = in.size() - 4;
  const auto scale = floats(in[skip]), bias = floats(in[skip + 1]), mean = floats(in[skip + 2]),
             variance = floats(in[skip + 3]);
  std::string out(in[skip].size(), '\0');
  auto* values = reinterpret_cast<float*>(out.data());
  for (size_t o = 0; o < scale.size(); ++o) {
    const double b = skip == 0 ? 0.0 : static_cast<double>(floats(in[0])[o]);
    values[o] =
        static_cast<float>((b - mean[o]) * scale[o] / std::sqrt(static_cast<double>(variance[o]) + epsilon) + bias[o]);
  }
  return out;
}

std::string norm_scale(const std::vector<std::string>& in, double epsilon) {
  const auto scale = floats(in[0]), variance = floats(in[1]);
  std::string out(in[0].size(), '\0');
  auto* values = reinterpret_cast<float*>(out.data());
  for (size_t o = 0; o < scale.size(); ++o) {
    values[o] = static_cast<float>(scale[o] / std::sqrt(static_cast<double>(variance[o]) + epsilon));
  }
  return out;
}

// in: (w, s), w of that shape. Groups are as many as s has channels for each input of one.
std::string scale_inputs(const std::vector<std::string>& in, const Shape& shape) {
  std::string out = in[0];
  const auto scale = floats(in[1]);
  if (out.empty() || scale.empty()) return out;
  auto* values = reinterpret_cast<float*>(out.data());
  const auto rows = static_cast<size_t>(shape[0]), inputs = static_cast<size_t>(shape[1]);
  const size_t taps = floats(in[0]).size() / (rows * inputs), rows_of_group = rows * inputs / scale.size();
  for (size_t o = 0; o < rows; ++o) {
    for (size_t i = 0; i < inputs; ++i) {
      const double factor = scale[o / rows_of_group * inputs + i];
      for (size_t t = 0; t < taps; ++t, ++values) *values = static_cast<float>(*values * factor);
    }
  }
  return out;
}

std::string row_sums(const std::string& in, size_t rows) {
  const auto values = floats(in);
  std::string out(rows * sizeof(float), '\0');
  auto* sums = reinterpret_cast<float*>(out.data());
  const size_t row = rows == 0 ? 0 : values.size() / rows;
  for (size_t o = 0; o < rows; ++o) {
    double sum = 0;
    for (size_t i = 0; i < row; ++i) sum += values[o * row + i];
    sums[o] = static_cast<float>(sum);
  }
  return out;
}

std::string halves_of_pairs(const std::string& in, const Shape& shape, size_t d) {
  std::string out(in.size(), '\0');
  const size_t rows = static_cast<size_t>(shape[0]), row = rows == 0 ? 0 : in.size() / rows;
  for (size_t r = 0; r < rows; ++r) {
    const size_t within = r % d, to = r - within + within / 2 + within % 2 * (d / 2);
    std::memcpy(&out[to * row], &in[r * row], row);
  }
  return out;
}

template <class Combine>
std::string elementwise(const std::vector<std::string>& in, Combine combine) {
  const bool swap = in[0].size() < in[1].size();
  const auto a = floats(in[swap ? 1 : 0]), b = floats(in[swap ? 0 : 1]);
  std::string out(in[swap ? 1 : 0].size(), '\0');
  auto* values = reinterpret_cast<float*>(out.data());
  for (size_t i = 0; i < a.size(); ++i) values[i] = combine(a[i], b[b.size() == 1 ? 0 : i]);
  return out;
}

template <class Convert>
std::string halved(const std::string& raw, DType type, Convert convert) {
  const auto most = static_cast<float>(largest_of(type));
  std::string out(raw.size() / sizeof(float) * sizeof(uint16_t), '\0');
  char* to = out.data();
  for (float value : floats(raw)) {
    if (std::isfinite(value)) value = std::clamp(value, -most, most);
    const uint16_t half = convert(value);
    std::memcpy(to, &half, sizeof(half));
    to += sizeof(half);
  }
  return out;
}

// Whether the shape decides what becomes of the bytes.
bool depends_on_shape(Derivation how) {
  return how == Derivation::scale_inputs || how == Derivation::row_sums || how == Derivation::halves_of_pairs;
}

std::string derive(Derivation how, const std::vector<std::string>& in, double parameter, const Shape& shape) {
  switch (how) {
    case Derivation::bn_weight:
      return fold_weight(in, parameter);
    case Derivation::bn_bias:
      return fold_bias(in, parameter);
    case Derivation::bn_scale:
      return norm_scale(in, parameter);
    case Derivation::add:
      return elementwise(in, [](float a, float b) { return a + b; });
    case Derivation::mul:
      return elementwise(in, [](float a, float b) { return a * b; });
    case Derivation::transpose:
      return transposed(in[0], static_cast<size_t>(parameter));
    case Derivation::scale_inputs:
      return scale_inputs(in, shape);
    case Derivation::row_sums:
      return row_sums(in[0], static_cast<size_t>(element_count(shape)));
    case Derivation::from_ggml:
      return dequantized(static_cast<GgmlType>(parameter), in[0]);
    case Derivation::halves_of_pairs:
      return halves_of_pairs(in[0], shape, static_cast<size_t>(parameter));
    case Derivation::stack:
      return fmt::format("{}", fmt::join(in, ""));
    case Derivation::to_f16:
      return halved(in[0], DType::f16, f16_bits);
    case Derivation::to_bf16:
      return halved(in[0], DType::bf16, bf16_bits);
    case Derivation::to_stored: {
      const auto values = floats(in[0]);
      return raw_of(static_cast<DType>(parameter), std::vector<double>(values.begin(), values.end()));
    }
  }
  CHECK(false, "unknown derivation");
}

std::string filled(const TensorType& type, double value) {
  const std::string element = is_real(type.dtype) ? raw_of(type.dtype, std::array{value})
                                                  : raw_of(type.dtype, std::array{static_cast<int64_t>(value)});
  std::string out(static_cast<size_t>(size_of(type).value()), '\0');
  for (size_t at = 0; at + element.size() <= out.size(); at += element.size())
    std::memcpy(&out[at], element.data(), element.size());
  return out;
}

}  // namespace

// Of equal recipes the bytes are equal.
bool WeightStore::same_content(const Entry& a, const Entry& b) {
  const auto bytes = [](const Entry& entry) -> std::string_view {
    return entry.kind == Entry::Kind::mapped ? entry.mapped.view() : std::string_view(entry.raw);
  };
  return a.recipe == b.recipe && (!a.recipe.empty() || bytes(a) == bytes(b));
}

Result<std::string_view> WeightStore::bytes_of(const Entry& entry) {
  if (entry.kind == Entry::Kind::raw) return std::string_view(entry.raw);
  const std::string_view view = entry.mapped.view();
  const auto missing = static_cast<size_t>(size_of(entry.type).value()) - view.size();
  if (missing > 0)
    return invalid_input(fmt::format("{}: the file is cut off, {} of its bytes are missing", entry.where, missing));
  return view;
}

ContentId WeightStore::insert(uint64_t hash, Entry entry) {
  for (;; hash = hash_bytes(&hash, sizeof(hash), 2)) {
    const auto [at, added] = entries_.try_emplace(hash, std::move(entry));  // moves only what is added
    if (added) stored_ += static_cast<int64_t>(at->second.raw.size());
    if (added || same_content(at->second, entry)) return ContentId{hash};
  }
}

ContentId WeightStore::insert_recipe(std::string recipe, Entry entry) {
  const uint64_t hash = hash_recipe(recipe);
  entry.recipe = std::move(recipe);
  return insert(hash, std::move(entry));
}

ContentId WeightStore::add_bytes(TensorType type, std::string raw) {
  CHECK(static_cast<int64_t>(raw.size()) == size_of(type).value(), "bytes of another size than their type");
  Entry entry;
  entry.type = std::move(type);
  const uint64_t hash = hash_bytes(raw.data(), raw.size());
  entry.raw = std::move(raw);
  return insert(hash, std::move(entry));
}

ContentId WeightStore::add_mapped(TensorType type, MappedBytes bytes) {
  const std::string_view view = bytes.view();
  CHECK(static_cast<int64_t>(view.size()) == size_of(type).value(), "bytes of another size than their type");
  Entry entry;
  entry.kind = Entry::Kind::mapped;
  entry.type = std::move(type);
  const uint64_t hash = hash_bytes(view.data(), view.size());
  entry.mapped = std::move(bytes);
  return insert(hash, std::move(entry));
}

ContentId WeightStore::add_unread(TensorType type, MappedBytes bytes, std::string identity, std::string where) {
  CHECK(static_cast<int64_t>(bytes.size) == size_of(type).value(), "bytes of another size than their type");
  Entry entry;
  entry.kind = Entry::Kind::mapped;
  entry.type = std::move(type);
  entry.mapped = std::move(bytes);
  entry.where = std::move(where);
  return insert_recipe("unread " + identity, std::move(entry));
}

ContentId WeightStore::add_random(TensorType type, uint64_t seed, float deviation, float mean) {
  CHECK(type.dtype == DType::f32, "random weights are f32");
  std::string recipe = fmt::format("random {} {} {} {}", element_count(type.shape), seed, deviation, mean);
  Entry entry;
  entry.kind = Entry::Kind::random;
  entry.type = std::move(type);
  entry.seed = seed;
  entry.a = deviation;
  entry.b = mean;
  return insert_recipe(std::move(recipe), std::move(entry));
}

ContentId WeightStore::add_fill(TensorType type, double value) {
  std::string recipe = fmt::format("fill {} {} {}", name_of(type.dtype), element_count(type.shape), value);
  Entry entry;
  entry.kind = Entry::Kind::fill;
  entry.type = std::move(type);
  entry.a = value;
  return insert_recipe(std::move(recipe), std::move(entry));
}

ContentId WeightStore::add_formula(Formula formula, TensorType type, double parameter, std::span<const float> factors) {
  CHECK(type.dtype == DType::f32, "formulas are f32");
  std::string recipe = fmt::format("formula {} {} {}", name_of(formula), to_string(type), parameter);
  for (const float factor : factors) recipe += fmt::format(" {}", factor);
  Entry entry;
  entry.kind = Entry::Kind::formula;
  entry.type = std::move(type);
  entry.a = parameter;
  entry.formula = formula;
  entry.raw.assign(reinterpret_cast<const char*>(factors.data()), factors.size_bytes());
  return insert_recipe(std::move(recipe), std::move(entry));
}

ContentId WeightStore::add_derived(Derivation how, std::vector<ContentId> from, double parameter, TensorType type) {
  std::string recipe = fmt::format("derived {} {}", static_cast<int>(how), parameter);
  for (const ContentId id : from) recipe += " " + hex16(id.value);
  if (depends_on_shape(how)) recipe += " " + to_string(type);
  Entry entry;
  entry.kind = Entry::Kind::derived;
  entry.type = std::move(type);
  entry.a = parameter;
  entry.how = how;
  constexpr int64_t most = int64_t{1} << 32;  // a value added to itself again and again doubles them
  for (const ContentId id : from) entry.reads = std::min(most, entry.reads + reads(id));
  entry.from = std::move(from);
  return insert_recipe(std::move(recipe), std::move(entry));
}

WeightStore::Cut WeightStore::cut_of(int axis, int64_t begin, int64_t end, const TensorType& whole) {
  const auto at = static_cast<size_t>(axis);
  CHECK(axis >= 0 && at < whole.shape.size() && begin >= 0 && begin < end && end <= whole.shape[at],
        fmt::format("a slice [{}, {}) along axis {} of {}", begin, end, axis, to_string(whole)));
  int64_t inner = 1;
  for (size_t i = at + 1; i < whole.shape.size(); ++i) inner *= whole.shape[i];
  const auto before = [&](int64_t index) { return size_of(whole.dtype, index * inner); };
  return {before(whole.shape[at]), before(begin), before(end)};
}

// The same bytes by another type are the same slice.
std::string WeightStore::slice_recipe(ContentId from, const Cut& cut) {
  return fmt::format("slice {} {} {} {}", hex16(from.value), cut.stride, cut.begin, cut.end);
}

ContentId WeightStore::slice_id(ContentId from, int axis, int64_t begin, int64_t end, const TensorType& whole) {
  return ContentId{hash_recipe(slice_recipe(from, cut_of(axis, begin, end, whole)))};
}

ContentId WeightStore::add_slice(ContentId from, int axis, int64_t begin, int64_t end, const TensorType& whole) {
  Entry entry;
  entry.kind = Entry::Kind::slice;
  entry.type = whole;
  entry.type.shape[static_cast<size_t>(axis)] = end - begin;
  entry.cut = cut_of(axis, begin, end, whole);
  entry.reads = 1 + reads(from);
  entry.from = {from};
  std::string recipe = slice_recipe(from, entry.cut);
  const ContentId id = insert_recipe(std::move(recipe), std::move(entry));
  CHECK(id == slice_id(from, axis, begin, end, whole), "Programs name a slice before it is added");
  return id;
}

void WeightStore::add_all(const WeightStore& other) {
  for (const auto& [id, entry] : other.entries_) {
    if (entries_.emplace(id, entry).second) stored_ += static_cast<int64_t>(entry.raw.size());
  }
}

bool WeightStore::contains(ContentId id) const { return entries_.contains(id.value); }

bool WeightStore::is_random(ContentId id) const {
  const auto found = entries_.find(id.value);
  if (found == entries_.end()) return false;
  const Entry& entry = found->second;
  if (entry.kind == Entry::Kind::derived && entry.how == Derivation::to_stored) return is_random(entry.from[0]);
  return entry.kind == Entry::Kind::random;
}

std::vector<ContentId> WeightStore::formulas() const {
  std::vector<ContentId> found;
  for (const auto& [hash, entry] : entries_) {
    if (entry.kind == Entry::Kind::formula) found.push_back(ContentId{hash});
  }
  return found;
}

std::optional<WeightStore::FormulaRecipe> WeightStore::formula_of(ContentId id) const {
  const auto found = entries_.find(id.value);
  if (found == entries_.end() || found->second.kind != Entry::Kind::formula) return std::nullopt;
  // Formula and parameter say all but a mask's window.
  if (found->second.formula == Formula::causal_mask && !found->second.raw.empty()) return std::nullopt;
  return FormulaRecipe{found->second.formula, found->second.a};
}

int64_t WeightStore::reads(ContentId id) const {
  const auto found = entries_.find(id.value);
  return found == entries_.end() ? 1 : found->second.reads;
}

const TensorType& WeightStore::type(ContentId id) const {
  const auto found = entries_.find(id.value);
  CHECK(found != entries_.end(), "a content id of another store");
  return found->second.type;
}

Result<std::string> WeightStore::materialise(ContentId id) const {
  const auto found = entries_.find(id.value);
  if (found == entries_.end()) return invalid_input(fmt::format("there is no weight with content {}", hex16(id.value)));
  const Entry& entry = found->second;
  switch (entry.kind) {
    case Entry::Kind::slice:
      return materialise_slice(entry);
    case Entry::Kind::raw:
    case Entry::Kind::mapped: {
      ASSIGN_OR_RETURN(const std::string_view bytes, bytes_of(entry));
      return std::string(bytes);
    }
    case Entry::Kind::fill:
      return filled(entry.type, entry.a);
    case Entry::Kind::formula:
      return values_of(entry.formula, entry.type.shape, entry.a, floats(entry.raw));
    case Entry::Kind::random: {
      const int64_t count = element_count(entry.type.shape);
      std::string out(static_cast<size_t>(count) * sizeof(float), '\0');
      auto* values = reinterpret_cast<float*>(out.data());
      fill_normal(entry.seed, values, count);
      const auto deviation = static_cast<float>(entry.a), mean = static_cast<float>(entry.b);
      // Two roundings, written so that no compiler fuses them: the same bits everywhere.
      for (int64_t i = 0; i < count; ++i) {
        const double scaled = static_cast<double>(values[i]) * deviation;
        values[i] = static_cast<float>(scaled) + mean;
      }
      return out;
    }
    case Entry::Kind::derived: {
      std::vector<std::string> inputs;
      for (const ContentId from : entry.from) {
        ASSIGN_OR_RETURN(inputs.emplace_back(), materialise(from));
      }
      return derive(entry.how, inputs, entry.a, entry.type.shape);
    }
  }
  CHECK(false, "unknown kind of weight");
}

// What the store holds, or a file, is not copied whole for it.
Result<std::string> WeightStore::materialise_slice(const Entry& entry) const {
  if (entry.cut.stride == 0) return std::string();
  std::string made;
  std::string_view whole;
  const auto found = entries_.find(entry.from[0].value);
  if (found != entries_.end() &&
      (found->second.kind == Entry::Kind::raw || found->second.kind == Entry::Kind::mapped)) {
    ASSIGN_OR_RETURN(whole, bytes_of(found->second));
  } else {
    ASSIGN_OR_RETURN(made, materialise(entry.from[0]));
    whole = made;
  }
  const auto stride = static_cast<size_t>(entry.cut.stride), begin = static_cast<size_t>(entry.cut.begin),
             length = static_cast<size_t>(entry.cut.end) - begin;
  if (whole.size() % stride != 0) {
    return invalid_input(fmt::format("a slice of content {}, which has {} bytes and not rows of {}",
                                     hex16(entry.from[0].value), whole.size(), stride));
  }
  std::string out;
  out.reserve(whole.size() / stride * length);
  for (size_t at = 0; at < whole.size(); at += stride) out += whole.substr(at + begin, length);
  return out;
}

Bytes WeightStore::stored_bytes() const { return bytes(stored_); }

}  // namespace nlsplit::inline graph
