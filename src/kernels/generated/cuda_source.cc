#include "kernels/generated/cuda_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace nlsplit::inline kernels {
namespace {

// What C leaves open or spells otherwise. Conversions to whole numbers: the nearest there is, 0 of what is no number.
constexpr std::string_view prelude = R"(typedef long long whole;
typedef unsigned long long natural;
static __device__ inline whole whole_of(double x) {
  return x >= 0x1p63 ? 0x7fffffffffffffffLL : x <= -0x1p63 ? -0x7fffffffffffffffLL - 1 : x != x ? 0 : (whole)x;
}
static __device__ inline whole natural_of(double x) { return x >= 0x1p64 ? -1 : x > 0 ? (whole)(natural)x : 0; }
static __device__ inline whole bits_of(float x) { return (natural)__float_as_uint(x); }
static __device__ inline whole bits_of(double x) { return __double_as_longlong(x); }
static __device__ inline float f32_from_bits(whole x) { return __uint_as_float((unsigned)x); }
static __device__ inline double f64_from_bits(whole x) { return __longlong_as_double(x); }
)";

bool fits_in_32(int64_t low, int64_t high) {
  return low >= std::numeric_limits<int32_t>::min() && high <= std::numeric_limits<int32_t>::max();
}

std::string integer_text(int64_t value) {
  if (value == std::numeric_limits<int64_t>::min()) return "(-0x7fffffffffffffffLL - 1)";
  const std::string text = fmt::format("{}{}", value, fits_in_32(value, value) ? "" : "LL");
  return value < 0 ? fmt::format("({})", text) : text;
}

std::string number_text(double value, Scalar type) {
  const bool narrow = type == Scalar::f32;
  const double rounded = narrow ? static_cast<double>(static_cast<float>(value)) : value;
  const std::string_view suffix = narrow ? "f" : "";
  // C spells neither; these are constants to every compiler.
  if (std::isnan(rounded)) return fmt::format("(0.0{0} / 0.0{0})", suffix);
  if (std::isinf(rounded)) return fmt::format("({0}1.0{1} / 0.0{1})", rounded < 0 ? "-" : "", suffix);
  const std::string text = fmt::format("{:a}{}", rounded, suffix);
  return std::signbit(rounded) ? fmt::format("({})", text) : text;
}

// Of memory; whole numbers of 64 bits have no sign of their own there.
std::string_view memory_type(DType type) {
  switch (type) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::i8:
      return "signed char";
    case DType::boolean:
    case DType::u8:
      return "unsigned char";
    case DType::i16:
      return "short";
    case DType::f16:
    case DType::bf16:
    case DType::u16:
      return "unsigned short";
    case DType::i32:
      return "int";
    case DType::u32:
      return "unsigned";
    case DType::i64:
    case DType::u64:
      return "whole";
    default:
      CHECK(false, "loops have no elements that share scales");
  }
}

class CudaWriter {
 public:
  explicit CudaWriter(const Loops& loops)
      : loops_(loops), ranges_(ranges_of(loops)), apart_(loops.folds.empty() ? loops.axes : loops.rows) {}

  CudaSource write() {
    CudaSource source;
    source.threads = 1;
    for (int axis = 0; axis < apart_; ++axis) source.threads *= extent(axis);
    // Rows may be few and long: blocks of one warp spread them over the GPU.
    constexpr int warp = 32, usual = 256;
    source.block_threads = loops_.folds.empty() ? usual : warp;
    out_ = prelude;
    for (size_t k = 0; k < loops_.tables.size(); ++k) write_table(k);
    line(fmt::format("extern \"C\" __global__ void {}({}) {{", cuda_function, parameters()));
    ++depth_;
    open_points(source.threads);
    for (const Fold& fold : loops_.folds) write_fold(fold);
    if (loops_.result >= 0) {
      const int outside = depth_;
      open_axes(apart_, loops_.axes);
      write_store(loops_.result, loops_.place);
      close(outside);
    }
    close(0);
    source.text = std::move(out_);
    return source;
  }

 private:
  int64_t extent(int axis) const { return loops_.extents[static_cast<size_t>(axis)]; }
  const Term& term(int i) const { return loops_.terms[static_cast<size_t>(i)]; }
  void line(std::string_view text) { out_ += fmt::format("{:{}}{}\n", "", 2 * depth_, text); }
  void open(std::string_view text) {
    line(fmt::format("{}{{", text));
    ++depth_;
  }
  void close(int outside) {
    while (depth_ > outside) {
      --depth_;
      line("}");
    }
  }

