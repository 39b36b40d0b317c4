// The names of the operators; what each is stands in operator.h.
#pragma once

#include <cstdint>

namespace nlsplit::inline graph {

enum class Op : uint8_t {
#define NLS_OPERATOR(name) name,
#include "graph/operators/operators.def"
#undef NLS_OPERATOR
};

inline constexpr int op_count = 0
#define NLS_OPERATOR(name) +1
#include "graph/operators/operators.def"
#undef NLS_OPERATOR
    ;

}  // namespace nlsplit::inline graph
