#include "kernels/generated/loops.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

namespace nlsplit::inline kernels {
namespace {

struct CodeRow {
  std::string_view name;
  int operands;
};
constexpr std::array code_rows = {
#define NLS_LOOP_CODE(name, operands) CodeRow{#name, operands},
#include "kernels/generated/loop_codes.def"
};
constexpr std::array<std::string_view, 4> scalar_names = {"f32", "f64", "whole", "truth"};

// ---- ranges

int64_t nearest_64(__int128 value) {
  return value > INT64_MAX ? INT64_MAX : value < INT64_MIN ? INT64_MIN : static_cast<int64_t>(value);
}
// What left 64 bits has wrapped around: anything.
TermRange range_of(__int128 low, __int128 high) {
  if (low < INT64_MIN || high > INT64_MAX) return {};
  return {nearest_64(low), nearest_64(high)};
}

TermRange range_of(DType type) {
  const int64_t bits = 8 * size_of(type);
  if (is_half(type)) return {0, 0xffff};
  if (bits >= 64) return {};
  const bool natural = type == DType::u8 || type == DType::u16 || type == DType::u32;
  if (natural) return {0, (int64_t{1} << bits) - 1};
  return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
}

TermRange range_of(const LoopTable& table) {
  if (table.integers.empty()) return {};
  const auto [low, high] = std::ranges::minmax_element(table.integers);
  return {*low, *high};
}

TermRange product(const TermRange& x, const TermRange& y) {
  const __int128 corners[] = {__int128{x.low} * y.low, __int128{x.low} * y.high, __int128{x.high} * y.low,
                              __int128{x.high} * y.high};
  return range_of(*std::ranges::min_element(corners), *std::ranges::max_element(corners));
}

TermRange range_of_term(const Loops& loops, const Term& term, const std::vector<TermRange>& known) {
  const auto at = [&](int i) { return i < 0 ? TermRange{} : known[static_cast<size_t>(i)]; };
  const TermRange x = at(term.x), y = at(term.y), z = at(term.z);
  switch (term.code) {
    case LoopCode::integer:
      return {term.integer, term.integer};
    case LoopCode::axis:
      return {0, std::max<int64_t>(loops.extents[static_cast<size_t>(term.which)] - 1, 0)};
    case LoopCode::entry:
      return range_of(loops.tables[static_cast<size_t>(term.which)]);
    case LoopCode::element:
      return range_of(loops.inputs[static_cast<size_t>(term.which)].dtype);
    case LoopCode::written:
      return range_of(loops.output.dtype);
    case LoopCode::wrap:
      return range_of(term.dtype);
    case LoopCode::add:
      return range_of(__int128{x.low} + y.low, __int128{x.high} + y.high);
    case LoopCode::subtract:
      return range_of(__int128{x.low} - y.high, __int128{x.high} - y.low);
    case LoopCode::multiply:
      return product(x, y);
    case LoopCode::smaller:
      return {std::min(x.low, y.low), std::min(x.high, y.high)};
    case LoopCode::larger:
      return {std::max(x.low, y.low), std::max(x.high, y.high)};
    case LoopCode::choose:
      return {std::min(y.low, z.low), std::max(y.high, z.high)};
    case LoopCode::quotient:  // by a constant
      return y.low == y.high && y.low > 0 ? TermRange{x.low / y.low, x.high / y.low} : TermRange{};
    case LoopCode::rest:
      return y.low == y.high && y.low > 0 && x.low >= 0 ? TermRange{0, std::min(x.high, y.low - 1)} : TermRange{};
    default:
      return {};
  }
}

// ---- types

// Of memory, as terms see it.
Scalar scalar_of(DType type) {
  if (type == DType::f32) return Scalar::f32;
  if (type == DType::f64) return Scalar::f64;
  return type == DType::boolean ? Scalar::truth : Scalar::whole;
}

bool is_float(Scalar type) { return type == Scalar::f32 || type == Scalar::f64; }

// Has the term the type that its code and operands make?
bool fits(const Loops& loops, const Term& term) {
  const auto type = [&](int i) { return loops.terms[static_cast<size_t>(i)].type; };
  const auto within = [&](size_t count) { return term.which >= 0 && static_cast<size_t>(term.which) < count; };
  const bool whole = term.type == Scalar::whole, truth = term.type == Scalar::truth, real = is_float(term.type);
  const auto all = [&](Scalar wanted) {
    return (term.x < 0 || type(term.x) == wanted) && (term.y < 0 || type(term.y) == wanted);
  };
  switch (term.code) {
    case LoopCode::number:
      return real;
    case LoopCode::integer:
      return whole || truth;
    case LoopCode::axis:
      return whole && within(loops.extents.size());
    case LoopCode::entry:
      return within(loops.tables.size()) && all(Scalar::whole) &&
             (loops.tables[static_cast<size_t>(term.which)].numbers.empty() ? whole : term.type == Scalar::f64);
    case LoopCode::element:
      return within(loops.inputs.size()) && all(Scalar::whole) &&
             term.type == scalar_of(loops.inputs[static_cast<size_t>(term.which)].dtype);
    case LoopCode::written:
      return all(Scalar::whole) && term.type == scalar_of(loops.output.dtype);
    case LoopCode::carried:
      return within(loops.accumulators.size());
    case LoopCode::add:
    case LoopCode::subtract:
    case LoopCode::multiply:
      return !truth && all(term.type);
    case LoopCode::less:
    case LoopCode::equal:
      return truth && type(term.x) == type(term.y) && type(term.x) != Scalar::truth;
    case LoopCode::choose:
      return type(term.x) == Scalar::truth && type(term.y) == term.type && type(term.z) == term.type;
    case LoopCode::divide:
    case LoopCode::negate:
    case LoopCode::magnitude:
    case LoopCode::root:
    case LoopCode::floor:
    case LoopCode::ceil:
    case LoopCode::nearest:
    case LoopCode::cut:
      return real && all(term.type);
    case LoopCode::below:
      return truth && all(Scalar::whole);
    case LoopCode::wrap:
      return whole && all(Scalar::whole) && is_whole(term.dtype);
    case LoopCode::smaller:
    case LoopCode::larger:
    case LoopCode::quotient:
    case LoopCode::rest:
    case LoopCode::natural_quotient:
    case LoopCode::natural_rest:
    case LoopCode::shift_left:
    case LoopCode::shift_right:
      return whole && all(Scalar::whole);
    case LoopCode::both:
    case LoopCode::either:
    case LoopCode::differ:
      return (whole || truth) && all(term.type);
    case LoopCode::widen:
      return term.type == Scalar::f64 && all(Scalar::f32);
    case LoopCode::narrow:
      return term.type == Scalar::f32 && all(Scalar::f64);
    case LoopCode::real_of:
    case LoopCode::real_of_natural:
      return term.type == Scalar::f64 && all(Scalar::whole);
    case LoopCode::whole_of:
    case LoopCode::natural_of:
      return whole && all(Scalar::f64);
    case LoopCode::bits_of:
      return whole && is_float(type(term.x));
    case LoopCode::from_bits:
      return real && all(Scalar::whole);
  }
  return false;
}

Status check_index(const std::vector<TermRange>& ranges, int term, int64_t count, std::string_view what) {
  const TermRange range = ranges[static_cast<size_t>(term)];
  if (range.low >= 0 && range.high < count) return ok_status();
  return invalid_input(fmt::format("{} is read from {} to {} of {}", what, range.low, range.high, count));
}

// ---- text

class LoopPrinter {
 public:
  explicit LoopPrinter(const Loops& loops)
      : loops_(loops), uses_(loops.terms.size(), 0), names_(loops.terms.size(), -1) {
    for (const Term& term : loops.terms) {
      for (const int i : {term.x, term.y, term.z}) count(i);
    }
  }

