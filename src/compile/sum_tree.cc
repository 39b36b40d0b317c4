#include "compile/sum_tree.h"

#include <fmt/format.h>

#include <bit>
#include <map>
#include <utility>

#include "base/index.h"

namespace nlsplit::inline compiler {
namespace {

// A sum, and the member that makes it.
struct Made {
  SumTree sum;
  int by = 0;
};

Made leaf(int member) { return {{member, {}}, member}; }

Made pair(Made a, Made b, int by) {
  if (a.by > b.by) std::swap(a, b);
  return {{-1, {std::move(a.sum), std::move(b.sum)}}, by};
}

// Of the leaves [begin, begin + count), count a power of two or cut off at their end.
Made nearest_first(const std::vector<Made>& leaves, size_t begin, size_t count) {
  if (count == 1) return leaves[begin];
  const size_t half = count / 2;
  Made first = nearest_first(leaves, begin, half);
  if (begin + half >= leaves.size()) return first;
  const int by = first.by;
  return pair(std::move(first), nearest_first(leaves, begin + half, half), by);
}

Made nearest_first(const std::vector<Made>& leaves) { return nearest_first(leaves, 0, std::bit_ceil(leaves.size())); }

// Of the leaves first, first + stride, …
Made nearest_last(const std::vector<Made>& leaves, size_t first, size_t stride) {
  if (stride == leaves.size()) return leaves[first];
  Made low = nearest_last(leaves, first, 2 * stride);
  const int by = low.by;
  return pair(std::move(low), nearest_last(leaves, first + stride, 2 * stride), by);
}

// From the first-th leaf on.
Made around(const std::vector<Made>& leaves, size_t first) {
  Made sum = leaves[first];
  for (size_t i = 1; i < leaves.size(); ++i) {
    const Made& next = leaves[(first + i) % leaves.size()];
    sum = pair(std::move(sum), next, next.by);
  }
  return sum;
}

std::vector<Made> members(int count) {
  std::vector<Made> all;
  for (int m = 0; m < count; ++m) all.push_back(leaf(m));
  return all;
}

// A power of two: those behind it are added to who stands in for them.
std::vector<Made> stood_in(int count) {
  std::vector<Made> all = members(count);
  const size_t power = std::bit_floor(all.size());
  for (size_t m = power; m < all.size(); ++m)
    all[m - power] = pair(all[m - power], all[m], static_cast<int>(m - power));
  all.resize(power);
  return all;
}

std::vector<Made> of_hosts(std::span<const HostId> hosts) {
  std::map<HostId, size_t> number;
  std::vector<std::vector<Made>> on_host;
  for (size_t m = 0; m < hosts.size(); ++m) {
    const auto [host, is_new] = number.try_emplace(hosts[m], on_host.size());
    if (is_new) on_host.emplace_back();
    on_host[host->second].push_back(leaf(static_cast<int>(m)));
  }
  std::vector<Made> sums;
  for (const std::vector<Made>& leaves : on_host) sums.push_back(nearest_first(leaves));
  return sums;
}

// Which of `count` equal parts of the value an element is in.
size_t part_of(int64_t element, int64_t elements, size_t count) {
  const auto n = static_cast<int64_t>(count);
  int64_t k = 0;
  while ((k + 1) * elements / n <= element) ++k;
  return static_cast<size_t>(k);
}

// The member whose share an element is in.
size_t owner_of(int64_t element, const std::vector<int64_t>& shares) {
  size_t owner = 0;
  for (int64_t end = shares[0]; end <= element; end += shares[owner]) ++owner;
  return owner;
}

}  // namespace

std::string to_string(const SumTree& tree) {
  if (tree.member >= 0) return fmt::format("{}", tree.member);
  std::string text;
  for (const SumTree& term : tree.terms) text += (text.empty() ? "" : "+") + to_string(term);
  return "(" + text + ")";
}

SumTree sum_tree(const Collective& collective, std::span<const HostId> hosts, int64_t element) {
  CHECK(adds_up(collective.kind), "nothing is added");
  CHECK(element >= 0 && element < value_elements(collective), "an element of the value");
  const int n = static_cast<int>(hosts.size());
  const bool all = collective.kind == CollectiveKind::all_reduce;
  switch (collective.algorithm) {
    case CollectiveAlgorithm::ring:
      return around(members(n), all ? part_of(element, collective.elements[0], hosts.size())
                                    : (owner_of(element, collective.elements) + 1) % hosts.size())
          .sum;
    case CollectiveAlgorithm::halving:
      return nearest_last(stood_in(n), 0, 1).sum;
    case CollectiveAlgorithm::doubling:
      return nearest_first(stood_in(n)).sum;
    case CollectiveAlgorithm::direct: {
      SumTree sum;
      for (int m = 0; m < n; ++m) sum.terms.push_back({m, {}});
      return sum;
    }
    case CollectiveAlgorithm::tree:
      return nearest_first(members(n)).sum;
    case CollectiveAlgorithm::two_level: {
      const std::vector<Made> sums = of_hosts(hosts);
      if (all) return around(sums, part_of(element, collective.elements[0], sums.size())).sum;
      const HostId here = hosts[owner_of(element, collective.elements)];
      size_t number = 0;
      while (hosts[at(sums[number].by)] != here) ++number;
      return around(sums, (number + 1) % sums.size()).sum;
    }
  }
  CHECK(false, "unknown algorithm");
}

}  // namespace nlsplit::inline compiler
