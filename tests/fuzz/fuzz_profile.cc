// Profiles: what is read is written and read again alike, and a table of costs answers from it.
#include <cstdint>

#include "base/file.h"
#include "cost/cost_table.h"
#include "cost/profile.h"
#include "fuzz/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("profile");
  const auto profile = read_profile(folder.write("p.json", text_of(data, size)));
  if (!accepted(profile)) return 0;
  const auto written = [](const Profile& what) {
    expect(write_profile(folder.path("again.json"), what).ok(), "a profile can be written");
    return *read_file(folder.path("again.json"));
  };
  const std::string text = written(*profile);
  const auto again = read_profile(folder.path("again.json"));
  expect(again.ok(), "what is written is read: " + (again.ok() ? "" : again.error().to_string()));
  expect(written(*again) == text, "and is written alike");
  for (const auto& [key, cost] : profile->kernels) {
    const auto parsed = parse_profile_key(key);
    if (accepted(parsed))
      expect(profile_key(parsed->desc, parsed->cores, parsed->moved) == key, "a key is what it is parsed to");
  }
  (void)accepted(join({*profile, *again}));
  (void)slowness_of(*profile);
  return 0;
}
