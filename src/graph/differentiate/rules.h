// For each operator the nodes that make the gradients of its inputs. y = f(x, …), and the chain rule gives
// dx = (∂y/∂x)ᵀ dy (Baydin, Pearlmutter, Radul, Siskind, "Automatic differentiation in machine learning: a survey",
// JMLR 18, 2018, section 3.2). The formulas stand at the rules (rules_*.cc).
#pragma once

#include "graph/operators/op.h"

namespace nlsplit {

class Backward;
using BackwardRule = void (*)(Backward& b);

// nullptr: none is known.
BackwardRule backward_rule(Op op);

}  // namespace nlsplit
