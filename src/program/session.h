// Session: several Programs over one set of persistent buffers on each device.
//
//   session counter
//     init    writes the states once
//     push    reads and writes them, a thousand times
//     read    reads them
//
// A state or weight buffer that two Programs name alike on the same device is one buffer: what one execution leaves
// there, the next one finds. All other buffers belong to their Program. Those that last no longer than an execution may
// share bytes with another Program's.
//
// Executions follow each other without a barrier: a device begins one as soon as its own part of the one before allows
// it, whatever other devices do. Device 0 chooses what runs next; the choice is a message to every other device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/dependencies.h"
#include "program/program.h"

namespace nlsplit::inline program {

struct Session {
  std::string name;
  std::vector<Program> programs;  // names unique; all on the same devices
  friend bool operator==(const Session&, const Session&) = default;
};

// When device 0 may give a micro-batch its inputs of the next of several executions that were chosen at once.
enum class Refill : uint8_t {
  none,     // all executions have the same inputs
  read,     // once the execution before has read them: a prompt in chunks
  answered  // once it has given its outputs, too: a token that follows from the one before
};

// So many executions of a Program in a row, chosen at once.
struct Choice {
  int program = 0;  // index into Session::programs
  int times = 1;    // 0: the session ends
  Refill refill = Refill::none;
  friend bool operator==(const Choice&, const Choice&) = default;
};
inline constexpr Bytes choice_bytes = bytes(16);

// Each Program is sound (program/verify.h); all have the same devices, eager limit and card window; shared buffers are
// equal in all they are; what lasts from one execution to the next (inputs, outputs, weights, states) overlaps nothing
// of another Program; executions that follow each other match their messages, end, and keep apart what shares bytes.
Status verify_session(const Session& session);

// All buffers, segments and computations of the Programs on their devices, and no order. Buffers and segments that are
// not shared are called "program/name"; buffers keep their places, so an arena is as large as the largest one. Error:
// as verify_session, of devices and shared buffers only.
Result<Program> join(const Session& session);

// How device 0's choices reach the others in a sequence.
enum class Choosing : uint8_t {
  known,     // everybody knows the whole sequence beforehand
  messages,  // device 0 sends each choice once its own part of what was chosen before has ended; nobody begins earlier
};

// A micro-batch gets new inputs of an execution: what that waits for on device 0, and what waits for it there.
struct Refilling {
  int execution = 0;  // counted over all choices
  int micro_batch = 0;
  std::vector<uint32_t> after, before;  // instances of Sequence::dependencies; `after` is never empty
};

// The joined Program with an order: the executions of the choices, one after the other; and what waits for what across
// them. Whoever runs or simulates a Program runs or simulates this. A dependency goes from an earlier execution to a
// later one only, so a session whose Programs each end cannot deadlock.
struct Sequence {
  Program program;
  Dependencies dependencies;
  std::vector<std::vector<int>> execution_of;  // [device][slot]: counted over all choices; -1: a choice
  std::vector<Refilling> refillings;           // of choices that ask for them; the dependencies have their edges
};
// Errors: as join(); no such Program; too many instructions to run.
Result<Sequence> in_sequence(const Session& session, std::span<const Choice> choices, Choosing choosing);
// The same of what one device does, known to it beforehand. The session may be that device's part (program/part.h).
Result<Sequence> in_sequence_of(const Session& session, std::span<const Choice> choices, size_t device);

// "push*1000 read" → two choices. Errors name the word: no such Program, a number that is none or too large.
Result<std::vector<Choice>> parse_choices(const Session& session, std::string_view text);

// The first line has the fingerprint of all that follows; then the session's name and its Programs' texts.
//
//   nlsplit session 1 fingerprint 0123456789abcdef
//   session counter
//
//   nlsplit program 1 fingerprint …
std::string to_string(const Session& session);
std::string fingerprint_of(const Session& session);  // as it stands there
// Errors as parse_program's, with file:line:column; and a fingerprint that does not fit. Does not verify_session.
Result<Session> parse_session(std::string_view text, const std::string& file);

}  // namespace nlsplit::inline program
