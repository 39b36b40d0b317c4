// Attributes from text, for every text form that carries them (Graph, Program): the inverse of to_string(const Attrs&).
#pragma once

#include "base/text_reader.h"
#include "graph/graph.h"

namespace nlsplit::inline graph {

// At "{": reads {axis=1, alpha=0.5, mode="same", pads=[0,0,0,0]} up to and with "}". A number with a point, an
// exponent, or inf is a float; one without is an integer; a list of floats begins with one. Errors: syntax, a name
// twice.
Result<Attrs> parse_attrs(TextReader& in);

}  // namespace nlsplit::inline graph
