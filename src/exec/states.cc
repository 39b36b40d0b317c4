#include "exec/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "program/state_parts.h"

namespace nlsplit::inline exec {
namespace {

using ByName = std::map<std::string_view, const StateTensor*>;

bool lasts(const Buffer& buffer) { return buffer.kind == BufferKind::state && buffer.instances == 1; }

Result<ByName> by_name(const Program& joined, std::span<const StateTensor> states) {
  ByName given;
  for (const StateTensor& state : states) {
    if (static_cast<int64_t>(state.bytes.size()) != size_of(state.type).value())
      return invalid_input(
          fmt::format("state {} is {}, but has {} B", state.name, to_string(state.type), state.bytes.size()));
    given[state.name] = &state;
  }
  std::set<std::string_view> known;
  for (const DeviceProgram& device : joined.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (!lasts(buffer)) continue;
      const std::string& name = whole_name(buffer);
      known.insert(name);
      const auto found = given.find(name);
      if (found != given.end() && found->second->type != whole_type_of(buffer))
        return invalid_input(fmt::format("state {} is {} in the session, but {} was given", name,
                                         to_string(whole_type_of(buffer)), to_string(found->second->type)));
    }
  }
  for (const auto& [name, state] : given) {
    if (!known.contains(name)) return invalid_input(fmt::format("the session has no state {}", name));
  }
  return given;
}

// A letter for each buffer of a rank's device: 'y': it takes part. Rank 0 knows.
template <class Wanted>
Result<std::string> share_letters(const DeviceProgram& device, int rank, const Wanted& wanted, Transport& transport,
                                  const Waiting& waiting) {
  std::string letters;
  if (transport.rank() == 0) {
    for (const Buffer& buffer : device.buffers) letters += lasts(buffer) && wanted(buffer) ? 'y' : 'n';
    if (rank != 0) RETURN_IF_ERROR(send_text(transport, rank, letters, waiting));
    return letters;
  }
  ASSIGN_OR_RETURN(letters, recv_text(transport, 0, waiting));
  if (letters.size() == device.buffers.size()) return letters;
  const Error why = failed("rank 0 asked for the states of another device");
  transport.abort(why);
  return why;
}

}  // namespace

std::vector<StateTensor> states_of(const Program& joined) {
  std::vector<StateTensor> states;
  std::set<std::string_view> known;
  for (const DeviceProgram& device : joined.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (lasts(buffer) && known.insert(whole_name(buffer)).second)
        states.push_back({whole_name(buffer), whole_type_of(buffer), {}});
    }
  }
  return states;
}

Result<std::vector<StateTensor>> collect_states(const Program& joined, std::byte* arena, Transport& transport,
                                                const Waiting& waiting) {
  std::vector<StateTensor> states;
  PartsJoined joined_parts;
  std::set<std::string_view> collected;
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (transport.rank() != 0 && transport.rank() != rank) continue;
    const DeviceProgram& device = joined.devices[static_cast<size_t>(rank)];
    const auto is_new = [&](const Buffer& buffer) { return collected.insert(buffer.name).second; };
    ASSIGN_OR_RETURN(const std::string letters, share_letters(device, rank, is_new, transport, waiting));
    for (size_t b = 0; b < letters.size(); ++b) {
      if (letters[b] != 'y') continue;
      transport.liveness().moved();  // one piece after the other: each has its own deadline
      const Buffer& buffer = device.buffers[b];
      std::string bytes(static_cast<size_t>(size_of(buffer.type).value()), '\0');
      if (transport.rank() == rank) bytes = instances_of(buffer, arena);
      if (transport.rank() != 0) {
        RETURN_IF_ERROR(send_bytes(transport, 0, std::as_bytes(std::span(bytes)), waiting));
        continue;
      }
      if (rank != 0) RETURN_IF_ERROR(recv_bytes(transport, rank, std::as_writable_bytes(std::span(bytes)), waiting));
      joined_parts.add(buffer, std::move(bytes), states);
    }
  }
  std::ranges::sort(states, {}, &StateTensor::name);  // a plan has no part in their order
  return states;
}

Status place_states(const Program& joined, std::span<const StateTensor> states, const PlaceContent& place,
                    Transport& transport, const Waiting& waiting) {
  const Result<ByName> given = transport.rank() == 0 ? by_name(joined, states) : ByName{};
  RETURN_IF_ERROR(agree(transport, given.ok() ? ok_status() : Status(given.error()), waiting));
  Status mine;  // the other ranks wait for the next message: an error is sent afterwards
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (transport.rank() != 0 && transport.rank() != rank) continue;
    const DeviceProgram& device = joined.devices[static_cast<size_t>(rank)];
    const auto is_given = [&](const Buffer& buffer) { return given->contains(whole_name(buffer)); };
    ASSIGN_OR_RETURN(const std::string letters, share_letters(device, rank, is_given, transport, waiting));
    for (size_t b = 0; b < letters.size(); ++b) {
      if (letters[b] != 'y') continue;
      transport.liveness().moved();
      const Buffer& buffer = device.buffers[b];
      std::string received;
      std::string_view bytes;
      if (transport.rank() == 0) {
        const StateTensor& whole = *given->at(whole_name(buffer));
        if (buffer.part) received = cut_part(buffer, whole.bytes);
        bytes = buffer.part ? received : whole.bytes;
        if (rank != 0) RETURN_IF_ERROR(send_bytes(transport, rank, std::as_bytes(std::span(bytes)), waiting));
      } else {
        received.resize(static_cast<size_t>(size_of(buffer.type).value()));
        RETURN_IF_ERROR(recv_bytes(transport, 0, std::as_writable_bytes(std::span(received)), waiting));
        bytes = received;
      }
      if (transport.rank() != rank) continue;
      if (const Status placed = place(buffer, bytes); !placed.ok() && mine.ok()) mine = placed;
    }
  }
  return agree(transport, mine, waiting);
}

}  // namespace nlsplit::inline exec
