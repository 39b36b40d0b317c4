// Collectives: what their messages add up to, how long they take, and which is chosen.
#include "compile/collectives.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>

#include "base/index.h"
#include "compile/collective_costs.h"
#include "compile/sum_tree.h"
#include "testing/star.h"

namespace nlsplit {
namespace {

using enum CollectiveAlgorithm;

// Two members on each host, or one.
std::vector<HostId> hosts_of(int members, int on_host) {
  std::vector<HostId> hosts;
  for (int m = 0; m < members; ++m) hosts.push_back(HostId(static_cast<size_t>(m / on_host)));
  return hosts;
}

Collective collective_of(CollectiveKind kind, CollectiveAlgorithm algorithm, int members, std::vector<int64_t> sizes) {
  Collective collective{kind, algorithm, std::vector<int>(at(members)), std::move(sizes)};
  std::iota(collective.group.begin(), collective.group.end(), 0);
  return collective;
}

Rounds all_reduce(CollectiveAlgorithm algorithm, const std::vector<HostId>& hosts, int64_t elements) {
  const int members = static_cast<int>(hosts.size());
  return rounds_of(collective_of(CollectiveKind::all_reduce, algorithm, members, {elements}), hosts);
}

// The rounds carried out on texts: "(0+1)" is the sum of the values of members 0 and 1. A sum's members stand in their
// order, as instructions_of writes them.
std::vector<std::vector<std::string>> carried_out(const Rounds& rounds, int members, int64_t elements) {
  std::vector<std::vector<std::string>> values;
  for (int m = 0; m < members; ++m) values.emplace_back(at(static_cast<int>(elements)), fmt::format("{}", m));
  for (const std::vector<Piece>& round : rounds) {
    const auto before = values;
    for (int m = 0; m < members; ++m) {
      for (int64_t e = 0; e < elements; ++e) {
        const auto element = static_cast<size_t>(e);
        std::map<int, std::string> terms{{m, before[at(m)][element]}};
        for (const Piece& piece : round) {
          if (piece.to != m || e < piece.begin || e >= piece.end) continue;
          if (!piece.adds) terms.clear();
          terms[piece.from] = before[at(piece.from)][element];
        }
        std::string sum;
        for (const auto& [from, term] : terms) sum += (sum.empty() ? "" : "+") + term;
        values[at(m)][element] = terms.size() > 1 ? "(" + sum + ")" : sum;
      }
    }
  }
  return values;
}

TEST(Collectives, EveryMemberHasTheSumOfAllWithTheSameBits) {
  for (const CollectiveAlgorithm algorithm : algorithms_of(CollectiveKind::all_reduce)) {
    for (int members = 2; members <= 9; ++members) {
      for (const int on_host : {1, 2, 3}) {
        for (const int64_t elements : {1, 5, 24}) {
          const Rounds rounds = all_reduce(algorithm, hosts_of(members, on_host), elements);
          const auto values = carried_out(rounds, members, elements);
          for (int64_t e = 0; e < elements; ++e) {
            const std::string& sum = values[0][static_cast<size_t>(e)];
            for (int m = 0; m < members; ++m) {
              ASSERT_EQ(values[at(m)][static_cast<size_t>(e)], sum) << name_of(algorithm) << " of " << members;
              ASSERT_EQ(std::ranges::count(sum, static_cast<char>('0' + m)), 1) << name_of(algorithm) << ": " << sum;
            }
          }
        }
      }
    }
  }
}

TEST(Collectives, SumsAreInTheOrderThatTheHeaderSays) {
  const auto sum = [](CollectiveAlgorithm algorithm, int members, int on_host = 1) {
    return carried_out(all_reduce(algorithm, hosts_of(members, on_host), members), members, members)[0];
  };
  EXPECT_EQ(sum(direct, 4), std::vector<std::string>(4, "(0+1+2+3)"));
  EXPECT_EQ(sum(doubling, 4), std::vector<std::string>(4, "((0+1)+(2+3))"));
  EXPECT_EQ(sum(halving, 4), std::vector<std::string>(4, "((0+2)+(1+3))"));
  EXPECT_EQ(sum(doubling, 3), std::vector<std::string>(3, "((0+2)+1)"));
  EXPECT_EQ(sum(tree, 4), std::vector<std::string>(4, "((0+1)+(2+3))"));
  EXPECT_EQ(sum(ring, 3), (std::vector<std::string>{"((0+1)+2)", "(0+(1+2))", "((0+2)+1)"}));
  EXPECT_EQ(sum(two_level, 4, 2), std::vector<std::string>(4, "((0+1)+(2+3))"));
}

// What an algorithm says of its sums is what its messages make, member by member, element by element.
TEST(Collectives, SumTreesAreWhatIsCarriedOut) {
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::reduce_scatter}) {
    for (const CollectiveAlgorithm algorithm : algorithms_of(kind)) {
      for (int members = 2; members <= 9; ++members) {
        for (const int on_host : {1, 2, 3}) {
          const std::vector<HostId> hosts = hosts_of(members, on_host);
          std::vector<int64_t> sizes{11};  // of shares: 0, 3, 2, 1, 0, …
          if (!is_whole(kind)) {
            for (int m = 0; m < members; ++m) sizes.push_back((members - m) % 4);
            sizes.erase(sizes.begin());
          }
          const Collective collective = collective_of(kind, algorithm, members, sizes);
          const int64_t elements = value_elements(collective);
          const auto values = carried_out(rounds_of(collective, hosts), members, elements);
          int64_t element = 0;
          for (int m = 0; m < members; ++m) {
            const int64_t end = is_whole(kind) ? elements : element + sizes[at(m)];
            for (int64_t e = is_whole(kind) ? 0 : element; e < end; ++e) {
              EXPECT_EQ(to_string(sum_tree(collective, hosts, e)), values[at(m)][static_cast<size_t>(e)])
                  << name_of(kind) << " " << name_of(algorithm) << " of " << members << ", element " << e;
            }
            element = end;
          }
        }
      }
    }
  }
}

