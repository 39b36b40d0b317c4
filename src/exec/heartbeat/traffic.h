// Bytes that this process' TCP connections have carried: the only sign that a long message over a slow link moves. MPI
// reports only complete messages.
#pragma once

#include <cstdint>
#include <vector>

namespace nlsplit::inline exec {

// Bytes received and bytes acknowledged by the other sides, of all connections that are open now but those in `except`
// (descriptors). Another value than before: something moved, or a connection came or went.
uint64_t tcp_traffic(const std::vector<int>& except);

}  // namespace nlsplit::inline exec
