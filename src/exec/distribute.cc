#include "exec/distribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "base/hash.h"
#include "base/resident_memory.h"
#include "exec/backends/instructions.h"

namespace nlsplit::inline exec {
namespace {

bool has_bytes(const Buffer& buffer) { return buffer.kind == BufferKind::weight || buffer.kind == BufferKind::state; }

const NamedTensor* find_input(const Job& job, const std::string& name) {
  for (const NamedTensor& tensor : job.inputs) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

size_t size_of_instances(const Buffer& buffer) {
  return static_cast<size_t>(size_of(buffer.type).value()) * static_cast<size_t>(buffer.instances);
}

// The whole batch: axis 0 holds the instances one after the other.
TensorType whole_type(const Buffer& buffer) {
  TensorType type = buffer.type;
  if (type.shape.empty()) type.shape.push_back(1);
  type.shape[0] *= buffer.instances;
  return type;
}

}  // namespace

void fill_instances(const Buffer& buffer, std::span<const std::byte> data, std::byte* arena) {
  const auto size = static_cast<size_t>(size_of(buffer.type).value());
  for (int instance = 0; instance < buffer.instances; ++instance) {
    if (size > 0)
      std::memcpy(instance_data(buffer, instance, arena), data.data() + static_cast<size_t>(instance) * size, size);
  }
}

std::string instances_of(const Buffer& buffer, std::byte* arena) {
  std::string all;
  all.reserve(size_of_instances(buffer));
  for (int instance = 0; instance < buffer.instances; ++instance) {
    all.append(reinterpret_cast<const char*>(instance_data(buffer, instance, arena)),
               static_cast<size_t>(size_of(buffer.type).value()));
  }
  return all;
}

std::span<const std::byte> bytes_of(const NamedTensor& tensor) {
  return tensor.type.dtype == DType::f32 ? std::as_bytes(std::span(tensor.values))
                                         : std::as_bytes(std::span(tensor.raw));
}

Result<std::vector<NamedTensor>> wanted_inputs(const Program& program) {
  std::vector<NamedTensor> wanted;
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.kind != BufferKind::input) continue;
      const TensorType type = whole_type(buffer);
      bool known = false;
      for (const NamedTensor& other : wanted) {
        if (other.name != buffer.name) continue;
        known = true;
        if (other.type != type) {
          return invalid_input(fmt::format("input {} is {} on device {}, but {} on another", buffer.name,
                                           to_string(type), device.name, to_string(other.type)));
        }
      }
      if (!known) wanted.push_back({buffer.name, type, {}, {}});
    }
  }
  return wanted;
}

Status check_job(const Program& program, const Job& job) {
  ASSIGN_OR_RETURN(const std::vector<NamedTensor> wanted, wanted_inputs(program));
  for (const NamedTensor& want : wanted) {
    const NamedTensor* given = find_input(job, want.name);
    if (given == nullptr)
      return invalid_input(
          fmt::format("the program needs input {} ({}), which is missing", want.name, to_string(want.type)));
    const auto size = static_cast<int64_t>(bytes_of(*given).size());
    if (given->type.dtype != want.type.dtype || size != size_of(want.type).value()) {
      return invalid_input(fmt::format("input {} must be {}, but {} with {} B was given", want.name,
                                       to_string(want.type), to_string(given->type), size));
    }
  }
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.kind == BufferKind::output && buffer.type.dtype != DType::f32) {
        return unsupported(fmt::format("device {} output {} is {}: outputs must be f32", device.name, buffer.name,
                                       to_string(buffer.type)));
      }
      if (!has_bytes(buffer) || !buffer.has_content) continue;
      ASSIGN_OR_RETURN(const std::string_view raw, job.contents(buffer.content));
      if (static_cast<int64_t>(raw.size()) != size_of(buffer.type).value()) {
        return invalid_input(fmt::format("device {} buffer {} is {}, {} B, but its content has {} B", device.name,
                                         buffer.name, to_string(buffer.type), size_of(buffer.type).value(),
                                         raw.size()));
      }
    }
  }
  return ok_status();
}

