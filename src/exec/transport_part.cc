#include "exec/transport_part.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nlsplit::inline exec {

TransportPart::TransportPart(Transport& whole, std::vector<int> members) : whole_(whole), members_(std::move(members)) {
  const auto own = std::ranges::find(members_, whole_.rank());
  CHECK(own != members_.end(), "a part of a transport without the rank that asks for it");
  rank_ = static_cast<int>(own - members_.begin());
}

std::vector<int> TransportPart::same_machine() const {
  const std::vector<int> all = whole_.same_machine();
  std::vector<int> here;
  for (size_t r = 0; r < members_.size(); ++r) {
    if (std::ranges::binary_search(all, members_[r])) here.push_back(static_cast<int>(r));
  }
  return here;
}

Transport::Request TransportPart::isend(int peer, int tag, std::span<const std::byte> data) {
  return whole_.isend(members_[static_cast<size_t>(peer)], tag, data);
}

Transport::Request TransportPart::irecv(int peer, int tag, std::span<std::byte> room) {
  return whole_.irecv(members_[static_cast<size_t>(peer)], tag, room);
}

std::vector<int> TransportPart::in_whole(std::vector<int> group) const {
  for (int& rank : group) rank = members_[static_cast<size_t>(rank)];
  return group;
}

Status TransportPart::accepts(const Collective& collective, DType dtype) const {
  return whole_.collectives()->accepts(collective, dtype);
}

void TransportPart::join(std::span<const std::vector<int>> groups) {
  std::vector<std::vector<int>> all;
  for (const std::vector<int>& group : groups) all.push_back(in_whole(group));
  std::ranges::sort(all);
  whole_.collectives()->join(all);
}

Transport::Request TransportPart::begin(const Collective& collective, DType dtype, std::span<std::byte> value,
                                        std::span<std::byte> result) {
  Collective renumbered = collective;
  renumbered.group = in_whole(collective.group);
  return whole_.collectives()->begin(renumbered, dtype, value, result);
}

}  // namespace nlsplit::inline exec
