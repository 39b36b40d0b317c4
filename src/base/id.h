// Id<Tag>: a strong index into a vector, so that a node's number is never used as a value's.
//
//   struct NodeTag; using NodeId = Id<NodeTag>;
//   NodeId n(3); graph.nodes[n.index()];      NodeId() is "none".
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

namespace nlsplit::inline base {

template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(size_t index) : raw_(static_cast<uint32_t>(index)) {}

  constexpr size_t index() const { return raw_; }
  constexpr bool valid() const { return raw_ != none_value; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  static constexpr uint32_t none_value = std::numeric_limits<uint32_t>::max();
  uint32_t raw_ = none_value;
};

}  // namespace nlsplit::inline base

template <class Tag>
struct std::hash<nlsplit::Id<Tag>> {
  size_t operator()(nlsplit::Id<Tag> id) const noexcept { return id.index(); }
};
