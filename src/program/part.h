// The part of a Program that one of its devices needs: what a rank is given.
//
//   const Program outline = outline_of(whole);          // the same for all ranks
//   const Part part = part_of(whole, 3);                // a Program by itself, with a text of its own
//   ASSIGN_OR_RETURN(const Program own, in_outline(outline, part.program, 3));
//   own.devices[3]                                      // as in the whole
//   own.devices[4]                                      // its description: no buffers, segments or slots
//
// A part's size grows with the device's work alone: of other devices it names those that the device talks with. Whether
// its messages match those of other parts, and whether it ends, only the whole Program says: whoever cuts the parts
// verifies that first.
#pragma once

#include <vector>

#include "base/result.h"
#include "program/program.h"
#include "program/session.h"

namespace nlsplit::inline program {

struct Part {
  Program program;         // the device and those that it names, in their order
  std::vector<int> descs;  // [desc of the part]: index into the whole Program's
};
Part part_of(const Program& program, size_t device);
Session part_of(const Session& session, size_t device);

// The same Program with these two devices in each other's places.
void exchange_devices(Program& program, size_t a, size_t b);

// What all devices are called, what they are and on which hosts.
Program outline_of(const Program& program);

// Among all devices of the outline again; what has all of them already stays as it is. Errors: there is no such device,
// or the part names one that is not there.
Result<Program> in_outline(const Program& outline, const Program& part, size_t device);
Result<Session> in_outline(const Program& outline, const Session& part, size_t device);

}  // namespace nlsplit::inline program