namespace {

// All contents of its device, as large as they must be.
bool has_contents(const DeviceProgram& device, const Job& job) {
  if (!job.contents) return false;
  return std::ranges::all_of(device.buffers, [&](const Buffer& buffer) {
    if (!has_bytes(buffer) || !buffer.has_content) return true;
    const auto raw = job.contents(buffer.content);
    return raw.ok() && static_cast<int64_t>(raw->size()) == size_of(buffer.type).value();
  });
}

// The layers that read a buffer: "conv1, relu1"; empty if they have no names.
std::string label_of(const DeviceProgram& device, const Buffer& buffer) {
  for (const Segment& segment : device.segments) {
    for (const Instr& instr : segment.instrs) {
      for (const Operand& operand : instr.reads) {
        if (operand.buffer.valid() && &device.buffer(device.root(operand.buffer)) == &buffer && !instr.label.empty())
          return instr.label;
      }
    }
  }
  return "";
}

std::vector<const Buffer*> buffers_with_content(const DeviceProgram& device) {
  std::vector<const Buffer*> buffers;
  for (const Buffer& buffer : device.buffers) {
    if (has_bytes(buffer) && buffer.has_content) buffers.push_back(&buffer);
  }
  return buffers;
}

// Error: bits have changed since the weights were saved. `rank` is the one that has these bytes.
Status check_bits(const Program& program, const DeviceProgram& device, const Buffer& buffer, std::string_view raw,
                  const Checksum& saved, int rank, std::string_view how) {
  const Checksum now = checksum_of(raw);
  if (now == saved) return ok_status();
  const std::string label = label_of(device, buffer);
  return invalid_input(fmt::format(
      "weight {}{} of device {}: rank {} on host {} {} other bytes than were saved (checksum {}, saved {}); "
      "copy or save the program again, and check that host's disk and memory",
      buffer.name, label.empty() ? "" : fmt::format(" ({})", label), device.name, rank,
      program.devices[static_cast<size_t>(rank)].host, how, to_string(now), to_string(saved)));
}

// The checksums of a device's contents, in the order of its buffers: rank 0 knows them.
Result<std::vector<Checksum>> share_checksums(const std::vector<const Buffer*>& buffers, int rank, const Job& job,
                                              Transport& transport, const Waiting& waiting) {
  std::vector<Checksum> checksums(buffers.size());
  if (transport.rank() == 0) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (job.checksums) {
        ASSIGN_OR_RETURN(checksums[i], job.checksums(buffers[i]->content));
      } else {
        ASSIGN_OR_RETURN(const std::string_view raw, job.contents(buffers[i]->content));
        checksums[i] = checksum_of(raw);
      }
    }
  }
  if (rank == 0 || buffers.empty()) return checksums;
  if (transport.rank() == 0)
    RETURN_IF_ERROR(send_bytes(transport, rank, std::as_bytes(std::span(checksums)), waiting));
  else
    RETURN_IF_ERROR(recv_bytes(transport, 0, std::as_writable_bytes(std::span(checksums)), waiting));
  return checksums;
}

}  // namespace

Status place_weights(const Program& program, const Job& job, const PlaceContent& place, Transport& transport,
                     const Waiting& waiting) {
  const int me = transport.rank();
  const bool own = has_contents(program.devices[static_cast<size_t>(me)], job);
  ASSIGN_OR_RETURN(const std::vector<std::string> owns, gather(transport, own ? "y" : "n", waiting));
  Status mine;  // the other ranks wait for the next message: an error is sent afterwards
  const auto keep = [&mine](const Status& status) {
    if (!status.ok() && mine.ok()) mine = status;
  };
  // check_job saw everything: the file changed under us, and the others already wait for it.
  const auto give_up = [&transport](const Error& error) -> Error {
    transport.abort(error);
    return error;
  };
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (me != 0 && me != rank) continue;
    const DeviceProgram& device = program.devices[static_cast<size_t>(rank)];
    const std::vector<const Buffer*> buffers = buffers_with_content(device);
    const auto checksums = share_checksums(buffers, rank, job, transport, waiting);
    if (!checksums) return me == 0 ? give_up(checksums.error()) : checksums.error();
    const bool there = me == 0 ? owns[static_cast<size_t>(rank)] == "y" : own;
    for (size_t i = 0; i < buffers.size(); ++i) {
      transport.liveness().moved();  // one piece after the other: each has its own deadline
      const Buffer& buffer = *buffers[i];
      const Checksum& saved = (*checksums)[i];
      std::string received;
      std::string_view raw;
      if (me == 0 && me != rank) {
        if (there) continue;
        auto found = job.contents(buffer.content);
        if (!found) return give_up(found.error());
        keep(check_bits(program, device, buffer, *found, saved, me, "reads"));
        RETURN_IF_ERROR(send_bytes(transport, rank, std::as_bytes(std::span(*found)), waiting));
        forget_mapped(*found);
        continue;
      }
      if (me == 0 || there) {
        auto found = job.contents(buffer.content);
        if (!found) {
          keep(found.error());
          continue;
        }
        raw = *found;
      } else {
        received.resize(static_cast<size_t>(size_of(buffer.type).value()));
        RETURN_IF_ERROR(recv_bytes(transport, 0, std::as_writable_bytes(std::span(received)), waiting));
        raw = received;
      }
      const Status intact =
          check_bits(program, device, buffer, raw, saved, me, me == 0 || there ? "reads" : "received");
      keep(intact.ok() ? place(buffer, raw) : intact);
      forget_mapped(raw);  // else the process would hold it twice
    }
    if (me != rank) continue;
    for (const Buffer& buffer : device.buffers) {
      if (has_bytes(buffer) && !buffer.has_content) keep(place(buffer, {}));
    }
  }
  return mine;
}