  void write_table(size_t which) {
    const LoopTable& table = loops_.tables[which];
    std::vector<std::string> entries;
    for (const int64_t entry : table.integers) entries.push_back(integer_text(entry));
    for (const double entry : table.numbers) entries.push_back(number_text(entry, Scalar::f64));
    const bool small = std::ranges::all_of(table.integers, [](int64_t entry) { return fits_in_32(entry, entry); });
    line(fmt::format("static __device__ const {} table{}[] = {{{}}};",
                     !table.numbers.empty() ? "double"
                     : small                ? "int"
                                            : "whole",
                     which, fmt::join(entries, ", ")));
  }

  std::string parameters() const {
    std::string all;
    for (size_t i = 0; i < loops_.inputs.size(); ++i)
      all += fmt::format("const {}* __restrict__ in{}, ", memory_type(loops_.inputs[i].dtype), i);
    return all + fmt::format("{}* __restrict__ out", memory_type(loops_.output.dtype));
  }

  // Divisions of 64 bits take longer than most of what a thread computes: 32 bits where they count all points and the
  // threads behind them.
  void open_points(int64_t points) {
    constexpr int64_t most_small = int64_t{1} << 30;
    const std::string_view type = points <= most_small ? "unsigned" : "natural";
    open(
        fmt::format("for ({0} point = ({0})blockIdx.x * blockDim.x + threadIdx.x; point < {1}; "
                    "point += ({0})gridDim.x * blockDim.x) ",
                    type, points));
    for (int axis = apart_; axis-- > 0;) {
      const std::string from = axis + 1 == apart_ ? "point" : fmt::format("rest{}", axis + 1);
      if (axis == 0) {
        line(fmt::format("const {} i0 = {};", axis_type(0), from));
      } else {
        line(fmt::format("const {} rest{} = {} / {};", type, axis, from, extent(axis)));
        line(fmt::format("const {} i{} = {} - rest{} * {};", axis_type(axis), axis, from, axis, extent(axis)));
      }
    }
  }

  std::string_view axis_type(int axis) const { return fits_in_32(0, extent(axis)) ? "int" : "whole"; }
  void open_axes(int first, int end) {
    for (int axis = first; axis < end; ++axis)
      open(fmt::format("for ({} i{} = 0; i{} < {}; ++i{}) ", axis_type(axis), axis, axis, extent(axis), axis));
  }

  // ---- folds

  void write_fold(const Fold& fold) {
    std::vector<int> firsts, nexts;
    for (int k = fold.first_accumulator; k < fold.end_accumulator; ++k) {
      const Accumulator& accumulator = loops_.accumulators[static_cast<size_t>(k)];
      firsts.push_back(accumulator.first);
      nexts.push_back(accumulator.next);
      line(fmt::format("{} a{};", wide_type(term(accumulator.first).type), k));
    }
    const int outside = depth_;
    open("");
    write_accumulators(fold, firsts);
    open_axes(fold.first_axis, fold.end_axis);
    open("");
    write_accumulators(fold, nexts);
    close(depth_ - 1);
    if (fold.stored >= 0) {
      open("");
      write_store(fold.stored, fold.place);
    }
    close(outside);
  }

  // All at once: the terms read what the accumulators were before.
  void write_accumulators(const Fold& fold, const std::vector<int>& from) {
    write_terms(from);
    for (size_t k = 0; k < from.size(); ++k)
      line(fmt::format("a{} = {};", static_cast<size_t>(fold.first_accumulator) + k, text(from[k])));
  }

  void write_store(int stored, int place) {
    write_terms({stored, place});
    line(fmt::format("out[{}] = {};", text(place), text(stored)));
  }

  // ---- terms

  static std::string_view wide_type(Scalar type) {
    return type == Scalar::f32 ? "float" : type == Scalar::f64 ? "double" : type == Scalar::truth ? "bool" : "whole";
  }
  bool is_small(int i) const {
    const TermRange& range = ranges_[static_cast<size_t>(i)];
    return term(i).type == Scalar::whole && fits_in_32(range.low, range.high);
  }

  void write_terms(const std::vector<int>& roots) {
    for (const int i : terms_for(loops_, roots)) {
      if (is_plain(i)) continue;
      line(fmt::format("const {} t{} = {};", is_small(i) ? "int" : wide_type(term(i).type), i, expression(i)));
    }
  }

  bool is_plain(int i) const {
    const LoopCode code = term(i).code;
    return code == LoopCode::number || code == LoopCode::integer || code == LoopCode::axis;
  }
  std::string text(int i) const {
    const Term& t = term(i);
    switch (t.code) {
      case LoopCode::number:
        return number_text(t.number, t.type);
      case LoopCode::integer:
        return t.type == Scalar::truth ? (t.integer != 0 ? "true" : "false") : integer_text(t.integer);
      case LoopCode::axis:
        return fmt::format("i{}", t.which);
      default:
        return fmt::format("t{}", i);
    }
  }

