#include "exec/heartbeat/neighbours.h"

#include <algorithm>
#include <set>

namespace nlsplit::inline exec {

std::vector<int> neighbours(int rank, int ranks) {
  std::set<int> found;
  if (ranks <= most_watching_all) {
    for (int other = 0; other < ranks; ++other) found.insert(other);
  } else {
    for (int distance = 1; distance <= ranks / 2; distance *= 2) {
      found.insert((rank + distance) % ranks);
      found.insert((rank - distance + ranks) % ranks);
    }
  }
  found.erase(rank);
  return {found.begin(), found.end()};
}

// All ranks see the same from where they are, so rank 0 stands for all.
int hops_between(int ranks) {
  std::vector<bool> reached(static_cast<size_t>(ranks), false);
  reached[0] = true;
  int hops = 0;
  for (std::vector<int> last = {0}, next; !last.empty(); last = std::move(next), next.clear()) {
    for (const int rank : last) {
      for (const int other : neighbours(rank, ranks)) {
        if (reached[static_cast<size_t>(other)]) continue;
        reached[static_cast<size_t>(other)] = true;
        next.push_back(other);
      }
    }
    if (!next.empty()) ++hops;
  }
  return std::max(hops, 1);
}

}  // namespace nlsplit::inline exec
