#include "ranking/session_needs.h"

#include <cmath>
#include <set>
#include <string_view>

namespace nlsplit::inline ranking {

std::vector<DeviceNeeds> needs_of(const Session& session) {
  std::vector<DeviceNeeds> needs;
  const std::vector<DeviceProgram>& devices = session.programs[0].devices;
  for (size_t d = 0; d < devices.size(); ++d) {
    DeviceNeeds& of = needs.emplace_back(DeviceNeeds{devices[d].kind, devices[d].memory, {}, {}});
    std::set<std::string_view> known;  // of the states: Programs share them
    for (const Program& program : session.programs) {
      of.arena = std::max(of.arena, program.devices[d].arena);
      for (const Buffer& buffer : program.devices[d].buffers) {
        if (buffer.kind == BufferKind::state && known.insert(buffer.name).second)
          of.caches = of.caches + bytes(buffer.stride());
      }
    }
  }
  return needs;
}

Result<std::vector<PlanPart>> parts_of(const GenerationModels& models, ShorterGenerations* shorter, const Plan& plan) {
  const std::vector<ShorterPlan> plans =
      shorter == nullptr ? std::vector<ShorterPlan>() : shorter_plans(plan, shorter->repeat());
  if (plans.empty()) return std::vector<PlanPart>{{1, &models, plan}};
  std::vector<PlanPart> parts;
  for (const ShorterPlan& one : plans) {
    ASSIGN_OR_RETURN(const GenerationModels* fewer, shorter->without(one.fewer));
    parts.push_back({one.weight, fewer, one.plan});
  }
  return parts;
}

std::vector<DeviceNeeds> whole_needs(const std::vector<PlanPart>& parts,
                                     const std::vector<std::vector<DeviceNeeds>>& of_parts) {
  std::vector<DeviceNeeds> whole = of_parts[0];
  for (size_t d = 0; d < whole.size(); ++d) {
    for (Bytes DeviceNeeds::*what : {&DeviceNeeds::arena, &DeviceNeeds::caches}) {
      const auto of = [&](size_t i) { return static_cast<double>((of_parts[i][d].*what).value()); };
      whole[d].*what = bytes(std::llround(weighted_sum(parts, of)));
    }
  }
  return whole;
}

}  // namespace nlsplit::inline ranking
