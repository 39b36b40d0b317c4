#include "compile/collective_rounds.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/index.h"

namespace nlsplit::inline compiler {
namespace {

// Some of the members, which take part in a step of an algorithm.
using Members = std::vector<int>;
using Round = std::vector<Piece>;

int count_of(const Members& members) { return static_cast<int>(members.size()); }

struct Range {
  int64_t begin = 0, end = 0;
};
using Ranges = std::vector<Range>;
using RangesOf = std::function<Ranges(int)>;
using RangesOfBlock = std::function<Ranges(int begin, int end)>;  // of the members [begin, end)

void add(Round& round, int from, int to, const Ranges& ranges, bool adds) {
  for (const Range& range : ranges) {
    if (range.end > range.begin) round.push_back({from, to, range.begin, range.end, adds, range.begin});
  }
}

// The shares of a value, one behind the other.
class Shares {
 public:
  explicit Shares(const std::vector<int64_t>& sizes) : begins_{0} {
    for (const int64_t size : sizes) begins_.push_back(begins_.back() + size);
  }
  // Each begins at a multiple of `grain`.
  static Shares equal(int64_t elements, int count, int64_t grain) {
    Shares shares(std::vector<int64_t>{});
    for (int64_t k = 1; k < count; ++k) shares.begins_.push_back(k * elements / count / grain * grain);
    shares.begins_.push_back(elements);
    return shares;
  }
  int count() const { return static_cast<int>(begins_.size()) - 1; }
  Range all() const { return {0, begins_.back()}; }
  Range block(int begin, int end) const {
    return {begins_[at(std::min(begin, count()))], begins_[at(std::min(end, count()))]};
  }
  Range of(int k) const { return block(k, k + 1); }
  std::vector<Ranges> each() const {
    std::vector<Ranges> shares;
    for (int k = 0; k < count(); ++k) shares.push_back({of(k)});
    return shares;
  }

 private:
  std::vector<int64_t> begins_;
};

// ---- Parts of algorithms. owned[p]: what the p-th of the members shall have, or has.

void add_ring_sums(Rounds& rounds, const Members& members, const std::vector<Ranges>& owned) {
  const int n = count_of(members);
  for (int step = 0; step + 1 < n; ++step) {
    Round& round = rounds.emplace_back();
    for (int p = 0; p < n; ++p)
      add(round, members[at(p)], members[at((p + 1) % n)], owned[at((p + n - step - 1) % n)], true);
  }
}

void add_ring_copies(Rounds& rounds, const Members& members, const std::vector<Ranges>& owned) {
  const int n = count_of(members);
  for (int step = 0; step + 1 < n; ++step) {
    Round& round = rounds.emplace_back();
    for (int p = 0; p < n; ++p)
      add(round, members[at(p)], members[at((p + 1) % n)], owned[at((p + n - step) % n)], false);
  }
}

void add_direct(Rounds& rounds, const std::vector<Ranges>& owned, bool adds) {
  const int n = static_cast<int>(owned.size());
  Round& round = rounds.emplace_back();
  for (int p = 0; p < n; ++p) {
    for (int q = 0; q < n; ++q) {
      if (p != q) add(round, p, q, owned[at(adds ? q : p)], adds);
    }
  }
}

// Pairs 2^k apart; sums end at the first member. Or back from there.
void add_tree(Rounds& rounds, const Members& members, Range whole, bool back) {
  const int n = count_of(members);
  std::vector<int> distances;
  for (int distance = 1; distance < n; distance *= 2) distances.push_back(distance);
  if (back) std::ranges::reverse(distances);
  for (const int distance : distances) {
    Round& round = rounds.emplace_back();
    for (int p = 0; p + distance < n; p += 2 * distance) {
      const int from = members[at(back ? p : p + distance)], to = members[at(back ? p + distance : p)];
      add(round, from, to, {whole}, !back);
    }
  }
}

// Of a power of two of members, the first ones; held: what a block of them shall have, or has.
void add_halving_sums(Rounds& rounds, int power, const RangesOfBlock& held) {
  for (int distance = power / 2; distance >= 1; distance /= 2) {
    Round& round = rounds.emplace_back();
    for (int p = 0; p < power; ++p) {
      const int partner = p ^ distance, block = partner & ~(distance - 1);
      add(round, p, partner, held(block, block + distance), true);
    }
  }
}

void add_doubling_copies(Rounds& rounds, int power, const RangesOfBlock& held) {
  for (int distance = 1; distance < power; distance *= 2) {
    Round& round = rounds.emplace_back();
    for (int p = 0; p < power; ++p) {
      const int block = p & ~(distance - 1);
      add(round, p, p ^ distance, held(block, block + distance), false);
    }
  }
}

void add_halving_scatter(Rounds& rounds, int power, const RangesOfBlock& held) {
  for (int distance = power / 2; distance >= 1; distance /= 2) {
    Round& round = rounds.emplace_back();
    for (int p = 0; p < power; p += 2 * distance)
      add(round, p, p + distance, held(p + distance, p + 2 * distance), false);
  }
}

int power_in(int members) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(members))); }