  std::string print() {
    for (size_t k = 0; k < loops_.folds.size(); ++k) print_fold(loops_.folds[k], k);
    if (loops_.result >= 0) {
      open_axes(loops_.folds.empty() ? 0 : loops_.rows, loops_.axes);
      define(loops_.result);
      define(loops_.place);
      line(fmt::format("out {}[{}] at {} = {}", name_of(loops_.output.dtype), loops_.output.count, text(loops_.place),
                       text(loops_.result)));
    }
    return std::move(out_);
  }

 private:
  void count(int i) {
    if (i >= 0) ++uses_[static_cast<size_t>(i)];
  }
  void line(std::string_view text) { out_ += fmt::format("{:{}}{}\n", "", 2 * depth_, text); }
  void open_axes(int first, int end) {
    for (int axis = first; axis < end; ++axis) {
      line(fmt::format("for i{} < {}", axis, loops_.extents[static_cast<size_t>(axis)]));
      ++depth_;
    }
  }

  void print_fold(const Fold& fold, size_t which) {
    if (which == 0) open_axes(0, loops_.rows);
    const int outside = depth_;
    const std::vector<int> known = names_;
    for (int k = fold.first_accumulator; k < fold.end_accumulator; ++k) {
      const int first = loops_.accumulators[static_cast<size_t>(k)].first;
      define(first);
      line(fmt::format("a{} = {}", k, text(first)));
    }
    open_axes(fold.first_axis, fold.end_axis);
    for (int k = fold.first_accumulator; k < fold.end_accumulator; ++k)
      define(loops_.accumulators[static_cast<size_t>(k)].next);
    for (int k = fold.first_accumulator; k < fold.end_accumulator; ++k)
      line(fmt::format("a{} = {}", k, text(loops_.accumulators[static_cast<size_t>(k)].next)));
    if (fold.stored >= 0) {
      define(fold.stored);
      define(fold.place);
      line(fmt::format("out {}[{}] at {} = {}", name_of(loops_.output.dtype), loops_.output.count, text(fold.place),
                       text(fold.stored)));
    }
    depth_ = outside;
    names_ = known;
  }

