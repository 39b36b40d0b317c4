#include "exec/identity.h"

#include <fmt/format.h>

#include <string>

#include "exec/heartbeat/greeting.h"

namespace nlsplit::inline exec {

Status check_identity(const std::vector<Fact>& of_device, Transport& transport, const Waiting& waiting) {
  std::vector<Fact> mine = {floating_point_mode()};
  mine.insert(mine.end(), of_device.begin(), of_device.end());
  const std::string name = fmt::format("rank {} on host {}\n", transport.rank(), own_host());
  ASSIGN_OR_RETURN(const std::vector<std::string> all, gather(transport, name + to_text(mine), waiting));
  std::vector<RankFacts> ranks;
  for (const std::string& text : all) ranks.push_back({text.substr(0, text.find('\n')), facts_from(text)});
  return agree(transport, check_facts(ranks), waiting);
}

}  // namespace nlsplit::inline exec