  std::string expression(int i) const {
    const Term& t = term(i);
    const auto infix = [&](std::string_view sign) { return fmt::format("{} {} {}", text(t.x), sign, text(t.y)); };
    const auto natural = [&](std::string_view sign) {
      return fmt::format("(whole)((natural){} {} (natural){})", text(t.x), sign, text(t.y));
    };
    const auto bitwise = [&](std::string_view sign) {
      return t.type == Scalar::truth ? infix(sign) : fmt::format("(whole){} {} {}", text(t.x), sign, text(t.y));
    };
    switch (t.code) {
      case LoopCode::entry:
        return fmt::format("table{}[{}]", t.which, text(t.x));
      case LoopCode::element:
        return fmt::format("in{}[{}]{}", t.which, text(t.x), t.type == Scalar::truth ? " != 0" : "");
      case LoopCode::written:
        return fmt::format("out[{}]{}", text(t.x), t.type == Scalar::truth ? " != 0" : "");
      case LoopCode::carried:
        return fmt::format("a{}", t.which);
      case LoopCode::add:
        return arithmetic(i, "+");
      case LoopCode::subtract:
        return arithmetic(i, "-");
      case LoopCode::multiply:
        return arithmetic(i, "*");
      case LoopCode::less:
        return infix("<");
      case LoopCode::equal:
        return infix("==");
      case LoopCode::divide:
      case LoopCode::quotient:
        return infix("/");
      case LoopCode::rest:
        return infix("%");
      case LoopCode::choose:
        return fmt::format("{} ? {} : {}", text(t.x), text(t.y), text(t.z));
      case LoopCode::smaller:
        return fmt::format("{0} < {1} ? {0} : {1}", text(t.x), text(t.y));
      case LoopCode::larger:
        return fmt::format("{0} < {1} ? {1} : {0}", text(t.x), text(t.y));
      case LoopCode::below:
        return fmt::format("(natural){} < (natural){}", text(t.x), text(t.y));
      case LoopCode::natural_quotient:
        return natural("/");
      case LoopCode::natural_rest:
        return natural("%");
      case LoopCode::shift_left:
        return natural("<<");
      case LoopCode::shift_right:
        return natural(">>");
      case LoopCode::both:
        return bitwise("&");
      case LoopCode::either:
        return bitwise("|");
      case LoopCode::differ:
        return bitwise("^");
      default:
        return of_one(t);
    }
  }

  // Functions and conversions.
  std::string of_one(const Term& t) const {
    const auto of = [&](std::string_view name) {
      return fmt::format("{}{}({})", name, t.type == Scalar::f32 ? "f" : "", text(t.x));
    };
    const auto cast = [&](std::string_view type) { return fmt::format("({}){}", type, text(t.x)); };
    switch (t.code) {
      case LoopCode::negate:
        return fmt::format("-{}", text(t.x));
      case LoopCode::magnitude:
        return of("fabs");
      case LoopCode::root:
        return of("sqrt");
      case LoopCode::floor:
        return of("floor");
      case LoopCode::ceil:
        return of("ceil");
      case LoopCode::nearest:
        return of("rint");
      case LoopCode::cut:
        return of("trunc");
      case LoopCode::wrap:
        return cast(memory_type(t.dtype));
      case LoopCode::widen:
      case LoopCode::real_of:
        return cast("double");
      case LoopCode::narrow:
        return cast("float");
      case LoopCode::real_of_natural:
        return fmt::format("(double)(natural){}", text(t.x));
      case LoopCode::whole_of:
      case LoopCode::natural_of:
      case LoopCode::bits_of:
        return fmt::format("{}({})", name_of(t.code), text(t.x));
      case LoopCode::from_bits:
        return fmt::format("{}_from_bits({})", name_of(t.type), text(t.x));
      default:
        CHECK(false, "no such code");
    }
  }

  // Whole numbers: in 32 bits where nothing is longer, in 64 where it is known not to leave them, else modulo 2^64.
  std::string arithmetic(int i, std::string_view sign) const {
    const Term& t = term(i);
    if (t.type != Scalar::whole || (is_small(i) && is_small(t.x) && is_small(t.y)))
      return fmt::format("{} {} {}", text(t.x), sign, text(t.y));
    const TermRange& range = ranges_[static_cast<size_t>(i)];
    const bool exact =
        range.low != std::numeric_limits<int64_t>::min() || range.high != std::numeric_limits<int64_t>::max();
    if (exact) return fmt::format("(whole){} {} {}", text(t.x), sign, text(t.y));
    return fmt::format("(whole)((natural){} {} (natural){})", text(t.x), sign, text(t.y));
  }

  const Loops& loops_;
  const std::vector<TermRange> ranges_;
  const int apart_;  // axes whose points are threads: the result's, or the rows
  int depth_ = 0;
  std::string out_;
};

}  // namespace

CudaSource cuda_source(const Loops& loops) { return CudaWriter(loops).write(); }

}  // namespace nlsplit::inline kernels