  // A line for every term below that is used more than once, or is an element. Iteratively: terms may be many.
  void define(int root) {
    std::vector<bool> needed(loops_.terms.size(), false);
    needed[static_cast<size_t>(root)] = true;
    for (int i = root; i >= 0; --i) {
      if (!needed[static_cast<size_t>(i)] || names_[static_cast<size_t>(i)] >= 0) continue;
      const Term& term = loops_.terms[static_cast<size_t>(i)];
      for (const int used : {term.x, term.y, term.z}) {
        if (used >= 0) needed[static_cast<size_t>(used)] = true;
      }
    }
    for (int i = 0; i <= root; ++i) {
      const Term& term = loops_.terms[static_cast<size_t>(i)];
      const bool leaf = operands_of(term.code) == 0;
      if (!needed[static_cast<size_t>(i)] || names_[static_cast<size_t>(i)] >= 0 || leaf) continue;
      const bool reads = term.code == LoopCode::element || term.code == LoopCode::written;
      if (uses_[static_cast<size_t>(i)] < 2 && !reads) continue;
      std::string what = text(i);
      names_[static_cast<size_t>(i)] = next_name_++;
      line(fmt::format("t{} = {}", names_[static_cast<size_t>(i)], what));
    }
  }

  std::string text(int i) const {
    if (const int name = names_[static_cast<size_t>(i)]; name >= 0) return fmt::format("t{}", name);
    const Term& t = loops_.terms[static_cast<size_t>(i)];
    const auto infix = [&](std::string_view sign) { return fmt::format("({} {} {})", text(t.x), sign, text(t.y)); };
    switch (t.code) {
      case LoopCode::number:
        return fmt::format("{}", t.number);
      case LoopCode::integer:
        return t.type == Scalar::truth ? (t.integer != 0 ? "true" : "false") : fmt::format("{}", t.integer);
      case LoopCode::axis:
        return fmt::format("i{}", t.which);
      case LoopCode::carried:
        return fmt::format("a{}", t.which);
      case LoopCode::entry:
        return fmt::format("table{}[{}]", t.which, text(t.x));
      case LoopCode::element: {
        const LoopOperand& operand = loops_.inputs[static_cast<size_t>(t.which)];
        return fmt::format("in{} {}[{}] at {}", t.which, name_of(operand.dtype), operand.count, text(t.x));
      }
      case LoopCode::written:
        return fmt::format("out {}[{}] at {}", name_of(loops_.output.dtype), loops_.output.count, text(t.x));
      case LoopCode::add:
        return infix("+");
      case LoopCode::subtract:
        return infix("-");
      case LoopCode::multiply:
        return infix("*");
      case LoopCode::divide:
        return infix("/");
      case LoopCode::less:
        return infix("<");
      case LoopCode::equal:
        return infix("=");
      default:
        break;
    }
    const bool converts = t.code == LoopCode::from_bits || t.code == LoopCode::widen || t.code == LoopCode::narrow;
    std::string all(converts ? name_of(t.type) : t.code == LoopCode::wrap ? name_of(t.dtype) : name_of(t.code));
    if (t.code == LoopCode::from_bits) all += "_from_bits";
    all += "(" + text(t.x);
    for (const int operand : {t.y, t.z}) {
      if (operand >= 0) all += ", " + text(operand);
    }
    return all + ")";
  }

