// Session: several Programs over one set of persistent buffers on each device.
//
//   session counter
//     init    writes the states once
//     push    reads and writes them, a thousand times
//     read    reads them
//
// A state or weight buffer with the same name in two Programs on one device is one buffer: its contents last from one
// execution to the next. All other buffers belong to their Program. Buffers that last no longer than an execution may
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
  read,     // once the previous execution has read its inputs: chunks of a prompt
  answered  // once the previous execution has also written its outputs: a token that depends on the one before
};

// A number of executions of a Program in a row, chosen at once.
struct Choice {
  int program = 0;  // index into Session::programs
  int times = 1;    // 0: the session ends
  Refill refill = Refill::none;
  friend bool operator==(const Choice&, const Choice&) = default;
};
inline constexpr Bytes choice_bytes = bytes(16);

// Each Program is sound (program/verify.h). All have the same devices, eager limit and card window. Shared buffers are
// equal in all properties. Buffers that last (inputs, outputs, weights, states) overlap no buffer of another Program.
// Consecutive executions match their messages, do not deadlock, and are ordered where they use the same bytes.
Status verify_session(const Session& session);

// One Program with all buffers, segments and computations, without an order of slots. Buffers and segments that are not
// shared are called "program/name". Buffers keep their offsets, so an arena is as large as the largest one. Errors:
// those of verify_session about devices and shared buffers.
Result<Program> join(const Session& session);

// How device 0's choices reach the others in a sequence.
enum class Choosing : uint8_t {
  known,     // all devices know the whole sequence beforehand
  messages,  // device 0 sends each choice when its own part of the previous one has ended; no device begins earlier
};

// New inputs of one micro-batch for one execution: the instances before and after the write on device 0.
struct Refilling {
  int execution = 0;  // counted over all choices
  int micro_batch = 0;
  std::vector<uint32_t> after, before;  // instances of Sequence::dependencies; `after` is never empty
};

// The joined Program with an order of slots (the executions of the choices, one after the other), and its dependencies.
// Executors and simulators run it like any other Program. Dependencies lead from earlier executions to later ones only,
// so a session whose Programs do not deadlock does not deadlock.
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
