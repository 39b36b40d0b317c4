// A training step to test: a network, its weights and samples; what the reference makes of it unsplit; and a machine
// that executes Programs of it in their arenas, each computation by the reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/differentiate/step_graph.h"
#include "graph/passes/passes.h"
#include "graph/reference/evaluate.h"
#include "program/state_parts.h"
#include "program/verify.h"

namespace nlsplit::testing {

using Weights = std::map<std::string, std::vector<float>>;

// A network at its micro-batch size, and the samples of a whole step.
struct Lesson {
  Graph network;
  WeightStore weights;
  TrainingOptions options;
  std::map<std::string, std::string> samples;  // bytes of inputs, the loss's among them
};

inline std::string random_bytes(const TensorType& type, int64_t classes, std::mt19937& random) {
  std::string bytes(static_cast<size_t>(size_of(type).value()), '\0');
  for (int64_t i = 0; i < element_count(type.shape); ++i) {
    if (type.dtype == DType::f32) {
      const float value = std::uniform_real_distribution<float>(-1, 1)(random);
      std::memcpy(bytes.data() + 4 * i, &value, 4);
    } else {
      const int64_t value = std::uniform_int_distribution<int64_t>(0, classes - 1)(random);
      std::memcpy(bytes.data() + 8 * i, &value, 8);
    }
  }
  return bytes;
}

inline std::vector<float> values_of(const Tensor& tensor) {
  if (tensor.type.dtype == DType::f32) return tensor.values;
  int64_t count = 0;
  std::memcpy(&count, bytes_of(tensor).data(), sizeof(count));
  return {static_cast<float>(count)};
}

// The step of the unsplit network, by the reference and all samples at once.
inline Weights updated_unsplit(Lesson& lesson, int64_t batch, std::mt19937& random) {
  const Graph whole = with_batch(lesson.network, batch).value();
  TrainingOptions options = lesson.options;
  options.micro_batches = 1;
  StepGraph step = step_graph(whole, options).value();
  std::erase_if(step.graph.outputs, [&](ValueId id) { return step.graph.value(id).name != gradient_norm_name; });
  for (const StateUpdate& update : step.nodes.updates) step.graph.outputs.push_back(update.value);
  std::vector<Tensor> inputs;
  const TensorType& logits = whole.value(whole.outputs[0]).type;
  for (const ValueId id : step.graph.inputs) {
    const Value& input = step.graph.value(id);
    std::string& bytes = lesson.samples[input.name] = random_bytes(input.type, logits.shape.back(), random);
    inputs.push_back(tensor_of(input.type, bytes));
  }
  // One store with both kinds of constants.
  WeightStore all = lesson.weights;
  for (Value& value : step.graph.values) {
    if (value.kind == ValueKind::weight && !all.contains(value.content))
      value.content = all.add_bytes(value.type, step.nodes.constants.materialise(value.content).value());
  }
  const std::vector<Tensor> made = evaluate(step.graph, all, inputs).value();
  Weights updated;
  const size_t outputs = made.size() - step.nodes.updates.size();
  for (size_t i = 0; i < made.size(); ++i) {
    const ValueId value = i < outputs ? step.graph.outputs[i] : step.nodes.updates[i - outputs].state;
    updated[step.graph.value(value).name] = values_of(made[i]);
  }
  return updated;
}

// Executes a Program in the order of a dry run.
class Machine {
 public:
  Machine(const Program& program, const Lesson& lesson, const WeightStore& constants)
      : program_(program), lesson_(lesson), constants_(constants) {
    for (const DeviceProgram& device : program.devices) {
      std::string& arena = arenas_.emplace_back(static_cast<size_t>(device.arena.value()), '\x7f');  // NaN
      for (const Buffer& buffer : device.buffers) {
        if (!buffer.packed_for.empty()) continue;  // the reference reads what was packed
        for (int instance = 0; instance < buffer.instances; ++instance) {
          const auto at = static_cast<size_t>(buffer.offset + instance * buffer.stride());
          const auto size = static_cast<size_t>(buffer.bytes.value());
          if (buffer.kind == BufferKind::input)
            arena.replace(at, size, lesson.samples.at(buffer.name).substr(static_cast<size_t>(instance) * size, size));
          else if (buffer.kind == BufferKind::state && !buffer.has_content)
            arena.replace(at, size, std::string(size, '\0'));
          else if (buffer.has_content)
            arena.replace(at, size,
                          (lesson.weights.contains(buffer.content) ? lesson.weights : constants)
                              .materialise(buffer.content)
                              .value());
        }
      }
    }
  }

  void run() {
    const Dependencies deps = dependencies(program_).value();
    const std::vector<uint32_t> order = dry_run(program_, deps).value();
    for (const uint32_t i : order) {
      const Instance& now = deps.instances[i];
      const Instr& instr = instr_of(program_, now);
      switch (instr.opcode) {
        case Opcode::recv:
          write(now, instr.writes[0], sent_.at(deps.match[i]));
          break;
        case Opcode::send:
          sent_[i] = read(now, instr.reads[0]);
          break;
        case Opcode::compute:
          compute(now, instr);
          break;
        case Opcode::pack:
          pack(now, instr);
          break;
        default:
          add(now, instr);
      }
    }
  }

