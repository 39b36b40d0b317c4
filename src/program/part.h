// The part of a Program that one of its devices needs: what a rank is given.
//
//   const Program outline = outline_of(whole);          // the same for all ranks
//   const Part part = part_of(whole, 3);                // a Program by itself, with a text of its own
//   ASSIGN_OR_RETURN(const Program own, in_outline(outline, part.program, 3));
//   own.devices[3]                                      // as in the whole
//   own.devices[4]                                      // its description: no buffers, segments or slots
//
// A part's size depends only on its device's work: of the other devices it has the names of the device's peers. Whether
// its messages match those of other parts, and whether it deadlocks, depends on the whole Program, which must be
// verified before it is cut into parts.
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

// The part with all devices of the outline; a whole Program stays as it is. Errors: there is no such device, or the
// part names a device that the outline lacks.
Result<Program> in_outline(const Program& outline, const Program& part, size_t device);
Result<Session> in_outline(const Program& outline, const Session& part, size_t device);

}  // namespace nlsplit::inline program
