// Any operator on any type of elements.
#include "graph/reference/array.h"

namespace nlsplit::inline graph::reference {

// clang-format off
NLS_REFERENCE(Reshape, out.reals = in[0]->reals, out.wholes = in[0]->wholes)
NLS_REFERENCE(Flatten, out.reals = in[0]->reals, out.wholes = in[0]->wholes)
NLS_REFERENCE(Identity, out.reals = in[0]->reals, out.wholes = in[0]->wholes)
// clang-format on

void general(Op op, const Attrs& attrs, const Arrays& in, std::vector<Array>& outputs) {
  using Evaluate = void (*)(const Attrs&, const Arrays&, std::vector<Array>&);
  static constexpr Evaluate functions[] = {
#define NLS_OPERATOR(name) evaluate_as<Op::name>,
#include "graph/operators/operators.def"
#undef NLS_OPERATOR
  };
  functions[static_cast<size_t>(op)](attrs, in, outputs);
}

}  // namespace nlsplit::inline graph::reference
