#include "program/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "program/state_parts.h"
#include "program/text.h"
#include "program/verify_parts.h"

namespace nlsplit::inline program {
namespace {

struct Seen {
  size_t device = 0, slot = 0;
};

// Stages: every micro-batch once through every (stage, shard, phase). Segments that feed or collect, and those without
// a micro-batch: at most once each on their device.
Status check_micro_batches(const Program& program) {
  std::map<std::tuple<int, int, Phase>, std::map<int, Seen>> work;
  std::set<std::tuple<size_t, int, int>> once;
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const DeviceProgram& device = program.devices[d];
    for (size_t s = 0; s < device.order.size(); ++s) {
      const Slot& slot = device.order[s];
      const Segment& segment = device.segments[static_cast<size_t>(slot.segment)];
      const auto where = [&] { return fmt::format("device {} slot {} ({})", device.name, s, slot_name(device, slot)); };
      const bool whole_run = segment.phase == Phase::init || segment.phase == Phase::step;
      if (whole_run != (slot.micro_batch < 0)) {
        return invalid_input(fmt::format("{}: a segment of phase {} {} a micro-batch", where(), name_of(segment.phase),
                                         whole_run ? "has not" : "needs"));
      }
      if (whole_run || segment.stage == io_stage) {
        if (!once.insert({d, slot.segment, slot.micro_batch}).second) {
          return invalid_input(fmt::format("{}: runs a second time", where()));
        }
        continue;
      }
      const auto [at, added] =
          work[{segment.stage, segment.shard, segment.phase}].try_emplace(slot.micro_batch, Seen{d, s});
      if (!added) {
        return invalid_input(
            fmt::format("{}: micro-batch {} runs twice through stage {} {}; the first time on device {} slot {}",
                        where(), slot.micro_batch, segment.stage, name_of(segment.phase),
                        program.devices[at->second.device].name, at->second.slot));
      }
    }
  }
  for (const auto& [key, seen] : work) {
    const auto& [stage, shard, phase] = key;
    if (phase == Phase::recompute) continue;  // not needed by a micro-batch whose activations were kept
    for (int m = 0; m < program.micro_batches; ++m) {
      if (seen.contains(m)) continue;
      const DeviceProgram& device = program.devices[seen.begin()->second.device];
      return invalid_input(fmt::format("micro-batch {} never runs through stage {} {} (device {} runs others)", m,
                                       stage, name_of(phase), device.name));
    }
  }
  return ok_status();
}

// The members of a group do the same collectives of this group in the same order.
Status check_collectives(const Program& program) {
  using Group = std::vector<int>;
  std::map<Group, std::map<int, std::vector<Collective>>> done;  // by group and member
  for (size_t d = 0; d < program.devices.size(); ++d) {
    const DeviceProgram& device = program.devices[d];
    for (const Slot& slot : device.order) {
      for (const Collective& collective : device.segments[static_cast<size_t>(slot.segment)].collectives)
        done[collective.group][static_cast<int>(d)].push_back(collective);
    }
  }
  for (auto& [group, members] : done) {
    for (const int member : group) {
      if (std::ranges::equal(members[member], members[group.front()], same_collective)) continue;
      return invalid_input(fmt::format("devices {} and {} do other collectives of their group, or in another order",
                                       program.devices[static_cast<size_t>(group.front())].name,
                                       program.devices[static_cast<size_t>(member)].name));
    }
  }
  return ok_status();
}

// A native collective waits, and is waited for, as a whole: what its instructions allow may not be sound then.
Status check_as_run(const Program& program) {
  if (std::ranges::none_of(program.devices, has_native)) return ok_status();
  ASSIGN_OR_RETURN(const Dependencies deps, dependencies_as_run(program));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> order, dry_run(program, deps));
  OverlapChecker overlaps(program, deps, order);
  for (size_t d = 0; d < program.devices.size(); ++d) RETURN_IF_ERROR(overlaps.check(d));
  return ok_status();
}

Status check_memory(const DeviceProgram& device) {
  if (device.arena <= device.memory) return ok_status();
  return invalid_input(fmt::format("device {} has {} of memory, and this needs {}", device.name,
                                   to_string(device.memory), to_string(device.arena)));
}

// What its dependencies are found from.
Status check_instructions(const Program& program) {
  RETURN_IF_ERROR(check_structure(program));
  RETURN_IF_ERROR(check_state_parts(program));
  InstructionChecker instructions(program);
  for (size_t d = 0; d < program.devices.size(); ++d) RETURN_IF_ERROR(instructions.check(d));
  return ok_status();
}

Status check_run(const Program& program, const Dependencies& deps) {
  RETURN_IF_ERROR(check_micro_batches(program));
  RETURN_IF_ERROR(check_collectives(program));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> order, dry_run(program, deps));
  OverlapChecker overlaps(program, deps, order);
  for (size_t d = 0; d < program.devices.size(); ++d) RETURN_IF_ERROR(overlaps.check(d));
  for (const DeviceProgram& device : program.devices) RETURN_IF_ERROR(check_memory(device));
  return check_as_run(program);
}

}  // namespace

Result<Dependencies> verified(const Program& program) {
  RETURN_IF_ERROR(check_instructions(program));
  ASSIGN_OR_RETURN(Dependencies deps, dependencies(program));
  RETURN_IF_ERROR(check_run(program, deps));
  return deps;
}

Status verify(const Program& program, const Dependencies& dependencies) {
  RETURN_IF_ERROR(check_instructions(program));
  return check_run(program, dependencies);
}

Result<Dependencies> verified_part(const Program& part, size_t device) {
  if (device >= part.devices.size()) return invalid_input(fmt::format("there is no device number {}", device));
  RETURN_IF_ERROR(check_structure(part));
  RETURN_IF_ERROR(InstructionChecker(part).check(device));
  RETURN_IF_ERROR(check_memory(part.devices[device]));
  return dependencies_of(part, device);
}

Status verify(const Program& program) {
  const auto sound = verified(program);
  return sound.ok() ? ok_status() : Status(sound.error());
}

}  // namespace nlsplit::inline program
