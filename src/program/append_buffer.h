// Appends a buffer to a device whose arena is filled in order, without reuse of bytes.
#pragma once

#include <string>
#include <utility>

#include "program/program.h"

namespace nlsplit::inline program {

inline BufferId append_buffer(DeviceProgram& device, std::string name, TensorType type, BufferKind kind,
                              int instances = 1) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.type = std::move(type);
  buffer.kind = kind;
  buffer.bytes = size_of(buffer.type);
  buffer.instances = instances;
  buffer.offset = device.arena.value();
  device.arena = bytes(buffer.offset + buffer.stride() * instances);
  device.buffers.push_back(std::move(buffer));
  return BufferId(device.buffers.size() - 1);
}

}  // namespace nlsplit::inline program