Status place_inputs(const Program& program, const Job& job, std::byte* arena, Transport& transport,
                    const Waiting& waiting) {
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (transport.rank() != 0 && transport.rank() != rank) continue;
    for (const Buffer& buffer : program.devices[static_cast<size_t>(rank)].buffers) {
      if (buffer.kind != BufferKind::input) continue;
      if (transport.rank() == 0) {
        const std::span<const std::byte> data = bytes_of(*find_input(job, buffer.name));
        if (rank == 0)
          fill_instances(buffer, data, arena);
        else
          RETURN_IF_ERROR(send_bytes(transport, rank, data, waiting));
        continue;
      }
      std::string received(size_of_instances(buffer), '\0');
      RETURN_IF_ERROR(recv_bytes(transport, 0, std::as_writable_bytes(std::span(received)), waiting));
      fill_instances(buffer, std::as_bytes(std::span(received)), arena);
    }
  }
  return ok_status();
}

namespace {

// A letter for each buffer of a rank's device: 'y': rank 0 collects it.
Result<std::string> share_wanted(const DeviceProgram& device, bool states, int rank,
                                 std::set<std::string_view>& collected, Transport& transport, const Waiting& waiting) {
  if (transport.rank() == 0) {
    std::string wanted;
    for (const Buffer& buffer : device.buffers) {
      const bool state = buffer.kind == BufferKind::state && buffer.type.dtype == DType::f32;
      const bool is_wanted =
          buffer.kind == BufferKind::output || (states && state && collected.insert(buffer.name).second);
      wanted += is_wanted ? 'y' : 'n';
    }
    if (rank != 0) RETURN_IF_ERROR(send_text(transport, rank, wanted, waiting));
    return wanted;
  }
  ASSIGN_OR_RETURN(std::string wanted, recv_text(transport, 0, waiting));
  if (wanted.size() != device.buffers.size()) {
    const Error why = failed("rank 0 asked for the results of another device");
    transport.abort(why);
    return why;
  }
  return wanted;
}

}  // namespace

bool is_result(const DeviceProgram& device, const Buffer& buffer) {
  if (buffer.kind == BufferKind::output) return true;
  return buffer.kind == BufferKind::state && buffer.type.dtype == DType::f32 &&
         std::ranges::any_of(device.segments, [](const Segment& segment) { return segment.phase == Phase::step; });
}

Result<std::vector<OutputTensor>> collect_outputs(const Program& program, bool states, std::byte* arena,
                                                  Transport& transport, const Waiting& waiting) {
  std::vector<OutputTensor> outputs;
  std::set<std::string_view> collected;  // states: replicas have the same
  PartsJoined joined_parts;
  std::vector<PartsJoined::Whole> done;
  for (int rank = 0; rank < transport.size(); ++rank) {
    if (transport.rank() != 0 && transport.rank() != rank) continue;
    const DeviceProgram& device = program.devices[static_cast<size_t>(rank)];
    ASSIGN_OR_RETURN(const std::string wanted, share_wanted(device, states, rank, collected, transport, waiting));
    for (size_t b = 0; b < device.buffers.size(); ++b) {
      if (wanted[b] != 'y') continue;
      const Buffer& buffer = device.buffers[b];
      std::string data;
      if (transport.rank() == rank) data = instances_of(buffer, arena);
      if (transport.rank() != 0) {
        RETURN_IF_ERROR(send_bytes(transport, 0, std::as_bytes(std::span(data)), waiting));
        continue;
      }
      if (rank != 0) {
        data.resize(size_of_instances(buffer));
        RETURN_IF_ERROR(recv_bytes(transport, rank, std::as_writable_bytes(std::span(data)), waiting));
      }
      if (buffer.part)
        joined_parts.add(buffer, std::move(data), done);
      else
        done.push_back({buffer.name, whole_type(buffer), std::move(data)});
      for (PartsJoined::Whole& whole : done) {
        OutputTensor& output = outputs.emplace_back(OutputTensor{device.name, {whole.name, whole.type, {}, {}}});
        output.tensor.values.resize(whole.bytes.size() / sizeof(float));
        if (!whole.bytes.empty()) std::memcpy(output.tensor.values.data(), whole.bytes.data(), whole.bytes.size());
      }
      done.clear();
    }
  }
  return outputs;
}

}  // namespace nlsplit::inline exec
