#include "compile/collectives.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/index.h"

namespace nlsplit::inline compiler {
namespace {

Operand part(const Operand& of, int64_t begin, int64_t count) {
  return {of.buffer, of.begin + begin, of.begin + begin + count};
}

Instr transfer(Opcode opcode, const Operand& what, int peer, int tag) {
  Instr instr;
  instr.opcode = opcode;
  (opcode == Opcode::send ? instr.reads : instr.writes).push_back(what);
  instr.peer = peer;
  instr.tag = tag;
  return instr;
}

struct Term {
  int member;
  Operand operand;
};

}  // namespace

std::vector<Instr> instructions_of(const Rounds& rounds, std::span<const int> group, int member,
                                   const CollectivePlaces& places) {
  std::vector<Instr> instrs;
  for (const std::vector<Piece>& round : rounds) {
    for (const Piece& piece : round) {
      if (piece.from != member || piece.to == member) continue;
      const Operand sent = part(places.value, piece.begin, piece.count());
      instrs.push_back(transfer(Opcode::send, sent, group[at(piece.to)], places.tag));
    }
    std::map<std::pair<int64_t, int64_t>, std::vector<Term>> sums;  // by what is added to
    int64_t next = 0;
    for (const Piece& piece : round) {
      if (piece.to != member) continue;
      const Operand put = part(places.result, piece.at, piece.count());
      if (piece.from == member) {
        Instr& instr = instrs.emplace_back();
        instr.opcode = Opcode::copy;
        instr.reads = {part(places.value, piece.begin, piece.count())};
        instr.writes = {put};
      } else if (!piece.adds) {
        instrs.push_back(transfer(Opcode::recv, put, group[at(piece.from)], places.tag));
      } else {
        const Operand here{places.received, next, next + piece.count()};
        next += piece.count();
        instrs.push_back(transfer(Opcode::recv, here, group[at(piece.from)], places.tag));
        sums[{piece.at, piece.at + piece.count()}].push_back({piece.from, here});
      }
    }
    for (auto& [range, terms] : sums) {
      const Operand sum = part(places.result, range.first, range.second - range.first);
      terms.push_back({member, sum});
      std::ranges::sort(terms, {}, &Term::member);
      Instr& instr = instrs.emplace_back();
      instr.opcode = Opcode::reduce;
      for (const Term& term : terms) instr.reads.push_back(term.operand);
      instr.writes = {sum};
    }
  }
  return instrs;
}

}  // namespace nlsplit::inline compiler
