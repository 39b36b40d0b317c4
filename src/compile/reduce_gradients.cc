#include "compile/reduce_gradients.h"

#include <algorithm>

#include "base/index.h"

namespace nlsplit {

std::vector<Instr> all_reduce_ring(Segment& segment, const std::vector<int>& ring, int self, const Operand& values,
                                   int tag, const std::function<BufferId(int64_t)>& make_chunk) {
  const auto size = static_cast<int64_t>(ring.size());
  const int64_t place = std::ranges::find(ring, self) - ring.begin();
  const int64_t elements = values.end - values.begin;
  const auto chunk = [&](int64_t i) {
    const int64_t k = ((i % size) + size) % size;
    return Operand{values.buffer, values.begin + k * elements / size, values.begin + (k + 1) * elements / size};
  };
  const auto count = [](const Operand& operand) { return operand.end - operand.begin; };
  const int to = ring[static_cast<size_t>((place + 1) % size)];
  const int from = ring[static_cast<size_t>((place + size - 1) % size)];
  const int collective = static_cast<int>(segment.collectives.size());
  segment.collectives.push_back("all-reduce ring");
  const BufferId received = make_chunk((elements + size - 1) / size);
  std::vector<Instr> instrs;
  const auto add = [&](Opcode opcode, std::vector<Operand> reads, std::vector<Operand> writes, int peer) {
    Instr& instr = instrs.emplace_back();
    instr.opcode = opcode;
    instr.reads = std::move(reads);
    instr.writes = std::move(writes);
    instr.peer = peer;
    instr.tag = peer < 0 ? 0 : tag;
    instr.collective = collective;
  };
  for (int64_t step = 0; step + 1 < size; ++step) {
    const Operand out = chunk(place - step), sum = chunk(place - step - 1);
    if (count(out) > 0) add(Opcode::send, {out}, {}, to);
    if (count(sum) == 0) continue;
    const Operand here{received, 0, count(sum)};
    add(Opcode::recv, {}, {here}, from);
    add(Opcode::reduce, {sum, here}, {sum}, -1);
  }
  for (int64_t step = 0; step + 1 < size; ++step) {
    const Operand out = chunk(place + 1 - step), in = chunk(place - step);
    if (count(out) > 0) add(Opcode::send, {out}, {}, to);
    if (count(in) > 0) add(Opcode::recv, {}, {in}, from);
  }
  return instrs;
}

}  // namespace nlsplit