// Messages and bytes as the papers count them.
TEST(Collectives, MessagesAndElements) {
  struct Row {
    CollectiveAlgorithm algorithm;
    size_t rounds;
    int64_t sent;  // elements by member 0
  };
  constexpr int64_t elements = 64;
  for (const Row& row : {Row{ring, 14, 14 * elements / 8},
                         {halving, 6, 2 * (elements - elements / 8)},
                         {doubling, 3, 3 * elements},
                         {direct, 2, 2 * 7 * elements / 8},
                         {tree, 6, 3 * elements}}) {
    const Rounds rounds = all_reduce(row.algorithm, hosts_of(8, 1), elements);
    int64_t sent = 0;
    for (const auto& round : rounds) {
      for (const Piece& piece : round) sent += piece.from == 0 ? piece.end - piece.begin : 0;
    }
    EXPECT_EQ(rounds.size(), row.rounds) << name_of(row.algorithm);
    EXPECT_EQ(sent, row.sent) << name_of(row.algorithm);
  }
}

TEST(Collectives, MessagesOfTheOthers) {
  struct Row {
    CollectiveKind kind;
    CollectiveAlgorithm algorithm;
    size_t rounds;
    int64_t sent;  // elements by all members
  };
  constexpr int64_t share = 8, members = 8, all = share * members;
  for (const Row& row : {Row{CollectiveKind::reduce_scatter, ring, 7, 7 * all},
                         {CollectiveKind::reduce_scatter, halving, 3, 7 * all},
                         {CollectiveKind::reduce_scatter, direct, 1, 7 * all},
                         {CollectiveKind::all_gather, ring, 7, 7 * all},
                         {CollectiveKind::all_gather, doubling, 3, 7 * all},
                         {CollectiveKind::all_gather, direct, 1, 7 * all},
                         {CollectiveKind::all_to_all, ring, 7, 7 * all},
                         {CollectiveKind::all_to_all, direct, 1, 7 * all},
                         {CollectiveKind::broadcast, tree, 3, 7 * all},
                         {CollectiveKind::broadcast, direct, 1, 7 * all},
                         {CollectiveKind::broadcast, ring, 8, 7 * share + 7 * all},
                         {CollectiveKind::broadcast, halving, 6, 3 * all / 2 + 7 * all}}) {
    std::vector<int64_t> sizes(members, share);
    if (is_whole(row.kind)) sizes = {all};
    const Rounds rounds = rounds_of(collective_of(row.kind, row.algorithm, members, sizes), hosts_of(members, 1));
    int64_t sent = 0;
    size_t with_messages = 0;
    for (const auto& round : rounds) {
      int64_t count = 0;
      for (const Piece& piece : round) count += piece.from == piece.to ? 0 : piece.count();
      with_messages += count > 0 ? 1 : 0;
      sent += count;
    }
    EXPECT_EQ(with_messages, row.rounds) << name_of(row.kind) << " " << name_of(row.algorithm);
    EXPECT_EQ(sent, row.sent) << name_of(row.kind) << " " << name_of(row.algorithm);
  }
}

