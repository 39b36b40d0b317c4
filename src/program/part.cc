#include "program/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"

namespace nlsplit::inline program {
namespace {

DeviceProgram description_of(const DeviceProgram& device) {
  DeviceProgram described;
  described.name = device.name;
  described.kind = device.kind;
  described.host = device.host;
  described.level = device.level;
  described.cores = device.cores;
  described.memory = device.memory;
  return described;
}

// All but the devices and what they compute.
Program head_of(const Program& program) {
  Program head;
  head.name = program.name;
  head.batch = program.batch;
  head.micro_batches = program.micro_batches;
  head.eager_limit = program.eager_limit;
  head.nic_window = program.nic_window;
  return head;
}

// The devices that this one names get other numbers.
template <class Number>
void renumber(DeviceProgram& device, const Number& number) {
  for (Segment& segment : device.segments) {
    for (Instr& instr : segment.instrs) {
      if (is_transfer(instr.opcode)) instr.peer = number(instr.peer);
    }
    for (Collective& collective : segment.collectives)
      std::ranges::transform(collective.group, collective.group.begin(), number);
  }
}

}  // namespace

Part part_of(const Program& program, size_t device) {
  CHECK(device < program.devices.size(), "a device of the program");
  Part part{head_of(program), {}};
  Program& own = part.program;
  DeviceProgram mine = program.devices[device];
  std::map<int, int> named = {{static_cast<int>(device), 0}};  // devices of the whole, and what they become
  renumber(mine, [&](int other) { return named.try_emplace(other).first->first; });
  for (auto& [other, becomes] : named) {
    becomes = static_cast<int>(own.devices.size());
    own.devices.push_back(description_of(program.devices[static_cast<size_t>(other)]));
  }
  renumber(mine, [&](int other) { return named[other]; });
  own.devices[static_cast<size_t>(named[static_cast<int>(device)])] = std::move(mine);
  own.descs = program.descs;
  part.descs = number_descs_by_use(own);
  return part;
}

Session part_of(const Session& session, size_t device) {
  Session part{session.name, {}};
  for (const Program& program : session.programs) part.programs.push_back(part_of(program, device).program);
  return part;
}

void exchange_devices(Program& program, size_t a, size_t b) {
  if (a == b) return;
  std::swap(program.devices[a], program.devices[b]);
  for (DeviceProgram& device : program.devices) {
    renumber(device, [&](int other) {
      const auto number = static_cast<size_t>(other);
      return static_cast<int>(number == a ? b : number == b ? a : number);
    });
  }
  number_descs_by_use(program);
}

Program outline_of(const Program& program) {
  Program outline = head_of(program);
  for (const DeviceProgram& device : program.devices) outline.devices.push_back(description_of(device));
  return outline;
}

Result<Program> in_outline(const Program& outline, const Program& part, size_t device) {
  if (device >= outline.devices.size()) return invalid_input(fmt::format("there is no device number {}", device));
  std::map<std::string_view, int> places;
  for (const DeviceProgram& described : outline.devices)
    places.emplace(described.name, static_cast<int>(places.size()));
  std::vector<int> place_of;
  for (const DeviceProgram& named : part.devices) {
    const auto place = places.find(named.name);
    if (place == places.end()) return invalid_input(fmt::format("there is no device {}", named.name));
    place_of.push_back(place->second);
  }
  const auto mine = std::ranges::find(place_of, static_cast<int>(device));
  if (mine == place_of.end())
    return invalid_input(fmt::format("this is not a part for device {}", outline.devices[device].name));
  if (place_of.size() == outline.devices.size() && std::ranges::is_sorted(place_of)) return part;
  Program whole = head_of(part);
  whole.devices = outline.devices;
  whole.descs = part.descs;
  whole.devices[device] = part.devices[static_cast<size_t>(mine - place_of.begin())];
  renumber(whole.devices[device], [&](int other) { return place_of[static_cast<size_t>(other)]; });
  return whole;
}

Result<Session> in_outline(const Program& outline, const Session& part, size_t device) {
  Session session{part.name, {}};
  for (const Program& program : part.programs) {
    ASSIGN_OR_RETURN(session.programs.emplace_back(), in_outline(outline, program, device));
  }
  return session;
}

}  // namespace nlsplit::inline program