// From the members behind the largest power of two to those that stand in for them, or back.
void add_stand_ins(Rounds& rounds, int members, bool back, bool adds, const RangesOf& ranges) {
  const int power = power_in(members);
  Round& round = rounds.emplace_back();
  for (int p = power; p < members; ++p) add(round, back ? p - power : p, back ? p : p - power, ranges(p), adds);
}

// ---- Algorithms

class Maker {
 public:
  Maker(const Collective& collective, std::span<const HostId> hosts, int64_t grain)
      : c_(collective),
        grain_(grain),
        n_(static_cast<int>(hosts.size())),
        whole_{0, value_elements(collective)},
        shares_(is_whole(collective.kind) ? Shares::equal(whole_.end, n_, grain) : Shares(collective.elements)) {
    all_.resize(hosts.size());
    std::iota(all_.begin(), all_.end(), 0);
    std::map<HostId, size_t> number;
    for (const int m : all_) {
      const auto [host, is_new] = number.try_emplace(hosts[at(m)], on_host_.size());
      if (is_new) {
        on_host_.emplace_back();
        firsts_.push_back(m);
      }
      on_host_[host->second].push_back(m);
    }
  }

  Rounds make() {
    switch (c_.kind) {
      case CollectiveKind::all_reduce:
        all_reduce();
        break;
      case CollectiveKind::reduce_scatter:
        reduce_scatter();
        break;
      case CollectiveKind::all_gather:
        all_gather();
        break;
      case CollectiveKind::all_to_all:
        all_to_all();
        break;
      case CollectiveKind::broadcast:
        broadcast();
        break;
    }
    std::erase_if(rounds_, [](const Round& round) { return round.empty(); });
    return std::move(rounds_);
  }

 private:
  RangesOf everything() const {
    return [this](int) { return Ranges{whole_}; };
  }
  // Of a value in equal parts for a power of two of members.
  static RangesOfBlock parts_of(const Shares& equal) {
    return [&equal](int begin, int end) { return Ranges{equal.block(begin, end)}; };
  }
  // Of the members' own shares, and of those they stand in for.
  RangesOfBlock shares_held() const {
    return [this, power = power_in(n_)](int begin, int end) {
      return Ranges{shares_.block(begin, end), shares_.block(begin + power, end + power)};
    };
  }
  // In a ring the sum of the k-th of n parts begins at member k, and ends at the one before it.
  std::vector<Ranges> parts_of_ring(int n) const {
    std::vector<Ranges> owned = Shares::equal(whole_.end, n, grain_).each();
    std::rotate(owned.begin(), owned.begin() + 1, owned.end());
    return owned;
  }
  std::vector<Ranges> shares_of_hosts() const {
    std::vector<Ranges> owned;
    for (const Members& members : on_host_) {
      Ranges& here = owned.emplace_back();
      for (const int m : members) {
        const Range share = shares_.of(m);
        if (!here.empty() && here.back().end == share.begin)
          here.back().end = share.end;
        else
          here.push_back(share);
      }
    }
    return owned;
  }
  // Of all hosts at once: their k-th rounds together.
  void add_host_trees(bool back) {
    Rounds together;
    for (const Members& members : on_host_) {
      Rounds tree;
      add_tree(tree, members, whole_, back);
      if (together.size() < tree.size()) together.resize(tree.size());
      for (size_t r = 0; r < tree.size(); ++r) together[r].insert(together[r].end(), tree[r].begin(), tree[r].end());
    }
    for (Round& round : together) rounds_.push_back(std::move(round));
  }
  // Between the first member of a host and the others: their shares.
  void add_shares_on_hosts(bool back) {
    Round& round = rounds_.emplace_back();
    for (const Members& members : on_host_) {
      for (const int m : members) {
        if (m != members[0]) add(round, back ? members[0] : m, back ? m : members[0], {shares_.of(m)}, false);
      }
    }
  }

