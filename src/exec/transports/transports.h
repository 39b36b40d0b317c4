// All transports. To add one: a file here with its class, and a row in transports.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "exec/transport_kind.h"

namespace nlsplit::inline exec {

std::span<const TransportKind> all_transports();             // the first is the default
std::string about_transports();                              // for --help
const TransportKind* find_transport(std::string_view name);  // nullptr: there is none of this name

}  // namespace nlsplit::inline exec
