#include "compile/collectives.h"

#include <algorithm>
#include <map>
#include <set>
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

Instr converted(const Operand& from, const Operand& to) {
  Instr instr;
  instr.opcode = Opcode::compute;
  instr.reads = {from};
  instr.writes = {to};
  return instr;
}

struct Term {
  int member;
  Operand operand;
};

// Places for pieces, one behind the other, each aligned.
class Room {
 public:
  int64_t take(int64_t count) {
    constexpr int64_t aligned = arena_alignment / 2;  // elements of 2 B
    const int64_t place = next_;
    next_ += (count + aligned - 1) / aligned * aligned;
    return place;
  }
  int64_t taken() const { return next_; }

 private:
  int64_t next_ = 0;
};

// What a member sends in a round: several messages may carry the same range.
std::map<std::pair<int64_t, int64_t>, int64_t> outgoing_places(const std::vector<Piece>& round, int member,
                                                               Room& room) {
  std::map<std::pair<int64_t, int64_t>, int64_t> places;
  for (const Piece& piece : round) {
    if (piece.from != member || piece.to == member) continue;
    const auto [place, is_new] = places.try_emplace({piece.begin, piece.end});
    if (is_new) place->second = room.take(piece.count());
  }
  return places;
}

class RoundWriter {
 public:
  RoundWriter(const std::vector<Piece>& round, std::span<const int> group, int member, const CollectivePlaces& places,
              bool rounds_sums)
      : round_(round), group_(group), member_(member), places_(places), rounds_sums_(rounds_sums) {}

  RoundInstrs write() {
    if (places_.outgoing.valid()) {
      send_converted();
    } else {
      for (const Piece& piece : round_) {
        if (is_sent(piece)) send(piece, part(places_.value, piece.begin, piece.count()));
      }
    }
    for (const Piece& piece : round_) {
      if (piece.to == member_) take(piece);
    }
    for (auto& [range, terms] : sums_) add_up(part(places_.result, range.first, range.second - range.first), terms);
    return std::move(made_);
  }

 private:
  bool is_sent(const Piece& piece) const { return piece.from == member_ && piece.to != member_; }
  void send(const Piece& piece, const Operand& what) {
    made_.begin.push_back(transfer(Opcode::send, what, group_[at(piece.to)], places_.tag));
  }
  void send_converted() {
    Room room;
    const auto ranges = outgoing_places(round_, member_, room);
    for (const auto& [range, place] : ranges) {
      const int64_t count = range.second - range.first;
      made_.begin.push_back(
          converted(part(places_.value, range.first, count), {places_.outgoing, place, place + count}));
    }
    for (const Piece& piece : round_) {
      if (!is_sent(piece)) continue;
      const int64_t place = ranges.at({piece.begin, piece.end});
      send(piece, {places_.outgoing, place, place + piece.count()});
    }
    std::set<std::pair<int64_t, int64_t>> rounded;
    for (const Piece& piece : round_) {
      if (!is_sent(piece) || !piece.adds || !rounded.emplace(piece.begin, piece.end).second) continue;
      const int64_t place = ranges.at({piece.begin, piece.end});
      made_.begin.push_back(
          converted({places_.outgoing, place, place + piece.count()}, part(places_.value, piece.begin, piece.count())));
    }
  }

  void take(const Piece& piece) {
    const Operand put = part(places_.result, piece.at, piece.count());
    if (piece.from == member_) {
      Instr& instr = made_.begin.emplace_back();
      instr.opcode = Opcode::copy;
      instr.reads = {part(places_.value, piece.begin, piece.count())};
      instr.writes = {put};
      return;
    }
    Operand to = put;
    if (piece.adds) {
      to = {places_.received, next_, next_ + piece.count()};
      next_ += piece.count();
      sums_[{piece.at, piece.at + piece.count()}].push_back({piece.from, to});
    }
    Operand message = to;
    if (places_.incoming.valid()) {
      const int64_t place = incoming_.take(piece.count());
      message = {places_.incoming, place, place + piece.count()};
      made_.finish.push_back(converted(message, to));
      if (piece.adds) aside_[{piece.at, piece.at + piece.count()}] = message;
    }
    made_.begin.push_back(transfer(Opcode::recv, message, group_[at(piece.from)], places_.tag));
  }

  void add_up(const Operand& sum, std::vector<Term>& terms) {
    terms.push_back({member_, sum});
    std::ranges::sort(terms, {}, &Term::member);
    Instr& instr = made_.finish.emplace_back();
    instr.opcode = Opcode::reduce;
    for (const Term& term : terms) instr.reads.push_back(term.operand);
    instr.writes = {sum};
    if (!rounds_sums_ || !places_.incoming.valid()) return;
    const Operand& aside = aside_.at({sum.begin - places_.result.begin, sum.end - places_.result.begin});
    made_.finish.push_back(converted(sum, aside));
    made_.finish.push_back(converted(aside, sum));
  }

  const std::vector<Piece>& round_;
  std::span<const int> group_;
  int member_;
  const CollectivePlaces& places_;
  bool rounds_sums_;
  std::map<std::pair<int64_t, int64_t>, std::vector<Term>> sums_;  // by what is added to
  std::map<std::pair<int64_t, int64_t>, Operand> aside_;           // a message that is added there
  int64_t next_ = 0;                                               // of `received`
  Room incoming_;
  RoundInstrs made_;
};

}  // namespace

RoundInstrs instructions_of(const std::vector<Piece>& round, std::span<const int> group, int member,
                            const CollectivePlaces& places, bool sums_are_copied) {
  return RoundWriter(round, group, member, places, sums_are_copied).write();
}

bool sums_are_copied(const Rounds& rounds, size_t r) {
  const auto adds = [](const std::vector<Piece>& round) { return std::ranges::any_of(round, &Piece::adds); };
  const auto later = std::span(rounds).subspan(r + 1);
  return adds(rounds[r]) && !later.empty() && std::ranges::none_of(later, adds);
}

MessageRoom message_room(const Rounds& rounds, int member) {
  MessageRoom most;
  for (const std::vector<Piece>& round : rounds) {
    Room outgoing, incoming;
    (void)outgoing_places(round, member, outgoing);
    for (const Piece& piece : round) {
      if (piece.to == member && piece.from != member) incoming.take(piece.count());
    }
    most.outgoing = std::max(most.outgoing, outgoing.taken());
    most.incoming = std::max(most.incoming, incoming.taken());
  }
  return most;
}

}  // namespace nlsplit::inline compiler
