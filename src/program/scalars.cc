#include "program/scalars.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "graph/elements.h"

namespace nlsplit::inline program {
namespace {

// f(i, largest safe value) for the operands that are scalars, until one returns an error.
template <class F>
Status for_scalars(const ComputeDesc& desc, const F& f) {
  for (size_t i = 0; reads_scalars(desc) && i < desc.own_inputs(); ++i) {
    if (const auto largest = largest_scalar(desc, i)) RETURN_IF_ERROR(f(i, *largest));
  }
  return ok_status();
}

template <class T>
Status check_each(const Buffer& buffer, const Operand& operand, int64_t count, const void* data) {
  const T* values = static_cast<const T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] >= 0 && values[i] <= *buffer.max) continue;
    return invalid_input(
        fmt::format("{}[{}] is {}, outside 0 … {}", buffer.name, operand.begin + i, values[i], *buffer.max));
  }
  return ok_status();
}

template <class T>
void append(std::vector<int64_t>& values, std::span<const std::byte> bytes) {
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    values.push_back(value);
  }
}

}  // namespace

Status check_maxima(const DeviceProgram& device, const Instr& instr, const ComputeDesc& desc) {
  return for_scalars(desc, [&](size_t i, int64_t largest) {
    const Buffer& buffer = device.buffer(device.root(instr.reads[i].buffer));
    if (!buffer.max)
      return Status(invalid_input(fmt::format("operand {} is read from {}, which declares no maximum; {} takes 0 … {}",
                                              i, buffer.name, name_of(desc.op), largest)));
    if (*buffer.max <= largest) return ok_status();
    return Status(invalid_input(fmt::format("operand {} is read from {}, whose maximum is {}; {} takes 0 … {}", i,
                                            buffer.name, *buffer.max, name_of(desc.op), largest)));
  });
}

Status check_values(const DeviceProgram& device, const Instr& instr, const ComputeDesc& desc,
                    const void* const* inputs) {
  return for_scalars(desc, [&](size_t i, int64_t) {
    if (inputs[i] == nullptr) return ok_status();
    const Buffer& buffer = device.buffer(device.root(instr.reads[i].buffer));
    const int64_t count = element_count(desc.inputs[i].shape);
    return desc.inputs[i].dtype == DType::i32 ? check_each<int32_t>(buffer, instr.reads[i], count, inputs[i])
                                              : check_each<int64_t>(buffer, instr.reads[i], count, inputs[i]);
  });
}

void declare_maxima(Program& program) {
  for (DeviceProgram& device : program.devices) {
    for (const Segment& segment : device.segments) {
      for (const Instr& instr : segment.instrs) {
        if (instr.opcode != Opcode::compute) continue;
        const Status each = for_scalars(program.descs[static_cast<size_t>(instr.desc)], [&](size_t i, int64_t largest) {
          Buffer& buffer = device.buffers[device.root(instr.reads[i].buffer).index()];
          buffer.max = std::min(buffer.max.value_or(largest), largest);
          return ok_status();
        });
        CHECK(each.ok(), "none fails");
      }
    }
  }
}

std::vector<size_t> scalar_inputs(const ComputeDesc& desc) {
  std::vector<size_t> inputs;
  for (size_t i = 0; reads_scalars(desc) && i < desc.own_inputs(); ++i) {
    if (largest_scalar(desc, i)) inputs.push_back(i);
  }
  return inputs;
}

bool lists_integers(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789,-") == text.npos;
}

Result<std::optional<std::string>> listed_integers(DType type, int64_t count, std::string_view text) {
  if (!lists_integers(text)) return std::optional<std::string>();
  std::vector<int64_t> values;
  for (std::string_view rest = text;; rest.remove_prefix(1)) {
    int64_t value = 0;
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    const bool fits = type == DType::i64 || (type == DType::i32 && static_cast<int32_t>(value) == value);
    if (failure != std::errc() || !fits)
      return invalid_input(fmt::format("`{}`: `{}` is not a value of type {}", text, rest, name_of(type)));
    values.push_back(value);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (rest.empty()) break;
    if (rest.front() != ',') return invalid_input(fmt::format("`{}`: integers and commas", text));
  }
  if (std::ssize(values) != count)
    return invalid_input(fmt::format("`{}`: {} values where there must be {}", text, values.size(), count));
  return std::optional(raw_of(type, std::span<const int64_t>(values)));
}

std::vector<int64_t> whole_values(DType type, std::span<const std::byte> bytes) {
  std::vector<int64_t> values;
  if (type == DType::i32)
    append<int32_t>(values, bytes);
  else
    append<int64_t>(values, bytes);
  return values;
}

}  // namespace nlsplit::inline program
