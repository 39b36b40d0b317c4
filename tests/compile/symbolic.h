// Runs a Program on symbols instead of numbers: every value is a hash of how it was made, memory is the real arena, and
// instructions happen in any order the dependencies allow, chosen by a seed. What comes out must be what the graph
// says, symbol for symbol; so a wrong operand, an instance or place used too early, or an order that does not hold,
// shows.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/random.h"
#include "compile/compile.h"
#include "program/dependencies.h"
#include "program/in_place.h"

namespace nlsplit {

using Symbol = uint64_t;

inline Symbol symbol_of(std::string_view what, const std::vector<Symbol>& from) {
  return hash_bytes(from.data(), from.size() * sizeof(Symbol), hash_text(what));
}

// [output][micro-batch] of the graph itself.
inline std::vector<std::vector<Symbol>> symbols_of_graph(const KernelGraph& kernels, int micro_batches) {
  const Graph& graph = kernels.graph;
  std::vector<std::vector<Symbol>> outputs(graph.outputs.size());
  for (int m = 0; m < micro_batches; ++m) {
    std::vector<Symbol> of(graph.values.size(), 0);
    for (size_t v = 0; v < graph.values.size(); ++v) {
      const Value& value = graph.values[v];
      if (value.kind == ValueKind::weight) of[v] = symbol_of("weight", {value.content.value});
      if (value.kind == ValueKind::input) of[v] = symbol_of("input " + value.name, {static_cast<Symbol>(m)});
    }
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      if (is_view(node.op) || node.op == Op::Cast) {
        of[node.outputs[0].index()] = of[node.inputs[0].index()];
        continue;
      }
      std::vector<Symbol> reads;
      for (const ValueId value : reads_of(node)) reads.push_back(of[value.index()]);
      for (size_t o = 0; o < node.outputs.size(); ++o)
        of[node.outputs[o].index()] = symbol_of(fmt::format("{} {}", kernels.labels[n], o), reads);
    }
    for (size_t o = 0; o < graph.outputs.size(); ++o) outputs[o].push_back(of[graph.outputs[o].index()]);
  }
  return outputs;
}

// The bytes of one device: which symbol lies where. Writing over a part of a value destroys it.
class SymbolMemory {
 public:
  void write(int64_t begin, int64_t size, Symbol symbol) {
    auto at = values_.lower_bound(begin);
    if (at != values_.begin() && std::prev(at)->second.end > begin) at = std::prev(at);
    while (at != values_.end() && at->first < begin + size) at = values_.erase(at);
    if (size > 0) values_[begin] = {begin + size, symbol};
  }
  Symbol read(int64_t begin, int64_t size) const {
    const auto at = values_.find(begin);
    return at != values_.end() && at->second.end == begin + size ? at->second.symbol : symbol_of("garbage", {});
  }

 private:
  struct Held {
    int64_t end;
    Symbol symbol;
  };
  std::map<int64_t, Held> values_;
};

class SymbolicRun {
 public:
  SymbolicRun(const Program& program, const Dependencies& deps)
      : program_(program), deps_(deps), memory_(program.devices.size()) {
    for (size_t d = 0; d < program.devices.size(); ++d) {
      for (const Buffer& buffer : program.devices[d].buffers) {
        if (buffer.kind == BufferKind::weight)
          memory_[d].write(buffer.offset, buffer.bytes.value(), symbol_of("weight", {buffer.content.value}));
        if (buffer.kind != BufferKind::input) continue;
        for (int m = 0; m < buffer.instances; ++m) {
          memory_[d].write(buffer.offset + m * buffer.stride(), buffer.bytes.value(),
                           symbol_of("input " + buffer.name, {static_cast<Symbol>(m)}));
        }
      }
    }
  }

  // False: it got stuck.
  bool run(uint64_t seed) {
    Random random(seed);
    const size_t count = deps_.instances.size();
    std::vector<uint32_t> missing(count), ready;
    std::vector<std::vector<uint32_t>> next(count);
    for (uint32_t i = 0; i < count; ++i) {
      missing[i] = static_cast<uint32_t>(deps_.into(i).size());
      for (const Edge& edge : deps_.into(i)) next[edge.from].push_back(i);
      if (missing[i] == 0) ready.push_back(i);
    }
    size_t done = 0;
    const auto finish = [&](uint32_t i) {
      ++done;
      for (const uint32_t j : next[i]) {
        if (--missing[j] == 0) ready.push_back(j);
      }
    };
    std::vector<bool> waiting(count, false);  // one end of a message that is there before the other
    while (!ready.empty()) {
      const size_t pick = random.below(ready.size());
      const uint32_t i = ready[pick];
      ready[pick] = ready.back();
      ready.pop_back();
      const uint32_t partner = deps_.match[i];
      if (partner == no_instance) {
        compute(deps_.instances[i]);
        finish(i);
      } else if (waiting[partner]) {
        const bool sends = instr_of(program_, deps_.instances[i]).opcode == Opcode::send;
        pass(deps_.instances[sends ? i : partner], deps_.instances[sends ? partner : i]);
        finish(i);
        finish(partner);
      } else {
        waiting[i] = true;
      }
    }
    return done == count;
  }

