// Users' SimGrid platforms (XML): their hosts, and the links and routes between them.
//
//   ASSIGN_OR_RETURN(Scenario scenario, read_scenario(path, {.platforms = simgrid_platforms()}));
//
// Only the network is taken: what lies between two hosts, each link's bandwidth, latency and sharing policy (SHARED,
// SPLITDUPLEX, FATPIPE). A message takes latency + bytes / bandwidth, as everywhere here, whatever network model the
// file's <config> names.
#pragma once

#include "cost/platform.h"

namespace nlsplit::inline sim {

// Reads in a child process: SimGrid aborts or crashes on many mistakes, and one process can read one platform. Errors
// say what it said last, or between which hosts it found no route; also: a bandwidth, latency or speed that cannot be,
// links and files whose meaning would be lost (WIFI, availability traces, Vivaldi coordinates), too many hosts. The
// caller must have no threads.
PlatformReader simgrid_platforms();

}  // namespace nlsplit::inline sim
