// One device's buffers while its part of a Program is made: each is made when first asked for.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/lower_device.h"

namespace nlsplit {

// Where a value lies.
struct Stored {
  BufferId buffer;
  ValueId as;  // the root, or the view of it whose type the buffer has
};

class DeviceBuffers {
 public:
  // What crosses the borders of device d, or stays on it from one slot to another, stands in its order.
  DeviceBuffers(const LowerInput& input, const std::vector<OrderedSlot>& order, int d, DeviceProgram& out);
  DeviceBuffers(const DeviceBuffers&) = delete;
  DeviceBuffers& operator=(const DeviceBuffers&) = delete;

  // Those of the Program's inputs, at the source, and of its outputs, at the sink.
  void add_inputs();
  void add_outputs();
  // Outputs that have to be copied, and to where.
  const std::vector<std::pair<ValueId, BufferId>>& copied_outputs() const { return copies_; }

  // Each root of a computed value or input has up to two places that all slots share, one in each layout: the one it is
  // made in, and the one its messages have. A reader that wants it otherwise gets a copy of its own stage.
  Stored& place_of(ValueId root, int block) { return (block == 0 ? row_major_ : blocked_)[root.index()]; }
  // `as` says under which type if it is row-major.
  Stored storage(ValueId root, int block, ValueId as);
  BufferId message(const Flow& flow);
  const Stored& copy_of_stage(int stage, ValueId root, int block);
  // A value as itself, given where its root is stored.
  BufferId seen_as(const Stored& stored, ValueId value);
  BufferId weight(ValueId value, const std::string& kernel, size_t input, Bytes packed);

  BufferId workspace(Bytes needed);
  void finish_workspace();
  BufferId credit_in() { return known(credit_in_, "credit_in", BufferKind::comm); }
  BufferId credit_out() { return known(credit_out_, "credit_out", BufferKind::comm); }
  BufferId token() { return known(token_, "token", BufferKind::state); }

 private:
  bool runs_here(int stage) const;
  int uses_of(const Flow& flow) const;
  std::string free_name(ValueId value);
  std::string own_name(ValueId value);
  std::string unique_name(const std::string& wanted) const;
  std::string layout_name(ValueId root, int block);
  BufferId add_buffer(Buffer buffer);
  BufferId add_stored(const std::string& name, const TensorType& type, BufferKind kind, int banks);
  ValueId received_as(const Flow& flow) const;
  BufferId known(BufferId& buffer, std::string_view name, BufferKind kind);

  const LowerInput& in_;
  const Graph& g_;
  const Placement& placement_;
  const std::vector<Flow>& flows_;
  int d_;
  DeviceProgram& out_;
  std::vector<bool> transferred_;  // [flow]: some message of it begins or ends here
  std::vector<int> stages_here_;
  std::vector<Stored> row_major_, blocked_;                          // [root value]
  std::map<std::tuple<int, ValueId, int>, Stored> copies_of_stage_;  // by stage, root and layout
  std::map<std::pair<BufferId, ValueId>, BufferId> views_;
  std::vector<bool> named_;                              // [value]: a buffer has its name
  std::unordered_multimap<uint64_t, BufferId> weights_;  // by content
  std::vector<std::pair<ValueId, BufferId>> copies_;
  BufferId workspace_;
  BufferId credit_in_, credit_out_, token_;
};

}  // namespace nlsplit
