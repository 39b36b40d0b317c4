// The text of sessions: what is accepted prints back, and what verify_session() accepts can be laid out in any order.
#include <cstdint>
#include <string_view>

#include "fuzz/files.h"
#include "fuzz/mutate.h"
#include "program/session.h"
#include "program/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  const auto session = parse_session(text_of(data, size), "fuzz");
  if (!accepted(session)) return 0;
  const std::string text = to_string(*session);
  const auto again = parse_session(text, "again");
  expect(again.ok(), "what is printed is read: " + (again.ok() ? "" : again.error().to_string()));
  expect(to_string(*again) == text, "and prints the same");
  if (!accepted(verify_session(*session))) return 0;
  std::vector<Choice> choices;
  for (int p = static_cast<int>(session->programs.size()) - 1; p >= 0; --p) choices.push_back({p, 2});
  const auto sequence = in_sequence(*session, choices, Choosing::messages);
  if (!accepted(sequence)) return 0;
  const auto order = dry_run(sequence->program, sequence->dependencies);
  expect(order.ok(),
         "a session whose programs end does not deadlock: " + (order.ok() ? "" : order.error().to_string()));
  return 0;
}