  const Loops& loops_;
  std::vector<int> uses_, names_;
  int depth_ = 0, next_name_ = 0;
  std::string out_;
};

}  // namespace

std::string_view name_of(Scalar type) { return scalar_names[static_cast<size_t>(type)]; }
std::string_view name_of(LoopCode code) { return code_rows[static_cast<size_t>(code)].name; }
int operands_of(LoopCode code) { return code_rows[static_cast<size_t>(code)].operands; }

std::vector<int> terms_for(const Loops& loops, std::span<const int> roots) {
  std::vector<bool> needed(loops.terms.size(), false);
  for (const int root : roots) needed[static_cast<size_t>(root)] = true;
  std::vector<int> terms;
  for (size_t i = needed.size(); i-- > 0;) {
    if (!needed[i]) continue;
    terms.push_back(static_cast<int>(i));
    for (const int used : {loops.terms[i].x, loops.terms[i].y, loops.terms[i].z}) {
      if (used >= 0) needed[static_cast<size_t>(used)] = true;
    }
  }
  std::ranges::reverse(terms);
  return terms;
}

std::vector<TermRange> ranges_of(const Loops& loops) {
  std::vector<TermRange> ranges;
  ranges.reserve(loops.terms.size());
  for (const Term& term : loops.terms) ranges.push_back(range_of_term(loops, term, ranges));
  return ranges;
}

Status verify(const Loops& loops) {
  const auto wrong = [](std::string_view what) { return invalid_input(fmt::format("loops that {}", what)); };
  const int all_axes = static_cast<int>(loops.extents.size()), all_terms = static_cast<int>(loops.terms.size());
  if (loops.axes < 0 || loops.axes > all_axes || loops.rows < 0 || loops.rows > loops.axes)
    return wrong("have other axes than they say");
  if (std::ranges::any_of(loops.extents, [](int64_t extent) { return extent < 0; })) return wrong("end before 0");
  for (int i = 0; i < all_terms; ++i) {
    const Term& term = loops.terms[static_cast<size_t>(i)];
    const int operands[] = {term.x, term.y, term.z};
    for (int k = 0; k < 3; ++k) {
      const bool there = k < operands_of(term.code);
      if (there ? operands[k] < 0 || operands[k] >= i : operands[k] != -1)
        return wrong("use terms before they are there");
    }
    if (!fits(loops, term)) return wrong(fmt::format("mix types in term {}, {}", i, name_of(term.code)));
  }
  if (!loops.folds.empty() && loops.rows == 0) return wrong("fold without a row");
  if (loops.axes == 0) return wrong("have no axis");
  const auto is_term = [&](int i) { return i >= 0 && i < all_terms; };
  const Scalar stored = scalar_of(loops.output.dtype);
  const auto check_store = [&](int term, int place, const std::vector<TermRange>& ranges) -> Status {
    if (!is_term(term) || !is_term(place)) return wrong("store nothing");
    if (loops.terms[static_cast<size_t>(term)].type != stored) return wrong("store another type than the result's");
    return check_index(ranges, place, loops.output.count, "the result");
  };
  const std::vector<TermRange> ranges = ranges_of(loops);
  int axis = loops.axes, accumulator = 0;
  for (const Fold& fold : loops.folds) {
    if (fold.first_axis != axis || fold.end_axis < axis || fold.end_axis > all_axes ||
        fold.first_accumulator != accumulator || fold.end_accumulator < accumulator ||
        fold.end_accumulator > static_cast<int>(loops.accumulators.size()))
      return wrong("have folds whose axes or accumulators do not follow one another");
    axis = fold.end_axis, accumulator = fold.end_accumulator;
    if (fold.stored >= 0) RETURN_IF_ERROR(check_store(fold.stored, fold.place, ranges));
  }
  for (const Accumulator& it : loops.accumulators) {
    if (!is_term(it.first) || !is_term(it.next)) return wrong("carry nothing");
    if (loops.terms[static_cast<size_t>(it.first)].type != loops.terms[static_cast<size_t>(it.next)].type)
      return wrong("carry two types");
  }
  for (const Term& term : loops.terms) {
    if (term.code == LoopCode::carried) {
      const Accumulator& of = loops.accumulators[static_cast<size_t>(term.which)];
      if (loops.terms[static_cast<size_t>(of.first)].type != term.type) return wrong("carry two types");
    }
    if (loops.output.count == 0) continue;  // nothing is read
    if (term.code == LoopCode::element) {
      const LoopOperand& operand = loops.inputs[static_cast<size_t>(term.which)];
      RETURN_IF_ERROR(check_index(ranges, term.x, operand.count, fmt::format("operand {}", term.which)));
    } else if (term.code == LoopCode::written) {
      RETURN_IF_ERROR(check_index(ranges, term.x, loops.output.count, "the result"));
    } else if (term.code == LoopCode::entry) {
      const auto size = static_cast<int64_t>(loops.tables[static_cast<size_t>(term.which)].size());
      RETURN_IF_ERROR(check_index(ranges, term.x, size, fmt::format("table {}", term.which)));
    }
  }
  if (loops.result >= 0 && loops.output.count > 0) return check_store(loops.result, loops.place, ranges);
  if (loops.result < 0 && loops.folds.empty()) return wrong("store nothing");
  return ok_status();
}

std::string to_text(const Loops& loops) { return LoopPrinter(loops).print(); }

}  // namespace nlsplit::inline kernels
