#include "kernels/generated/llvm/emit.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "kernels/generated/llvm/lanes.h"
#include "kernels/generated/llvm/tables.h"

namespace nlsplit::inline kernels {
namespace {

using llvm::Value;

class Emitter {
 public:
  Emitter(const Loops& loops, llvm::Module& module)
      : loops_(loops), module_(module), context_(module.getContext()), b_(context_), ranges_(ranges_of(loops)) {
    i64_ = b_.getInt64Ty();
    for (const LoopTable& table : loops.tables) tables_.push_back(constant_table(module, table));
  }

  // The operands one by one, so that each can be said to lie apart from the result; then one that takes them from a
  // list.
  void run(const std::string& name) {
    llvm::Type* pointer = b_.getPtrTy();
    std::vector<llvm::Type*> types(loops_.inputs.size() + 1, pointer);
    types.insert(types.end(), 2, i64_);
    auto* inner = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), types, false),
                                         llvm::Function::InternalLinkage, name + "_loops", module_);
    inner->addFnAttr(llvm::Attribute::NoInline);
    inner->addFnAttr(llvm::Attribute::NoUnwind);
    for (unsigned i = 0; i <= loops_.inputs.size(); ++i) {
      inner->addParamAttr(i, llvm::Attribute::NoAlias);
      if (i < loops_.inputs.size()) inner->addParamAttr(i, llvm::Attribute::ReadOnly);
    }
    auto* outer = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), {pointer, pointer, i64_, i64_}, false),
                                         llvm::Function::ExternalLinkage, name, module_);
    b_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", outer));
    std::vector<Value*> arguments;
    for (unsigned i = 0; i < loops_.inputs.size(); ++i)
      arguments.push_back(b_.CreateLoad(pointer, b_.CreateConstGEP1_64(pointer, outer->getArg(0), i)));
    for (unsigned i = 1; i < 4; ++i) arguments.push_back(outer->getArg(i));
    b_.CreateCall(inner, arguments);
    b_.CreateRetVoid();

    function_ = inner;
    b_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", inner));
    for (llvm::Argument& argument : inner->args()) arguments_.push_back(&argument);
    body();
    b_.CreateRetVoid();
  }

 private:
  Value* whole(int64_t value) { return llvm::ConstantInt::getSigned(i64_, value); }

  // ---- loops

  // body(i) for i from begin to end, carrying values along; what they are at last.
  std::vector<Value*> loop(Value* begin, Value* end, std::vector<Value*> carried,
                           const std::function<std::vector<Value*>(Value*, const std::vector<Value*>&)>& body) {
    llvm::BasicBlock* before = b_.GetInsertBlock();
    auto* head = llvm::BasicBlock::Create(context_, "head", function_);
    auto* inside = llvm::BasicBlock::Create(context_, "body", function_);
    auto* after = llvm::BasicBlock::Create(context_, "after", function_);
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* i = b_.CreatePHI(i64_, 2);
    std::vector<llvm::PHINode*> phis;
    for (Value* value : carried) phis.push_back(b_.CreatePHI(value->getType(), 2));
    b_.CreateCondBr(b_.CreateICmpSLT(i, end), inside, after);
    b_.SetInsertPoint(inside);
    const std::vector<Value*> next = body(i, {phis.begin(), phis.end()});
    Value* following = b_.CreateAdd(i, whole(1), "", true, true);
    llvm::BasicBlock* last = b_.GetInsertBlock();
    b_.CreateBr(head);
    i->addIncoming(begin, before);
    i->addIncoming(following, last);
    for (size_t k = 0; k < phis.size(); ++k) {
      phis[k]->addIncoming(carried[k], before);
      phis[k]->addIncoming(next[k], last);
    }
    b_.SetInsertPoint(after);
    return {phis.begin(), phis.end()};
  }
  void loop(Value* begin, Value* end, const std::function<void(Value*)>& body) {
    loop(begin, end, {}, [&](Value* i, const std::vector<Value*>&) {
      body(i);
      return std::vector<Value*>();
    });
  }

  int64_t extent(int axis) const { return loops_.extents[static_cast<size_t>(axis)]; }

  void body() {
    const LoopParts parts = parts_of(loops_);
    positions_.assign(loops_.extents.size(), nullptr);
    use_lanes(1, 0);
    Value *begin = arguments_[loops_.inputs.size() + 1], *end = arguments_[loops_.inputs.size() + 2];
    if (parts.outer == 0) return loops_.folds.empty() ? along(0, begin, end, parts) : along_rows(begin, end, parts);
    loop(begin, end, [&](Value* part) {
      Value* rest = part;
      for (int axis = parts.outer; axis-- > 0;) {
        positions_[static_cast<size_t>(axis)] = axis == 0 ? rest : b_.CreateURem(rest, whole(extent(axis)));
        if (axis > 0) rest = b_.CreateUDiv(rest, whole(extent(axis)));
      }
      if (loops_.folds.empty())
        along(parts.outer, whole(0), nullptr, parts);
      else
        along_rows(whole(0), whole(extent(parts.outer)), parts);
    });
  }

  // Rows along their last axis, several at a time, each in a lane of its own: a fold's order stays what it is, and its
  // steps need not wait for each other.
  void along_rows(Value* begin, Value* end, const LoopParts& parts) {
    constexpr unsigned at_once = 8;
    const int axis = parts.outer;
    const auto row = [&](Value* i) {
      positions_[static_cast<size_t>(axis)] = i;
      accumulated_.assign(loops_.accumulators.size(), nullptr);
      for (const Fold& fold : loops_.folds) run_fold(fold);
      if (loops_.result >= 0) along(loops_.rows, whole(0), nullptr, parts);
    };
    if (extent(axis) >= at_once) {
      use_lanes(at_once, axis);
      Value* groups = b_.CreateSDiv(b_.CreateSub(end, begin), whole(at_once));
      loop(whole(0), groups, [&](Value* group) { row(b_.CreateAdd(begin, b_.CreateMul(group, whole(at_once)))); });
      begin = b_.CreateAdd(begin, b_.CreateMul(groups, whole(at_once)));
      use_lanes(1, axis);
    }
    loop(begin, end, row);
  }

  // Which terms differ from lane to lane, and by how much the indices among them.
  void use_lanes(unsigned lanes, int axis) {
    lanes_ = lanes;
    by_lane_ = lanes == 1 ? no_steps(loops_) : steps_along(loops_, axis);
  }
  Value* in_lanes(Value* value) {
    return lanes_ == 1 || value->getType()->isVectorTy() ? value : b_.CreateVectorSplat(lanes_, value);
  }
  llvm::Type* in_lanes(llvm::Type* type, const Value* as) {
    return as->getType()->isVectorTy() ? llvm::FixedVectorType::get(type, lanes_) : type;
  }
  bool are_neighbours(int index) const { return by_lane_.steps[static_cast<size_t>(index)] == 1; }
  static Value* first_of(llvm::IRBuilder<>& b, Value* value) { return b.CreateExtractElement(value, uint64_t{0}); }

  // The result's axes from this one on; end: nullptr is its extent.
  void along(int axis, Value* begin, Value* end, const LoopParts& parts) {
    const int loops = loops_.axes - parts.unrolled;
    if (axis == loops_.axes) return store(loops_.result, loops_.place);
    if (axis < loops) {
      return loop(begin, end == nullptr ? whole(extent(axis)) : end, [&](Value* i) {
        positions_[static_cast<size_t>(axis)] = i;
        along(axis + 1, whole(0), nullptr, parts);
      });
    }
    for (int64_t i = 0; i < extent(axis); ++i) {
      positions_[static_cast<size_t>(axis)] = whole(i);
      along(axis + 1, whole(0), nullptr, parts);
    }
  }

  void run_fold(const Fold& fold) {
    std::vector<int> firsts, nexts;
    for (int k = fold.first_accumulator; k < fold.end_accumulator; ++k) {
      firsts.push_back(loops_.accumulators[static_cast<size_t>(k)].first);
      nexts.push_back(loops_.accumulators[static_cast<size_t>(k)].next);
    }
    std::vector<Value*> begin = values_of(firsts);
    for (Value*& value : begin) value = in_lanes(value);
    keep(fold, step(fold, fold.first_axis, begin, nexts));
  }
  void keep(const Fold& fold, const std::vector<Value*>& values) {
    for (size_t k = 0; k < values.size(); ++k)
      accumulated_[static_cast<size_t>(fold.first_accumulator) + k] = values[k];
  }
  std::vector<Value*> step(const Fold& fold, int axis, const std::vector<Value*>& carried,
                           const std::vector<int>& nexts) {
    if (axis == fold.end_axis) {
      keep(fold, carried);
      std::vector<Value*> next = values_of(nexts);
      for (Value*& value : next) value = in_lanes(value);
      keep(fold, next);
      if (fold.stored >= 0) store(fold.stored, fold.place);
      return next;
    }
    if (axis + 1 == fold.end_axis) {
      if (const std::vector<const Term*> apart = apart_in_lanes(axis); !apart.empty())
        return step_in_squares(fold, axis, carried, nexts, apart);
    }
    return loop(whole(0), whole(extent(axis)), carried, [&](Value* i, const std::vector<Value*>& values) {
      positions_[static_cast<size_t>(axis)] = i;
      return step(fold, axis + 1, values, nexts);
    });
  }

  // Elements that lie apart from lane to lane and beside each other along the axis.
  std::vector<const Term*> apart_in_lanes(int axis) const {
    std::vector<const Term*> apart;
    if (lanes_ == 1 || extent(axis) < lanes_) return apart;
    const LaneSteps along = steps_along(loops_, axis);
    for (const Term& t : loops_.terms) {
      if (t.code != LoopCode::element) continue;
      const auto index = static_cast<size_t>(t.x);
      if (by_lane_.varies[index] && by_lane_.steps[index] != 1 && along.steps[index] == 1) apart.push_back(&t);
    }
    return apart;
  }
  // A square of them is loaded row by row, which are neighbours, and turned. What is left is loaded one by one.
  std::vector<Value*> step_in_squares(const Fold& fold, int axis, std::vector<Value*> carried,
                                      const std::vector<int>& nexts, const std::vector<const Term*>& apart) {
    Value*& position = positions_[static_cast<size_t>(axis)];
    std::map<const Term*, Value*> squares;
    for (const Term* t : apart) {
      llvm::IRBuilder<> entry(&function_->getEntryBlock(), function_->getEntryBlock().begin());
      squares[t] = entry.CreateAlloca(llvm::FixedVectorType::get(type_of(*t), lanes_), whole(lanes_));
    }
    const int64_t count = extent(axis) / lanes_;
    carried = loop(whole(0), whole(count), carried, [&](Value* square, const std::vector<Value*>& values) {
      Value* first = b_.CreateMul(square, whole(lanes_), "", true, true);
      position = first;
      for (const Term* t : apart) turn(*t, squares[t]);
      return loop(whole(0), whole(lanes_), values, [&](Value* i, const std::vector<Value*>& so_far) {
        position = b_.CreateAdd(first, i, "", true, true);
        for (const Term* t : apart) {
          llvm::Type* types = llvm::FixedVectorType::get(type_of(*t), lanes_);
          turned_[t] = b_.CreateLoad(types, b_.CreateInBoundsGEP(types, squares[t], i));
        }
        return step(fold, axis + 1, so_far, nexts);
      });
    });
    turned_.clear();
    return loop(whole(count * lanes_), whole(extent(axis)), carried, [&](Value* i, const std::vector<Value*>& values) {
      position = i;
      return step(fold, axis + 1, values, nexts);
    });
  }
  void turn(const Term& t, Value* square) {
    Value* index = values_of({t.x})[0];
    llvm::Type *type = type_of(t), *types = llvm::FixedVectorType::get(type, lanes_);
    std::vector<Value*> rows;
    for (unsigned lane = 0; lane < lanes_; ++lane) {
      Value* from = arguments_[static_cast<size_t>(t.which)];
      Value* row = b_.CreateInBoundsGEP(type, from, b_.CreateExtractElement(index, uint64_t{lane}));
      rows.push_back(b_.CreateAlignedLoad(types, row, llvm::Align(type->getScalarSizeInBits() / 8)));
    }
    rows = turned(b_, rows);
    for (unsigned i = 0; i < lanes_; ++i) b_.CreateStore(rows[i], b_.CreateConstInBoundsGEP1_64(types, square, i));
  }

  // ---- terms

  // Of what is read: an operand, or what the result is by now.
  DType dtype_of(const Term& t) const {
    return t.code == LoopCode::written ? loops_.output.dtype : loops_.inputs[static_cast<size_t>(t.which)].dtype;
  }
  Value* memory_of(const Term& t) const {
    return arguments_[t.code == LoopCode::written ? loops_.inputs.size() : static_cast<size_t>(t.which)];
  }
  llvm::Type* type_of(const Term& element) { return stored_type(dtype_of(element)); }
  llvm::Type* scalar_type(Scalar type) {
    switch (type) {
      case Scalar::f32:
        return b_.getFloatTy();
      case Scalar::f64:
        return b_.getDoubleTy();
      case Scalar::truth:
        return b_.getInt1Ty();
      case Scalar::whole:
        break;
    }
    return i64_;
  }
  llvm::Type* stored_type(DType type) {
    if (type == DType::f32) return b_.getFloatTy();
    if (type == DType::f64) return b_.getDoubleTy();
    return b_.getIntNTy(static_cast<unsigned>(8 * size_of(type)));
  }

  // What these terms are at the present positions; the rest of LLVM finds what is the same further out.
  std::vector<Value*> values_of(const std::vector<int>& roots) {
    std::vector<bool> needed(loops_.terms.size(), false);
    for (const int root : roots) needed[static_cast<size_t>(root)] = true;
    for (size_t i = needed.size(); i-- > 0;) {
      if (!needed[i]) continue;
      for (const int used : {loops_.terms[i].x, loops_.terms[i].y, loops_.terms[i].z}) {
        if (used >= 0) needed[static_cast<size_t>(used)] = true;
      }
    }
    values_.assign(loops_.terms.size(), nullptr);
    for (size_t i = 0; i < needed.size(); ++i) {
      if (needed[i]) values_[i] = value_of(loops_.terms[i], ranges_[i], by_lane_.varies[i]);
    }
    std::vector<Value*> values;
    for (const int root : roots) values.push_back(values_[static_cast<size_t>(root)]);
    return values;
  }

  void store(int term, int place) {
    const std::vector<Value*> values = values_of({term, place});
    llvm::Type* type = stored_type(loops_.output.dtype);
    Value* value = in_lanes(values[0]);
    llvm::Type* types = in_lanes(type, value);
    if (loops_.output.dtype == DType::boolean)
      value = b_.CreateZExt(value, types);
    else if (value->getType()->getScalarType() == i64_)
      value = b_.CreateTrunc(value, types);
    Value* out = arguments_[loops_.inputs.size()];
    const llvm::Align alignment(static_cast<uint64_t>(size_of(loops_.output.dtype)));
    if (lanes_ == 1)
      b_.CreateAlignedStore(value, b_.CreateInBoundsGEP(type, out, values[1]), alignment);
    else if (are_neighbours(place))
      b_.CreateAlignedStore(value, b_.CreateInBoundsGEP(type, out, first_of(b_, values[1])), alignment);
    else
      b_.CreateMaskedScatter(value, b_.CreateInBoundsGEP(type, out, in_lanes(values[1])), alignment);
  }

  Value* load(llvm::Type* type, Value* from, int index) {
    const llvm::Align alignment(type->getScalarSizeInBits() / 8);
    if (!by_lane_.varies[static_cast<size_t>(index)])
      return b_.CreateAlignedLoad(type, b_.CreateInBoundsGEP(type, from, at(index)), alignment);
    llvm::Type* types = llvm::FixedVectorType::get(type, lanes_);
    if (are_neighbours(index))
      return b_.CreateAlignedLoad(types, b_.CreateInBoundsGEP(type, from, first_of(b_, at(index))), alignment);
    return b_.CreateMaskedGather(types, b_.CreateInBoundsGEP(type, from, at(index)), alignment);
  }

  Value* read(const Term& t) {
    const DType dtype = dtype_of(t);
    const auto there = turned_.find(&t);
    Value* value = there != turned_.end() ? there->second : load(type_of(t), memory_of(t), t.x);
    if (dtype == DType::boolean) return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
    if (t.type != Scalar::whole) return value;
    const bool is_signed = dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32;
    return is_signed ? b_.CreateSExt(value, in_lanes(i64_, value)) : b_.CreateZExt(value, in_lanes(i64_, value));
  }

  Value* look_up(const Term& t) {
    llvm::GlobalVariable* table = tables_[static_cast<size_t>(t.which)];
    llvm::Type* type = llvm::cast<llvm::ArrayType>(table->getValueType())->getElementType();
    Value* value = load(type, table, t.x);
    return t.type == Scalar::whole && type != i64_ ? b_.CreateSExt(value, in_lanes(i64_, value)) : value;
  }

  Value* wrapped(Value* value, DType dtype) {
    if (size_of(dtype) == 8) return value;
    Value* low = b_.CreateTrunc(value, in_lanes(b_.getIntNTy(static_cast<unsigned>(8 * size_of(dtype))), value));
    const bool is_signed = dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32;
    return is_signed ? b_.CreateSExt(low, in_lanes(i64_, low)) : b_.CreateZExt(low, in_lanes(i64_, low));
  }

  Value* at(int term) { return values_[static_cast<size_t>(term)]; }

  Value* position_of(int axis, bool varies) {
    Value* position = positions_[static_cast<size_t>(axis)];
    if (!varies) return position;
    std::vector<llvm::Constant*> lanes;
    for (unsigned lane = 0; lane < lanes_; ++lane) lanes.push_back(llvm::ConstantInt::get(i64_, lane));
    return b_.CreateAdd(in_lanes(position), llvm::ConstantVector::get(lanes), "", true, true);
  }

  Value* value_of(const Term& t, const TermRange& range, bool varies) {
    const auto operand = [&](int i) { return varies ? in_lanes(at(i)) : at(i); };
    const auto x = [&] { return operand(t.x); };
    const auto y = [&] { return operand(t.y); };
    const auto type_of = [&](Scalar type) {
      return varies ? llvm::FixedVectorType::get(scalar_type(type), lanes_) : scalar_type(type);
    };
    const auto integers = [&](unsigned bits) { return in_lanes(b_.getIntNTy(bits), x()); };
    const auto unary = [&](llvm::Intrinsic::ID id) { return b_.CreateUnaryIntrinsic(id, x()); };
    const auto binary = [&](llvm::Intrinsic::ID id) { return b_.CreateBinaryIntrinsic(id, x(), y()); };
    const auto saturated = [&](llvm::Intrinsic::ID id) {
      return b_.CreateIntrinsic(id, {type_of(Scalar::whole), type_of(Scalar::f64)}, {x()});
    };
    const bool is_whole = t.type == Scalar::whole;
    // Known not to wrap, which is what tells neighbours from others.
    const bool exact =
        range.low != std::numeric_limits<int64_t>::min() || range.high != std::numeric_limits<int64_t>::max();
    const bool reals = t.x >= 0 && at(t.x)->getType()->isFPOrFPVectorTy();
    switch (t.code) {
      case LoopCode::number:
        return llvm::ConstantFP::get(type_of(t.type), t.number);
      case LoopCode::integer:
        return llvm::ConstantInt::getSigned(llvm::cast<llvm::IntegerType>(scalar_type(t.type)),
                                            t.type == Scalar::truth && t.integer != 0 ? -1 : t.integer);
      case LoopCode::axis:
        return position_of(t.which, varies);
      case LoopCode::entry:
        return look_up(t);
      case LoopCode::element:
      case LoopCode::written:
        return read(t);
      case LoopCode::carried:
        return accumulated_[static_cast<size_t>(t.which)];
      case LoopCode::add:
        return is_whole ? b_.CreateAdd(x(), y(), "", false, exact) : b_.CreateFAdd(x(), y());
      case LoopCode::subtract:
        return is_whole ? b_.CreateSub(x(), y(), "", false, exact) : b_.CreateFSub(x(), y());
      case LoopCode::multiply:
        return is_whole ? b_.CreateMul(x(), y(), "", false, exact) : b_.CreateFMul(x(), y());
      case LoopCode::less:
        return reals ? b_.CreateFCmpOLT(x(), y()) : b_.CreateICmpSLT(x(), y());
      case LoopCode::equal:
        return reals ? b_.CreateFCmpOEQ(x(), y()) : b_.CreateICmpEQ(x(), y());
      case LoopCode::choose:
        return b_.CreateSelect(x(), y(), operand(t.z));
      case LoopCode::divide:
        return b_.CreateFDiv(x(), y());
      case LoopCode::negate:
        return b_.CreateFNeg(x());
      case LoopCode::magnitude:
        return unary(llvm::Intrinsic::fabs);
      case LoopCode::root:
        return unary(llvm::Intrinsic::sqrt);
      case LoopCode::floor:
        return unary(llvm::Intrinsic::floor);
      case LoopCode::ceil:
        return unary(llvm::Intrinsic::ceil);
      case LoopCode::nearest:
        return unary(llvm::Intrinsic::roundeven);
      case LoopCode::cut:
        return unary(llvm::Intrinsic::trunc);
      case LoopCode::smaller:
        return binary(llvm::Intrinsic::smin);
      case LoopCode::larger:
        return binary(llvm::Intrinsic::smax);
      case LoopCode::below:
        return b_.CreateICmpULT(x(), y());
      case LoopCode::quotient:
        return b_.CreateSDiv(x(), y());
      case LoopCode::rest:
        return b_.CreateSRem(x(), y());
      case LoopCode::natural_quotient:
        return b_.CreateUDiv(x(), y());
      case LoopCode::natural_rest:
        return b_.CreateURem(x(), y());
      case LoopCode::shift_left:
        return b_.CreateShl(x(), y());
      case LoopCode::shift_right:
        return b_.CreateLShr(x(), y());
      case LoopCode::wrap:
        return wrapped(x(), t.dtype);
      case LoopCode::both:
        return b_.CreateAnd(x(), y());
      case LoopCode::either:
        return b_.CreateOr(x(), y());
      case LoopCode::differ:
        return b_.CreateXor(x(), y());
      case LoopCode::widen:
        return b_.CreateFPExt(x(), type_of(t.type));
      case LoopCode::narrow:
        return b_.CreateFPTrunc(x(), type_of(t.type));
      case LoopCode::real_of:
        return b_.CreateSIToFP(x(), type_of(t.type));
      case LoopCode::real_of_natural:
        return b_.CreateUIToFP(x(), type_of(t.type));
      case LoopCode::whole_of:
        return saturated(llvm::Intrinsic::fptosi_sat);
      case LoopCode::natural_of:
        return saturated(llvm::Intrinsic::fptoui_sat);
      case LoopCode::bits_of:
        if (x()->getType()->getScalarType()->isDoubleTy()) return b_.CreateBitCast(x(), type_of(t.type));
        return b_.CreateZExt(b_.CreateBitCast(x(), integers(32)), type_of(t.type));
      case LoopCode::from_bits:
        if (t.type == Scalar::f64) return b_.CreateBitCast(x(), type_of(t.type));
        return b_.CreateBitCast(b_.CreateTrunc(x(), integers(32)), type_of(t.type));
    }
    return nullptr;
  }

  const Loops& loops_;
  llvm::Module& module_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  const std::vector<TermRange> ranges_;
  llvm::Type* i64_ = nullptr;
  llvm::Function* function_ = nullptr;
  std::vector<llvm::GlobalVariable*> tables_;
  std::vector<Value*> arguments_, positions_, accumulated_, values_;
  unsigned lanes_ = 1;
  LaneSteps by_lane_;
  std::map<const Term*, Value*> turned_;  // elements that are there already
};

}  // namespace

void emit(const Loops& loops, const std::string& name, llvm::Module& module) { Emitter(loops, module).run(name); }

}  // namespace nlsplit::inline kernels
