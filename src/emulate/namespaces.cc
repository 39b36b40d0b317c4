#include "emulate/namespaces.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/file.h"
#include "emulate/netlink.h"
#include "emulate/sandbox.h"

namespace nlsplit::inline emulation {
namespace {

std::string file_of(const std::string& name) { return fmt::format("{}/net/{}", sandbox_folder, name); }

}  // namespace

Status system_error(const std::string& what) { return io_error(fmt::format("{}: {}", what, std::strerror(errno))); }

Status make_namespace(const std::string& name) {
  if (::unshare(CLONE_NEWNET) != 0) return system_error("cannot make a network namespace");
  RETURN_IF_ERROR(raise_loopback());
  const std::string file = file_of(name);
  RETURN_IF_ERROR(write_file(file, ""));
  if (::mount("/proc/thread-self/ns/net", file.c_str(), nullptr, MS_BIND, nullptr) != 0)
    return system_error("cannot name a network namespace");
  return ok_status();
}

Result<Descriptor> open_namespace(const std::string& name) {
  Descriptor found(::open(file_of(name).c_str(), O_RDONLY | O_CLOEXEC));
  if (found.get() < 0) return system_error(fmt::format("cannot find the network of '{}'", name)).error();
  return found;
}

Status enter_namespace(const std::string& name) {
  ASSIGN_OR_RETURN(const Descriptor there, open_namespace(name));
  if (::setns(there.get(), CLONE_NEWNET) != 0)
    return system_error(fmt::format("cannot enter the network of '{}'", name));
  return ok_status();
}

void NetworkSettings::set(const std::string& name, const std::string& value) {
  const Descriptor file(::open(("/proc/sys/net/" + name).c_str(), O_WRONLY | O_CLOEXEC));
  const bool done =
      file.get() >= 0 && ::write(file.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size());
  if (!done && left_.find(name) == std::string::npos) left_ += " " + name;
}

void NetworkSettings::report() const {
  if (left_.empty()) return;
  std::fprintf(stderr, "emulation: /proc/sys cannot be written here, so TCP may be slow to fill the links:%s\n",
               left_.c_str());
}

void add_counts(const std::string& interface, NetworkCounts& counts) {
  std::ifstream interfaces("/proc/thread-self/net/dev");
  for (std::string line; std::getline(interfaces, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name != interface + ":") continue;
    std::array<uint64_t, 12> numbers{};  // eight of what came in; then bytes, packets, errors, drops
    for (uint64_t& number : numbers) words >> number;
    counts.bytes += numbers[8];
    counts.packets += numbers[9];
    counts.dropped += numbers[11];
  }
  std::ifstream protocols("/proc/thread-self/net/snmp");
  std::vector<std::string> names;
  for (std::string line; std::getline(protocols, line);) {
    if (!line.starts_with("Tcp:")) continue;
    std::istringstream words(line);
    std::vector<std::string> values;
    for (std::string word; words >> word;) values.push_back(word);
    if (names.empty()) {
      names = values;
      continue;
    }
    for (size_t i = 0; i < std::min(names.size(), values.size()); ++i) {
      if (names[i] == "RetransSegs") counts.sent_again += std::strtoull(values[i].c_str(), nullptr, 10);
    }
  }
}

}  // namespace nlsplit::inline emulation
