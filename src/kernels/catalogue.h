// The catalogue: which computation each kernel accepts (or why not), its workspace, its packed weights, and the axes
// along which it is exact. Planning, simulation and verification need this much of a kernel and no more. A kernel's row
// stands in the rows.cc of its family's folder, beside the code, which only the libraries of kernels have
// (kernels/module).
//
//   ComputeDesc desc = describe(graph, node);                       // kernel still unchosen
//   ASSIGN_OR_RETURN(desc.kernel, choose_kernel(desc, Isa::v3));    // conv_direct_v3
//
// Adding a kernel: a name in kernels.def, a row and a function in its family's folder, one test case.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/operators/operator.h"
#include "kernels/kernel_id.h"

namespace nlsplit::inline kernels {

struct DescStep {  // an epilogue step; a binary one takes the next of the trailing inputs
  Op op{};
  Attrs attrs;
  friend bool operator==(const DescStep&, const DescStep&) = default;
};

// One computation, complete: what a compute instruction means, what a profile measures, what a cost is looked up by.
struct ComputeDesc {
  KernelId kernel;
  Op op{};
  Attrs attrs;
  std::vector<DescStep> epilogue;
  uint64_t weights = 0;  // bit i: input i is constant, known at load, so a kernel may want it packed
  // The node's inputs (absent optional ones left out at the end), then the epilogue's operands.
  std::vector<TensorType> inputs;
  std::vector<TensorType> outputs;
  friend bool operator==(const ComputeDesc&, const ComputeDesc&) = default;

