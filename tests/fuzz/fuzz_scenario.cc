// The reader of scenarios. Files they name are not there: costs that are missing are none.
#include <cstdint>
#include <string_view>

#include "fuzz/expect.h"
#include "fuzz/mutate.h"
#include "scenario/scenario.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  ScenarioOptions options;
  options.need_profiles = false;
  const auto scenario =
      parse_scenario({reinterpret_cast<const char*>(data), size}, "/nowhere/at/all/fuzz.yaml", options);
  if (!accepted(scenario)) return 0;
  expect(scenario->batch >= 1 && !scenario->cluster.devices.empty(), "a scenario has a batch and devices");
  expect(scenario->costs.size() == scenario->cluster.devices.size(), "every device has its costs");
  for (const UserPlan& plan : scenario->plans) expect(!plan_file_text(plan).empty(), "a plan can be written");
  return 0;
}
