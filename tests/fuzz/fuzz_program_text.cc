// The text form of Programs: what is accepted prints back, and what verify() accepts is executed.
#include <cstdint>
#include <string_view>

#include "fuzz/execute.h"
#include "fuzz/files.h"
#include "fuzz/mutate.h"
#include "program/text.h"
#include "program/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  const auto program = parse_program(text_of(data, size), "fuzz");
  if (!accepted(program)) return 0;
  const std::string text = to_string(*program);
  const auto again = parse_program(text, "again");
  expect(again.ok(), "what is printed is read: " + (again.ok() ? "" : again.error().to_string()));
  expect(to_string(*again) == text, "and prints the same");
  const uint64_t seed = seed_of(text_of(data, size));
  if (accepted(verify(*program))) execute_watched(*program, seeded_contents(*program, seed), seed);
  return 0;
}