  void all_reduce() {
    const int power = power_in(n_);
    switch (c_.algorithm) {
      case CollectiveAlgorithm::ring: {
        const std::vector<Ranges> owned = parts_of_ring(n_);
        add_ring_sums(rounds_, all_, owned);
        add_ring_copies(rounds_, all_, owned);
        break;
      }
      case CollectiveAlgorithm::halving: {
        const Shares equal = Shares::equal(whole_.end, power, grain_);
        add_stand_ins(rounds_, n_, false, true, everything());
        add_halving_sums(rounds_, power, parts_of(equal));
        add_doubling_copies(rounds_, power, parts_of(equal));
        add_stand_ins(rounds_, n_, true, false, everything());
        break;
      }
      case CollectiveAlgorithm::doubling:
        add_stand_ins(rounds_, n_, false, true, everything());
        for (int distance = 1; distance < power; distance *= 2) {
          Round& round = rounds_.emplace_back();
          for (int p = 0; p < power; ++p) add(round, p, p ^ distance, {whole_}, true);
        }
        add_stand_ins(rounds_, n_, true, false, everything());
        break;
      case CollectiveAlgorithm::direct:
        add_direct(rounds_, shares_.each(), true);
        add_direct(rounds_, shares_.each(), false);
        break;
      case CollectiveAlgorithm::tree:
        add_tree(rounds_, all_, whole_, false);
        add_tree(rounds_, all_, whole_, true);
        break;
      case CollectiveAlgorithm::two_level: {
        const std::vector<Ranges> owned = parts_of_ring(count_of(firsts_));
        add_host_trees(false);
        add_ring_sums(rounds_, firsts_, owned);
        add_ring_copies(rounds_, firsts_, owned);
        add_host_trees(true);
        break;
      }
    }
  }

  void reduce_scatter() {
    switch (c_.algorithm) {
      case CollectiveAlgorithm::ring:
        add_ring_sums(rounds_, all_, shares_.each());
        break;
      case CollectiveAlgorithm::halving:
        add_stand_ins(rounds_, n_, false, true, everything());
        add_halving_sums(rounds_, power_in(n_), shares_held());
        add_stand_ins(rounds_, n_, true, false, [this](int p) { return Ranges{shares_.of(p)}; });
        break;
      case CollectiveAlgorithm::direct:
        add_direct(rounds_, shares_.each(), true);
        break;
      case CollectiveAlgorithm::tree: {
        add_tree(rounds_, all_, whole_, false);
        Round& scatter = rounds_.emplace_back();
        for (int p = 1; p < n_; ++p) add(scatter, 0, p, {shares_.of(p)}, false);
        break;
      }
      case CollectiveAlgorithm::two_level:
        add_host_trees(false);
        add_ring_sums(rounds_, firsts_, shares_of_hosts());
        add_shares_on_hosts(true);
        break;
      case CollectiveAlgorithm::doubling:
        wrong();
    }
  }

  void all_gather() {
    switch (c_.algorithm) {
      case CollectiveAlgorithm::ring:
        add_ring_copies(rounds_, all_, shares_.each());
        break;
      case CollectiveAlgorithm::doubling:
        add_stand_ins(rounds_, n_, false, false, [this](int p) { return Ranges{shares_.of(p)}; });
        add_doubling_copies(rounds_, power_in(n_), shares_held());
        add_stand_ins(rounds_, n_, true, false, [this](int p) {
          return Ranges{{0, shares_.of(p).begin}, {shares_.of(p).end, whole_.end}};
        });
        break;
      case CollectiveAlgorithm::direct:
        add_direct(rounds_, shares_.each(), false);
        break;
      case CollectiveAlgorithm::two_level:
        add_shares_on_hosts(false);
        add_ring_copies(rounds_, firsts_, shares_of_hosts());
        add_host_trees(true);
        break;
      case CollectiveAlgorithm::halving:
      case CollectiveAlgorithm::tree:
        wrong();
    }
  }

