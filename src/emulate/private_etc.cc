#include "emulate/private_etc.h"

#include <fmt/format.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/file.h"

namespace nlsplit::inline emulation {
namespace {

namespace fs = std::filesystem;

Status bind(const std::string& from, const std::string& to) {
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    return io_error(fmt::format("cannot mount {} at {}: {}", from, to, std::strerror(errno)));
  return ok_status();
}

}  // namespace

std::string only_hosts_file(const std::string& nsswitch) {
  std::string text = "hosts: files\n";
  std::istringstream lines(nsswitch);
  for (std::string line; std::getline(lines, line);) {
    const size_t word = line.find_first_not_of(" \t");
    if (word == std::string::npos || line.compare(word, 6, "hosts:") != 0) text += line + "\n";
  }
  return text;
}

// The new /etc is a folder of links to the entries of the old one, which stays visible at another place. A file alone
// could be mounted over /etc/hosts only where there is one.
Status mount_private_etc(const std::string& folder, const std::string& hosts) {
  const fs::path outer = fs::path(folder) / "outer_etc", own = fs::path(folder) / "etc";
  std::error_code failure;
  fs::create_directories(outer, failure);
  fs::create_directories(own, failure);
  RETURN_IF_ERROR(bind("/etc", outer));
  for (const fs::directory_entry& entry : fs::directory_iterator(outer, failure)) {
    const fs::path name = entry.path().filename();
    if (name == "hosts" || name == "nsswitch.conf") continue;
    // A link of the machine's is copied: relative ones lead out of /etc.
    const fs::path target = entry.is_symlink() ? fs::read_symlink(entry.path(), failure) : entry.path();
    fs::create_symlink(target, own / name, failure);
    if (failure) break;
  }
  if (failure) return io_error(fmt::format("cannot make an /etc for the hosts: {}", failure.message()));
  const Result<std::string> nsswitch = read_file("/etc/nsswitch.conf");
  RETURN_IF_ERROR(write_file(own / "hosts", hosts));
  RETURN_IF_ERROR(write_file(own / "nsswitch.conf", only_hosts_file(nsswitch.ok() ? *nsswitch : "")));
  return bind(own, "/etc");
}

}  // namespace nlsplit::inline emulation
