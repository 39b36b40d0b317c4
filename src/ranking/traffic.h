// What a session that generates sends over each link: for a token, and for a prompt.
//
//   ASSIGN_OR_RETURN(const Traffic traffic, generation_traffic(scenario, compiled.session));
//   traffic.links[0].name;           // "a>sw"
//   traffic.links[0].token.bytes;    // 8208: a row of activations, and the choice of what runs next
#pragma once

#include <string>
#include <vector>

#include "program/session.h"
#include "scenario/scenario.h"

namespace nlsplit::inline ranking {

struct Carried {
  double bytes = 0;     // of the messages' contents, without headers of a transport
  double messages = 0;  // no whole number where one choice is of several tokens
};

struct LinkTraffic {
  std::string name;  // with the direction, as cost/cluster.h's name_of
  Carried token;     // one token of each sequence
  Carried prompt;    // the whole prompt of each sequence, the first token behind it included
};

struct Traffic {
  int64_t chunks = 1;              // executions that take the prompt
  std::vector<LinkTraffic> links;  // that carry something, in the cluster's order
};

// A message counts on every link of its way (find_path), so the sum over all links may be more than what is sent.
// session: as generation_session makes it of the scenario. Errors: those of in_sequence and of find_path.
Result<Traffic> generation_traffic(const Scenario& scenario, const Session& session);

}  // namespace nlsplit::inline ranking