  size_t operand_count() const;  // of the epilogue: how many of the inputs are its operands
  size_t own_inputs() const { return inputs.size() - operand_count(); }  // the others: the node's
  bool is_weight(size_t input) const { return input < 64 && (weights >> input & 1) != 0; }
};

// The largest safe value of input i, which is read as lengths, offsets or indices (graph/operators/operator.h,
// ScalarInputs); none: it is no such input.
std::optional<int64_t> largest_scalar(const ComputeDesc& desc, size_t i);

// "conv_direct_v3 Conv(f32[8,3,8,8], const f32[16,3,3,3], const f32[16]) {…} + Relu -> f32[8,16,8,8]": a constant input
// is marked. The key of cost tables and profiles.
std::string signature(const ComputeDesc& desc);

// With these values of its scalars; none: the largest.
Work work_of(const ComputeDesc& desc, ScalarValues values = {});

// The same tensor stored in another layout: to.block differs from from.block. "Identity", computed by kernel "reorder".
ComputeDesc reorder_desc(const TensorType& from, int block, Level level);

// A node of a graph as a desc, all row-major, its kernel not yet chosen. Views (is_view) are no computation and have
// none.
ComputeDesc describe(const Graph& graph, const Node& node);

// Which layouts a kernel works on. One level has one size of blocks, vector_width(isa).
enum class Layouts : uint8_t {
  row_major,  // all operands
  one,        // element by element as they are stored, so whatever all operands share
  own,        // its `refuses` says
};

// Where several kernels accept a computation.
enum class Standing : uint8_t {
  usual,        // the first of these is taken
  seldom,       // only if a measurement says so
  last_resort,  // only if no other accepts
};

// Axes of a result [N, C, H, W]; of three axes [N, C, L], L as width, where an operator works on images, and else
// [N, tokens, features], the features as channels; of a matrix [N, C].
namespace exact {
inline constexpr uint8_t batch = 1, channels = 2, height = 4, width = 8, tokens = 16, all = 31;
}  // namespace exact
// Which of them axis `axis` of a result of `rank` axes is; 0: none, nothing is promised.
uint8_t exact_axis(Op op, size_t axis, size_t rank);

struct KernelInfo {
  std::string_view what;         // one line: algorithm and layout
  std::span<const Op> ops = {};  // what it computes (kernels/rows.h, computes); empty: any operator
  Layouts layouts = Layouts::row_major;
  // Why it cannot do this, an operator of `ops`, beyond what refusal() asks of all kernels; "": it can.
  std::string (*refuses)(const ComputeDesc& desc) = nullptr;  // nullptr: it can
  // Scratch it needs while it runs on `workers` threads; nullptr: none. This and packed_bytes saturate (base/sizes.h);
  // refusal() holds them against most_bytes (base/limits.h).
  Bytes (*workspace)(const ComputeDesc& desc, Isa isa, int workers) = nullptr;
  // Bytes of input `i` in the kernel's own packed form; 0: it takes the bytes as they are. nullptr: never packs. Where
  // it is not 0 the input must be given packed, and the kernel refuses a desc that does not mark that input as a
  // weight.
  Bytes (*packed_bytes)(const ComputeDesc& desc, size_t i, Isa isa) = nullptr;
  Standing (*standing)(const ComputeDesc& desc) = nullptr;  // nullptr: usual
  bool any_type = false;  // of elements, and of spatial axes any number; false: f32, and one or two of a window
  bool scaled = false;    // weights whose elements share scales
  bool halves = false;    // f16 and bf16 as well, all operands and results of one of them
  // Axes of the result along which an element's bits depend neither on the extent nor on the position, as far as the
  // operator itself keeps them apart there: a piece computed alone has the bits it has within the whole.
  // What stands in the catalogue is what a test has cut.
  uint8_t exact_axes = exact::batch;
  // Along height and width that holds only for pieces that begin at multiples of this and end at one or with the whole.
  int64_t exact_multiple = 1;
  // Bit i: a result may lie on input i's bytes, if nobody needs them afterwards: each of its elements is read before
  // the result's element is written there, and never again.
  uint64_t in_place = 0;
  // Its first result lies on its first operand, and is only partly written. So only a Program that names it has it.
  bool only_in_place = false;
  // What it does, where that is not all that the operator does; values as in work_of. nullptr: it is.
  Work (*work)(const ComputeDesc& desc, ScalarValues values) = nullptr;
};
const KernelInfo& info_of(KernelName kernel);  // one of the catalogue

// Why a kernel does not take a computation.
struct Refusal {
  bool other_operator = false;  // it does not compute the operator at all
  std::string why;              // "it does not compute Gemm", "the kernel is not 3x3"
};
std::optional<Refusal> refusal(KernelId kernel, const ComputeDesc& desc);  // none: it accepts

// The kernels to choose from: the usual ones in the catalogue's order, then those that seldom pay; a last resort only
// if it is the only one. Error: what every kernel of the operator said.
Result<std::vector<KernelId>> candidates(const ComputeDesc& desc, Level level);

// Which of the candidates shall compute it: an index. None: the first.
using KernelPreference = std::function<size_t(const ComputeDesc& desc, std::span<const KernelId> candidates)>;
Result<KernelId> choose_kernel(const ComputeDesc& desc, Level level, const KernelPreference& prefer = {});

// What measurements of several batch sizes have in common: the signature without kernel, at batch 1. One choice holds
// for all of them, since a choice decides bits and those must not depend on the micro-batch.
std::string choice_key(const ComputeDesc& desc, Level level);

// Of a desc whose kernel is chosen; of one that no kernel computes nothing is needed and nothing promised.
Bytes workspace_of(const ComputeDesc& desc, int workers);
Bytes packed_bytes_of(const ComputeDesc& desc, size_t i);  // of input `i`; 0: taken as it is
// Has the piece [begin, end) along that axis of the result the bits it has within the whole, if the same kernel
// computes it? (Where the operator mixes elements along the axis there are no pieces to ask about.)
bool is_exact(const ComputeDesc& desc, size_t axis, int64_t begin, int64_t end);
// KernelInfo::in_place of those inputs that have a result's type and so its bytes; never of an epilogue's operand. Of
// several results only those of an update may lie there.
uint64_t in_place_inputs(const ComputeDesc& desc);

// What a Program's text claims about a computation: types as the op table infers them, epilogue steps and operands that
// fit, a kernel of the catalogue that accepts. Everything else here, and the kernels' code, takes a desc that passed
// this, or came from describe() and choose_kernel().
Status verify(const ComputeDesc& desc);

}  // namespace nlsplit::inline kernels
