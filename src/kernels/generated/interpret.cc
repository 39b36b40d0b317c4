#include "kernels/generated/interpret.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/check.h"

namespace nlsplit::inline kernels {
namespace {

constexpr int64_t most_lanes = 128;

union Lanes {
  int64_t whole[most_lanes];  // and truth
  float f32[most_lanes];
  double f64[most_lanes];
};

int64_t wrapped_to(DType type, int64_t value) {
  switch (type) {
    case DType::i8:
      return static_cast<int8_t>(value);
    case DType::i16:
      return static_cast<int16_t>(value);
    case DType::i32:
      return static_cast<int32_t>(value);
    case DType::u8:
      return static_cast<uint8_t>(value);
    case DType::u16:
      return static_cast<uint16_t>(value);
    case DType::u32:
      return static_cast<uint32_t>(value);
    default:
      return value;
  }
}

int64_t nearest_whole(double x) {
  constexpr double limit = 0x1p63;
  return x >= limit ? INT64_MAX : x <= -limit ? INT64_MIN : std::isnan(x) ? 0 : static_cast<int64_t>(x);
}
int64_t nearest_natural(double x) {
  constexpr double limit = 0x1p64;
  return static_cast<int64_t>(x >= limit ? UINT64_MAX : x > 0 ? static_cast<uint64_t>(x) : 0);
}

template <class T>
T read_as(const void* from, int64_t at) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + at * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <class T>
void write_as(void* to, int64_t at, T value) {
  std::memcpy(static_cast<char*>(to) + at * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

int64_t read_whole(DType type, const void* from, int64_t at) {
  switch (size_of(type)) {
    case 1:
      return type == DType::i8 ? read_as<int8_t>(from, at) : read_as<uint8_t>(from, at);
    case 2:
      return type == DType::i16 ? read_as<int16_t>(from, at) : read_as<uint16_t>(from, at);
    case 4:
      return type == DType::i32 ? read_as<int32_t>(from, at) : static_cast<int64_t>(read_as<uint32_t>(from, at));
    default:
      return read_as<int64_t>(from, at);
  }
}

class Interpreter {
 public:
  Interpreter(const Loops& loops, const void* const* inputs, void* output)
      : loops_(loops),
        inputs_(inputs),
        output_(output),
        values_(std::make_unique<Lanes[]>(loops.terms.size())),
        positions_(std::make_unique<Lanes[]>(loops.extents.size())),
        accumulators_(std::make_unique<Lanes[]>(loops.accumulators.size())) {}

  // Rows [begin, begin + lanes), one a lane.
  void run(int64_t begin, int64_t lanes) {
    lanes_ = lanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      int64_t rest = begin + lane;
      for (int axis = loops_.rows; axis-- > 0;) {
        const int64_t extent = loops_.extents[static_cast<size_t>(axis)];
        positions_[axis].whole[lane] = rest % extent;
        rest /= extent;
      }
    }
    for (const Fold& fold : loops_.folds) run_fold(fold);
    if (loops_.result < 0) return;
    const std::vector<int> needed = terms_of({loops_.result, loops_.place});
    for_each_position(loops_.rows, loops_.axes, [&] {
      evaluate(needed);
      store(loops_.result, loops_.place);
    });
  }

 private:
  std::vector<int> terms_of(const std::vector<int>& roots) const { return terms_for(loops_, roots); }

  // All positions of axes [first, end), the same in every lane.
  template <class Visit>
  void for_each_position(int first, int end, const Visit& visit) {
    if (first == end) return visit();
    for (int64_t i = 0; i < loops_.extents[static_cast<size_t>(first)]; ++i) {
      std::fill_n(positions_[first].whole, lanes_, i);
      for_each_position(first + 1, end, visit);
    }
  }

  void run_fold(const Fold& fold) {
    std::vector<int> firsts, nexts;
    for (int k = fold.first_accumulator; k < fold.end_accumulator; ++k) {
      firsts.push_back(loops_.accumulators[static_cast<size_t>(k)].first);
      nexts.push_back(loops_.accumulators[static_cast<size_t>(k)].next);
    }
    evaluate(terms_of(firsts));
    const auto take = [&](const std::vector<int>& from) {
      for (size_t k = 0; k < from.size(); ++k)
        copy(values_[static_cast<size_t>(from[k])], accumulators_[static_cast<size_t>(fold.first_accumulator) + k]);
    };
    take(firsts);
    const std::vector<int> steps = terms_of(nexts);
    const std::vector<int> stores = fold.stored < 0 ? std::vector<int>() : terms_of({fold.stored, fold.place});
    for_each_position(fold.first_axis, fold.end_axis, [&] {
      evaluate(steps);
      take(nexts);
      if (fold.stored < 0) return;
      evaluate(stores);
      store(fold.stored, fold.place);
    });
  }

  void evaluate(const std::vector<int>& terms) {
    for (const int i : terms) evaluate(loops_.terms[static_cast<size_t>(i)], values_[static_cast<size_t>(i)]);
  }

  // Lanes in use alone: rows may be few.
  void copy(const Lanes& from, Lanes& to) const {
    std::memcpy(&to, &from, static_cast<size_t>(lanes_) * sizeof(int64_t));
  }

  template <class F>
  void each(const F& f) const {
    for (int64_t i = 0; i < lanes_; ++i) f(i);
  }

  // Of f32, f64 or whole.
  template <class F>
  void arithmetic(const Term& t, Lanes& to, const F& f) const {
    const Lanes &x = at(t.x), &y = at(t.y);
    if (t.type == Scalar::f32)
      each([&](int64_t i) { to.f32[i] = f(x.f32[i], y.f32[i]); });
    else if (t.type == Scalar::f64)
      each([&](int64_t i) { to.f64[i] = f(x.f64[i], y.f64[i]); });
    else
      each([&](int64_t i) {
        to.whole[i] = static_cast<int64_t>(f(static_cast<uint64_t>(x.whole[i]), static_cast<uint64_t>(y.whole[i])));
      });
  }
  template <class F>
  void compare(const Term& t, Lanes& to, const F& f) const {
    const Lanes &x = at(t.x), &y = at(t.y);
    const Scalar type = loops_.terms[static_cast<size_t>(t.x)].type;
    if (type == Scalar::f32)
      each([&](int64_t i) { to.whole[i] = f(x.f32[i], y.f32[i]) ? 1 : 0; });
    else if (type == Scalar::f64)
      each([&](int64_t i) { to.whole[i] = f(x.f64[i], y.f64[i]) ? 1 : 0; });
    else
      each([&](int64_t i) { to.whole[i] = f(x.whole[i], y.whole[i]) ? 1 : 0; });
  }
  template <class F>
  void real(const Term& t, Lanes& to, const F& f) const {
    const Lanes& x = at(t.x);
    if (t.type == Scalar::f32)
      each([&](int64_t i) { to.f32[i] = f(x.f32[i]); });
    else
      each([&](int64_t i) { to.f64[i] = f(x.f64[i]); });
  }
  template <class F>
  void whole(const Term& t, Lanes& to, const F& f) const {
    const Lanes &x = at(t.x), &y = at(t.y);
    each([&](int64_t i) { to.whole[i] = f(x.whole[i], y.whole[i]); });
  }
  template <class F>
  void natural(const Term& t, Lanes& to, const F& f) const {
    whole(t, to, [&](int64_t x, int64_t y) {
      return static_cast<int64_t>(f(static_cast<uint64_t>(x), static_cast<uint64_t>(y)));
    });
  }

  void evaluate(const Term& t, Lanes& to) const {
    switch (t.code) {
      case LoopCode::number:
        if (t.type == Scalar::f32)
          std::fill_n(to.f32, lanes_, static_cast<float>(t.number));
        else
          std::fill_n(to.f64, lanes_, t.number);
        return;
      case LoopCode::integer:
        std::fill_n(to.whole, lanes_, t.integer);
        return;
      case LoopCode::axis:
        return copy(positions_[t.which], to);
      case LoopCode::carried:
        return copy(accumulators_[t.which], to);
      case LoopCode::entry:
        return look_up(t, to);
      case LoopCode::element:
        return read(inputs_[t.which], loops_.inputs[static_cast<size_t>(t.which)].dtype, t, to);
      case LoopCode::written:
        return read(output_, loops_.output.dtype, t, to);
      case LoopCode::add:
        return arithmetic(t, to, [](auto x, auto y) { return x + y; });
      case LoopCode::subtract:
        return arithmetic(t, to, [](auto x, auto y) { return x - y; });
      case LoopCode::multiply:
        return arithmetic(t, to, [](auto x, auto y) { return x * y; });
      case LoopCode::less:
        return compare(t, to, [](auto x, auto y) { return x < y; });
      case LoopCode::equal:
        return compare(t, to, [](auto x, auto y) { return x == y; });
      case LoopCode::choose:
        return choose(t, to);
      case LoopCode::divide:
        if (t.type == Scalar::f32) return each([&](int64_t i) { to.f32[i] = at(t.x).f32[i] / at(t.y).f32[i]; });
        return each([&](int64_t i) { to.f64[i] = at(t.x).f64[i] / at(t.y).f64[i]; });
      case LoopCode::negate:
        return real(t, to, [](auto x) { return -x; });
      case LoopCode::magnitude:
        return real(t, to, [](auto x) { return std::abs(x); });
      case LoopCode::root:
        return real(t, to, [](auto x) { return std::sqrt(x); });
      case LoopCode::floor:
        return real(t, to, [](auto x) { return std::floor(x); });
      case LoopCode::ceil:
        return real(t, to, [](auto x) { return std::ceil(x); });
      case LoopCode::nearest:
        return real(t, to, [](auto x) { return std::nearbyint(x); });
      case LoopCode::cut:
        return real(t, to, [](auto x) { return std::trunc(x); });
      case LoopCode::smaller:
        return whole(t, to, [](int64_t x, int64_t y) { return std::min(x, y); });
      case LoopCode::larger:
        return whole(t, to, [](int64_t x, int64_t y) { return std::max(x, y); });
      case LoopCode::quotient:
        return whole(t, to, [](int64_t x, int64_t y) { return x / y; });
      case LoopCode::rest:
        return whole(t, to, [](int64_t x, int64_t y) { return x % y; });
      case LoopCode::both:
        return whole(t, to, [](int64_t x, int64_t y) { return x & y; });
      case LoopCode::either:
        return whole(t, to, [](int64_t x, int64_t y) { return x | y; });
      case LoopCode::differ:
        return whole(t, to, [](int64_t x, int64_t y) { return x ^ y; });
      case LoopCode::below:
        return natural(t, to, [](uint64_t x, uint64_t y) { return x < y ? 1 : 0; });
      case LoopCode::natural_quotient:
        return natural(t, to, [](uint64_t x, uint64_t y) { return x / y; });
      case LoopCode::natural_rest:
        return natural(t, to, [](uint64_t x, uint64_t y) { return x % y; });
      case LoopCode::shift_left:
        return natural(t, to, [](uint64_t x, uint64_t y) { return x << y; });
      case LoopCode::shift_right:
        return natural(t, to, [](uint64_t x, uint64_t y) { return x >> y; });
      default:
        return convert(t, to);
    }
  }

  void convert(const Term& t, Lanes& to) const {
    const Lanes& x = at(t.x);
    const bool from_f32 = loops_.terms[static_cast<size_t>(t.x)].type == Scalar::f32;
    switch (t.code) {
      case LoopCode::wrap:
        return each([&](int64_t i) { to.whole[i] = wrapped_to(t.dtype, x.whole[i]); });
      case LoopCode::widen:
        return each([&](int64_t i) { to.f64[i] = x.f32[i]; });
      case LoopCode::narrow:
        return each([&](int64_t i) { to.f32[i] = narrowed(x.f64[i]); });
      case LoopCode::real_of:
        return each([&](int64_t i) { to.f64[i] = static_cast<double>(x.whole[i]); });
      case LoopCode::real_of_natural:
        return each([&](int64_t i) { to.f64[i] = static_cast<double>(static_cast<uint64_t>(x.whole[i])); });
      case LoopCode::whole_of:
        return each([&](int64_t i) { to.whole[i] = nearest_whole(x.f64[i]); });
      case LoopCode::natural_of:
        return each([&](int64_t i) { to.whole[i] = nearest_natural(x.f64[i]); });
      case LoopCode::bits_of:
        if (from_f32) return each([&](int64_t i) { to.whole[i] = std::bit_cast<uint32_t>(x.f32[i]); });
        return each([&](int64_t i) { to.whole[i] = std::bit_cast<int64_t>(x.f64[i]); });
      case LoopCode::from_bits:
        if (t.type == Scalar::f32)
          return each([&](int64_t i) { to.f32[i] = std::bit_cast<float>(static_cast<uint32_t>(x.whole[i])); });
        return each([&](int64_t i) { to.f64[i] = std::bit_cast<double>(x.whole[i]); });
      default:
        CHECK(false, "no such code");
    }
  }

  // Beyond the largest float the language leaves the conversion open; IEEE 754 rounds to infinity.
  static float narrowed(double x) {
    constexpr double limit = 0x1.ffffffp127, largest = 0x1.fffffep127;
    if (std::abs(x) >= limit) return std::copysign(HUGE_VALF, x < 0 ? -1.0f : 1.0f);
    if (std::abs(x) > largest) return std::copysign(0x1.fffffep127f, x < 0 ? -1.0f : 1.0f);
    return static_cast<float>(x);
  }

  void choose(const Term& t, Lanes& to) const {
    const Lanes &which = at(t.x), &x = at(t.y), &y = at(t.z);
    if (t.type == Scalar::f32)
      each([&](int64_t i) { to.f32[i] = which.whole[i] != 0 ? x.f32[i] : y.f32[i]; });
    else if (t.type == Scalar::f64)
      each([&](int64_t i) { to.f64[i] = which.whole[i] != 0 ? x.f64[i] : y.f64[i]; });
    else
      each([&](int64_t i) { to.whole[i] = which.whole[i] != 0 ? x.whole[i] : y.whole[i]; });
  }

  void look_up(const Term& t, Lanes& to) const {
    const LoopTable& table = loops_.tables[static_cast<size_t>(t.which)];
    const Lanes& index = at(t.x);
    if (table.numbers.empty())
      each([&](int64_t i) { to.whole[i] = table.integers[static_cast<size_t>(index.whole[i])]; });
    else
      each([&](int64_t i) { to.f64[i] = table.numbers[static_cast<size_t>(index.whole[i])]; });
  }

  void read(const void* from, DType type, const Term& t, Lanes& to) const {
    const Lanes& index = at(t.x);
    if (type == DType::f32)
      each([&](int64_t i) { to.f32[i] = read_as<float>(from, index.whole[i]); });
    else if (type == DType::f64)
      each([&](int64_t i) { to.f64[i] = read_as<double>(from, index.whole[i]); });
    else if (type == DType::boolean)
      each([&](int64_t i) { to.whole[i] = read_as<uint8_t>(from, index.whole[i]) != 0 ? 1 : 0; });
    else
      each([&](int64_t i) { to.whole[i] = read_whole(type, from, index.whole[i]); });
  }

  void store(int term, int place) {
    const Lanes &value = at(term), &index = at(place);
    switch (loops_.terms[static_cast<size_t>(term)].type) {
      case Scalar::f32:
        return each([&](int64_t i) { write_as(output_, index.whole[i], value.f32[i]); });
      case Scalar::f64:
        return each([&](int64_t i) { write_as(output_, index.whole[i], value.f64[i]); });
      default:
        break;
    }
    switch (size_of(loops_.output.dtype)) {
      case 1:
        return each([&](int64_t i) { write_as(output_, index.whole[i], static_cast<uint8_t>(value.whole[i])); });
      case 2:
        return each([&](int64_t i) { write_as(output_, index.whole[i], static_cast<uint16_t>(value.whole[i])); });
      case 4:
        return each([&](int64_t i) { write_as(output_, index.whole[i], static_cast<uint32_t>(value.whole[i])); });
      default:
        return each([&](int64_t i) { write_as(output_, index.whole[i], value.whole[i]); });
    }
  }

  const Lanes& at(int term) const { return values_[static_cast<size_t>(term < 0 ? 0 : term)]; }

  const Loops& loops_;
  const void* const* inputs_;
  void* output_;
  std::unique_ptr<Lanes[]> values_, positions_, accumulators_;
  int64_t lanes_ = 0;
};

}  // namespace

int64_t rows_of(const Loops& loops) {
  int64_t rows = 1;
  for (int axis = 0; axis < loops.rows; ++axis) rows *= loops.extents[static_cast<size_t>(axis)];
  return rows;
}

void interpret(const Loops& loops, const void* const* inputs, void* output, int64_t begin, int64_t end) {
  Interpreter interpreter(loops, inputs, output);
  for (; begin < end; begin += most_lanes) interpreter.run(begin, std::min(most_lanes, end - begin));
}

}  // namespace nlsplit::inline kernels
