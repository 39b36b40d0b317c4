#include "emulate/netlink.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_link.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

namespace nlsplit::inline emulation {
namespace {

// One request: a header, a struct of its type, and attributes, each padded to four bytes.
class Request {
 public:
  template <class Body>
  Request(uint16_t type, uint16_t flags, const Body& body) : data_(NLMSG_HDRLEN) {
    append(&body, sizeof(body));
    head().nlmsg_type = type;
    head().nlmsg_flags = static_cast<uint16_t>(NLM_F_REQUEST | NLM_F_ACK | flags);
  }

  void add(uint16_t type, const void* value, size_t size) {
    const size_t at = open(type);
    append(value, size);
    close(at);
  }
  void add(uint16_t type, uint32_t value) { add(type, &value, sizeof(value)); }
  void add(uint16_t type, const std::string& value) { add(type, value.c_str(), value.size() + 1); }
  size_t open(uint16_t type) {
    const size_t at = data_.size();
    const rtattr attribute{0, type};
    append(&attribute, sizeof(attribute));
    return at;
  }
  void close(size_t at) {
    const auto size = static_cast<uint16_t>(data_.size() - at);
    std::memcpy(data_.data() + at, &size, sizeof(size));
    data_.resize((data_.size() + 3) / 4 * 4);
  }
  void append(const void* value, size_t size) {
    const auto* bytes = static_cast<const char*>(value);
    data_.insert(data_.end(), bytes, bytes + size);
  }

  Status send(const std::string& what) {
    const int socket = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (socket < 0) return io_error(fmt::format("{}: netlink: {}", what, std::strerror(errno)));
    head().nlmsg_len = static_cast<uint32_t>(data_.size());
    std::array<char, 4096> answer{};
    ssize_t size = ::send(socket, data_.data(), data_.size(), 0);
    if (size >= 0) size = ::recv(socket, answer.data(), answer.size(), 0);
    const int failure = errno;
    ::close(socket);
    if (size < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof(int)))
      return io_error(fmt::format("{}: netlink: {}", what, std::strerror(failure)));
    int code = 0;  // of the acknowledgement, right behind its header: 0 or -errno
    std::memcpy(&code, answer.data() + NLMSG_HDRLEN, sizeof(code));
    if (code != 0) return io_error(fmt::format("{}: {}", what, std::strerror(-code)));
    return ok_status();
  }

 private:
  nlmsghdr& head() { return *reinterpret_cast<nlmsghdr*>(data_.data()); }
  std::vector<char> data_;
};

ifinfomsg link_message(const std::string& name, bool up, bool arp) {
  ifinfomsg message{};
  message.ifi_index = static_cast<int>(::if_nametoindex(name.c_str()));
  if (up) message.ifi_flags = message.ifi_change = IFF_UP;
  if (!arp) {
    message.ifi_flags |= IFF_NOARP;
    message.ifi_change |= IFF_NOARP;
  }
  return message;
}

Status add_address(const std::string& name, const InterfaceOptions& options) {
  ifaddrmsg message{};
  message.ifa_family = AF_INET;
  message.ifa_prefixlen = static_cast<uint8_t>(options.prefix);
  message.ifa_index = ::if_nametoindex(name.c_str());
  Request request(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, message);
  const uint32_t address = htonl(options.address);
  request.add(IFA_LOCAL, address);
  request.add(IFA_ADDRESS, address);
  request.add(IFA_FLAGS, uint32_t{IFA_F_NOPREFIXROUTE});  // the route is ours to make, with TCP's settings in it
  return request.send(fmt::format("address of {}", name));
}

Request route_over(const std::string& name, uint32_t address, int prefix) {
  rtmsg message{};
  message.rtm_family = AF_INET;
  message.rtm_dst_len = static_cast<uint8_t>(prefix);
  message.rtm_table = RT_TABLE_MAIN;
  message.rtm_protocol = RTPROT_STATIC;
  message.rtm_scope = RT_SCOPE_LINK;
  message.rtm_type = RTN_UNICAST;
  Request request(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, message);
  request.add(RTA_DST, htonl(address & (~uint32_t{0} << (32 - prefix))));
  request.add(RTA_OIF, ::if_nametoindex(name.c_str()));
  return request;
}

Status add_route(const std::string& name, const InterfaceOptions& options) {
  Request request = route_over(name, options.address, options.prefix);
  request.add(RTA_PREFSRC, htonl(options.address));
  if (options.initial_window == 0) return request.send(fmt::format("route over {}", name));
  const size_t metrics = request.open(RTA_METRICS);
  request.add(RTAX_INITCWND, static_cast<uint32_t>(options.initial_window));
  request.add(RTAX_INITRWND, static_cast<uint32_t>(options.initial_window));
  request.add(RTAX_CC_ALGO, options.congestion);
  request.close(metrics);
  return request.send(fmt::format("route over {}", name));
}

}  // namespace