  // All states, and the norm of the gradients, with everyone who has them; parts put together.
  Weights weights() const {
    Weights all;
    std::map<std::string, std::string> known;
    PartsJoined joined;
    std::vector<PartsJoined::Whole> wholes;
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      for (const Buffer& buffer : program_.devices[d].buffers) {
        if (buffer.kind != BufferKind::state && buffer.name != gradient_norm_name) continue;
        const std::string bytes =
            arenas_[d].substr(static_cast<size_t>(buffer.offset), static_cast<size_t>(size_of(buffer.type).value()));
        const auto [first, is_new] = known.emplace(buffer.name, bytes);
        EXPECT_EQ(first->second, bytes) << "copies of " << buffer.name << " differ";
        if (is_new) joined.add(buffer, bytes, wholes);
      }
    }
    for (const PartsJoined::Whole& whole : wholes) all[whole.name] = values_of(tensor_of(whole.type, whole.bytes));
    return all;
  }

 private:
  std::string content(const Buffer& buffer) const {
    return (lesson_.weights.contains(buffer.content) ? lesson_.weights : constants_)
        .materialise(buffer.content)
        .value();
  }
  std::pair<size_t, size_t> place(const Instance& at, const Operand& operand) const {
    const DeviceProgram& device = program_.devices[static_cast<size_t>(at.device)];
    return {static_cast<size_t>(address_of(device, device.order[static_cast<size_t>(at.slot)], operand)),
            static_cast<size_t>(bytes_of(device, operand).value())};
  }
  std::string read(const Instance& at, const Operand& operand) const {
    const Buffer& buffer = program_.devices[static_cast<size_t>(at.device)].buffer(operand.buffer);
    if (!buffer.packed_for.empty()) return content(buffer);
    const auto [begin, size] = place(at, operand);
    return arenas_[static_cast<size_t>(at.device)].substr(begin, size);
  }
  void write(const Instance& at, const Operand& operand, std::string_view bytes) {
    const auto [begin, size] = place(at, operand);
    ASSERT_EQ(bytes.size(), size);
    arenas_[static_cast<size_t>(at.device)].replace(begin, size, bytes);
  }

  void pack(const Instance& at, const Instr& instr) {
    const DeviceProgram& device = program_.devices[static_cast<size_t>(at.device)];
    Buffer part;
    part.type = type_of(device, instr.writes[0]);
    part.part =
        StatePart{"", instr.axis, instr.begin, type_of(device, instr.reads[0]).shape[static_cast<size_t>(instr.axis)]};
    write(at, instr.writes[0], cut_part(part, read(at, instr.reads[0])));
  }

  void add(const Instance& at, const Instr& instr) {
    ASSERT_TRUE(instr.opcode == Opcode::copy || instr.opcode == Opcode::reduce);
    const auto count = static_cast<int64_t>(place(at, instr.writes[0]).second / sizeof(float));
    Tensor sum = tensor_of({DType::f32, {count}}, read(at, instr.reads[0]));
    for (size_t r = 1; r < instr.reads.size(); ++r) {
      const Tensor more = tensor_of({DType::f32, {count}}, read(at, instr.reads[r]));
      for (size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += more.values[i];
    }
    write(at, instr.writes[0], bytes_of(sum));
  }

  void compute(const Instance& at, const Instr& instr) {
    const ComputeDesc& desc = program_.descs[static_cast<size_t>(instr.desc)];
    std::vector<Tensor> reads;
    std::vector<const Tensor*> pointers;
    for (size_t i = 0; i < instr.reads.size(); ++i)
      reads.push_back(tensor_of(desc.inputs[i], read(at, instr.reads[i])));
    for (const Tensor& tensor : reads) pointers.push_back(&tensor);
    const std::vector<Tensor> made = evaluate_op(desc.op, desc.attrs, pointers, desc.outputs);
    for (size_t i = 0; i < made.size(); ++i) write(at, instr.writes[i], bytes_of(made[i]));
  }

  const Program& program_;
  const Lesson& lesson_;
  const WeightStore& constants_;
  std::vector<std::string> arenas_;  // [device]
  std::map<uint32_t, std::string> sent_;
};

// Sums of samples, and of what several nodes give, round in another order.
inline void expect_close(const Weights& found, const Weights& wanted, const Lesson& lesson, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (const auto& [name, values] : wanted) {
    ASSERT_TRUE(found.contains(name)) << what << ", " << name;
    double largest = 0, error = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(values[i])));
      const double off = std::abs(static_cast<double>(found.at(name)[i]) - static_cast<double>(values[i]));
      error = off <= error ? error : off;  // NaN is kept
    }
    EXPECT_LE(error, 1e-5 * std::max(largest, 1e-3)) << what << ", " << name << " of " << lesson.network.name;
  }
}

}  // namespace nlsplit::testing
