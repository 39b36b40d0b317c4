// The text form of Programs: what is accepted prints back, and verify() answers.
#include <cstdint>
#include <string_view>

#include "fuzz/expect.h"
#include "program/text.h"
#include "program/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  const auto program = parse_program({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!accepted(program)) return 0;
  const std::string text = to_string(*program);
  const auto again = parse_program(text, "again");
  expect(again.ok(), "what is printed is read: " + (again.ok() ? "" : again.error().to_string()));
  expect(to_string(*again) == text, "and prints the same");
  (void)accepted(verify(*program));
  return 0;
}
