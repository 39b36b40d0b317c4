// The sandbox's network namespaces, each by the name of the host or switch in it.
#pragma once

#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "base/result.h"

namespace nlsplit::inline emulation {

// "what: why", of errno.
Status system_error(const std::string& what);

// The calling thread goes to a new namespace, whose loopback interface is up, and which others may enter.
Status make_namespace(const std::string& name);
// The calling thread goes there.
Status enter_namespace(const std::string& name);
// What setns() and interfaces are given. Error: no such namespace.
Result<Descriptor> open_namespace(const std::string& name);

// Sets files below /proc/sys/net of the namespace we are in. Where they cannot be written they stay as they are.
class NetworkSettings {
 public:
  void set(const std::string& name, const std::string& value);
  void report() const;  // a line on stderr about those that stayed; none: nothing

 private:
  std::string left_;
};

// What the kernel has counted in the namespace we are in.
struct NetworkCounts {
  uint64_t bytes = 0, packets = 0;  // that left over an interface
  uint64_t dropped = 0;             // that did not
  uint64_t sent_again = 0;          // TCP segments, which TCP took for lost
};
void add_counts(const std::string& interface, NetworkCounts& counts);

}  // namespace nlsplit::inline emulation
