// Certificates: a folder of credentials (credentials.h) for the machines of one owner.
#pragma once

#include <string>

#include "base/result.h"

namespace nlsplit::inline exec {

// Makes ca.crt, node.crt, node.key and secret, valid for so many days from now. The authority's own key is thrown away:
// another folder is another authority. Replaces a folder as a whole. Errors: it cannot be written; no random numbers.
Status make_credentials(const std::string& folder, int days);

}  // namespace nlsplit::inline exec