  // [output][micro-batch], outputs in the order of their buffers.
  std::vector<std::vector<Symbol>> outputs() const {
    std::vector<std::vector<Symbol>> result;
    for (size_t d = 0; d < program_.devices.size(); ++d) {
      for (const Buffer& buffer : program_.devices[d].buffers) {
        if (buffer.kind != BufferKind::output) continue;
        std::vector<Symbol>& instances = result.emplace_back();
        for (int m = 0; m < buffer.instances; ++m)
          instances.push_back(memory_[d].read(buffer.offset + m * buffer.stride(), buffer.bytes.value()));
      }
    }
    return result;
  }

 private:
  struct Range {
    int64_t begin, size;
    bool operator==(const Range&) const = default;
  };
  Range range(const Instance& at, const Operand& operand) const {
    const DeviceProgram& device = program_.devices[static_cast<size_t>(at.device)];
    const Buffer& root = device.buffer(device.root(operand.buffer));
    return {address_of(device, device.order[static_cast<size_t>(at.slot)], operand), root.bytes.value()};
  }
  Symbol read(const Instance& at, const Operand& operand) const {
    const Range r = range(at, operand);
    return memory_[static_cast<size_t>(at.device)].read(r.begin, r.size);
  }
  void write(const Instance& at, const Operand& operand, Symbol symbol) {
    const Range r = range(at, operand);
    memory_[static_cast<size_t>(at.device)].write(r.begin, r.size, symbol);
  }
  void compute(const Instance& at) {
    const Instr& instr = instr_of(program_, at);
    std::vector<Symbol> reads;
    for (const Operand& operand : instr.reads) reads.push_back(read(at, operand));
    if (instr.workspace.buffer.valid()) write(at, instr.workspace, symbol_of("workspace", {}));
    // Copies, reorders and conversions leave a value what it is.
    const auto keeps_it = [](Op op) { return op == Op::Identity || op == Op::Cast; };
    const bool keeps = instr.opcode == Opcode::copy || (instr.opcode == Opcode::compute &&
                                                        keeps_it(program_.descs[static_cast<size_t>(instr.desc)].op));
    for (size_t o = 0; o < instr.writes.size(); ++o) {
      // A result is written while the operands are still read: they must not overlap, but for one that it may replace.
      write(at, instr.writes[o], keeps ? reads[0] : symbol_of(fmt::format("{} {}", instr.label, o), reads));
    }
    const uint64_t replaceable = in_place_reads(program_, instr);
    const DeviceProgram& device = program_.devices[static_cast<size_t>(at.device)];
    for (size_t i = 0; i < reads.size(); ++i) {
      if (read(at, instr.reads[i]) == reads[i]) continue;
      if (range(at, instr.reads[i]) == range(at, instr.writes[0]) &&
          may_overwrite(device, instr, replaceable, device.root(instr.reads[i].buffer)))
        continue;
      for (const Operand& result : instr.writes) write(at, result, symbol_of("overwrote its operand", {}));
    }
  }
  void pass(const Instance& send, const Instance& recv) {
    write(recv, instr_of(program_, recv).writes[0], read(send, instr_of(program_, send).reads[0]));
  }

  const Program& program_;
  const Dependencies& deps_;
  std::vector<SymbolMemory> memory_;
};

// Empty if the Program computes the graph in three different orders of its instructions; else what went wrong.
inline std::string check_symbols(const Program& program, const KernelGraph& kernels) {
  const auto deps = dependencies(program);
  if (!deps.ok()) return deps.error().message;
  const std::vector<std::vector<Symbol>> expected = symbols_of_graph(kernels, program.micro_batches);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    SymbolicRun run(program, *deps);
    if (!run.run(seed)) return "it got stuck";
    const std::vector<std::vector<Symbol>> outputs = run.outputs();
    if (outputs.size() != expected.size()) return "another number of outputs";
    for (size_t o = 0; o < outputs.size(); ++o) {
      for (size_t m = 0; m < expected[o].size(); ++m) {
        if (outputs[o].size() != expected[o].size() || outputs[o][m] != expected[o][m]) {
          return fmt::format("output {} of micro-batch {} is wrong (order {})", o, m, seed);
        }
      }
    }
  }
  return {};
}

}  // namespace nlsplit
