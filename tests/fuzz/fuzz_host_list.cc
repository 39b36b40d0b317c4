// Hostfiles and Slurm's node lists: what is read is bounded, and its names are names of hosts.
#include <cstdint>
#include <set>
#include <string>

#include "base/host_list.h"
#include "fuzz/expect.h"
#include "fuzz/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  const std::string_view text = text_of(data, size);
  if (const auto hosts = parse_hostfile(text, "hosts"); accepted(hosts)) {
    expect(!hosts->empty() && hosts->size() <= most_listed_hosts, "a hostfile has a bounded number of hosts");
    std::string again;
    for (const ListedHost& host : *hosts)
      again += host.name + (host.cores > 0 ? " slots=" + std::to_string(host.cores) : "") + "\n";
    const auto read = parse_hostfile(again, "again");
    expect(read.ok() && *read == *hosts, "a hostfile says the same when it is written plainly");
  }
  if (const auto nodes = parse_slurm_nodes(text, "nodes"); accepted(nodes)) {
    expect(!nodes->empty() && nodes->size() <= most_listed_hosts, "a node list is bounded");
    std::string list;
    std::set<std::string> distinct;
    for (const std::string& node : *nodes) {
      list += (list.empty() ? "" : ",") + node;
      distinct.insert(node);
    }
    expect(distinct.size() == nodes->size(), "each node once");
    const auto plain = parse_hosts(list, "plain");
    expect(plain.ok() && plain->size() == nodes->size(), "nodes are names of hosts");
  }
  if (const auto counts = parse_slurm_counts(text, "counts"); accepted(counts))
    expect(counts->size() <= most_listed_hosts, "counts are bounded");
  return 0;
}
