#include "program/state_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace nlsplit::inline program {
namespace {

int64_t extent_of(const Buffer& state) { return state.type.shape[static_cast<size_t>(state.part->axis)]; }

// A part is `rows` runs of bytes in its tensor, `stride` apart.
struct Runs {
  size_t rows = 1, bytes = 0, stride = 0, begin = 0;
};
Runs runs_of(const Buffer& state) {
  const auto axis = static_cast<size_t>(state.part->axis);
  const Shape& shape = state.type.shape;
  Runs runs;
  for (size_t a = 0; a < axis; ++a) runs.rows *= static_cast<size_t>(shape[a]);
  auto each = static_cast<size_t>(size_of(state.type.dtype));
  for (size_t a = axis + 1; a < shape.size(); ++a) each *= static_cast<size_t>(shape[a]);
  runs.bytes = each * static_cast<size_t>(extent_of(state));
  runs.stride = each * static_cast<size_t>(state.part->of);
  runs.begin = each * static_cast<size_t>(state.part->begin);
  return runs;
}

// Of one tensor.
Status check_parts(const std::string& whole, std::vector<const Buffer*> parts) {
  const auto wrong = [&](std::string_view why) {
    return invalid_input(fmt::format("the parts of state {} {}", whole, why));
  };
  std::ranges::sort(parts, {}, [](const Buffer* state) { return state->part->begin; });
  int64_t end = 0;
  for (const Buffer* state : parts) {
    if (whole_type_of(*state) != whole_type_of(*parts.front()) || state->part->axis != parts.front()->part->axis)
      return wrong("are of different tensors");
    if (state->part->begin < end) return wrong(fmt::format("overlap at element {}", state->part->begin));
    if (state->part->begin > end) return wrong(fmt::format("lack the elements from {} on", end));
    end += extent_of(*state);
  }
  return end == parts.front()->part->of ? ok_status() : Status(wrong(fmt::format("lack the elements from {} on", end)));
}

}  // namespace

const std::string& whole_name(const Buffer& state) { return state.part ? state.part->whole : state.name; }

TensorType whole_type_of(const Buffer& state) {
  TensorType type = state.type;
  if (state.part) type.shape[static_cast<size_t>(state.part->axis)] = state.part->of;
  return type;
}

Status check_state_parts(const Program& program) {
  std::map<std::string, std::map<std::string, const Buffer*>> parts;  // by tensor, then by part
  std::set<std::string> wholes;
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.kind != BufferKind::state) continue;
      if (!buffer.part) {
        wholes.insert(buffer.name);
        continue;
      }
      const auto [known, first] = parts[buffer.part->whole].try_emplace(buffer.name, &buffer);
      if (!first && (known->second->part != buffer.part || known->second->type != buffer.type))
        return invalid_input(fmt::format("state {} is not the same part on all devices", buffer.name));
    }
  }
  for (const auto& [whole, of] : parts) {
    if (wholes.contains(whole))
      return invalid_input(fmt::format("state {} is whole on one device and in parts", whole));
    std::vector<const Buffer*> list;
    for (const auto& [name, state] : of) list.push_back(state);
    RETURN_IF_ERROR(check_parts(whole, std::move(list)));
  }
  return ok_status();
}

std::string cut_part(const Buffer& state, std::string_view whole) {
  if (!state.part) return std::string(whole);
  const Runs runs = runs_of(state);
  std::string part;
  part.reserve(runs.rows * runs.bytes);
  for (size_t row = 0; row < runs.rows; ++row) part += whole.substr(runs.begin + row * runs.stride, runs.bytes);
  return part;
}

void fill_part(const Buffer& state, std::string_view part, std::string& whole) {
  const Runs runs = runs_of(state);
  for (size_t row = 0; row < runs.rows; ++row)
    std::memcpy(whole.data() + runs.begin + row * runs.stride, part.data() + row * runs.bytes, runs.bytes);
}

void PartsJoined::add(const Buffer& state, std::string bytes, std::vector<Whole>& wholes) {
  if (!state.part) {
    wholes.push_back({state.name, state.type, std::move(bytes)});
    return;
  }
  auto found = std::ranges::find(open_, state.part->whole, [](const Open& open) { return open.whole.name; });
  if (found == open_.end()) {
    const TensorType type = whole_type_of(state);
    std::string empty(static_cast<size_t>(size_of(type).value()), '\0');
    open_.push_back({{state.part->whole, type, std::move(empty)}, state.part->of});
    found = open_.end() - 1;
  }
  fill_part(state, bytes, found->whole.bytes);
  found->missing -= extent_of(state);
  if (found->missing > 0) return;
  wholes.push_back(std::move(found->whole));
  open_.erase(found);
}

}  // namespace nlsplit::inline program
