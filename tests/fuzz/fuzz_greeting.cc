// What another rank says first: what is understood is said again alike, if it is no longer than a greeting may be.
#include <cstdint>
#include <string>

#include "exec/heartbeat/greeting.h"
#include "fuzz/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  const auto greeting = parse_greeting(std::string(text_of(data, size)), 1);
  if (!accepted(greeting)) return 0;
  (void)accepted(check_greetings({*greeting, *greeting}));
  const std::string text = to_string(*greeting);
  const auto again = parse_greeting(text, 1);
  expect(again.ok() && to_string(*again) == text, "what is said is understood");
  return 0;
}