TEST(Collectives, InstructionsOfOneMember) {
  const Rounds rounds = all_reduce(direct, hosts_of(3, 1), 6);
  const std::vector<int> group = {5, 6, 7};
  const Operand value{BufferId(0), 10, 16};
  std::vector<Instr> instrs;
  for (const std::vector<Piece>& round : rounds) {
    const RoundInstrs made = instructions_of(round, group, 1, {value, value, BufferId(1), 9});
    instrs.insert(instrs.end(), made.begin.begin(), made.begin.end());
    instrs.insert(instrs.end(), made.finish.begin(), made.finish.end());
  }
  ASSERT_EQ(instrs.size(), 9u);
  EXPECT_EQ(received_elements(rounds, 1), 4);
  EXPECT_EQ(instrs[0].peer, 5);
  EXPECT_EQ(instrs[0].reads[0], (Operand{BufferId(0), 10, 12}));
  EXPECT_EQ(instrs[1].peer, 7);
  const Instr& sum = instrs[4];
  EXPECT_EQ(sum.opcode, Opcode::reduce);
  EXPECT_EQ(sum.reads, (std::vector<Operand>{{BufferId(1), 0, 2}, {BufferId(0), 12, 14}, {BufferId(1), 2, 4}}));
  EXPECT_EQ(sum.writes, (std::vector<Operand>{{BufferId(0), 12, 14}}));
}

// Three members, each with 96 elements in shares of 32.
TEST(Collectives, ConvertedMessagesRoundWhatTheyLeaveBehind) {
  Collective collective = collective_of(CollectiveKind::all_reduce, direct, 3, {96});
  const Rounds rounds = rounds_of(collective, hosts_of(3, 1), converted_grain);
  const MessageRoom room = message_room(rounds, 1);
  EXPECT_EQ(room.outgoing, 64);
  EXPECT_EQ(room.incoming, 64);
  const Operand value{BufferId(0), 0, 96};
  const CollectivePlaces places{value, value, BufferId(1), 9, BufferId(2), BufferId(3)};
  const std::vector<int> group = {5, 6, 7};
  const RoundInstrs sums = instructions_of(rounds[0], group, 1, places, sums_are_copied(rounds, 0));
  const auto expect = [](const Instr& instr, Opcode opcode, const Operand& read, const Operand& written) {
    EXPECT_EQ(instr.opcode, opcode);
    if (opcode != Opcode::recv) {
      EXPECT_EQ(instr.reads[0], read);
    }
    if (opcode != Opcode::send) {
      EXPECT_EQ(instr.writes[0], written);
    }
  };
  ASSERT_EQ(sums.begin.size(), 8u);
  expect(sums.begin[0], Opcode::compute, {BufferId(0), 0, 32}, {BufferId(2), 0, 32});
  expect(sums.begin[1], Opcode::compute, {BufferId(0), 64, 96}, {BufferId(2), 32, 64});
  expect(sums.begin[2], Opcode::send, {BufferId(2), 0, 32}, {});
  expect(sums.begin[3], Opcode::send, {BufferId(2), 32, 64}, {});
  expect(sums.begin[4], Opcode::compute, {BufferId(2), 0, 32}, {BufferId(0), 0, 32});
  expect(sums.begin[5], Opcode::compute, {BufferId(2), 32, 64}, {BufferId(0), 64, 96});
  expect(sums.begin[6], Opcode::recv, {}, {BufferId(3), 0, 32});
  expect(sums.begin[7], Opcode::recv, {}, {BufferId(3), 32, 64});
  ASSERT_EQ(sums.finish.size(), 5u);
  expect(sums.finish[0], Opcode::compute, {BufferId(3), 0, 32}, {BufferId(1), 0, 32});
  expect(sums.finish[1], Opcode::compute, {BufferId(3), 32, 64}, {BufferId(1), 32, 64});
  EXPECT_EQ(sums.finish[2].opcode, Opcode::reduce);
  expect(sums.finish[3], Opcode::compute, {BufferId(0), 32, 64}, {BufferId(3), 32, 64});
  expect(sums.finish[4], Opcode::compute, {BufferId(3), 32, 64}, {BufferId(0), 32, 64});
  const RoundInstrs copies = instructions_of(rounds[1], group, 1, places);  // one conversion for both messages
  ASSERT_EQ(copies.begin.size(), 5u);
  expect(copies.begin[0], Opcode::compute, {BufferId(0), 32, 64}, {BufferId(2), 0, 32});
  ASSERT_EQ(copies.finish.size(), 2u);
  expect(copies.finish[0], Opcode::compute, {BufferId(3), 0, 32}, {BufferId(0), 0, 32});
}

