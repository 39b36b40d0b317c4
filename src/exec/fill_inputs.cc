#include "exec/fill_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "graph/differentiate/step_graph.h"
#include "graph/elements.h"

namespace nlsplit::inline exec {
namespace {

constexpr int64_t pointing_nowhere = 2;  // masks and flags

// Names of inputs that say in which pages sequences lie.
std::set<std::string> page_tables(const Program& program) {
  std::set<std::string> names;
  for (const DeviceProgram& device : program.devices) {
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        const bool computes = instr.opcode == Opcode::compute;
        if (computes && program.descs[static_cast<size_t>(instr.desc)].op == Op::PagedAttention)
          names.insert(device.buffer(device.root(instr.reads[4].buffer)).name);
      }
    }
  }
  return names;
}

}  // namespace

// Wherever an input is read: on its device or on one it is sent to, where its buffer has its name.
std::map<std::string, int64_t> extents_pointed_into(const Program& program) {
  std::map<std::string, int64_t> smallest;
  const auto is_at_most = [&](const std::string& name, int64_t bound) {
    const auto [at, first] = smallest.try_emplace(name, bound);
    at->second = std::min(at->second, bound);
  };
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (buffer.max) is_at_most(buffer.name, std::min(*buffer.max, std::numeric_limits<int64_t>::max() - 1) + 1);
    }
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute || instr.reads.size() < 2 || !instr.reads[1].buffer.valid()) continue;
        const ComputeDesc& desc = program.descs[static_cast<size_t>(instr.desc)];
        const bool labels = desc.op == Op::SoftmaxCrossEntropy;
        if (desc.op != Op::Gather && desc.op != Op::GatherElements && !labels) continue;
        const Shape& table = desc.inputs[0].shape;
        const int64_t given = labels ? -1 : attr_int(desc.attrs, "axis"), axes = static_cast<int64_t>(table.size());
        const int64_t extent = table[static_cast<size_t>(given < 0 ? given + axes : given)];
        is_at_most(device.buffer(device.root(instr.reads[1].buffer)).name, extent);
      }
    }
  }
  return smallest;
}

bool numbers_samples(const Program& program) {
  return std::ranges::find(program.descs, Op::DropoutTraining, &ComputeDesc::op) != program.descs.end();
}

void fill_inputs(const Program& program, uint64_t seed, std::vector<NamedTensor>& inputs) {
  const std::map<std::string, int64_t> pointed = extents_pointed_into(program);
  const bool numbered = numbers_samples(program);
  for (size_t i = 0; i < inputs.size(); ++i) {
    NamedTensor& input = inputs[i];
    if (!bytes_of(input).empty()) continue;
    const int64_t count = element_count(input.type.shape);
    if (input.type.dtype == DType::f32) {
      input.values.resize(static_cast<size_t>(count));
      fill_normal(seed + i, input.values.data(), count);
      continue;
    }
    Random random(seed + i);
    if (is_real(input.type.dtype)) {
      std::vector<double> values(static_cast<size_t>(count));
      for (double& value : values) value = random.normal();
      input.raw = raw_of(input.type.dtype, std::span<const double>(values));
      continue;
    }
    const auto known = pointed.find(input.name);
    const int64_t bound = input.type.dtype == DType::boolean || known == pointed.end()
                              ? pointing_nowhere
                              : std::max<int64_t>(known->second, 1);
    std::vector<int64_t> values(static_cast<size_t>(count));
    if (numbered && (input.name == samples_name || input.name.ends_with(fmt::format("/{}", samples_name)))) {
      std::iota(values.begin(), values.end(), 0);
      input.raw = raw_of(input.type.dtype, std::span<const int64_t>(values));
      continue;
    }
    for (int64_t& value : values) value = static_cast<int64_t>(random.below(static_cast<uint64_t>(bound)));
    input.raw = raw_of(input.type.dtype, std::span<const int64_t>(values));
  }
}

bool fill_scalars(const Program& program, double part, std::vector<NamedTensor>& inputs) {
  std::map<std::string, int64_t> largest;  // on its device, or where it is sent to
  for (const DeviceProgram& device : program.devices) {
    for (const Buffer& buffer : device.buffers) {
      if (!buffer.max) continue;
      const auto [at, first] = largest.try_emplace(buffer.name, *buffer.max);
      at->second = std::min(at->second, *buffer.max);
    }
  }
  const std::set<std::string> tables = page_tables(program);
  bool any = false;
  for (NamedTensor& input : inputs) {
    const auto known = largest.find(input.name);
    if (known == largest.end() || !is_whole(input.type.dtype)) continue;
    std::vector<int64_t> values(static_cast<size_t>(element_count(input.type.shape)),
                                std::llround(part * static_cast<double>(known->second)));
    if (tables.contains(input.name)) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i) % (known->second + 1);
    }
    input.raw = raw_of(input.type.dtype, std::span<const int64_t>(values));
    any = true;
  }
  return any;
}

}  // namespace nlsplit::inline exec
