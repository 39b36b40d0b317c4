// Network profiles: what is read is written and read again alike, and fits a cluster of its hosts.
#include <cstdint>

#include "base/file.h"
#include "cost/network_profile.h"
#include "fuzz/files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nlsplit;
  using namespace nlsplit::fuzz;
  static const Folder folder("network");
  const auto profile = read_network_profile(folder.write("n.json", text_of(data, size)));
  if (!accepted(profile)) return 0;
  const auto written = [](const NetworkProfile& what) {
    expect(write_network_profile(folder.path("again.json"), what).ok(), "a network profile can be written");
    return *read_file(folder.path("again.json"));
  };
  const std::string text = written(*profile);
  const auto again = read_network_profile(folder.path("again.json"));
  expect(again.ok(), "what is written is read: " + (again.ok() ? "" : again.error().to_string()));
  expect(written(*again) == text, "and is written alike");
  Cluster cluster;
  for (const NamedRoute& way : profile->routes) {
    if (!cluster.find_host(way.from).valid()) cluster.hosts.push_back({way.from, false});
  }
  apply(*profile, cluster);
  return 0;
}
