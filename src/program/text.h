// A Program as text and back: parse_program(to_string(p)) == p, and to_string of that is the same text, byte for byte.
// docs/program.md has the grammar.
#pragma once

#include <string>
#include <string_view>

#include "program/program.h"

namespace nlsplit::inline program {

// The first line carries the fingerprint of all that follows.
std::string to_string(const Program& program);

// A text written by hand may leave out the fingerprint, `bytes`, `at`, `arena` and `instances`: buffers then get places
// of their own, one after the other. Errors have file:line:column and the line. A fingerprint that does not match is an
// error.
Result<Program> parse_program(std::string_view text, const std::string& file);

uint64_t fingerprint(const Program& program);  // of its text; content ids of weights are part of it

// One instruction as the text has it, for messages and traces.
std::string to_string(const Program& program, const DeviceProgram& device, const Instr& instr);
// What begins a collective there, without its instructions.
std::string to_string(const Program& program, const DeviceProgram& device, const Collective& collective);
// "F0.3", "step0.-"
std::string slot_name(const DeviceProgram& device, const Slot& slot);

}  // namespace nlsplit::inline program