  void all_to_all() {
    const bool at_once = c_.algorithm == CollectiveAlgorithm::direct;
    CHECK(at_once || c_.algorithm == CollectiveAlgorithm::ring, "an algorithm of another collective");
    for (int distance = 0; distance < n_; ++distance) {
      if (distance <= 1 || !at_once) rounds_.emplace_back();
      for (int p = 0; p < n_; ++p) {
        const int q = (p + distance) % n_;
        const Range share = shares_.of(q);
        const int64_t size = share.end - share.begin;
        if (size > 0) rounds_.back().push_back({p, q, share.begin, share.end, false, p * size});
      }
    }
  }

  void broadcast() {
    switch (c_.algorithm) {
      case CollectiveAlgorithm::ring: {
        Round& scatter = rounds_.emplace_back();
        for (int p = 1; p < n_; ++p) add(scatter, 0, p, {shares_.of(p)}, false);
        add_ring_copies(rounds_, all_, shares_.each());
        break;
      }
      case CollectiveAlgorithm::halving: {
        const Shares equal = Shares::equal(whole_.end, power_in(n_), grain_);
        add_halving_scatter(rounds_, power_in(n_), parts_of(equal));
        add_doubling_copies(rounds_, power_in(n_), parts_of(equal));
        add_stand_ins(rounds_, n_, true, false, everything());
        break;
      }
      case CollectiveAlgorithm::direct: {
        Round& round = rounds_.emplace_back();
        for (int p = 1; p < n_; ++p) add(round, 0, p, {whole_}, false);
        break;
      }
      case CollectiveAlgorithm::tree:
        add_tree(rounds_, all_, whole_, true);
        break;
      case CollectiveAlgorithm::two_level:
        add_tree(rounds_, firsts_, whole_, true);
        add_host_trees(true);
        break;
      case CollectiveAlgorithm::doubling:
        wrong();
    }
  }

  [[noreturn]] static void wrong() { CHECK(false, "an algorithm of another collective"); }

  const Collective& c_;
  int64_t grain_;
  int n_;
  Range whole_;
  Shares shares_;
  Members all_;
  std::vector<Members> on_host_;  // hosts in the order of their first members
  Members firsts_;
  Rounds rounds_;
};

}  // namespace

Rounds rounds_of(const Collective& collective, std::span<const HostId> hosts, int64_t grain) {
  return Maker(collective, hosts, grain).make();
}

std::vector<Rounds> rounds_of_members(const Rounds& rounds, size_t members) {
  std::vector<Rounds> all(members, Rounds(rounds.size()));
  for (size_t r = 0; r < rounds.size(); ++r) {
    for (const Piece& piece : rounds[r]) {
      all[at(piece.from)][r].push_back(piece);
      if (piece.to != piece.from) all[at(piece.to)][r].push_back(piece);
    }
  }
  return all;
}

std::vector<int64_t> received_by_members(const Rounds& rounds, size_t members) {
  std::vector<int64_t> most(members, 0), here(members, 0);
  for (const Round& round : rounds) {
    for (const Piece& piece : round) here[at(piece.to)] += piece.adds ? piece.count() : 0;
    for (size_t m = 0; m < members; ++m) most[m] = std::max(most[m], std::exchange(here[m], 0));
  }
  return most;
}

int64_t received_elements(const Rounds& rounds, int member) {
  int64_t most = 0;
  for (const Round& round : rounds) {
    int64_t count = 0;
    for (const Piece& piece : round) {
      if (piece.to == member && piece.adds) count += piece.count();
    }
    most = std::max(most, count);
  }
  return most;
}

}  // namespace nlsplit::inline compiler
