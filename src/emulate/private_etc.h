// An /etc of the sandbox's own: the machine's, but for the names of hosts.
//
//   RETURN_IF_ERROR(mount_private_etc("/dev/shm/nlsplit", "127.0.0.1 localhost\n10.133.0.1 a\n"));
//
// The calling process has a mount namespace of its own. In it /etc/hosts has these names, whether or not the machine
// has such a file, and no name is asked of a server, which might be slow to answer or not answer at all.
#pragma once

#include <string>

#include "base/result.h"

namespace nlsplit::inline emulation {

// `folder` is on a private file system; what is made there stays in use.
Status mount_private_etc(const std::string& folder, const std::string& hosts);

// The text of an nsswitch.conf with hosts looked up in /etc/hosts only. Other lines stay.
std::string only_hosts_file(const std::string& nsswitch);

}  // namespace nlsplit::inline emulation