TEST(Collectives, SharesBeginAtMultiplesOfTheGrain) {
  for (const CollectiveAlgorithm algorithm : algorithms_of(CollectiveKind::all_reduce)) {
    for (int members = 2; members <= 9; ++members) {
      const Collective collective = collective_of(CollectiveKind::all_reduce, algorithm, members, {208});
      const Rounds rounds = rounds_of(collective, hosts_of(members, 2), converted_grain);
      for (const std::vector<Piece>& round : rounds) {
        for (const Piece& piece : round) {
          EXPECT_EQ(piece.begin % converted_grain, 0) << name_of(algorithm) << " of " << members;
          EXPECT_EQ(piece.end % converted_grain, 0) << name_of(algorithm) << " of " << members;
        }
      }
      const auto values = carried_out(rounds, members, 208);
      for (int m = 1; m < members; ++m) EXPECT_EQ(values[at(m)], values[0]) << name_of(algorithm);
    }
  }
}

// A star of hosts: every link has the bandwidth (B/s) and latency (s), from a host to the switch.
Cluster star_of(int hosts, double bandwidth, double latency) {
  Cluster cluster = star(static_cast<size_t>(hosts));
  for (Link& link : cluster.links) {
    link.bandwidth = bytes_per_second(bandwidth);
    link.latency = seconds(latency);
  }
  return cluster;
}

TEST(Collectives, TakeWhatMessagesAndLinksTake) {
  const Cluster cluster = star_of(4, 1e6, 1e-3);
  const std::vector<HostId> hosts = hosts_of(4, 1);
  const auto seconds = [&](CollectiveAlgorithm algorithm) {
    return seconds_of(all_reduce(algorithm, hosts, 1000), {hosts, cluster}).value();
  };
  constexpr double message = 2e-3, all = 4000 / 1e6;  // over two links
  EXPECT_NEAR(seconds(ring), 6 * (message + all / 4), 1e-9);
  EXPECT_NEAR(seconds(doubling), 2 * (message + all), 1e-9);
  EXPECT_NEAR(seconds(halving), 2 * (message + all / 2) + 2 * (message + all / 4), 1e-9);
  EXPECT_NEAR(seconds(direct), 2 * (message + 3 * all / 4), 1e-9);  // three messages share a link
  CollectiveCosts slow_sums{hosts, cluster};
  slow_sums.sum = [](int member, size_t operands, int64_t elements) {
    return member == 3 ? 1.0 * static_cast<double>(operands) * static_cast<double>(elements) : 0.0;
  };
  EXPECT_NEAR(seconds_of(all_reduce(ring, hosts, 1000), slow_sums).value(), seconds(ring) + 3 * 2 * 250, 1e-9);
  EXPECT_NEAR(seconds_of(all_reduce(direct, hosts, 1000), slow_sums).value(), seconds(direct) + 4 * 250, 1e-9);
}

TEST(Collectives, TheChoiceFollowsSizeAndNetwork) {
  const auto chosen = [](const Cluster& cluster, int members, int64_t elements, int on_host = 1) {
    const std::vector<HostId> hosts = hosts_of(members, on_host);
    return choose_algorithm(collective_of(CollectiveKind::all_reduce, ring, members, {elements}), {hosts, cluster})
        .value();
  };
  const Cluster slow_to_answer = star_of(8, 1e9, 1e-2), quick = star_of(8, 1e6, 1e-6);
  EXPECT_EQ(chosen(slow_to_answer, 8, 100), direct);  // two rounds
  EXPECT_EQ(chosen(quick, 8, 1'000'000), ring);       // as few bytes as halving, and the least memory
  const std::vector<HostId> eight = hosts_of(8, 1);
  CollectiveCosts pairs_only{eight, slow_to_answer};
  pairs_only.sum = [](int, size_t operands, int64_t) {
    return operands > 2 ? std::numeric_limits<double>::infinity() : 0.0;
  };
  const Collective small = collective_of(CollectiveKind::all_reduce, ring, 8, {100});
  EXPECT_EQ(choose_algorithm(small, pairs_only).value(), doubling);
  EXPECT_EQ(choose_algorithm(small, pairs_only, true).value(), direct) << "in the members' order";
  pairs_only.sum = [](int, size_t, int64_t) { return std::numeric_limits<double>::infinity(); };
  EXPECT_EQ(choose_algorithm(small, pairs_only).value(), ring) << "nothing is known";
  Cluster apart = star(2);
  apart.links.clear();
  const std::vector<HostId> hosts = hosts_of(2, 1);
  const Collective two = collective_of(CollectiveKind::all_reduce, ring, 2, {10});
  EXPECT_FALSE(choose_algorithm(two, {hosts, apart}).ok());
}

}  // namespace
}  // namespace nlsplit