Status raise_loopback() { return Request(RTM_NEWLINK, 0, link_message("lo", true, true)).send("loopback interface"); }

Status raise_interface(const std::string& name, const InterfaceOptions& options) {
  Request request(RTM_NEWLINK, 0, link_message(name, true, options.needs_neighbours));
  request.add(IFLA_MTU, static_cast<uint32_t>(options.mtu));
  if (options.queue > 0) request.add(IFLA_TXQLEN, static_cast<uint32_t>(options.queue));
  if (options.largest_burst > 0) request.add(IFLA_GSO_MAX_SIZE, static_cast<uint32_t>(options.largest_burst));
  RETURN_IF_ERROR(request.send(fmt::format("interface {}", name)));
  if (options.address == 0) return ok_status();
  RETURN_IF_ERROR(add_address(name, options));
  return add_route(name, options);
}

Status add_veth(const std::string& name, const std::string& peer, int peer_namespace) {
  Request request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
  // Both ends have one hardware address: a sender that asks nobody for addresses writes its own, and the other end
  // takes that for its own.
  static constexpr std::array<uint8_t, 6> hardware = {0x02, 0, 0, 0, 0, 1};
  request.add(IFLA_IFNAME, name);
  request.add(IFLA_ADDRESS, hardware.data(), hardware.size());
  const size_t info = request.open(IFLA_LINKINFO);
  request.add(IFLA_INFO_KIND, "veth", 4);
  const size_t data = request.open(IFLA_INFO_DATA);
  const size_t other = request.open(VETH_INFO_PEER);
  const ifinfomsg nothing{};
  request.append(&nothing, sizeof(nothing));
  request.add(IFLA_IFNAME, peer);
  request.add(IFLA_ADDRESS, hardware.data(), hardware.size());
  request.add(IFLA_NET_NS_FD, static_cast<uint32_t>(peer_namespace));
  request.close(other);
  request.close(data);
  request.close(info);
  return request.send("veth pair");
}

Status add_route_to(uint32_t address, const std::string& name) {
  return route_over(name, address, 32).send(fmt::format("route over {}", name));
}

// tc-tbf(8); net/sched/sch_tbf.c of Linux
Status add_token_bucket(const std::string& name, const TokenBucket& bucket) {
  tcmsg message{};
  message.tcm_family = AF_UNSPEC;
  message.tcm_ifindex = static_cast<int>(::if_nametoindex(name.c_str()));
  message.tcm_parent = TC_H_ROOT;
  Request request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, message);
  request.add(TCA_KIND, std::string("tbf"));
  const size_t options = request.open(TCA_OPTIONS);
  tc_tbf_qopt numbers{};
  numbers.rate.rate = static_cast<uint32_t>(std::min<uint64_t>(bucket.rate, std::numeric_limits<uint32_t>::max()));
  numbers.rate.linklayer = TC_LINKLAYER_ETHERNET;  // else the kernel wants a table of times by size
  numbers.limit = bucket.limit;
  request.add(TCA_TBF_PARMS, &numbers, sizeof(numbers));
  request.add(TCA_TBF_BURST, bucket.burst);
  request.add(TCA_TBF_RATE64, &bucket.rate, sizeof(bucket.rate));
  request.close(options);
  return request.send(fmt::format("token bucket of {}", name));
}

}  // namespace nlsplit::inline emulation
